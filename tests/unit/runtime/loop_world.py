"""A small topology on the carrier local, over stores and an ensemble that fail when told to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from txtopo import BatchBolt, Committer, Config, Fields, TransactionalTopologyBuilder
from txtopo.attempt import TransactionAttempt
from txtopo.builders.transactional import Topology
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.runtime.handle import TopologyRun
from txtopo.runtime.progress import TopologyEvent, TopologyListener
from txtopo.runtime.start import start_topology
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout, Outage
from txtopo.state import State, open_state
from txtopo.transactional_state.memory import MemoryEnsemble
from txtopo.tuples import Tuple

BATCHES = 12
ROWS = 3
LIMIT_S = 120.0
"""Generous: everything here takes milliseconds, but on a busy machine some of them are seconds."""


class Total(BatchBolt, Committer):
    """Adds the batch to one total, and notes the txids that it has seen."""

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.state, self.attempt, self.sum = context.state("totals"), attempt, 0

    def execute(self, tuple: Tuple) -> None:
        self.sum += tuple["amount"]

    def finish_batch(self) -> None:
        with self.state.transaction(self.attempt) as state:
            state.update("total", lambda total: (total or 0) + self.sum)


class Changes(TopologyListener):
    """Keeps every change, and calls a hook on each."""

    def __init__(self, hook: Callable[[TopologyEvent], None] = lambda change: None) -> None:
        self.seen: list[TopologyEvent] = []
        self._hook = hook

    def on_change(self, change: TopologyEvent) -> None:
        self.seen.append(change)
        self._hook(change)

    def of(self, kind: type) -> list[Any]:
        return [change for change in self.seen if isinstance(change, kind)]


def topology_of(
    state: State, bolt: BatchBolt | None = None, outages: tuple[Outage, ...] = ()
) -> Topology:
    rows = [[amount] for amount in range(BATCHES * ROWS)]
    spout: MemoryTransactionalSpout | OpaqueMemoryTransactionalSpout
    spout = MemoryTransactionalSpout({0: rows}, Fields("amount long"), ROWS)
    if outages:
        spout = OpaqueMemoryTransactionalSpout({0: rows}, Fields("amount long"), ROWS, outages)
    builder = TransactionalTopologyBuilder("totals", "spout", spout)
    declarer = builder.set_bolt("total", bolt or Total())
    declarer.global_grouping("spout").with_state("totals", state)
    return builder.build_topology()


def expected(txids: int = BATCHES) -> int:
    return sum(range(txids * ROWS))


def stored(state: State) -> tuple[int, int]:
    """Return (txid, total) of one snapshot."""
    with state.named("totals").reader() as reader:
        assert reader.ledger is not None
        return reader.ledger.txid, reader.get("total", 0)


@contextmanager
def running(
    topology: Topology, ensemble: MemoryEnsemble, *listeners: TopologyListener, **settings: Any
) -> Iterator[TopologyRun]:
    """Run a topology with a client of *ensemble*."""
    places = {"carrier": "local", "zookeeper": "memory"}
    pauses = {"backoff_s": 0.01, "backoff_max_s": 0.05, "poll_interval_s": 0.005}
    config = Config(**(places | pauses | settings))
    run = start_topology(topology, None, config, listeners, ensemble=ensemble)
    try:
        yield run
    finally:
        run.stop(LIMIT_S)


def memory_state() -> State:
    return open_state("memory:")
