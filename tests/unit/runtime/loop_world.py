"""A small topology on the carrier local, over stores and an ensemble that fail when told to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.harness.runs import started
from txtopo import BatchBolt, Committer, Config, Fields, TransactionalTopologyBuilder
from txtopo.attempt import TransactionAttempt
from txtopo.builders.transactional import Topology
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.runtime.handle import TopologyRun
from txtopo.runtime.progress import TopologyListener
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout, Outage
from txtopo.state import State, open_state
from txtopo.tuples import Tuple

BATCHES = 12
ROWS = 3


class Total(BatchBolt, Committer):
    """Adds the batch to one total, and notes the txids that it has seen."""

    writes_nowhere_else = True

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


def topology_of(
    state: State,
    bolt: BatchBolt | None = None,
    outages: tuple[Outage, ...] = (),
    *,
    opaque: bool = False,
) -> Topology:
    rows = [[amount] for amount in range(BATCHES * ROWS)]
    spout: MemoryTransactionalSpout | OpaqueMemoryTransactionalSpout
    spout = MemoryTransactionalSpout({0: rows}, Fields("amount long"), ROWS)
    if outages or opaque:
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
    defaults = {"carrier": "local", "zookeeper": "memory"}
    pauses = {"backoff_s": 0.01, "poll_interval_s": 0.005}
    config = Config(**(defaults | pauses | settings))
    with started(topology, config, ensemble, listeners) as run:
        yield run


def memory_state() -> State:
    return open_state("memory:")
