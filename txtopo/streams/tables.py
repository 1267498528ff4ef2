"""Committers that read their state: TableCommitter and RunningValues.

Both have one task, so their commit phase runs in the driver. There a txid can read what earlier
txids of its group have written. Their states are opaque; this is checked when the program is
built (see :mod:`txtopo.streams.builder`), not again at run time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import ArrowBolt, BatchBolt, Committer
from txtopo.bolts.persistent_aggregate import PersistentAggregate
from txtopo.collector import ArrowOutputCollector, BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import EmitError
from txtopo.stages.aggregation import Aggregation
from txtopo.state.backend import StateTable, Values
from txtopo.state.columns import Columns, rows_of, values_of
from txtopo.state.reader import ReaderView
from txtopo.state.transaction import StateTransaction
from txtopo.streams.batch_aggregate import stream_fields
from txtopo.traits import Meaning, Traits
from txtopo.tuples import Field, Fields, Stream, Tuple

Output = tuple[str, str]
"""A stream: (component, name)."""

CHANGES, CHANGES_BEFORE = "changes", "changes_before"
"""The streams of a table's changes, without and with the old values."""

CHANGES_RETRACTED = "changes_retracted"
"""The stream of a table's changes in which the old row is emitted too, marked as taken back."""

RETRACTED = Field("retracted", "boolean")
"""The column that is true in the rows of ``changes_retracted`` that are taken back."""

# A value may be NULL, so None cannot mean that a key is absent.
_NOTHING = object()

BEFORE = "before_"
"""The prefix of the columns with the old values."""


class RunningValues(BatchBolt, Committer):
    """Calls a function with each row and the value of its key, and keeps what it returns.

    Delivery: each value counts each row exactly once. In a replay the function may be called again
    for a row, with the same value as in the previous attempt.

    Args:
        id: Its id, which is also the name of its state.
        key: The key fields.
        function: Gets the current value and a row; returns the next value and the row to emit.
        fields: The fields of the emitted rows.
        order_by: The fields by which the rows of a batch are ordered.
    """

    writes_nowhere_else = True

    def __init__(
        self,
        id: str,
        key: tuple[str, ...],
        function: Callable[[Any, Tuple], Any],
        fields: Fields,
        order_by: tuple[str, ...],
    ) -> None:
        self._id, self._key, self._function = id, key, function
        self.output_fields, self._order_by = fields, order_by

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        self._collector, self._attempt = collector, attempt
        self._state = context.state(self._id)
        self._rows: list[Tuple] = []

    def execute(self, tuple: Tuple) -> None:
        """Add a row to the batch."""
        self._rows.append(tuple)

    def finish_batch(self) -> None:
        """Call the function for the rows in order, and write the values."""
        rows = in_order(self._rows, self._order_by)
        keys = keys_of(rows, self._key)
        with self._state.transaction(self._attempt) as values:
            left, kept = Counter(keys), dict[Any, Any]()
            known = dict(zip(left, values.get_all(left), strict=True))
            for key, row in zip(keys, rows, strict=True):
                stored = known[key]
                after, emitted = self._called(self._value(stored, row), row)
                kept[key] = None if after is None else self._kept(stored, after, row)
                if left[key] > 1:
                    # The next row of the key gets the value as the state would return it.
                    left[key] -= 1
                    known[key] = None if after is None else values.as_read(kept[key])
                if emitted is not None:
                    self._collector.emit(emitted)
            for key in [key for key, value in kept.items() if value is None]:
                values.delete(key)
                del kept[key]
            values.put_all(kept.items())
            self._expire(values)

    def _value(self, stored: Any, row: Tuple) -> Any:
        """Return the value before a row, given the stored one; None if there is no value."""
        return stored

    def _kept(self, stored: Any, after: Any, row: Tuple) -> Any:
        """Return the value to store after a row."""
        return after

    def _expire(self, values: StateTransaction) -> None:
        """Expire old values; by default values are kept forever."""

    def _called(self, before: Any, row: Tuple) -> tuple[Any, Sequence[Any] | None]:
        answer = self._function(before, row)
        if isinstance(answer, tuple) and len(answer) == 2:
            after, emitted = answer
            if emitted is None or isinstance(emitted, list | tuple):
                return after, emitted
        raise EmitError(
            f"the function of {self._id!r} did not return a value and a row; got {answer!r:.200}; "
            "expected (value, [fields of the row]), with None for no value or no row",
            component=self._id,
        )


@dataclass(frozen=True)
class Upserting:
    """How rows become values: the last row of a key counts.

    Attributes:
        key: The key fields.
        value: The value fields.
        order_by: The fields by which the rows of a batch are ordered.
        reads: Whether a new value depends on the old one.
    """

    key: tuple[str, ...]
    value: tuple[str, ...]
    order_by: tuple[str, ...]
    reads: ClassVar[bool] = False

    def changed(self, rows: Sequence[Tuple]) -> dict[Any, Values]:
        """Return the new packed value of each key in some rows."""
        if not rows:
            return {}
        ordered = in_order(rows, self.order_by)
        index = rows[0].fields.index
        value = [index[name] for name in self.value]
        columns = zip(*[[row.values[at] for row in ordered] for at in value], strict=True)
        return dict(zip(keys_of(ordered, self.key), columns, strict=True))

    def combined(self, before: Sequence[Values | None], changes: Sequence[Values]) -> list[Values]:
        """Return the values after changes."""
        return list(changes)


class Aggregating:
    """How rows become values: partial aggregates are combined with what is stored.

    Args:
        aggregates: Key and aggregates.
        inputs: The fields of the rows that are aggregated.
    """

    reads: ClassVar[bool] = True

    def __init__(self, aggregates: PersistentAggregate, inputs: Fields) -> None:
        self._aggregation = Aggregation.of(aggregates, inputs)
        self._width = len(self._aggregation.keys)
        self._columns = Columns("", "value", aggregates.value_fields(inputs))

    def changed(self, rows: Sequence[Tuple]) -> dict[Any, Values]:
        """Return the combined partial aggregates of each key."""
        if not rows:
            return {}
        schema = self._aggregation.schema
        columns = zip(*(row.values for row in rows), strict=True)
        arrays = [pa.array(c, kind) for c, kind in zip(columns, schema.types, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        combined = self._aggregation.combine([batch]).select(self._aggregation.stored)
        return {
            plain(row[: self._width]): self._columns.opened(row[self._width :])
            for row in rows_of(combined)
        }

    def combined(self, before: Sequence[Values | None], changes: Sequence[Values]) -> list[Values]:
        """Return the values after changes; None in *before* means that a key has no value."""
        if not changes:
            return []
        none = (None,) * len(self._columns.fields)
        stored = zip(*(none if values is None else values for values in before), strict=True)
        # By columns: ten thousand values take 20 ms instead of 60.
        columns = zip(self._aggregation.aggregates, stored, zip(*changes, strict=True), strict=True)
        after = [map(one.combine_values, old, new) for one, old, new in columns]
        return list(zip(*after, strict=True))


class StoredRows(ArrowBolt, Committer):
    """Keeps the last row of each key in a table that nothing in the topology reads.

    Delivery: each row counts exactly once. The rows stay in Arrow unless the store needs another
    form.

    Args:
        id: Its id, which is also the name of its state.
        applies: Which columns are kept.
        fields: The fields of the rows.
    """

    writes_nowhere_else = True

    def __init__(self, id: str, applies: Upserting, fields: Fields) -> None:
        self._id, self._applies, self._fields = id, applies, fields

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        self._state, self._attempt = context.state(self._id), attempt
        self._batches: list[pa.RecordBatch] = []

    def execute(self, batch: pa.RecordBatch) -> None:
        """Add rows to the batch."""
        self._batches.append(batch)

    def finish_batch(self) -> None:
        """Write the rows."""
        rows = pa.Table.from_batches(self._batches, self._fields.arrow_schema())
        if self._applies.order_by:
            columns = zip(*map(values_of, rows.select(self._applies.order_by).columns), strict=True)
            places = [in_place(values) for values in columns]
            rows = rows.take(
                pa.array(sorted(range(len(places)), key=places.__getitem__), pa.int64())
            )
        with self._state.transaction(self._attempt) as values:
            values.put_columns(rows)


@dataclass(frozen=True)
class AnsweredQuery:
    """A query that a table answers.

    Attributes:
        sources: The streams whose rows query the table.
        fields: Their fields.
        on: The fields that are the key.
    """

    sources: tuple[Output, ...]
    fields: Fields
    on: tuple[str, ...]


class TableCommitter(BatchBolt, Committer):
    """Keeps a table, answers queries of it, and emits its changes.

    Delivery: each row counts exactly once. Each txid first applies the rows of the table, then
    answers the queries. The emitted rows depend only on the rows of the batch and on the state as
    of the previous txid.

    Args:
        id: Its id, which is also the name of its state.
        table: The schema of the state.
        sources: The streams whose rows the table is made of.
        applies: How rows become values.
        queries: The queries, by the name of the stream that carries the answers.
        changes: The streams of changes that are read.

    Attributes:
        meaning: What its rows mean, if a changed program must not alter it.
    """

    writes_nowhere_else = True
    meaning: Meaning | None = None

    def __init__(
        self,
        id: str,
        table: StateTable,
        sources: tuple[Output, ...],
        applies: Upserting | Aggregating,
        queries: Mapping[str, AnsweredQuery],
        changes: frozenset[str],
    ) -> None:
        self._id, self._table, self._applies = id, table, applies
        self._sources, self._queries, self._changes = sources, dict(queries), changes
        self._shown_fields = stream_fields(ReaderView(table).fields)
        streams: dict[str, Stream | Fields] = {
            name: Fields.of([*query.fields, *self._shown_fields]) for name, query in queries.items()
        }
        streams |= {name: changed_fields(table, name) for name in sorted(changes)}
        self.output_streams = streams

    @property
    def traits(self) -> Traits:
        """The traits of the table, with the meaning of its rows and of rows taken back."""
        taken_back = CHANGES_RETRACTED in self._changes
        return replace(
            super().traits,
            rows=self.meaning,
            retractions=CHANGES_RETRACTED if taken_back else None,
        )

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        self._collector, self._attempt = collector, attempt
        self._state, self._view = context.state(self._id), ReaderView(self._table)
        self._columns = Columns(self._id, "value", self._table.value)
        self._single = len(self._table.value) == 1
        self._json = any(field.type == "json" for field in self._table.value)
        self._rows: list[Tuple] = []
        self._asked: dict[str, list[Tuple]] = {name: [] for name in self._queries}
        self._takers: dict[Output, list[list[Tuple]]] = {}
        for source in self._sources:
            self._takers.setdefault(source, []).append(self._rows)
        for name, query in self._queries.items():
            for source in query.sources:
                self._takers.setdefault(source, []).append(self._asked[name])

    def execute(self, tuple: Tuple) -> None:
        """Add a row of the table, or of a query, to the batch."""
        for rows in self._takers[tuple.source_component, tuple.source_stream]:
            rows.append(tuple)

    def finish_batch(self) -> None:
        """Apply the rows of the table, emit what they changed, and answer the queries."""
        with self._state.transaction(self._attempt) as values:
            self._apply(values)

    def _apply(self, values: StateTransaction) -> None:
        """Apply the rows of the table, emit what they changed, and answer the queries."""
        changed = self._applies.changed(self._rows)
        if self._changes or self._applies.reads:
            self._change(values, changed)
        else:
            values.put_all((key, plain(value)) for key, value in changed.items())
        for stream, query in self._queries.items():
            self._answer(values, stream, query)

    def _change(
        self, values: StateTransaction, changed: Mapping[Any, Values], *, told: bool = True
    ) -> None:
        """Change the values of some keys; emit the changes if *told* and a stream reads them."""
        read = dict(zip(changed, self._read_all(values, list(changed)), strict=True))
        # The order must not depend on tasks, since consumers of a topic see it. A NULL in a key,
        # which cannot be ordered, was refused when the key was read.
        keys = sorted(changed)
        before = [read[key] for key in keys]
        # Packed as they are stored, since a user's aggregate may modify the value that it gets.
        held = [self._packed(old) for old in before] if self._changes and told else []
        after = self._applies.combined(before, [changed[key] for key in keys])
        values.put_all(zip(keys, map(plain, after), strict=True))
        if self._changes and told:
            for key, old in zip(keys, held, strict=True):
                self._tell(key, old, self._packed(self._read(values, key)))

    def _tell(self, key: Any, before: Values | None, after: Values | None) -> None:
        if before == after:
            return
        assert after is not None
        keys = key if isinstance(key, tuple) else (key,)
        row = (*keys, *self._view.row(after))
        if CHANGES in self._changes:
            self._collector.emit(row, CHANGES)
        if CHANGES_BEFORE in self._changes:
            self._collector.emit((*row, *self._shown(before)), CHANGES_BEFORE)
        if CHANGES_RETRACTED in self._changes:
            if before is not None:
                gone = (*keys, *self._view.row(before), True)
                self._collector.emit(gone, CHANGES_RETRACTED)
            self._collector.emit((*row, False), CHANGES_RETRACTED)

    def _answer(self, values: StateTransaction, stream: str, query: AnsweredQuery) -> None:
        rows = self._asked[stream]
        keys = keys_of(rows, query.on)
        known = [_may_be_there(key if isinstance(key, tuple) else (key,)) for key in keys]
        values.get_all({key: None for key, there in zip(keys, known, strict=True) if there})
        for row, key, there in zip(rows, keys, known, strict=True):
            found = self._packed(self._found(values, key) if there else None)
            self._collector.emit((*row.values, *self._shown(found)), stream)

    def _found(self, values: StateTransaction, key: Any) -> Values | None:
        """Return the values of a key for a query; None if there is none."""
        return self._read(values, key)

    def _shown(self, packed: Values | None) -> Values:
        return (None,) * len(self._shown_fields) if packed is None else self._view.row(packed)

    def _read(self, values: StateTransaction, key: Any) -> Values | None:
        """Return the values of a key; None if there is none."""
        named = values.get(key, _NOTHING)
        return None if named is _NOTHING else self._values(named)

    def _read_all(self, values: StateTransaction, keys: Sequence[Any]) -> list[Values | None]:
        found = values.get_all(keys)
        if self._single:
            # A value may be NULL, so None in *found* may be a value.
            return [self._read(values, key) for key in keys]
        return [None if named is None else self._values(named) for named in found]

    def _values(self, named: Any) -> Values:
        """Return the values that a transaction returned for a key, in the order of the columns."""
        return (named,) if self._single else tuple(named.values())

    def _packed(self, values: Values | None) -> Values | None:
        """Return values in their stored form: json as text."""
        return values if values is None or not self._json else self._columns.exact(values)


def changed_fields(table: StateTable, stream: str) -> Fields:
    """Return the fields of a stream of changes of a table."""
    shown = stream_fields(ReaderView(table).fields)
    more: list[Field] = []
    if stream == CHANGES_BEFORE:
        more = [Field(f"{BEFORE}{each.name}", each.type) for each in shown]
    elif stream == CHANGES_RETRACTED:
        more = [RETRACTED]
    return Fields.of([*table.key, *shown, *more])


def _may_be_there(key: tuple[Any, ...]) -> bool:
    # A state refuses NULL and NaN in a key, which equal nothing.
    return all(value is not None and value == value for value in key)


def keys_of(rows: Sequence[Tuple], names: tuple[str, ...]) -> list[Any]:
    """Return the key of each row in the form in which a transaction takes it."""
    if not rows:
        return []
    # All rows have the same fields, so the columns are looked up once.
    index = rows[0].fields.index
    key = itemgetter(*(index[name] for name in names))
    return [key(row.values) for row in rows]


def plain(packed: tuple[Any, ...]) -> Any:
    """Return a key or value in the form in which a transaction takes it."""
    return packed[0] if len(packed) == 1 else packed


AnyRow = TypeVar("AnyRow", bound=Tuple)


def in_order(rows: Iterable[AnyRow], names: tuple[str, ...]) -> list[AnyRow]:
    """Sort rows by some fields, NULL first and NaN last; the sort is stable."""

    def place(row: AnyRow) -> tuple[tuple[bool, bool, Any], ...]:
        return in_place([row[name] for name in names])

    return sorted(rows, key=place) if names else list(rows)


def in_place(values: Iterable[Any]) -> tuple[tuple[bool, bool, Any], ...]:
    """Return the sort key of some values: NULL first and NaN last."""
    return tuple((v is not None, v != v, 0 if v != v else v) for v in values)
