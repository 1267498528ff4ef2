"""Numbers that arrive in time, counted by key and in total, and what states hold of the first n.

There is one partition, so the batches follow one another through the numbers: a state that has
counted n of them must hold the fold of the numbers 0 to n - 1.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txtopo import (
    BasicBolt,
    Config,
    Count,
    Fields,
    PersistentAggregate,
    Sum,
    TaskContext,
    Topology,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    Tuple,
    open_state,
)
from txtopo.collector import BatchOutputCollector
from txtopo.metadata import Json
from txtopo.plugins.spouts import (
    LastBatch,
    OpaquePartitionedTransactionalEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
    PartitionedTransactionalEmitter,
    PartitionedTransactionalSpout,
)
from txtopo.state import StateKind, StateMode

NUMBERS = Fields("key long, value long")
KEYS = 7
TAKE = 10
"""Most numbers of a batch; an opaque attempt draws how many it takes."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A source that has more and more numbers: as many as a file has bytes.

    Attributes:
        path: The file.
    """

    path: Path

    def there(self) -> int:
        """Return how many have come."""
        return self.path.stat().st_size

    def bring(self, count: int) -> None:
        """Let more come."""
        with self.path.open("ab") as file:
            file.write(bytes(count))


def topology(
    name: str,
    url: str,
    kind: StateKind,
    arrivals: Arrivals,
    tasks: int,
    more: Sequence[str] = (),
    mode: StateMode = "table",
) -> Topology:
    """Return the topology that counts into the tables ``<name>_by_key`` and ``<name>_total``.

    For each of *more*, which are URLs of stores, it counts into ``<name>_total_2`` and so on. The
    state by key has the *mode*.
    """
    spout = Opaque(arrivals) if kind == "opaque" else Repeatable(arrivals)
    sums = {"numbers": Count(), "total": Sum("value")}
    builder = TransactionalTopologyBuilder(name, "numbers", spout)
    builder.set_bolt("pass", Pass(), tasks).shuffle_grouping("numbers")
    totals = [(f"total_{at}", (), each) for at, each in enumerate(more, start=2)]
    for table, key, store in (("by_key", "key", url), ("total", (), url), *totals):
        its_mode = mode if key else "table"
        state = open_state(store, kind, table=f"{name}_{table}", mode=its_mode)
        builder.set_bolt(table, PersistentAggregate(state, key, sums)).shuffle_grouping("pass")
    return builder.build_topology()


def fold(count: int) -> dict[Any, tuple[int, int]]:
    """Return how many of the first numbers each key has, and their sum."""
    keys = range(min(KEYS, count))
    return {key: (len(range(key, count, KEYS)), sum(range(key, count, KEYS))) for key in keys}


def folded_total(count: int) -> tuple[int, int]:
    """Return how many numbers there are among the first ones, and their sum."""
    return count, sum(range(count))


class Pass(BasicBolt):
    """Passes numbers on, so that batches move between slots."""

    output_fields = NUMBERS

    def execute(self, tuple: Tuple, collector: Any) -> None:
        collector.emit([tuple["key"], tuple["value"]])


class Numbers(PartitionedCoordinator):
    """Is ready as long as there are numbers that no batch before takes."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        cuts = last.metadata if isinstance(last.metadata, dict) else {}
        left = self._arrivals.there() - end_of(cuts.get("0"))
        return left > (txid - last.txid - 1) * TAKE

    def number_of_partitions(self) -> int:
        return 1

    def lag(self, metadata: Mapping[str, Json]) -> Mapping[str, int]:
        return {"0": self._arrivals.there() - end_of(metadata.get("0"))}


def end_of(cut: Json) -> int:
    """Return where a batch ends: its metadata is its first number and how many there are."""
    match cut:
        case [int(start), int(count)]:
            return start + count
    return 0


def emit(collector: BatchOutputCollector, start: int, count: int) -> Json:
    """Emit numbers."""
    for number in range(start, start + count):
        collector.emit([number % KEYS, number])
    return [start, count]


class Repeatable(PartitionedTransactionalSpout):
    """A replay has the same numbers."""

    output_fields = NUMBERS

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        return Numbers(self._arrivals)

    def emitter(self, config: Config, context: TaskContext) -> PartitionedTransactionalEmitter:
        return RepeatableEmitter(self._arrivals)


class RepeatableEmitter(PartitionedTransactionalEmitter):
    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    def emit_partition_batch_new(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
    ) -> Json:
        start = end_of(last_metadata)
        return emit(collector, start, min(TAKE, self._arrivals.there() - start))

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        metadata: Json,
    ) -> None:
        match metadata:
            case [int(start), int(count)]:
                emit(collector, start, count)


class Opaque(OpaquePartitionedTransactionalSpout):
    """Each attempt takes another number of them."""

    output_fields = NUMBERS

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        return Numbers(self._arrivals)

    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        return OpaqueEmitter(self._arrivals)


class OpaqueEmitter(OpaquePartitionedTransactionalEmitter):
    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
    ) -> Json:
        start = end_of(last_metadata)
        left = self._arrivals.there() - start
        return emit(collector, start, min(random.randint(1, TAKE), left))
