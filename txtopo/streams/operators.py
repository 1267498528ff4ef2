"""Operators without state, and FusedOperators, the bolt that runs several of them in a row.

An operator takes a record batch and yields record batches with its declared columns. So the same
values pass between two operators as would pass between two bolts, and fusion does not change any
result.
"""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, ClassVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import ArrowBolt
from txtopo.collector import ArrowOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.emitted_values import BATCH_TUPLES_MAX
from txtopo.errors import EmitError
from txtopo.metadata import Json
from txtopo.stages.columns import conform, to_batches
from txtopo.stages.replays import AnswersDigest
from txtopo.state.columns import rows_of
from txtopo.traits import Traits, VersionedTable
from txtopo.tuples import DEFAULT_STREAM, Fields, Origin, Stream, Tuple

MATCHING, OTHERS = "matching", "others"
"""The streams of a branch."""


@dataclass(frozen=True)
class Operator(ABC):
    """What one operator does with rows. Picklable if the user's function is.

    Attributes:
        id: Its id, for messages.
        inputs: The fields of its input.
        fields: The fields of its output.
        function: The user's function.
        word: The name of its method.
        divides: Whether it emits to the two streams of a branch.
        needs_planned_time: Whether it needs the time at which the batch was planned.
        asks_outside: Whether its rows are answers from outside; it then may set rows aside.
    """

    id: str
    inputs: Fields
    fields: Fields
    function: Callable[..., Any]
    word: ClassVar[str]
    divides: ClassVar[bool] = False
    needs_planned_time: ClassVar[bool] = False
    asks_outside: ClassVar[bool] = False

    @property
    def told(self) -> str:
        """The text that ``explain()`` shows for the operator."""
        return self.word

    @property
    def lookups(self) -> Mapping[str, VersionedTable]:
        """The outside tables that the operator reads, by id."""
        return {}

    def bound(self, context: TaskContext, collector: ArrowOutputCollector) -> Operator:
        """Return this operator with what it needs of a batch; by default, unchanged.

        Args:
            context: What the task is told.
            collector: Takes rows that are set aside; what is emitted is not the operator's concern.
        """
        return self

    @property
    def content(self) -> Json:
        """What a replay of the task is compared by, for an operator that asks outside."""
        return None

    @abstractmethod
    def apply(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> Iterator[pa.RecordBatch]:
        """Yield the resulting record batches, in order."""

    def rows(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> Iterator[Tuple]:
        """Yield rows as functions get them."""
        origin = Origin(attempt, self.id, DEFAULT_STREAM, self.inputs)
        return (Tuple(values, origin) for values in rows_of(batch))

    def mask(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> pa.Array:
        """Return for each row whether the function returns true.

        Raises:
            EmitError: The function returned a coroutine or a generator, which is always true.
        """
        answers = [self.function(row) for row in self.rows(batch, attempt)]
        if later := {CoroutineType, GeneratorType, AsyncGeneratorType} & set(map(type, answers)):
            raise EmitError(
                f"the function of {self.id!r} did not return a truth value; got a "
                f"{later.pop().__name__}; expected True or False; finish the work before returning",
                component=self.id,
            )
        return pa.array(list(map(bool, answers)), pa.bool_())

    def conformed(self, batch: object) -> pa.RecordBatch:
        """Return the record batch that the function returned, with the declared columns.

        Raises:
            EmitError: It is not a record batch, or its columns do not fit; repair the function.
        """
        if not isinstance(batch, pa.RecordBatch):
            raise EmitError(
                f"the function of {self.id!r} did not return a record batch; got {batch!r:.200}; "
                "expected a pyarrow.RecordBatch",
                component=self.id,
            )
        schema = self.fields.arrow_schema()
        return conform(self.id, DEFAULT_STREAM, self.fields, schema, batch)


def batches_of(id: str, fields: Fields, rows: Sequence[object]) -> Iterator[pa.RecordBatch]:
    """Convert the rows that a function returned to record batches of the declared types.

    Raises:
        EmitError: The values of a row do not fit the declaration; repair the function.
    """
    width, checked = len(fields), cast("Sequence[Sequence[Any]]", rows)
    if not rows:
        return
    # Building two sets is faster than checking each row.
    if not {list, tuple}.issuperset(map(type, rows)) or set(map(len, checked)) != {width}:
        for row in rows:
            if not isinstance(row, list | tuple) or len(row) != width:
                raise EmitError(
                    f"the function of {id!r} did not return a row; got {row!r:.200}; expected a "
                    f"list of {width}: {', '.join(fields.names)}",
                    component=id,
                )
    yield from to_batches(id, DEFAULT_STREAM, fields, fields.arrow_schema(), checked)


class MapRows(Operator):
    """Returns one row for each row."""

    word = "map"

    def apply(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> Iterator[pa.RecordBatch]:
        """Call the function with each row."""
        rows = [self.function(row) for row in self.rows(batch, attempt)]
        return batches_of(self.id, self.fields, rows)


class FlatMapRows(Operator):
    """Returns any number of rows for each row."""

    word = "flat_map"

    def apply(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> Iterator[pa.RecordBatch]:
        """Call the function with each row."""
        found: list[object] = []
        for row in self.rows(batch, attempt):
            more = self.function(row)
            if isinstance(more, str | bytes) or not isinstance(more, Iterable):
                raise EmitError(
                    f"the function of {self.id!r} did not return rows; got {more!r:.200}; expected "
                    "a list of rows, each a list of values; an empty list for no rows",
                    component=self.id,
                )
            found += more
            if len(found) >= BATCH_TUPLES_MAX:
                yield from batches_of(self.id, self.fields, found)
                found = []
        yield from batches_of(self.id, self.fields, found)


@dataclass(frozen=True)
class AddColumns(Operator):
    """Adds columns to each row, or replaces values.

    Attributes:
        made: The columns whose values the function returns.
    """

    made: Fields
    word = "with_columns"

    def apply(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> Iterator[pa.RecordBatch]:
        """Call the function with each row, and put its values into their columns."""
        values = [self.function(row) for row in self.rows(batch, attempt)]
        schema, start = self.fields.arrow_schema(), 0
        for part in batches_of(self.id, self.made, values):
            before = batch.slice(start, part.num_rows)
            start += part.num_rows
            columns = [
                (part if name in self.made.index else before).column(name)
                for name in self.fields.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class SelectColumns(Operator):
    """Keeps some columns, possibly under other names; it has no function.

    Attributes:
        columns: The columns of the input, in the order of the fields.
    """

    columns: tuple[str, ...]
    word = "select"

    def apply(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> Iterator[pa.RecordBatch]:
        """Return batches with only the selected columns."""
        columns = [batch.column(name) for name in self.columns]
        yield pa.RecordBatch.from_arrays(columns, schema=self.fields.arrow_schema())


@dataclass(frozen=True)
class AddPlannedTime(Operator):
    """Adds the time at which the batch of a row was planned; it has no function.

    Attributes:
        time: The time, once the operator is bound to a batch.
    """

    time: datetime.datetime | None = None
    word = "with_planned_time"
    needs_planned_time = True

    def bound(self, context: TaskContext, collector: ArrowOutputCollector) -> AddPlannedTime:
        """Return this operator for a batch: with its time."""
        return replace(self, time=context.planned_time)

    def apply(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> Iterator[pa.RecordBatch]:
        """Add the time to each row."""
        schema = self.fields.arrow_schema()
        times = pa.repeat(pa.scalar(self.time, schema[-1].type), batch.num_rows)
        yield pa.RecordBatch.from_arrays([*batch.columns, times], schema=schema)


class FilterRows(Operator):
    """Keeps the rows for which a function returns true."""

    word = "filter"

    def apply(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> Iterator[pa.RecordBatch]:
        """Call the function with each row."""
        yield batch.filter(self.mask(batch, attempt))


class BranchRows(Operator):
    """Splits rows: those for which a function returns true, and all others."""

    word = "branch"
    divides = True

    def apply(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> Iterator[pa.RecordBatch]:
        """Yield the rows that match, then the others."""
        matching = self.mask(batch, attempt)
        yield batch.filter(matching)
        yield batch.filter(pc.invert(matching))


class FlatMapBatches(Operator):
    """Returns a record batch for each record batch."""

    word = "flat_map_batches"

    def apply(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> Iterator[pa.RecordBatch]:
        """Call the function with the batch."""
        yield self.conformed(self.function(batch))


class MapBatches(Operator):
    """Returns a record batch with the same number of rows for each record batch."""

    word = "map_batches"

    def apply(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> Iterator[pa.RecordBatch]:
        """Call the function with the batch."""
        after = self.conformed(self.function(batch))
        if after.num_rows != batch.num_rows:
            raise EmitError(
                f"the function of {self.id!r} changed the number of rows; got "
                f"{after.num_rows} for {batch.num_rows}; expected one for each; use "
                "flat_map_batches or filter_batches",
                component=self.id,
            )
        yield after


class FilterBatches(Operator):
    """Keeps the rows of a record batch for which a boolean array is true."""

    word = "filter_batches"

    def apply(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> Iterator[pa.RecordBatch]:
        """Call the function with the batch."""
        mask = self.function(batch)
        fits = isinstance(mask, pa.Array | pa.ChunkedArray) and pa.types.is_boolean(mask.type)
        if not fits or len(mask) != batch.num_rows:
            raise EmitError(
                f"the function of {self.id!r} did not return a mask; got {mask!r:.200}; expected "
                f"an array of {batch.num_rows} booleans, one for each row",
                component=self.id,
            )
        yield batch.filter(mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask)


class FusedOperators(ArrowBolt):
    """Runs consecutive operators; only the last one may be a branch.

    Delivery: the same as for any ``ArrowBolt``. It has no state.
    """

    writes_nowhere_else = True

    def __init__(self, chain: tuple[Operator, ...]) -> None:
        self._chain = chain
        fields = Stream(chain[-1].fields)
        names = (MATCHING, OTHERS) if chain[-1].divides else (DEFAULT_STREAM,)
        self.output_streams: Mapping[str, Stream | Fields] = dict.fromkeys(names, fields)

    @property
    def traits(self) -> Traits:
        """The traits of all operators together, with the lookups that they read."""
        lookups = {id: table for each in self._chain for id, table in each.lookups.items()}
        asking = any(each.asks_outside for each in self._chain)
        clients = {name for each in lookups.values() for name in each.client_modules}
        return Traits(
            needs_planned_time=any(each.needs_planned_time for each in self._chain),
            lookups=lookups,
            client_modules=sorted(clients),
            operators=tuple(each.told for each in self._chain),
            asks_outside=asking,
            makes_dead_letters=asking,
        )

    @property
    def content(self) -> Json:
        """What a replay of the task is compared by."""
        return AnswersDigest.sum(each.content for each in self._chain if each.asks_outside)

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        self._collector, self._attempt = collector, attempt
        self._chain = tuple(each.bound(context, collector) for each in self._chain)

    def execute(self, batch: pa.RecordBatch) -> None:
        """Pass a batch through all operators."""
        self._run(batch, 0)

    def finish_batch(self) -> None:
        """Do nothing: each record batch has been processed already."""

    def _run(self, batch: pa.RecordBatch, at: int) -> None:
        if not batch.num_rows:
            return
        operator = self._chain[at]
        parts = self._applied(operator, batch)
        if at + 1 < len(self._chain):
            for part in parts:
                self._run(part, at + 1)
        elif operator.divides:
            for stream, part in zip(self.output_streams, parts, strict=True):
                self._collector.emit(part, stream)
        else:
            for part in parts:
                self._collector.emit(part)

    def _applied(self, operator: Operator, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Apply an operator; add its id to its errors, but not to errors of later operators."""
        try:
            yield from operator.apply(batch, self._attempt)
        except Exception as error:
            error.add_note(f"in operator {operator.id!r} ({operator.word})")
            raise
