"""SimulatedSource: records that become available bit by bit, in partitions that go away at times.

The record at an offset is always the same, so that the checkers know what each batch must have been
without asking anybody. Three spouts read it: transactional, partitioned and opaque.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import FailedException
from txtopo.metadata import Json
from txtopo.spouts.opaque import (
    OpaquePartitionedTransactionalEmitter,
    OpaquePartitionedTransactionalSpout,
)
from txtopo.spouts.partitioned import (
    PartitionedCoordinator,
    PartitionedTransactionalEmitter,
    PartitionedTransactionalSpout,
)
from txtopo.spouts.transactional import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.testing.simulation.chaos import AWAY_S
from txtopo.testing.simulation.tap import worlds
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from txtopo.testing.simulation.world import World

FIELDS = Fields("partition long, offset long, key string, amount long")
KEYS = 5
GROWTH_PERIOD_S = 0.2


def record(partition: int, offset: int) -> tuple[int, int, str, int]:
    """Return the record at an offset; every amount is another power or sum, so none hides."""
    mixed = (partition * 1_000_003 + offset * 7_919) % 1_000
    return partition, offset, f"key-{mixed % KEYS}", 1 + mixed


class SimulatedSource:
    """What is outside and outlives all processes.

    Args:
        world: The world.
        partitions: Partitions at the end; some may come later.
        records: Records of each partition at the end.
        batch_records_max: Most records that a batch takes from a partition.
    """

    def __init__(self, world: World, partitions: int, records: int, batch_records_max: int) -> None:
        self.partitions = partitions
        self.records = records
        self.batch_records_max = batch_records_max
        self._world = world
        self._ends: list[int] = []
        self._away_until_s: dict[int, float] = {}
        self._grow()

    def end(self, partition: int) -> int:
        """Return the offset behind the last record that is there now."""
        return self._ends[partition]

    def number_of_partitions(self) -> int:
        """Return how many partitions there are now."""
        return len(self._ends)

    def is_away(self, partition: int) -> bool:
        """Return whether a partition cannot be read now."""
        now_s = self._world.timeline.now_s
        return now_s < self._away_until_s.get(partition, 0.0) and not self._world.chaos.healed

    def goes_away(self, partition: int) -> bool:
        """Let a partition go away now and then; return whether it cannot be read now."""
        chaos = self._world.chaos
        if chaos.happens("source_away"):
            self._away_until_s[partition] = self._world.timeline.now_s + chaos.between(*AWAY_S)
        return self.is_away(partition)

    def check(self, partition: int, start: int, count: int) -> None:
        """Check that records can be read again.

        Raises:
            FailedException: They are away; they will be back.
        """
        if count and (self.goes_away(partition) or start + count > self.end(partition)):
            raise FailedException(f"partition {partition} of the simulated source is away")

    def take(self, available: int) -> int:
        """Return how many of the available records a batch takes."""
        most = min(max(available, 0), self.batch_records_max)
        chaos = self._world.chaos
        return chaos.below(most + 1) if most and chaos.happens("recut") else most

    @property
    def is_complete(self) -> bool:
        """Whether everything is there that will ever be."""
        return self._ends == [self.records] * self.partitions

    def complete(self) -> None:
        """Let everything be there that will ever be."""
        self._ends = [self.records] * self.partitions

    def _grow(self) -> None:
        chaos = self._world.chaos
        if len(self._ends) < self.partitions and (not self._ends or chaos.below(3)):
            self._ends.append(0)
        for partition, end in enumerate(self._ends):
            more = chaos.below(3 * self.batch_records_max)
            if chaos.happens("source_shrinks"):
                more = -more  # as seen on a replica that is behind
            self._ends[partition] = max(0, min(self.records, end + more))
        if not self.is_complete:
            delay_s = chaos.between(0.0, 2 * GROWTH_PERIOD_S)
            self._world.timeline.after(delay_s, self._grow)


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
            _emit(collector, at, start, count)


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
        _emit(collector, partition, start, count)


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
        if self._source.goes_away(partition):
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
