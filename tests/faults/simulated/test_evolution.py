"""A program that changes at a random moment of a random run, between the deaths of its processes.

Processes that start later have another committer, or one less. Those of the old program continue,
are frozen and wake up as zombies, and stand by. Only some of the new ones may change the topology.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from tests.faults.simulated.one_core import handoff_on_one_core
from txtopo.builders.transactional import Topology
from txtopo.errors import (
    FencedError,
    InfrastructureError,
    PoisonBatchError,
    TopologyChanged,
    TopologyKilled,
)
from txtopo.runtime.driver import TopologyDriver
from txtopo.state import open_state
from txtopo.testing.checkers import Evidence, ExactCount, Liveness, Prefix, Undo, Zombies
from txtopo.testing.checkers.evidence import Source, node_of, visible
from txtopo.testing.simulation.campaign import quiet
from txtopo.testing.simulation.clock import ThreadHandoff
from txtopo.testing.simulation.scenario import Scenario
from txtopo.testing.simulation.source import SimulatedSource
from txtopo.testing.simulation.topologies import ORACLES, BoltBroken, Rows, build
from txtopo.testing.simulation.world import SimulatedProcess, World
from txtopo.topology.graph import fingerprint

pytestmark = pytest.mark.integration
QUICK_SEEDS = 8
SEEDS = [
    pytest.param(seed, marks=() if seed < QUICK_SEEDS else pytest.mark.slow) for seed in range(60)
]
CHANGE_SALT = 0xC4A9
FROZEN_S = 20.0
"""Longer than a session, so that another process leads meanwhile."""
EXPECTED = (
    *(FencedError, PoisonBatchError, InfrastructureError, BoltBroken),
    *(TopologyKilled, TopologyChanged),
)


@pytest.fixture(scope="module")
def handoff() -> Iterator[ThreadHandoff]:
    with handoff_on_one_core() as handoff:
        yield handoff


class EvolvingWorld(World):
    """A world whose processes run another program from a moment on.

    Args:
        scenario: What happens besides.
        coordinators: How many processes run the topology at the same time.
        handoff: The threads of blocking work.
        chance: Decides who may change the topology, and what becomes of the old processes.
    """

    def __init__(
        self, scenario: Scenario, coordinators: int, handoff: ThreadHandoff, chance: random.Random
    ) -> None:
        self.settings = scenario.config()
        # Restored data may know one program, and a start with the other one is rightly refused.
        faults = replace(scenario.faults, restore=0.0)
        super().__init__(scenario.seed, faults, self.settings, coordinators, handoff)
        self.programs: list[Topology] = []
        self._chance = chance

    def begin(self, topologies: Sequence[Topology], at_s: float) -> None:
        """Begin with the first of two programs, and let who starts after *at_s* run the second."""
        for topology in topologies:
            self.take(topology)
            assert self.topology is not None
            self.programs.append(self.topology)
        self.topology = self.programs.pop(0)
        self.timeline.after(at_s, self._change)

    def _change(self) -> None:
        """Change the program. One process dies; the others die or are frozen, and wake up late."""
        self.topology = self.programs[0]
        for at, process in enumerate(self.processes()):
            if at and self._chance.random() < 0.5:
                process.freeze(FROZEN_S)
                self.timeline.after(2 * FROZEN_S, process.kill)
            else:
                process.kill()

    def _until_processed(self, limit_s: float) -> bool:
        new = fingerprint(self.programs[0].graph)

        def changed() -> bool:
            epoch = node_of("simulated", "epoch", self.history.nodes)
            return epoch is not None and epoch["topology"] == new.to_json()

        self.timeline.run(changed, until_s=self.timeline.now_s + limit_s)
        return super()._until_processed(limit_s)

    def open_driver(self, process: SimulatedProcess) -> TopologyDriver:
        """Open a driver of the program of now; every other one may change the topology."""
        allows = self.topology is self.programs[0] and self._chance.random() < 0.5
        self._config = replace(self.settings, allow_change=allows)
        return super().open_driver(process)


def run(
    seed: int, handoff: ThreadHandoff, *, adds: bool
) -> tuple[EvolvingWorld, Scenario, tuple[str, str]]:
    """Run the scenario of a seed, whose program takes or loses a committer on the way.

    Returns:
        The world, the scenario, and two tables: that of both programs, and that of one.
    """
    chance = random.Random(seed ^ CHANGE_SALT)
    kept, other = chance.sample(sorted(ORACLES), 2)
    drawn = Scenario.drawn(seed)
    shape = replace(drawn.shape, dead_letters=False, further_spouts=())
    scenario = replace(drawn, shape=shape, records=32)
    world = EvolvingWorld(scenario, max(2, scenario.coordinators), handoff, chance)
    world.source = SimulatedSource(
        world, scenario.partitions, scenario.records, scenario.batch_rows_max, 0
    )
    state = open_state("memory:", kind=shape.kind)
    few, many = (
        build(replace(shape, committers=committers), world.number, state)[0]
        for committers in ((kept,), (kept, other))
    )
    world.begin((few, many) if adds else (many, few), chance.uniform(0.5, 8.0))
    with quiet():
        world.run(scenario.chaos_s)
    return world, scenario, (kept, other)


def evidence(world: EvolvingWorld, scenario: Scenario, *tables: str) -> Evidence:
    """Return what the checkers judge of some tables."""
    return Evidence(
        topology_id="simulated",
        history=world.history,
        oracles={table: ORACLES[table] for table in tables},
        source=Source(scenario.partitions, scenario.records),
        leftovers=world.leftovers.found,
        expected=EXPECTED,
    )


CHECKERS = (ExactCount(), Prefix(), Undo(), Zombies(), Liveness())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_state_that_is_added_has_every_batch_from_its_first_one_on(
    seed: int, handoff: ThreadHandoff
) -> None:
    world, scenario, (kept, other) = run(seed, handoff, adds=True)

    found = evidence(world, scenario, kept)
    assert [each for checker in CHECKERS for each in checker.check(found)] == []
    held = [write.after for write in found.store_writes() if write.table == other]
    begun = next(each.ledger.txid for each in held if each.ledger is not None)
    batches = found.batches(kept)[begun:]
    rows: Rows = {}
    for batch in batches:
        rows = ORACLES[other](rows, batch)
    assert visible(held[-1]) == rows
    last = world.history.stores[kept].ledger
    assert held[-1].ledger is not None
    assert last is not None
    assert held[-1].ledger.txid == last.txid


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_left_has_every_batch_when_a_state_is_taken_out(
    seed: int, handoff: ThreadHandoff
) -> None:
    world, scenario, (kept, _) = run(seed, handoff, adds=False)

    found = evidence(world, scenario, kept)
    assert [each for checker in CHECKERS for each in checker.check(found)] == []
