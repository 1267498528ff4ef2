"""Spouts of three parts that bring another batch than before on the replay of one txid."""

from __future__ import annotations

from typing import Any

from txtopo import Config, Fields, TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
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

PARTS = 3
TXIDS = 5
BAD = 3
"""The txid whose replay is another batch."""
SUM = sum(range(4)) * PARTS
"""Of one batch."""

CHANGES: dict[str, list[int]] = {
    "another value": [0, 1, 2, 4],
    "another order": [0, 1, 3, 2],
    "one less": [0, 1, 2],
    "one more": [0, 1, 2, 3, 0],
    "nothing": [],
}


class Emitting(TransactionalEmitter, PartitionedTransactionalEmitter):
    """Emits 0 to 3 for each part; part 1 of one txid has a change after the first attempt."""

    def __init__(self, change: str, context: TaskContext) -> None:
        self.change, self.context = change, context

    def emit_batch(self, attempt: TransactionAttempt, metadata: Json, collector: Any) -> None:
        for part in range(self.context.task_index, PARTS, self.context.tasks):
            self.emit_part(attempt, collector, part)

    def emit_partition_batch_new(
        self, attempt: TransactionAttempt, collector: Any, partition: int, last_metadata: Json
    ) -> Json:
        self.emit_part(attempt, collector, partition)
        return attempt.txid

    def emit_partition_batch(
        self, attempt: TransactionAttempt, collector: Any, partition: int, metadata: Json
    ) -> None:
        assert metadata == attempt.txid
        self.emit_part(attempt, collector, partition)

    def emit_part(
        self, attempt: TransactionAttempt, collector: BatchOutputCollector, part: int
    ) -> None:
        first = (attempt.epoch, attempt.attempt) == (1, 0)
        changed = self.change and part == 1 and attempt.txid == BAD and not first
        for amount in CHANGES[self.change] if changed else range(4):
            collector.emit([amount])


class Opaque(OpaquePartitionedTransactionalSpout, OpaquePartitionedTransactionalEmitter):
    output_fields = Fields("amount long")

    def __init__(self, change: str) -> None:
        self.change = change

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        return Counting()

    def emitter(self, config: Config, context: TaskContext) -> Any:
        return self

    def emit_partition_batch(
        self, attempt: TransactionAttempt, collector: Any, partition: int, last_metadata: Json
    ) -> Json:
        emitting = Emitting(self.change, TaskContext("", "", 0, 1))
        emitting.emit_part(attempt, collector, partition)
        return attempt.txid


class Planning(TransactionalCoordinator):
    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= TXIDS

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        return txid


class Counting(PartitionedCoordinator):
    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= TXIDS

    def number_of_partitions(self) -> int:
        return PARTS


class Plain(TransactionalSpout):
    output_fields = Fields("amount long")

    def __init__(self, change: str) -> None:
        self.change = change

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        return Planning()

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return Emitting(self.change, context)


class Partitioned(PartitionedTransactionalSpout):
    output_fields = Fields("amount long")

    def __init__(self, change: str) -> None:
        self.change = change

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        return Counting()

    def emitter(self, config: Config, context: TaskContext) -> PartitionedTransactionalEmitter:
        return Emitting(self.change, context)


class Unlike(Plain):
    """Says that its metadata may stand for other tuples."""

    repeatable = False
