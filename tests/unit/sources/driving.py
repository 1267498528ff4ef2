"""Driving a spout without a topology: batches are planned and emitted as the framework does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from txtopo import Config, TransactionAttempt
from txtopo.collector import BatchOutputCollector, SeenFields
from txtopo.context import TaskContext
from txtopo.dead_letters import STREAM
from txtopo.metadata import Json
from txtopo.plugins.spouts import (
    LastBatch,
    OpaquePartitionedTransactionalSpout,
    PartitionedTransactionalSpout,
    TransactionalSpout,
)
from txtopo.topology.component import declared_streams

Row = tuple[Any, ...]


def context(task: int = 0, tasks: int = 1) -> TaskContext:
    return TaskContext("topology", "spout", task, tasks)


class Emitted:
    """Collects what a spout emits, as rows, and dead letters if there is a list for them."""

    def __init__(
        self,
        spout: object,
        letters: list[Any] | None = None,
        saw: Callable[[SeenFields], None] | None = None,
    ) -> None:
        self.letters = letters
        self.rows: list[Row] = []
        self.batches: list[pa.RecordBatch] = []
        self.collector = BatchOutputCollector(
            "spout",
            declared_streams(spout),
            self._take_rows,
            self._take_batch,
            None if letters is None else 100,
            saw=saw,
        )

    def _take_rows(self, stream: str, rows: list[Sequence[Any]], targets: list[int] | None) -> None:
        if stream == STREAM and self.letters is not None:
            self.letters += rows
        else:
            self.rows += [tuple(row) for row in rows]

    def _take_batch(self, stream: str, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)


def emit(spout: TransactionalSpout, metadata: Json, tasks: int = 1) -> list[Row]:
    """Emit a batch of a spout with all of its tasks."""
    emitted = Emitted(spout)
    for task in range(tasks):
        emitter = spout.emitter(Config(), context(task, tasks))
        emitter.emit_batch(TransactionAttempt(1), metadata, emitted.collector)
        emitter.close()
    emitted.collector.close()
    return emitted.rows


class Planner:
    """Plans the batches of a spout one by one, through JSON as ZooKeeper keeps it."""

    def __init__(
        self,
        spout: TransactionalSpout,
        tasks: int = 1,
        stored: Json = None,
        config: Config | None = None,
    ) -> None:
        self.coordinator = spout.coordinator(config or Config(), context(0, tasks))
        self.txid = 0
        self.metadata = stored

    def plan(self) -> Json:
        """Return the metadata of the next batch, or None if the spout is not ready."""
        last = LastBatch(self.txid, self.metadata)
        if not self.coordinator.is_ready(self.txid + 1, last):
            return None
        planned = self.coordinator.initialize_transaction(self.txid + 1, self.metadata)
        self.txid += 1
        self.metadata = json.loads(json.dumps(planned))
        return self.metadata

    def all(self) -> list[Json]:
        """Plan until the spout is not ready."""
        batches: list[Json] = []
        while (metadata := self.plan()) is not None:
            batches.append(metadata)
        return batches


class Partitioned:
    """Runs a partitioned spout, opaque or not, one attempt at a time."""

    def __init__(
        self, spout: PartitionedTransactionalSpout | OpaquePartitionedTransactionalSpout
    ) -> None:
        self.spout = spout
        self.coordinator = spout.coordinator(Config(), context())
        self.emitter: Any = spout.emitter(Config(), context())
        self.cuts: dict[int, dict[str, Json]] = {0: {}}
        self.rows: dict[int, list[Row]] = {}

    def ready(self, txid: int, last: int) -> bool:
        return self.coordinator.is_ready(txid, LastBatch(last, dict(self.cuts[last])))

    def attempt(self, txid: int, attempt: int = 0) -> list[Row]:
        """Emit a new batch after the one before, and keep its cut."""
        emitted = Emitted(self.spout)
        cut = dict(self.cuts[txid - 1])
        opaque = isinstance(self.spout, OpaquePartitionedTransactionalSpout)
        name = "emit_partition_batch" if opaque else "emit_partition_batch_new"
        for partition in range(self.coordinator.number_of_partitions()):
            made = getattr(self.emitter, name)(
                TransactionAttempt(txid, attempt),
                emitted.collector,
                partition,
                self.cuts[txid - 1].get(str(partition)),
            )
            if made is not None:
                cut[str(partition)] = json.loads(json.dumps(made))
        emitted.collector.close()
        self.cuts[txid], self.rows[txid] = cut, emitted.rows
        return emitted.rows

    def replay(self, txid: int, cut: Mapping[str, Json]) -> list[Row]:
        """Emit a batch of a transactional spout again."""
        emitted = Emitted(self.spout)
        for partition, metadata in cut.items():
            self.emitter.emit_partition_batch(
                TransactionAttempt(txid, 1), emitted.collector, int(partition), metadata
            )
        emitted.collector.close()
        return emitted.rows
