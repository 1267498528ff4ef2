"""A committer with a database of its own, as Storm's page writes it, under every fault at once.

Processes are killed, frozen and deposed while it writes; one that wakes up believes that it leads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from tests.harness.chance import most
from txtopo import BatchBolt, Committer, Config, Fields, Topology, TransactionalTopologyBuilder
from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from txtopo.state import open_state
from txtopo.testing import simulate
from txtopo.tuples import Tuple

pytestmark = pytest.mark.integration
RECORDS = [[f"key-{at % 5}"] for at in range(48)]
SEEDS = most(30, otherwise=8)
FIRST = {(False, 1): 100, (True, 1): 140, (False, 2): 200, (True, 2): 200}
"""Among the seeds from here on are some that group commit, and a leader that asks nobody, fail."""


class Own:
    """The database of the user's: (count, txid, the count before) by key; and commit work."""

    rows: ClassVar[dict[str, tuple[int, int, int]]] = {}
    work: ClassVar[list[int]] = []

    @classmethod
    def empty(cls) -> None:
        cls.rows, cls.work = {}, []

    @classmethod
    def counts(cls) -> dict[str, int]:
        return {key: count for key, (count, _, _) in cls.rows.items()}

    @classmethod
    def went_back(cls) -> dict[str, int]:
        """Return the txids whose commit work began after that of a later one."""
        back = [txid for at, txid in enumerate(cls.work) if txid < max(cls.work[:at], default=0)]
        return {str(txid): times for txid, times in Counter(back).items()}


class Counts(BatchBolt, Committer):
    """Counts keys, and skips or bases the count on the stored txid, as the page does."""

    output_fields = Fields("key string, count long")

    def __init__(self, *, opaque: bool) -> None:
        self.opaque = opaque

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.collector, self.attempt = collector, attempt
        self.counts = Counter[str]()

    def execute(self, tuple: Tuple) -> None:
        Own.work.append(self.attempt.txid)
        self.counts[tuple["key"]] += 1

    def finish_batch(self) -> None:
        for key, more in self.counts.items():
            count, txid, before = Own.rows.get(key, (0, 0, 0))
            if txid != self.attempt.txid:
                before = count
                count += more
            elif self.opaque:
                count = before + more
            Own.rows[key] = (count, self.attempt.txid, before)
            self.collector.emit([key, count])


class Keeps(BatchBolt, Committer):
    """Has a state besides; that makes the topology adopt and undo what a leader has left."""

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.state, self.attempt = context.state("kept"), attempt
        self.counts: dict[str, int] = {}

    def execute(self, tuple: Tuple) -> None:
        self.counts[tuple["key"]] = tuple["count"]

    def finish_batch(self) -> None:
        with self.state.transaction(self.attempt) as state:
            for key, count in self.counts.items():
                state.put(key, count)


def topology(*, opaque: bool, tasks: int) -> Topology:
    kind = OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout
    builder = TransactionalTopologyBuilder(
        "own", "spout", kind({0: RECORDS}, Fields("key string"), 2)
    )
    counts = builder.set_bolt("counts", Counts(opaque=opaque), tasks)
    counts.fields_grouping("spout", "key")
    kept = builder.set_bolt("kept", Keeps()).global_grouping("counts")
    kept.with_state("kept", open_state("memory:"))
    return builder.build_topology()


def count(records: Sequence[Any]) -> dict[str, int]:
    return dict(Counter(key for key, *_ in records))


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("opaque", [False, True])
def test_a_database_of_its_own_counts_each_record_once(opaque: bool, tasks: int) -> None:
    simulate(
        topology(opaque=opaque, tasks=tasks),
        {"kept": count, "own": count, "went back": lambda records: {}},
        seeds=SEEDS,
        first=FIRST[opaque, tasks],
        records=RECORDS,
        outside={"own": Own.counts, "went back": Own.went_back},
        before_each=Own.empty,
    )
