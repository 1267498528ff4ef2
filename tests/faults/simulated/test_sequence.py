"""A backfill and what follows it are read exactly once, whatever happens around the switch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from tests.faults.simulated.crash_run import CONFIG
from tests.faults.simulated.one_core import handoff_on_one_core
from txtopo.ensemble.memory import Nodes
from txtopo.metadata import Json
from txtopo.state import open_state
from txtopo.testing.checkers import Evidence, Switched
from txtopo.testing.checkers.evidence import Source, current_of, stored_plan
from txtopo.testing.simulation.campaign import Simulator, quiet, verdict
from txtopo.testing.simulation.clock import ThreadHandoff
from txtopo.testing.simulation.faults import Faults
from txtopo.testing.simulation.history import History, NodesWrite
from txtopo.testing.simulation.scenario import Scenario
from txtopo.testing.simulation.source import SimulatedSource
from txtopo.testing.simulation.topologies import SPOUTS, Shape, build
from txtopo.testing.simulation.world import World

pytestmark = pytest.mark.integration
PARTITIONS, RECORDS = 2, 8
PAIRS = [(first, then) for first in SPOUTS for then in SPOUTS]
QUICK = ("transactional", "opaque")
STEPS = (".before", ".after", ".before-epoch", ".after-epoch", ".claimed", ".adopted")


@pytest.fixture(scope="module")
def handoff() -> Iterator[ThreadHandoff]:
    with handoff_on_one_core() as handoff:
        yield handoff


def run(
    first: str, then: str, handoff: ThreadHandoff, crash_at: Sequence[tuple[str, int]] = ()
) -> tuple[World, Evidence]:
    """Run a topology whose process dies where it is told; an opaque spout cuts again."""
    shape = Shape(then, "opaque", ("balances", "logs"), False, 1, sequence=first)
    world = World(7, Faults(recut=0.5), CONFIG, 1, handoff)
    world.source = SimulatedSource(world, PARTITIONS, RECORDS, 2)
    world.source.complete()
    world.chaos.crash_at = list(crash_at)
    topology, oracles = build(shape, world.number, open_state("memory:", kind="opaque"))
    world.take(topology)
    with quiet():
        history = world.run(60.0)
    return world, Evidence(
        topology_id=topology.id,
        history=history,
        oracles=oracles,
        source=Source(PARTITIONS, RECORDS),
        leftovers=world.leftovers.found,
        expected=(),
    )


def switch_of(evidence: Evidence) -> int:
    """Return the txid of the switch, from the plan of the last txid."""
    nodes, id = evidence.history.nodes, evidence.topology_id
    plan = stored_plan(id, nodes, current_of(id, nodes) - 1, "spout")
    assert plan["part"] == "then", "all is read"
    return int(plan["after"])


def passings(evidence: Evidence, world: World, *, whole: bool) -> dict[str, list[int]]:
    """Return the how manieth passings of each point are around the switch.

    The spout is asked several times for a txid. Not whole, only the switch itself: a death after
    its plan and one before it is stored are the same.
    """
    switch, passed = switch_of(evidence), world.chaos._passed
    names = [name for name in passed if name.split(":")[0].endswith(STEPS)]
    if not whole:
        return {name: [switch] for name in names if not name.startswith(("plan.", "claim."))}
    around = {name: [switch - 1, switch, switch + 1] for name in names}
    asked = {name: [*range(1, passed[name] + 1)] for name in names if name.startswith("plan.")}
    return {**around, **asked, **{name: [1] for name in names if name.startswith("claim.")}}


@pytest.mark.parametrize(
    ("first", "then", "whole"),
    [(*QUICK, False), *(pytest.param(*pair, True, marks=pytest.mark.slow) for pair in PAIRS)],
)
@pytest.mark.rule("txtopo.spouts.sequence", "Rules", 1)
@pytest.mark.rule("txtopo.spouts.sequence", "Rules", 2)
def test_a_crash_at_any_durable_step_around_the_switch_changes_nothing(
    first: str, then: str, *, whole: bool, handoff: ThreadHandoff
) -> None:
    world, evidence = run(first, then, handoff)
    assert verdict(0, world, evidence).violations == ()
    every = passings(evidence, world, whole=whole)
    assert {"store-metadata.after", "advance.before", "cleanup.after"} <= every.keys()

    for point, times in every.items():
        for at in times:
            world, evidence = run(first, then, handoff, [(point, at)])
            assert verdict(0, world, evidence).violations == (), (point, at)
            assert switch_of(evidence), (point, at)


@pytest.mark.parametrize(("first", "then"), PAIRS)
def test_random_faults_change_nothing(first: str, then: str) -> None:
    simulator = Simulator()
    for seed in range(2):
        changes = {"shape.sequence": first, "shape.spout": then, "shape.kind": "opaque"}
        scenario = Scenario.drawn(seed).changed(changes)
        world, evidence = simulator.evidence(scenario)
        assert verdict(seed, world, evidence).violations == (), scenario.command()
        assert switch_of(evidence), scenario.command()
    simulator.close()


def nodes(current: int, plans: Mapping[int, Json]) -> Nodes:
    """Return nodes of ZooKeeper with this current txid, and these plans of the spout."""
    values: dict[str, Any] = {"current": {"current": current}}
    for txid, planned in plans.items():
        metadata = {"spouts": {"spout": {"planned": planned}}}
        values[f"batches/{txid:020d}"] = {"attempt": [1, 0, ""], "metadata": metadata}
    found = {path: json.dumps({"value": value}).encode() for path, value in values.items()}
    return {f"/words/{path}": (data, 0) for path, data in found.items()}


def plan(place: int, batch: int | None = None) -> Json:
    more: dict[str, Json] = {} if batch is None else {"batch": batch}
    return {"part": "then", "after": 3, "begins": place, **more}


@pytest.mark.parametrize(
    ("versions", "found"),
    [
        ([(3, {}), (3, {3: plan(0)}), (3, {3: plan(0), 4: plan(0, 1)})], []),
        ([(2, {}), (2, {3: plan(0)})], ["2 was not committed"]),
        ([(3, {}), (3, {3: plan(0)}), (3, {3: plan(7)})], ["in txid 3 begins at 7; before it was"]),
        (
            [(3, {}), (3, {3: plan(0)}), (4, {4: plan(7, 1)})],
            ["in txid 4 begins at 7; its switch at one of [0]"],
        ),
        # After a rewind it is asked again.
        ([(3, {}), (3, {3: plan(0)}), (2, {}), (3, {}), (3, {3: plan(7)})], []),
    ],
)
def test_the_checker_sees_a_switch_too_early_and_a_place_that_changes(
    versions: Sequence[tuple[int, Mapping[int, Json]]], found: Sequence[str]
) -> None:
    written = [nodes(*version) for version in versions]
    history = History(writes=[NodesWrite(0.0, "A", *pair, stores={}) for pair in pairwise(written)])
    evidence = Evidence("words", history, {}, None, (), ())

    violations = [each.what for each in Switched().check(evidence)]

    assert len(violations) == len(found)
    assert all(part in text for part, text in zip(found, violations, strict=True))
