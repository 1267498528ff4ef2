"""Simulator: runs scenarios, and has the checkers judge them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from txtopo.errors import FencedError, InfrastructureError, PoisonBatchError
from txtopo.state import open_state
from txtopo.testing.checkers import (
    Evidence,
    ExactCount,
    Liveness,
    OffsetChain,
    Prefix,
    Skew,
    TxidDiscipline,
    Undo,
    Violation,
    Zombies,
)
from txtopo.testing.checkers.evidence import Source
from txtopo.testing.simulation.baton import Baton
from txtopo.testing.simulation.history import History
from txtopo.testing.simulation.scenario import Scenario
from txtopo.testing.simulation.source import SimulatedSource
from txtopo.testing.simulation.topologies import BoltBroken, build
from txtopo.testing.simulation.world import World

CHECKERS = (
    ExactCount(),
    Prefix(),
    TxidDiscipline(),
    OffsetChain(),
    Zombies(),
    Skew(),
    Undo(),
    Liveness(),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one simulation.

    Attributes:
        seed: Its seed.
        violations: Promises that were broken; none if all is well.
        history: What happened.
        txids: How many batches were committed.
        faults: How often each kind of fault happened.
        virtual_s: How much virtual time it took.
        fenced: How many runs were deposed and noticed it.
    """

    seed: int
    violations: tuple[Violation, ...]
    history: History = field(repr=False)
    txids: int
    faults: Mapping[str, int]
    virtual_s: float
    fenced: int


class Simulator:
    """Runs one scenario after the other; keeps the threads between them."""

    def __init__(self) -> None:
        self._baton = Baton()

    def run(self, scenario: Scenario) -> Verdict:
        """Run a scenario and judge it."""
        return verdict(scenario.seed, *self.evidence(scenario))

    def evidence(self, scenario: Scenario) -> tuple[World, Evidence]:
        """Run a scenario, and return what there is to be judged."""
        world = World(
            scenario.seed,
            scenario.faults,
            scenario.config(),
            scenario.coordinators,
            self._baton,
        )
        world.source = SimulatedSource(
            world, scenario.partitions, scenario.records, scenario.batch_records_max
        )
        state = open_state("memory:", kind=scenario.shape.kind)
        topology, oracles = build(scenario.shape, world.number, state)
        world.take(topology)
        with quiet():
            history = world.run(scenario.chaos_s)
        return world, Evidence(
            topology_id=topology.id,
            history=history,
            oracles=oracles,
            source=Source(scenario.partitions, scenario.records),
            leftovers=world.leftovers.found,
            expected=(FencedError, PoisonBatchError, InfrastructureError, BoltBroken),
            repeatable=scenario.shape.spout == "transactional",
        )

    def close(self) -> None:
        """Let the threads end."""
        self._baton.close()


def verdict(seed: int, world: World, evidence: Evidence) -> Verdict:
    """Have all checkers judge a world that has come to its end."""
    history = evidence.history
    violations = tuple(each for checker in CHECKERS for each in checker.check(evidence))
    ledgers = [contents.ledger for contents in history.stores.values()]
    return Verdict(
        seed=seed,
        violations=violations,
        history=history,
        txids=max((ledger.txid for ledger in ledgers if ledger is not None), default=0),
        faults=Counter(world.chaos.counts),
        virtual_s=world.timeline.now_s,
        fenced=sum(isinstance(ended.error, FencedError) for ended in history.endings),
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the warnings of the runtime out: each fault has one, and the trace has them all."""
    logger = logging.getLogger("txtopo")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
