"""A topology with two states whose run meets poison, and verbs that die where they are told to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from tests.harness.dying import Died, RaisingScheduler, dies_at, raise_died
from tests.harness.polling import LIMIT_S
from tests.harness.runs import started
from tests.harness.servers.zookeeper import LONG_SESSION_S
from tests.unit.runtime.loop_world import Total
from txtopo import (
    Config,
    FailedException,
    Fields,
    Topology,
    TransactionalTopologyBuilder,
    ZooKeeper,
)
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import TxtopoError
from txtopo.operations import Access, Plan
from txtopo.runtime.handle import TopologyRun
from txtopo.runtime.start import start_topology
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from txtopo.state import Ledger, State
from txtopo.tuples import Tuple

BATCHES, ROWS = 5, 2
POISON = 5
"""The row that no committer takes; it is in txid 3, with 4."""
ALL = sum(range(BATCHES * ROWS))


class Poisoned(Total):
    """Takes no row of the poison."""

    def __init__(self, poison: int | None) -> None:
        self.poison = poison

    def execute(self, tuple: Tuple) -> None:
        if tuple["amount"] == self.poison:
            raise FailedException("poison")
        super().execute(tuple)


@dataclass
class Deployment:
    """A topology with its ensemble and its two stores.

    Attributes:
        states: Two of them.
        ensemble: The ZooKeeper in memory, unless *hosts* names a real one.
        hosts: A real one.
        opaque: Which spout.
        id: Id of the topology.
        group: How many txids are processed in a run, and then committed in one write.
        tasks: How many tasks each committer has.
        history: How many txids before the last group keep their metadata.
    """

    states: tuple[State, State]
    ensemble: MemoryEnsemble = field(default_factory=MemoryEnsemble)
    hosts: str = "memory"
    opaque: bool = False
    id: str = "sums"
    group: int = 1
    tasks: int = 1
    history: int = 1_000

    @property
    def config(self) -> Config:
        return Config(
            carrier="local",
            zookeeper=ZooKeeper(
                self.hosts, session_timeout_s=LONG_SESSION_S, connect_timeout_s=LONG_SESSION_S
            ),
            attempts_max=2,
            group_txids_max=self.group,
            history_txids=self.history,
            max_spout_pending=3 * self.group,
            backoff_s=0.01,
            poll_interval_s=0.005 if self.group == 1 else 1.5,
        )

    def access(self, point: Callable[[str], None] = lambda name: None) -> Access:
        return Access(ensemble=self.ensemble, point=point)

    def topology(self, poison: int | None = None, batches: int = BATCHES) -> Topology:
        rows = [[amount] for amount in range(batches * ROWS)]
        kind = OpaqueMemoryTransactionalSpout if self.opaque else MemoryTransactionalSpout
        spout = kind({0: rows}, Fields("amount long"), ROWS)
        builder = TransactionalTopologyBuilder(self.id, "spout", spout)
        for name, state in zip(("a", "b"), self.states, strict=True):
            declarer = builder.set_bolt(name, Poisoned(poison), self.tasks).global_grouping("spout")
            declarer.with_state("totals", state.named(f"totals_{name}"))
        return builder.build_topology()

    @contextmanager
    def running(self, topology: Topology) -> Iterator[TopologyRun]:
        with started(topology, self.config, self.ensemble) as run:
            yield run

    def run(self, poison: int | None = None, batches: int = BATCHES) -> None:
        """Run to the end, or to the error that the run ends with."""
        with self.running(self.topology(poison, batches)) as run:
            run.process_all_available(LIMIT_S)

    def die(self, step: str, times: int = 1) -> None:
        """Run until the driver dies at a durable step, reached for the n-th time."""
        scheduler = RaisingScheduler(step, times)
        topology, config = self.topology(), self.config
        if self.group > 1:  # it dies before it would have to ask the spout again
            config = replace(config, poll_interval_s=LIMIT_S)
        run = start_topology(
            topology.graph, None, config, scheduler=scheduler, ensemble=self.ensemble
        )
        with pytest.raises(TxtopoError, match="Died"):
            run.await_termination(LIMIT_S)

    def ledgers(self) -> tuple[Ledger, Ledger]:
        """Return the ledgers of both states."""
        with self.states[0].named("totals_a").reader() as a:
            first = a.ledger
        with self.states[1].named("totals_b").reader() as b:
            second = b.ledger
        assert first is not None
        assert second is not None
        return first, second

    def held(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return (txid, total) of both states."""
        first, second = (self._held(at) for at in range(2))
        return first, second

    def _held(self, at: int) -> tuple[int, int]:
        with self.states[at].named(f"totals_{'ab'[at]}").reader() as reader:
            assert reader.ledger is not None
            return reader.ledger.txid, reader.get("total", 0)


def both(txid: int, total: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (txid, total), (txid, total)


def die_on(step: str) -> Callable[[str], None]:
    """Return a point that dies at one step of a verb."""
    return dies_at(f"operator.{step}", die=raise_died)


def apply_with_deaths(make: Callable[[Access], Plan], deployment: Deployment) -> int:
    """Apply a plan, killed at the first point, then again at the second, and so on to the end.

    Each try begins where the one before died, so it is also killed after each prefix.
    """
    for deaths in range(100):
        plan = make(deployment.access(dies_at("", deaths + 1, raise_died)))
        try:
            plan.apply()
        except Died:
            continue
        make(deployment.access()).apply()  # once more does no harm
        return deaths
    raise AssertionError("a verb never came to its end")
