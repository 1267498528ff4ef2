"""Sources that a test fills, takes out of reach and brings back, with a spout of each kind."""

from __future__ import annotations

from typing import Any

from txtopo import Fields, TaskContext
from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.errors import InfrastructureError
from txtopo.metadata import Json
from txtopo.plugins.spouts import (
    LastBatch,
    OpaquePartitionedTransactionalEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
    PartitionedTransactionalEmitter,
    PartitionedTransactionalSpout,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.testing.spouts import Shared

FIELDS = Fields("source string, number long")


class Source(Shared):
    """Numbers from 0 on, in one partition, of which a batch takes a few.

    Attributes:
        name: The value of the field ``source``.
        rows: How many there are now.
        batch_rows: The most that a batch takes.
        away: Whether it is out of reach.
        asks: How often its spout was asked whether it is ready.
        told: What the emitters were told: (txid, metadata) of each commit.
        cleaned: The txids of ``cleanup_before``.
        fails: The emitter fails the next commit that it is told of.
    """

    def __init__(self, name: str, rows: int = 0, batch_rows: int = 2) -> None:
        self.name, self.rows, self.batch_rows = name, rows, batch_rows
        self.away = self.fails = False
        self.asks = 0
        self.told: list[tuple[int, Json]] = []
        self.cleaned: list[int] = []

    def is_ready(self, end: int) -> bool:
        self.asks += 1
        if self.away:
            raise InfrastructureError(f"{self.name} cannot be reached")
        return self.rows > end

    def cut(self, start: int, collector: BatchOutputCollector) -> list[int]:
        end = max(start, min(self.rows, start + self.batch_rows))
        self.emit(start, end, collector)
        return [start, end]

    def emit(self, start: int, end: int, collector: BatchOutputCollector) -> None:
        for number in range(start, end):
            collector.emit([self.name, number])


class Ranges(TransactionalSpout):
    """Plans ranges in the driver."""

    output_fields = FIELDS

    def __init__(self, source: Source) -> None:
        self.source = source

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        return _Ranges(self.source)

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return _RangesEmitter(self.source, context)


class _Told:
    """The part of all emitters that is told of commits."""

    source: Source

    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        if self.source.fails:
            self.source.fails = False
            raise InfrastructureError(f"{self.source.name} does not commit")
        self.source.told.append((attempt.txid, metadata))

    def cleanup_before(self, txid: int) -> None:
        self.source.cleaned.append(txid)


class _Ranges(TransactionalCoordinator):
    def __init__(self, source: Source) -> None:
        self.source = source

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        assert last.txid == txid - 1, "a spout that plans whole batches gets the previous txid"
        return self.source.is_ready(_end(last.metadata))

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        start = _end(previous_metadata)
        return [start, min(self.source.rows, start + self.source.batch_rows)]

    def lag(self, metadata: Json) -> dict[str, int]:
        return {"all": self.source.rows - _end(metadata)}


class _RangesEmitter(_Told, TransactionalEmitter):
    def __init__(self, source: Source, context: TaskContext) -> None:
        self.source, self.first = source, context.task_index == 0

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        if self.first:
            self.source.emit(_start(metadata), _end(metadata), collector)


class _Partitioned(PartitionedCoordinator):
    def __init__(self, source: Source) -> None:
        self.source = source

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        ends = last.metadata if isinstance(last.metadata, dict) else {}
        ahead = (txid - last.txid - 1) * self.source.batch_rows
        return self.source.is_ready(_end(ends.get("0")) + ahead)

    def number_of_partitions(self) -> int:
        return 1

    def lag(self, metadata: Any) -> dict[str, int]:
        return {"0": self.source.rows - _end(metadata.get("0"))}


class Partitioned(PartitionedTransactionalSpout):
    """Cuts in the task that emits first."""

    output_fields = FIELDS

    def __init__(self, source: Source) -> None:
        self.source = source

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        return _Partitioned(self.source)

    def emitter(self, config: Config, context: TaskContext) -> PartitionedTransactionalEmitter:
        return _PartitionedEmitter(self.source)


class _PartitionedEmitter(_Told, PartitionedTransactionalEmitter):
    def __init__(self, source: Source) -> None:
        self.source = source

    def emit_partition_batch_new(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
    ) -> Json:
        return [*self.source.cut(_end(last_metadata), collector)]

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        metadata: Json,
    ) -> None:
        self.source.emit(_start(metadata), _end(metadata), collector)


class Opaque(OpaquePartitionedTransactionalSpout):
    """Cuts each attempt again."""

    output_fields = FIELDS

    def __init__(self, source: Source) -> None:
        self.source = source

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        return _Partitioned(self.source)

    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        return _OpaqueEmitter(self.source)


class _OpaqueEmitter(_Told, OpaquePartitionedTransactionalEmitter):
    def __init__(self, source: Source) -> None:
        self.source = source

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
    ) -> Json:
        return [*self.source.cut(_end(last_metadata), collector)]


def _start(metadata: Json) -> int:
    return _bound(metadata, 0)


def _end(metadata: Json) -> int:
    return 0 if metadata is None else _bound(metadata, 1)


def _bound(metadata: Json, at: int) -> int:
    assert isinstance(metadata, list)
    found = metadata[at]
    assert isinstance(found, int)
    return found
