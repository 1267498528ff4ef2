"""Whoever leads or asks dies at each step of a command: what was asked is done once, and lasts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.simulated.one_core import handoff_on_one_core
from tests.unit.testing.scenarios import clean
from txtopo.errors import FencedError, InfrastructureError, TopologyKilled
from txtopo.state import open_state
from txtopo.testing.checkers import Evidence
from txtopo.testing.checkers.evidence import Source, node_of
from txtopo.testing.simulation.campaign import quiet, verdict
from txtopo.testing.simulation.clock import ThreadHandoff
from txtopo.testing.simulation.history import NodesWrite
from txtopo.testing.simulation.source import SimulatedSource
from txtopo.testing.simulation.topologies import build
from txtopo.testing.simulation.world import World

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
POINTS = ("command.before", "command.after", "ask.written", "ask.before-epoch", "ask.after-epoch")
ASKED_AT_S = 2.0


@pytest.fixture(scope="module")
def handoff() -> Iterator[ThreadHandoff]:
    with handoff_on_one_core() as handoff:
        yield handoff


def run(
    handoff: ThreadHandoff, seed: int, coordinators: int, verb: str, crash_at: list[tuple[str, int]]
) -> tuple[list[str], Evidence]:
    """Let an operator ask while the topology runs, and return what is wrong, with the evidence."""
    scenario = clean(seed, coordinators=coordinators, records=80)
    world = World(seed, scenario.faults, scenario.config(), coordinators, handoff)
    world.source = SimulatedSource(world, scenario.partitions, scenario.records, 2)
    state = open_state("memory:", kind=scenario.shape.kind)
    topology, oracles = build(scenario.shape, world.number, state)
    world.take(topology)
    world.chaos.crash_at = crash_at
    world.timeline.after(ASKED_AT_S, lambda: world.operators.begin((verb,)))
    with quiet():
        history = world.run(chaos_s=20.0)
    evidence = Evidence(
        topology_id=topology.id,
        history=history,
        oracles=oracles,
        source=Source(scenario.partitions, scenario.records),
        leftovers=world.leftovers.found,
        expected=(FencedError, InfrastructureError, TopologyKilled),
    )
    return [each.what for each in verdict(seed, world, evidence).violations], evidence


def statuses(evidence: Evidence) -> list[str]:
    """Return the desired statuses, one after the other."""
    found: list[str] = []
    for write in evidence.history.writes:
        if isinstance(write, NodesWrite):
            node = node_of(evidence.topology_id, "desired", write.after)
            if node is not None and [node["status"]] != found[-1:]:
                found.append(node["status"])
    return found


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("coordinators", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("verb", ["kill", "deactivate"])
def test_what_was_asked_is_done_once_and_lasts_whoever_dies(
    handoff: ThreadHandoff, point: str, seed: int, coordinators: int, verb: str
) -> None:
    """The world activates the topology at its end. Nobody else does, no standby either."""
    status = {"kill": "killed", "deactivate": "deactivated"}[verb]
    wrong, evidence = run(handoff, seed, coordinators, verb, [(point, 1)])

    assert wrong == []
    assert statuses(evidence) == [status, "running"]


def test_every_step_of_a_command_is_tried() -> None:
    text = (ROOT / "txtopo/ensemble/commands.py").read_text()

    assert set(re.findall(r'\.point\("([a-z.-]+)"\)', text)) == set(POINTS)


def test_a_leader_dies_at_its_steps(handoff: ThreadHandoff) -> None:
    """The other tests would pass if nobody ever died."""
    for point in POINTS[:2]:
        _, evidence = run(handoff, 1, 2, "kill", [(point, 1)])

        assert "KILLED" in {what for _, _, what, _ in evidence.history.trace}
