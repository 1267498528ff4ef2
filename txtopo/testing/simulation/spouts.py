"""Three spouts over the simulated source: transactional, partitioned and opaque."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.metadata import Json
from txtopo.spouts.spout import (
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
from txtopo.testing.simulation.source import FIELDS, SimulatedSource, record
from txtopo.testing.simulation.tap import worlds


class RangesSpout(TransactionalSpout):
    """Plans ranges of offsets in the driver; each task reads its partitions."""

    output_fields = FIELDS

    def __init__(self, world_number: int) -> None:
        self._world_number = world_number

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        """Make the planning part."""
        return _RangesCoordinator(_source(self._world_number))

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        """Make an emitting part."""
        return _RangesEmitter(_source(self._world_number), context)


class _RangesCoordinator(TransactionalCoordinator):
    def __init__(self, source: SimulatedSource) -> None:
        self._source = source

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        source, ends = self._source, _ends(last.metadata)
        known = range(source.number_of_partitions())
        return any(source.end(at) > ends.get(str(at), 0) for at in known)

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        source, starts = self._source, _ends(previous_metadata)
        ranges: dict[str, Json] = {}
        for at in range(source.number_of_partitions()):
            start = starts.get(str(at), 0)
            ranges[str(at)] = [start, source.take(source.end(at) - start)]
        return ranges


class _RangesEmitter(TransactionalEmitter):
    def __init__(self, source: SimulatedSource, context: TaskContext) -> None:
        self._source = source
        self._context = context

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        assert isinstance(metadata, dict)
        for at in range(self._context.task_index, len(metadata), self._context.tasks):
            start, count = _range(metadata[str(at)])
            self._source.check(at, start, count)
            self._source.note_end(attempt, at, start + count)
            _emit(collector, at, start, count)

    def commit(self, attempt: TransactionAttempt) -> None:
        """Take part in the commit phase."""
        self._source.commit(attempt)

    def cleanup_before(self, txid: int) -> None:
        """Trim the source."""
        self._source.trim(txid)


class _Coordinator(PartitionedCoordinator):
    def __init__(self, source: SimulatedSource) -> None:
        self._source = source

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        source, ends = self._source, _ends(last.metadata)
        # A batch takes at least nothing, so who plans ahead does not know how many it will be.
        known = [at for at in range(source.number_of_partitions()) if not source.is_away(at)]
        left = sum(max(0, source.end(at) - ends.get(str(at), 0)) for at in known)
        return left > 0 and txid - last.txid <= 1 + left // source.batch_records_max

    def number_of_partitions(self) -> int:
        return self._source.number_of_partitions()

    def lag(self, metadata: Mapping[str, Json]) -> Mapping[str, int]:
        ends = _ends(dict(metadata))
        return {
            str(at): max(0, self._source.end(at) - ends.get(str(at), 0))
            for at in range(self._source.number_of_partitions())
        }


class PartitionedSpout(PartitionedTransactionalSpout):
    """Cuts each batch in the task that emits it first, and repeats it from then on."""

    output_fields = FIELDS

    def __init__(self, world_number: int) -> None:
        self._world_number = world_number

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        """Make the planning part."""
        return _Coordinator(_source(self._world_number))

    def emitter(self, config: Config, context: TaskContext) -> PartitionedTransactionalEmitter:
        """Make an emitting part."""
        return _PartitionedEmitter(_source(self._world_number))


class _PartitionedEmitter(PartitionedTransactionalEmitter):
    def __init__(self, source: SimulatedSource) -> None:
        self._source = source

    def emit_partition_batch_new(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
    ) -> Json:
        start = _end(last_metadata)
        away = self._source.goes_away(partition)
        count = 0 if away else self._source.take(self._source.end(partition) - start)
        self._source.note_end(attempt, partition, start + count)
        return _emit(collector, partition, start, count)

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        metadata: Json,
    ) -> None:
        start, count = _range(metadata)
        self._source.check(partition, start, count)
        self._source.note_end(attempt, partition, start + count)
        _emit(collector, partition, start, count)

    def commit(self, attempt: TransactionAttempt) -> None:
        """Take part in the commit phase."""
        self._source.commit(attempt)

    def cleanup_before(self, txid: int) -> None:
        """Trim the source."""
        self._source.trim(txid)


class OpaqueSpout(OpaquePartitionedTransactionalSpout):
    """Cuts each attempt anew; a partition that is away keeps its position."""

    output_fields = FIELDS

    def __init__(self, world_number: int) -> None:
        self._world_number = world_number

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        """Make the planning part."""
        return _Coordinator(_source(self._world_number))

    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        """Make an emitting part."""
        return _OpaqueEmitter(_source(self._world_number))


class _OpaqueEmitter(OpaquePartitionedTransactionalEmitter):
    def __init__(self, source: SimulatedSource) -> None:
        self._source = source

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
    ) -> Json:
        if self._source.goes_away(partition) or self._source.is_empty_replay(attempt):
            return None
        start = _end(last_metadata)
        count = self._source.take(self._source.end(partition) - start)
        return _emit(collector, partition, start, count)


def _source(world_number: int) -> SimulatedSource:
    source = worlds[world_number].source
    assert source is not None, "the spouts of this module read a simulated source"
    return source


def _emit(collector: Any, partition: int, start: int, count: int) -> Json:
    for offset in range(start, start + count):
        collector.emit(record(partition, offset))
    return [start, count]


def _ends(metadata: Json) -> dict[str, int]:
    return {at: _end(each) for at, each in metadata.items()} if isinstance(metadata, dict) else {}


def _end(metadata: Json) -> int:
    return sum(_range(metadata)) if metadata is not None else 0


def _range(metadata: Json) -> tuple[int, int]:
    assert isinstance(metadata, list)
    start, count = metadata
    assert isinstance(start, int)
    assert isinstance(count, int)
    return start, count
