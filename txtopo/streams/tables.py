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

import numpy as np
import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import ArrowBolt, BatchBolt, Committer
from txtopo.collector import ArrowOutputCollector, BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import EmitError
from txtopo.stages.combining import Aggregating as Aggregating
from txtopo.state.backend import StateTable
from txtopo.state.keyed_columns import (
    differing,
    is_key,
    last_of_each,
    order_of,
    positions,
    there,
    with_plain_zeros,
    without_keys,
)
from txtopo.state.reader import ReaderView
from txtopo.state.transaction import StateTransaction
from txtopo.streams.batch_aggregate import stream_fields
from txtopo.streams.largest_rows import MaxBy
from txtopo.streams.materialized import Materializing
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

FOUND = Fields("found boolean")
"""What a query of a table that keeps keys alone adds to a row: whether it has the key."""

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
        removes: Whether keys are removed.
    """

    key: tuple[str, ...]
    value: tuple[str, ...]
    order_by: tuple[str, ...]
    reads: ClassVar[bool] = False
    removes: ClassVar[bool] = False

    def inputs_of(self, rows: pa.Table) -> pa.Table:
        """Return rows of the stream; those of one key are ordered."""
        return rows.take(order_of(rows, self.order_by)) if self.order_by else rows

    def changed(self, rows: pa.Table) -> pa.Table:
        """Return the new value of each key in some rows: key columns, then value columns."""
        ordered = self.inputs_of(rows).select([*self.key, *self.value])
        return last_of_each(with_plain_zeros(ordered, self.key), len(self.key))

    def combined(self, before: pa.Table, changes: pa.Table) -> pa.Table:
        """Return the rows after changes."""
        return changes


Applies = Upserting | MaxBy | Materializing | Aggregating
"""How rows become values."""


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
        with self._state.transaction(self._attempt) as values:
            values.put_columns(self._applies.inputs_of(rows))


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


class TableCommitter(ArrowBolt, Committer):
    """Keeps a table, answers queries of it, and emits its changes.

    Delivery: each row counts exactly once. Each txid first applies the rows of the table, then
    answers the queries. The emitted rows depend only on the rows of the batch and on the state as
    of the previous txid. All of it is done with columns; functions of users are called for a row
    only where an aggregate has one.

    Args:
        id: Its id, which is also the name of its state.
        table: The schema of the state.
        sources: The streams whose rows the table is made of.
        rows: The fields of these rows.
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
        rows: Fields,
        applies: Applies,
        queries: Mapping[str, AnsweredQuery],
        changes: frozenset[str],
    ) -> None:
        self._id, self._table, self._applies = id, table, applies
        self._sources, self._fields = sources, rows
        self._queries, self._changes = dict(queries), changes
        shown = answer_fields(stream_fields(ReaderView(table).fields))
        streams: dict[str, Stream | Fields] = {
            name: Fields.of([*query.fields, *shown]) for name, query in queries.items()
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
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        self._collector, self._attempt = collector, attempt
        self._state, self._view = context.state(self._id), ReaderView(self._table)
        self._batches: list[pa.RecordBatch] = []
        self._asked: dict[str, list[pa.RecordBatch]] = {name: [] for name in self._queries}
        self._takers: dict[Output, list[list[pa.RecordBatch]]] = {}
        for source in self._sources:
            self._takers.setdefault(source, []).append(self._batches)
        for name, query in self._queries.items():
            for source in query.sources:
                self._takers.setdefault(source, []).append(self._asked[name])

    def execute(self, batch: pa.RecordBatch) -> None:
        """Never called, since :meth:`execute_from` takes the rows of all streams."""
        raise AssertionError("execute_from takes the rows")

    def execute_from(self, component: str, stream: str, batch: pa.RecordBatch) -> None:
        """Add rows of the table, or of a query, to the batch."""
        for batches in self._takers[component, stream]:
            batches.append(batch)

    def finish_batch(self) -> None:
        """Apply the rows of the table, emit what they changed, and answer the queries."""
        with self._state.transaction(self._attempt) as values:
            self._apply(values, self._rows())

    def _rows(self) -> pa.Table:
        """Return the rows of the batch that the table is made of."""
        return pa.Table.from_batches(self._batches, self._fields.arrow_schema())

    def _apply(self, values: StateTransaction, rows: pa.Table) -> None:
        """Apply the rows of the table, emit what they changed, and answer the queries."""
        changes = self._applies.changed(rows)
        if self._changes or self._applies.reads:
            self._change(values, changes)
        else:
            values.put_columns(changes)
        for stream, query in self._queries.items():
            self._answer(values, stream, query)

    def _change(self, values: StateTransaction, changes: pa.Table, *, told: bool = True) -> None:
        """Change the values of some keys; emit the changes if *told* and a stream reads them."""
        keys = changes.select(self._keys)
        if self._applies.removes:
            keys = last_of_each(keys, keys.num_columns)  # a key that is put and taken back
        before = values.get_columns(keys)
        after = self._applies.combined(before, changes)
        values.put_columns(after)
        if self._applies.removes:
            values.delete_columns(without_keys(before, after, self._keys).select(self._keys))
        if self._changes and told:
            self._tell(before, after)

    def _tell(self, before: pa.Table, after: pa.Table) -> None:
        """Emit the keys whose values have changed, in their order; some may be new or removed."""
        keys, removed = after.select(self._keys), without_keys(before, after, self._keys)
        if removed.num_rows:
            keys = pa.concat_tables([keys, removed.select(self._keys)])
        # The order must not depend on tasks, since consumers of a topic see it.
        keys = keys.take(order_of(keys, self._keys))
        names = list(self._table.value.names)
        was, now = (positions(keys, rows.select(self._keys)) for rows in (before, after))
        differs = there(was) != there(now)
        if names:  # a table of keys alone has no values
            differs |= differing(before.select(names).take(was), after.select(names).take(now))
        if not differs.any():
            return
        chosen = pa.array(np.flatnonzero(differs))
        keys, was, now = keys.take(chosen), was.take(chosen), now.take(chosen)
        old, new = self._seen(before, was), self._seen(after, now)
        if CHANGES in self._changes:
            self._emit([*keys.columns, *new.columns], CHANGES)
        if CHANGES_BEFORE in self._changes:
            self._emit([*keys.columns, *new.columns, *old.columns], CHANGES_BEFORE)
        if CHANGES_RETRACTED in self._changes:
            existed, exists = np.flatnonzero(there(was)), np.flatnonzero(there(now))
            names = [*self._keys, *new.column_names]
            back, put = (
                # A row is taken back as it was put, though -0.0 and 0.0 in the state are equal.
                with_plain_zeros(pa.table([*keys.columns, *rows.columns], names=names), names).take(
                    pa.array(place)
                )
                for rows, place in ((old, existed), (new, exists))
            )
            # The old row of a key goes right before the new one.
            order = np.argsort(np.append(existed, exists), kind="stable")
            both = pa.concat_tables([back, put]).take(pa.array(order))
            self._emit([*both.columns, pa.array(order < len(existed))], CHANGES_RETRACTED)

    def _seen(self, rows: pa.Table, places: pa.Int64Array) -> pa.Table:
        """Return the values of some rows as users see them, with NULL where there is no row."""
        shown, found = self._view.columns(rows.take(places.drop_null())), there(places)
        if found.all():
            return shown
        return shown.take(pa.array(np.cumsum(found) - 1, mask=~found))

    def _answer(self, values: StateTransaction, stream: str, query: AnsweredQuery) -> None:
        asked = pa.Table.from_batches(self._asked[stream], query.fields.arrow_schema())
        if not asked.num_rows:
            return
        keys = asked.select(query.on).rename_columns(self._keys)
        # A state refuses NULL and NaN in a key, which equal nothing.
        fits = is_key(keys, self._keys)
        found = self._found(values, keys if fits is None else keys.filter(fits))
        place = positions(keys, found.select(self._keys))
        if self._table.value:
            answers = self._view.columns(found).take(place).columns
        else:
            answers = [place.is_valid()]
        self._emit([*asked.columns, *answers], stream)

    def _found(self, values: StateTransaction, keys: pa.Table) -> pa.Table:
        """Return the rows of some keys for a query."""
        return values.get_columns(keys)

    @property
    def _keys(self) -> list[str]:
        return list(self._table.key.names)

    def _shown(self, rows: pa.Table) -> pa.Table:
        """Return rows of the table as users see them: key columns, then value columns."""
        shown = self._view.columns(rows)
        columns = [*rows.select(self._keys).columns, *shown.columns]
        return pa.table(columns, names=[*self._keys, *shown.column_names])

    def _emit(self, columns: Sequence[Any], stream: str) -> None:
        declared = self.output_streams[stream]
        assert isinstance(declared, Fields)
        for batch in pa.table(list(columns), schema=declared.arrow_schema()).to_batches():
            self._collector.emit(batch, stream)


def answer_fields(columns: Fields) -> Fields:
    """Return what a query adds to a row: the value columns of the table, or ``found``."""
    return columns or FOUND


def changed_fields(table: StateTable, stream: str) -> Fields:
    """Return the fields of a stream of changes of a table."""
    shown = stream_fields(ReaderView(table).fields)
    more: list[Field] = []
    if stream == CHANGES_BEFORE:
        more = [Field(f"{BEFORE}{each.name}", each.type) for each in shown]
    elif stream == CHANGES_RETRACTED:
        more = [RETRACTED]
    return Fields.of([*table.key, *shown, *more])


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
