"""Spouts over lists in memory, transactional and opaque, for examples and tests.

The metadata of a partition is ``[index, amount]``, as in Storm's spouts of the same names: the next
batch starts at ``index + amount``. Outages and changed replays are data, in a script, so that the
spouts can be pickled and a run can be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass
from typing import Any, Self, cast

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import ConfigError, FieldsError, OffsetRegression, TopologyError
from txtopo.instead import known_arguments
from txtopo.metadata import Json
from txtopo.spouts.spout import (
    LastBatch,
    OpaquePartitionedTransactionalEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
    PartitionedTransactionalEmitter,
    PartitionedTransactionalSpout,
    check_min_batch_rows,
    other_position,
)
from txtopo.tuples import Fields

Rows = Sequence[Sequence[Any]]

Partitions = tuple[Rows, ...]


class MemoryTransactionalSpout(PartitionedTransactionalSpout):
    """A replayable spout over lists (Storm ``MemoryTransactionalSpout``).

    Delivery: transactional. A batch takes the same number of rows from each partition until all
    rows are used up; then the spout is no longer ready. If a later start has fewer rows than have
    been planned, the run ends with ``OffsetRegression``.

    Args:
        partitions: Rows by partition number, from 0; a row has a value for each field.
        fields: The fields.
        batch_rows_max: The maximum number of rows that a batch takes from each partition.

    Raises:
        TopologyError: The partitions are not numbered from 0, or a row does not fit the fields.
    """

    ends = True

    @known_arguments
    def __init__(self, partitions: Mapping[int, Rows], fields: Fields, batch_rows_max: int) -> None:
        self.output_fields = fields
        self._partitions = _checked(partitions, fields, batch_rows_max)
        self._take = batch_rows_max

    def beginning_at(self, place: Json) -> Self:
        """Return a copy of this spout that skips the first rows of its partitions.

        Args:
            place: How many rows to skip, by partition number as text; 0 for partitions without an
                entry.

        Raises:
            ConfigError: It is not such a mapping.
        """
        begun = copy(self)
        begun._partitions = _behind(place, self._partitions)
        return begun

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        """Make the planning part.

        Raises:
            ConfigError: No batch can have ``min_batch_rows`` rows: lower it, or raise
                *batch_rows_max*.
        """
        check_min_batch_rows(config, self._take, len(self._partitions))
        return _RowsCoordinator(self._partitions, self._take)

    def emitter(self, config: Config, context: TaskContext) -> PartitionedTransactionalEmitter:
        """Make an emitting part."""
        return _RowsEmitter(self._partitions, self._take)


class OpaqueMemoryTransactionalSpout(OpaquePartitionedTransactionalSpout):
    """A spout over lists; its replays may differ (Storm ``OpaqueMemoryTransactionalSpout``).

    Delivery: opaque. Each row counts in exactly one committed txid.

    Args:
        partitions: Rows by partition number, from 0; a row has a value for each field.
        fields: The fields.
        batch_rows_max: The maximum number of rows that a batch takes from each partition.
        script: Outages of partitions, and attempts that take a different number of rows.

    Raises:
        TopologyError: The partitions are not numbered from 0, or a row does not fit the fields.
    """

    ends = True

    @known_arguments
    def __init__(
        self,
        partitions: Mapping[int, Rows],
        fields: Fields,
        batch_rows_max: int,
        script: Sequence[Outage | Recut] = (),
    ) -> None:
        self.output_fields = fields
        self._partitions = _checked(partitions, fields, batch_rows_max)
        self._take = batch_rows_max
        self._script = tuple(script)

    def beginning_at(self, place: Json) -> Self:
        """Return a copy of this spout that skips the first rows of its partitions.

        Args:
            place: How many rows to skip, by partition number as text; 0 for partitions without an
                entry.

        Raises:
            ConfigError: It is not such a mapping.
        """
        begun = copy(self)
        begun._partitions = _behind(place, self._partitions)
        return begun

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        """Make the planning part.

        Raises:
            ConfigError: No batch can have ``min_batch_rows`` rows: lower it, or raise
                *batch_rows_max*.
        """
        check_min_batch_rows(config, self._take, len(self._partitions))
        return _RowsCoordinator(self._partitions, self._take)

    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        """Make an emitting part."""
        return _OpaqueRowsEmitter(self._partitions, self._take, self._script)


@dataclass(frozen=True, slots=True)
class Outage:
    """A partition is down for a batch: it emits nothing and keeps its position.

    Attributes:
        partition: Number of the partition.
        txid: The batch.
        attempt: Number of the attempt within its epoch; None for every attempt.
    """

    partition: int
    txid: int
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class Recut:
    """An entry of a script: one attempt takes *take* rows from each partition.

    Attributes:
        txid: The batch.
        attempt: Number of the attempt within its epoch.
        take: The maximum number of rows it takes from a partition; 0 for an empty batch.
        partition: The partition to which this applies; None for all.
    """

    txid: int
    attempt: int
    take: int
    partition: int | None = None


class _RowsCoordinator(PartitionedCoordinator):
    def __init__(self, partitions: Partitions, take: int) -> None:
        self._partitions = partitions
        self._take = take

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Return whether there are rows for this batch after those of the batches before it.

        Rows that an outage left over count once the batch that met it is the last known one.
        """
        needed = max((-(-rows // self._take) for rows in self._left(last.metadata)), default=0)
        return txid - last.txid <= needed

    def ended(self, last: LastBatch) -> bool:
        return not any(self._left(last.metadata))

    def number_of_partitions(self) -> int:
        return len(self._partitions)

    def unread(self, last: LastBatch) -> Mapping[str, int]:
        return {str(at): rows for at, rows in enumerate(self._left(last.metadata))}

    def lag(self, metadata: Mapping[str, Json]) -> Mapping[str, int]:
        return {str(at): rows for at, rows in enumerate(self._left(dict(metadata)))}

    def _left(self, metadata: Json) -> list[int]:
        cut = metadata if isinstance(metadata, dict) else {}
        left = []
        for at, rows in enumerate(self._partitions):
            end = _end(cut.get(str(at)))
            if end > len(rows):
                raise _lost(at, rows, end)
            left.append(len(rows) - end)
        return left


class _RowsEmitter(PartitionedTransactionalEmitter):
    def __init__(self, partitions: Partitions, take: int) -> None:
        self._partitions = partitions
        self._take = take

    def emit_partition_batch_new(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
        *,
        rows_max: int | None = None,
    ) -> Json:
        take = _least(self._take, rows_max)
        return _emit(collector, self._partitions[partition], _end(last_metadata), take)

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        metadata: Json,
    ) -> None:
        index, amount = _range(metadata)
        rows = self._partitions[partition]
        if index + amount > len(rows):
            raise _lost(partition, rows, index + amount)
        _emit(collector, rows, index, amount)


class _OpaqueRowsEmitter(OpaquePartitionedTransactionalEmitter):
    def __init__(
        self, partitions: Partitions, take: int, script: tuple[Outage | Recut, ...]
    ) -> None:
        self._partitions = partitions
        self._take = take
        self._script = script

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
        *,
        rows_max: int | None = None,
    ) -> Json:
        take = self._take
        for event in self._script:
            if event.txid != attempt.txid or event.attempt not in (None, attempt.attempt):
                continue
            if event.partition not in (None, partition):
                continue
            if isinstance(event, Outage):
                return None
            take = event.take
        take = _least(take, rows_max)
        return _emit(collector, self._partitions[partition], _end(last_metadata), take)

    def repeat_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        metadata: Json,
    ) -> bool:
        index, amount = _range(metadata)
        rows = self._partitions[partition]
        if index + amount > len(rows):
            raise _lost(partition, rows, index + amount)
        _emit(collector, rows, index, amount)
        return True


def _behind(place: Json, partitions: Partitions) -> Partitions:
    numbers = [str(at) for at in range(len(partitions))]
    if not isinstance(place, dict) or not all(
        at in numbers and type(rows) is int and rows >= 0 for at, rows in place.items()
    ):
        raise ConfigError(
            f"a memory spout cannot begin at this place; got {place!r:.100}; expected how many "
            "rows to skip in each partition, by its number as text, such as {'0': 7}",
            setting="begins",
        )
    left_out = cast("dict[str, int]", place)
    return tuple(rows[left_out.get(at, 0) :] for at, rows in zip(numbers, partitions, strict=True))


def _least(take: int, rows_max: int | None) -> int:
    return take if rows_max is None else min(take, rows_max)


def _emit(collector: BatchOutputCollector, rows: Rows, start: int, take: int) -> Json:
    taken = rows[start : start + take]
    for row in taken:
        collector.emit(row)
    return [start, len(taken)]


def _lost(partition: int, rows: Rows, end: int) -> OffsetRegression:
    return OffsetRegression(
        f"partition {partition} of the memory spout has {len(rows)} rows, but a planned batch ends "
        f"at {end}; expected at least {end} rows; start with the rows that were there before, or "
        "see docs/how-to/operations.md, 'A source that went back'",
        partition=partition,
    )


def _end(metadata: Json) -> int:
    return sum(_range(metadata)) if metadata is not None else 0


def _range(metadata: Json) -> tuple[int, int]:
    match metadata:
        case [int(index), int(amount)]:
            return index, amount
    raise other_position("a memory spout", metadata)


def _checked(partitions: Mapping[int, Rows], fields: Fields, rows_max: int) -> Partitions:
    if not isinstance(fields, Fields):
        raise TopologyError(
            f"fields of a memory spout are wrong; got {fields!r}; expected Fields",
            setting="fields",
            got=repr(fields),
        )
    if type(rows_max) is not int or rows_max < 1:
        raise TopologyError(
            f"batch_rows_max of a memory spout is wrong; got {rows_max!r}; expected a whole number "
            "of at least 1",
            setting="batch_rows_max",
            got=repr(rows_max),
        )
    check_fields(fields)
    if not isinstance(partitions, Mapping) or sorted(partitions) != list(range(len(partitions))):
        got = list(partitions) if isinstance(partitions, Mapping) else partitions
        raise TopologyError(
            f"partitions of a memory spout are wrong; got {got!r:.200}; expected a mapping with "
            "the keys 0, 1, 2 …",
            setting="partitions",
            got=f"{got!r:.200}",
        )
    partitions = {partition: list(rows) for partition, rows in partitions.items()}
    for partition, rows in partitions.items():
        for at, row in enumerate(rows):
            if not fits(row, fields):
                raise TopologyError(
                    f"row {at} of partition {partition} does not fit the fields; got {row!r:.200}; "
                    f"expected a list of {len(fields)} values: {', '.join(fields.names)}",
                    partition=partition,
                    row=at,
                    expected=fields.names,
                )
    return tuple(tuple(tuple(row) for row in partitions[at]) for at in range(len(partitions)))


def fits(row: Sequence[Any], fields: Fields) -> bool:
    """Return whether a row has one value for each field."""
    return not isinstance(row, str | bytes | Mapping | Set) and len(row) == len(fields)


def check_fields(fields: object) -> None:
    """Check the fields that a memory spout is given.

    Raises:
        FieldsError: They are no ``Fields``.
    """
    if not isinstance(fields, Fields):
        raise FieldsError(
            f"the fields of a memory spout are of the wrong type; got {fields!r:.200}; expected "
            "Fields; write e.g. Fields('word string, amount long')",
            setting="fields",
            got=f"{fields!r:.200}",
        )
