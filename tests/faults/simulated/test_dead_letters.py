"""Dead letters and results are one prefix of the batches, wherever a process dies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tests.faults.simulated.crash_run import CONFIG
from tests.faults.simulated.one_core import handoff_on_one_core
from txtopo.dead_letters import STREAM
from txtopo.state import open_state
from txtopo.testing.checkers import Evidence
from txtopo.testing.checkers.evidence import Source, visible
from txtopo.testing.simulation.campaign import Simulator, quiet, verdict
from txtopo.testing.simulation.clock import ThreadHandoff
from txtopo.testing.simulation.faults import Faults
from txtopo.testing.simulation.scenario import Scenario
from txtopo.testing.simulation.source import SimulatedSource, record
from txtopo.testing.simulation.topologies import Shape, build, is_bad
from txtopo.testing.simulation.world import World

pytestmark = pytest.mark.integration
PARTITIONS, RECORDS = 2, 10
OPAQUE = Shape("opaque", "opaque", ("balances", "logs"), True, 1, dead_letters=True)
TRANSACTIONAL = Shape("transactional", "transactional", ("aggregates",), True, 1, dead_letters=True)


@pytest.fixture(scope="module")
def handoff() -> Iterator[ThreadHandoff]:
    with handoff_on_one_core() as handoff:
        yield handoff


def run(
    shape: Shape, handoff: ThreadHandoff, crash_at: Sequence[tuple[str, int]] = ()
) -> tuple[World, Evidence]:
    """Run a topology whose process dies where it is told; an opaque spout cuts again."""
    world = World(7, Faults(recut=0.5), CONFIG, 1, handoff)
    world.source = SimulatedSource(world, PARTITIONS, RECORDS, 3)
    world.source.complete()
    world.chaos.crash_at = list(crash_at)
    topology, oracles = build(shape, world.number, open_state("memory:", kind=shape.kind))
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


@pytest.mark.parametrize(
    "passing", [2, *(pytest.param(at, marks=pytest.mark.slow) for at in (1, 3))]
)
@pytest.mark.parametrize("shape", [OPAQUE, TRANSACTIONAL], ids=["opaque", "transactional"])
def test_a_crash_at_any_durable_step_loses_and_doubles_no_dead_letter(
    shape: Shape, passing: int, handoff: ThreadHandoff
) -> None:
    world, evidence = run(shape, handoff)
    assert verdict(0, world, evidence).violations == ()
    points = [name for name in world.chaos._passed if name.split(":")[0].endswith(STEPS)]
    assert f"write.after:{STREAM}.{STREAM}" in points

    for point in points:
        world, evidence = run(shape, handoff, [(point, passing)])
        assert verdict(0, world, evidence).violations == (), point
        assert len(visible(evidence.history.stores[STREAM])) == BAD, point


STEPS = (".before", ".after", ".before-epoch", ".after-epoch", ".claimed", ".adopted")
BAD = sum(is_bad(record(p, at)) for p in range(PARTITIONS) for at in range(RECORDS))


@pytest.mark.parametrize("spout", ["transactional", "partitioned", "opaque"])
def test_random_faults_lose_and_double_no_dead_letter(spout: str) -> None:
    simulator = Simulator()
    for seed in range(5):
        changes = {"shape.dead_letters": "True", "shape.spout": spout, "shape.kind": "opaque"}
        scenario = Scenario.drawn(seed).changed(changes)
        assert simulator.run(scenario).violations == (), scenario.command()
    simulator.close()
