"""SimulatedSource: records that appear gradually, in partitions that are sometimes unreachable.

The record at an offset is always the same, so the checkers know what each batch must contain. Three
spouts read the source: a transactional, a partitioned and an opaque one.

Each of several spouts in one topology has its own source, with a number. Partition 1 of source 2 is
2001 in records and in recorded emissions. Such a source is sometimes unreachable.

A :class:`RecordingSpout` records what the spout inside it emits. Only emitters know the content of
an attempt; the checkers compare it with the contents of the stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Self, cast
from weakref import WeakValueDictionary

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import FailedException, InfrastructureError
from txtopo.metadata import Json
from txtopo.spouts.spout import (
    HasReplays,
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
from txtopo.testing.simulation.faults import AWAY_S
from txtopo.testing.simulation.history import EmittedShare
from txtopo.traits import traits_of
from txtopo.tuples import DEFAULT_STREAM, Fields

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.testing.simulation.world import World

FIELDS = Fields("partition long, offset long, key string, amount long")

KEYS = 5

GROWTH_PERIOD_S = 0.2

PARTITIONS_APART = 1_000
"""From a partition of one source to the same one of the next, where they are told apart."""


def record(partition: int, offset: int) -> tuple[int, int, str, int]:
    """Return the record at an offset; amounts differ, so that no mistake cancels out."""
    mixed = (partition * 1_000_003 + offset * 7_919) % 1_000
    return partition, offset, f"key-{mixed % KEYS}", 1 + mixed


class SimulatedSource:
    """A source that outlives all processes.

    Args:
        world: The world.
        partitions: Number of partitions at the end; some may be added later.
        records: Records of each partition at the end.
        batch_rows_max: Most records that a batch takes from a partition.
        number: Its number among the sources of the topology.
    """

    def __init__(
        self,
        world: World,
        partitions: int,
        records: int,
        batch_rows_max: int,
        number: int = 0,
    ) -> None:
        self.number = number
        self.partitions = partitions
        self.records = records
        self.batch_rows_max = batch_rows_max
        self.otherwise = False
        """Whether each cut is drawn again, as when a lost task is computed a second time."""
        self._world = world
        self._ends: list[int] = []
        self._away_until_s: dict[int, float] = {}
        self._empty: dict[TransactionAttempt, bool] = {}
        self._cuts: dict[TransactionAttempt, dict[int, int]] = {}
        self._committing: dict[int, TransactionAttempt] = {}
        self._trimmed: dict[int, int] = {}
        self._unreachable_until_s = 0.0
        self._grow()

    def reach(self) -> None:
        """Do nothing, unless the topology has other sources and this one is unreachable.

        Raises:
            InfrastructureError: It is unreachable.
        """
        chaos, timeline = self._world.chaos, self._world.timeline
        if len(self._world.sources) == 1 or chaos.healed:
            return
        if chaos.happens("source_away"):
            self._unreachable_until_s = timeline.now_s + chaos.between(*AWAY_S)
        if timeline.now_s < self._unreachable_until_s:
            raise InfrastructureError(
                f"simulated source {self.number} is out of reach", name=f"source {self.number}"
            )

    def emit(self, collector: Any, partition: int, start: int, count: int) -> Json:
        """Emit records of a partition, and return the metadata that names them."""
        for offset in range(start, start + count):
            collector.emit(record(self.number * PARTITIONS_APART + partition, offset))
        return [start, count]

    def end(self, partition: int) -> int:
        """Return the offset after the last record that exists now."""
        return self._ends[partition]

    def number_of_partitions(self) -> int:
        """Return how many partitions there are now."""
        return len(self._ends)

    def is_away(self, partition: int) -> bool:
        """Return whether a partition cannot be read now."""
        now_s = self._world.timeline.now_s
        return now_s < self._away_until_s.get(partition, 0.0) and not self._world.chaos.healed

    def goes_away(self, partition: int) -> bool:
        """Make a partition unreachable at random; return whether it cannot be read now."""
        chaos = self._world.chaos
        if chaos.happens("source_away"):
            self._away_until_s[partition] = self._world.timeline.now_s + chaos.between(*AWAY_S)
        return self.is_away(partition)

    def check(self, partition: int, start: int, count: int) -> None:
        """Check that records can be read again.

        Raises:
            FailedException: They are unreachable for a while, or were trimmed.
        """
        if count and start < self._trimmed.get(partition, 0):
            raise FailedException(
                f"offset {start} of partition {partition} was trimmed",
                partition=partition,
                offset=start,
            )
        if count and (self.goes_away(partition) or start + count > self.end(partition)):
            raise FailedException(
                f"partition {partition} of the simulated source is away", partition=partition
            )

    def is_empty_replay(self, attempt: TransactionAttempt) -> bool:
        """Return whether this replay of an opaque batch takes nothing."""
        if attempt not in self._empty:
            replay = any(known.txid == attempt.txid for known in self._empty)
            chaos = self._world.chaos
            self._empty[attempt] = replay and chaos.happens("empty_replay")
        return self._empty[attempt]

    def note_end(self, attempt: TransactionAttempt, partition: int, end: int) -> None:
        """Record where an attempt ends, to trim the source once its txid is done.

        A task that Spark runs twice may cut the same attempt in two ways, and only the driver knows
        which one counted. So only records that both cuts contain are trimmed.
        """
        ends = self._cuts.setdefault(attempt, {})
        ends[partition] = min(end, ends.get(partition, end))

    def commit(self, attempt: TransactionAttempt) -> None:
        """Record that an attempt is about to be committed."""
        known = self._committing.get(attempt.txid)
        if known is None or known < attempt:
            self._committing[attempt.txid] = attempt

    def keep_all(self) -> None:
        """Restore all records, like a source that keeps them as long as there are backups.

        What was to be trimmed after batches that are undone is kept too.
        """
        self._trimmed.clear()
        self._committing.clear()

    def trim(self, txid: int) -> None:
        """Delete the records of all batches before *txid*, which must not be needed again."""
        for done in [each for each in self._committing if each < txid]:
            for partition, end in self._cuts.get(self._committing.pop(done), {}).items():
                self._trimmed[partition] = max(end, self._trimmed.get(partition, 0))

    def take(self, available: int, rows_max: int | None = None) -> int:
        """Return how many of the available records a batch takes."""
        most = min(max(available, 0), self.batch_rows_max)
        most = most if rows_max is None else min(most, rows_max)
        chaos = self._world.chaos
        recut = most and (self.otherwise or chaos.happens("recut"))
        return chaos.below(most + 1) if recut else most

    @property
    def is_complete(self) -> bool:
        """Whether all records exist."""
        return self._complete

    def complete(self) -> None:
        """Make all records appear."""
        self._ends = [self.records] * self.partitions
        self._complete = True

    def _grow(self) -> None:
        chaos = self._world.chaos
        if len(self._ends) < self.partitions and (not self._ends or chaos.below(3)):
            self._ends.append(0)
        for partition, end in enumerate(self._ends):
            more = chaos.below(3 * self.batch_rows_max)
            if chaos.happens("source_shrinks"):
                more = -more  # as on a replica that is behind
            self._ends[partition] = max(0, min(self.records, end + more))
        self._complete = self._ends == [self.records] * self.partitions
        if not self._complete:
            delay_s = chaos.between(0.0, 2 * GROWTH_PERIOD_S)
            self._world.timeline.after(delay_s, self._grow)


class Section:
    """The part of a source that a spout reads. Everything else is as in the source.

    Args:
        source: The source.
        records: How many records of each partition there are at the end; None for all.
        begins: The first offset of each partition, by its number as text; 0 for the others.
    """

    def __init__(
        self, source: SimulatedSource, records: int | None, begins: Mapping[str, int]
    ) -> None:
        self._source, self._records, self._begins = source, records, begins

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_source"], name)

    def end(self, partition: int) -> int:
        """Return the offset after the last record that exists now."""
        end = self._source.end(partition)
        return end if self._records is None else min(end, self._records)

    def number_of_partitions(self) -> int:
        """Return how many partitions there are now."""
        return self._source.number_of_partitions()

    def take(self, available: int, rows_max: int | None = None) -> int:
        """Return how many of the available records a batch takes."""
        return self._source.take(available, rows_max)

    def emit(self, collector: Any, partition: int, start: int, count: int) -> Json:
        """Emit records of a partition, and return the metadata that names them."""
        return self._source.emit(collector, partition, start, count)

    def after(self, partition: int, metadata: Json) -> int:
        """Return where the batch after this one of a partition starts."""
        return self._begins.get(str(partition), 0) if metadata is None else sum(_range(metadata))

    def ends(self, metadata: Json) -> dict[int, int]:
        """Return where the batch after this one starts, by partition that exists now."""
        known = metadata if isinstance(metadata, dict) else {}
        partitions = range(self._source.number_of_partitions())
        return {at: self.after(at, known.get(str(at))) for at in partitions}

    def ended(self, metadata: Json) -> bool:
        """Return whether each partition that exists now was read to its last record."""
        return all(end == self._records for end in self.ends(metadata).values())


class _Simulated(HasReplays):
    """What the spouts over a source have in common.

    Args:
        world_number: Number of the world.
        source: Number of the source.
        half: Whether it ends when it has read half of the records of each partition.
    """

    ends = True

    def __init__(self, world_number: int, source: int = 0, *, half: bool = False) -> None:
        self._world_number, self._number = world_number, source
        self._half, self._begins = half, dict[str, int]()

    def beginning_at(self, place: Json) -> Self:
        """Return a copy that begins at these offsets."""
        assert isinstance(place, dict)
        begun = copy(self)
        begun._begins = cast("dict[str, int]", place)
        return begun

    def _section(self) -> Section:
        source = _source(self._world_number, self._number)
        return Section(source, source.records // 2 if self._half else None, self._begins)


def end_of_first(end: Json) -> Json:
    """Return where ``then`` of a sequence begins if it reads the same source: where first ended."""
    known = end if isinstance(end, dict) else {}
    return {at: sum(_range(each)) for at, each in known.items()}


class RangesSpout(_Simulated, TransactionalSpout):
    """Plans ranges of offsets in the driver; each task reads its partitions."""

    output_fields = FIELDS

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        """Make the planning part."""
        return _RangesCoordinator(self._section())

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        """Make an emitting part."""
        return _SourceRangesEmitter(self._section(), context)


class _RangesCoordinator(TransactionalCoordinator):
    def __init__(self, source: Section) -> None:
        self._source = source

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        source, ends = self._source, self._source.ends(last.metadata)
        source.reach()
        known = range(source.number_of_partitions())
        return any(source.end(at) > ends[at] for at in known)

    def ended(self, last: LastBatch) -> bool:
        return self._source.ended(last.metadata)

    def unread(self, last: LastBatch) -> Mapping[str, int]:
        return _unread(self._source, self._source.ends(last.metadata))

    def initialize_transaction(
        self, txid: int, previous_metadata: Json, *, rows_max: int | None = None
    ) -> Json:
        source, starts = self._source, self._source.ends(previous_metadata)
        ranges: dict[str, Json] = {}
        for at in range(source.number_of_partitions()):
            start = starts[at]
            taken = source.take(source.end(at) - start, rows_max)
            ranges[str(at)] = [start, taken]
            rows_max = None if rows_max is None else rows_max - taken
        return ranges


class _SourceRangesEmitter(TransactionalEmitter):
    writes_nowhere_else = True

    def __init__(self, source: Section, context: TaskContext) -> None:
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
            self._source.emit(collector, at, start, count)

    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        """Take part in the commit phase."""
        self._source.commit(attempt)

    def cleanup_before(self, txid: int) -> None:
        """Trim the source."""
        self._source.trim(txid)


class _Coordinator(PartitionedCoordinator):
    def __init__(self, source: Section) -> None:
        self._source = source

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        source, ends = self._source, self._source.ends(last.metadata)
        source.reach()
        # A batch may take nothing, so the number of remaining batches is unknown.
        known = [at for at in range(source.number_of_partitions()) if not source.is_away(at)]
        left = sum(max(0, source.end(at) - ends[at]) for at in known)
        return left > 0 and txid - last.txid <= 1 + left // source.batch_rows_max

    def number_of_partitions(self) -> int:
        return self._source.number_of_partitions()

    def ended(self, last: LastBatch) -> bool:
        return self._source.ended(last.metadata)

    def unread(self, last: LastBatch) -> Mapping[str, int]:
        return _unread(self._source, self._source.ends(last.metadata))

    def lag(self, metadata: Mapping[str, Json]) -> Mapping[str, int]:
        return _unread(self._source, self._source.ends(dict(metadata)))


class PartitionedSpout(_Simulated, PartitionedTransactionalSpout):
    """Cuts a batch in the task that emits it first; replays repeat it."""

    output_fields = FIELDS

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        """Make the planning part."""
        return _Coordinator(self._section())

    def emitter(self, config: Config, context: TaskContext) -> PartitionedTransactionalEmitter:
        """Make an emitting part."""
        return _PartitionedEmitter(self._section())


class _PartitionedEmitter(PartitionedTransactionalEmitter):
    writes_nowhere_else = True

    def __init__(self, source: Section) -> None:
        self._source = source

    def emit_partition_batch_new(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
        *,
        rows_max: int | None = None,
    ) -> Json:
        start = self._source.after(partition, last_metadata)
        away = self._source.goes_away(partition)
        count = 0 if away else self._source.take(self._source.end(partition) - start, rows_max)
        self._source.note_end(attempt, partition, start + count)
        return self._source.emit(collector, partition, start, count)

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
        self._source.emit(collector, partition, start, count)

    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        """Take part in the commit phase."""
        self._source.commit(attempt)

    def cleanup_before(self, txid: int) -> None:
        """Trim the source."""
        self._source.trim(txid)


class OpaqueSpout(_Simulated, OpaquePartitionedTransactionalSpout):
    """Cuts each attempt again; an unreachable partition keeps its position."""

    output_fields = FIELDS

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        """Make the planning part."""
        return _Coordinator(self._section())

    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        """Make an emitting part."""
        return _OpaqueEmitter(self._section())


class _OpaqueEmitter(OpaquePartitionedTransactionalEmitter):
    def __init__(self, source: Section) -> None:
        self._source = source

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
        *,
        rows_max: int | None = None,
    ) -> Json:
        if self._source.goes_away(partition) or self._source.is_empty_replay(attempt):
            return None
        start = self._source.after(partition, last_metadata)
        count = self._source.take(self._source.end(partition) - start, rows_max)
        return self._source.emit(collector, partition, start, count)


def _source(world_number: int, number: int) -> SimulatedSource:
    sources = worlds[world_number].sources
    assert number < len(sources), "the spouts of this module read a simulated source"
    return sources[number]


def _unread(source: Section, ends: Mapping[int, int]) -> dict[str, int]:
    known = range(source.number_of_partitions())
    return {str(at): max(0, source.end(at) - ends[at]) for at in known}


def _range(metadata: Json) -> tuple[int, int]:
    assert isinstance(metadata, list)
    start, count = metadata
    assert isinstance(start, int)
    assert isinstance(count, int)
    return start, count


# Spouts are pickled for their tasks, and find their world here.
worlds: WeakValueDictionary[int, World] = WeakValueDictionary()


class RecordingSpout:
    """Records what a spout of any kind emits."""

    def __init__(self, world: World, spout: Any, number: int = 0) -> None:
        self._world_number = world.number
        self._spout, self._number = spout, number
        self.output_fields = spout.output_fields
        self.output_streams = spout.output_streams
        self.traits = traits_of(spout)

    def coordinator(self, config: Config, context: TaskContext) -> Any:
        """Make the planning part."""
        return self._spout.coordinator(config, context)

    def emitter(self, config: Config, context: TaskContext) -> Any:
        """Make an emitting part."""
        inside = self._spout.emitter(config, context)
        world = worlds[self._world_number]
        return RecordingEmitter(world, inside, context, self._number)


class RecordingEmitter:
    """Records what an emitter of any kind emits. Other methods are those of the emitter."""

    def __init__(self, world: World, emitter: Any, context: TaskContext, number: int = 0) -> None:
        self._world = world
        self._emitter = emitter
        self._context, self._number = context, number

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_emitter"], name)

    def emit_batch(self, attempt: TransactionAttempt, metadata: Json, collector: Any) -> None:
        """Emit a task's share of a batch."""
        recording = RecordingCollector(collector)
        self._emitter.emit_batch(attempt, metadata, recording)
        self._note(attempt, self._context.task_index, recording, None)

    def emit_partition_batch_new(
        self,
        attempt: TransactionAttempt,
        collector: Any,
        partition: int,
        last_metadata: Json,
        **limit: int,
    ) -> Json:
        """Emit a new batch of a partition."""
        recording = RecordingCollector(collector)
        end: Json = self._emitter.emit_partition_batch_new(
            attempt, recording, partition, last_metadata, **limit
        )
        self._note(attempt, partition, recording, end)
        return end

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: Any,
        partition: int,
        metadata: Json,
        **limit: int,
    ) -> Json:
        """Emit a batch of a partition: the same one (transactional) or a newly cut one (opaque)."""
        recording = RecordingCollector(collector)
        end: Json = self._emitter.emit_partition_batch(
            attempt, recording, partition, metadata, **limit
        )
        again = end is None and recording.records
        self._note(attempt, partition, recording, metadata if again else end)
        return end

    def _note(
        self, attempt: TransactionAttempt, share: int, recording: RecordingCollector, end: Json
    ) -> None:
        world = self._world
        share += self._number * PARTITIONS_APART
        emission = EmittedShare(share, tuple(recording.records), end)
        world.history.emitted(world.timeline.now_s, world.current.name, attempt, emission)
        if self._context.stamp() is not None:
            world.history.times.setdefault(attempt, set()).add(self._context.planned_time)


class RecordingCollector:
    """Records the tuples of the default stream."""

    def __init__(self, collector: Any) -> None:
        self.records: list[tuple[Any, ...]] = []
        self._collector = collector

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_collector"], name)

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple."""
        self._collector.emit(values, stream)
        if stream == DEFAULT_STREAM:
            self.records.append(tuple(values))

    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM) -> None:
        """Emit many tuples as one Arrow record batch."""
        self._collector.emit_batch(batch, stream)
        if stream == DEFAULT_STREAM:
            columns = [column.to_pylist() for column in batch.columns]
            self.records += list(zip(*columns, strict=True))
