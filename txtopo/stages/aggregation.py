"""Aggregation: combines rows for a ``PersistentAggregate`` into partial aggregates, in columns.

Rows are combined where they are emitted, and the partial aggregates of all senders are combined in
the driver. Both are an Arrow ``group_by`` with one row for each distinct key. NULL is a key like
any other here, but the state refuses it. All NaN are one key, and so are 0.0 and -0.0.

A sum that exceeds its type is an error. Arrow would let it wrap. So a bound is computed from the
largest value first. Only if the bound exceeds the type, the sum is computed in wider numbers.

NaN is the largest number, as in the states. Arrow leaves it out of the largest and the smallest
value, and before version 25 answers an infinity where a key has nothing else. So it is looked up
beside it whether a key has a NaN, or only that. The flags have no NULL, since Arrow's ``any`` of
those versions is wrong where a key of an earlier chunk has only NULL.

-0.0 is aggregated as 0.0, except by an aggregate of the user. They are equal, so that it would
depend on the cut of batches which of them is the largest or the smallest value, and not every store
keeps the sign.

Arrow counts the bytes of a column in 31 bits, and ``group_by`` does not check it: if the keys have
more than 2 GiB, their offsets wrap, and the result has wrong keys. So fewer bytes are combined at a
time. If the result, which has one row for each key, is larger, it is refused with an error.

Aggregates that Arrow cannot combine are combined in Python (:class:`Folding`). Arrow gathers the
values of each key in a list (``hash_list``), for each column that the aggregate reads. An aggregate
that knows how combines all keys at once, in columns. Otherwise it does so key by key: the lists
become rows again, the aggregate makes one partial aggregate of them, and its type is checked like
that of a stored value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.bolts.persistent_aggregate import GLOBAL_KEY, PersistentAggregate
from txtopo.errors import ValueRefusedError
from txtopo.state.aggregates import Aggregate, Count, OwnAggregate, PythonAggregate
from txtopo.state.columns import Columns
from txtopo.state.keyed_columns import KeyedRows
from txtopo.tuples import Field, Fields

# The limit of a column of text: Arrow's offsets have 32 bits, with a sign.
COLUMN_BYTES_MAX = 2**31 - 1

_LONG_MAX = 2**63 - 1

_DECIMAL_MAX = 10**38 - 1


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Combines rows and partial aggregates of one ``PersistentAggregate``.

    Attributes:
        key: Names of the key fields; empty if all rows are combined into one.
        names: Names of the value columns.
        aggregates: The aggregate of each value column.
        schema: Schema of partial aggregates: the key columns, then one column for each value
            column. An aggregate that is combined in Python may have further columns after its own.
        foldings: The aggregates that are combined in Python, by the name of their value column.
        retracted: Name of the input field that says whether a row is retracted; None if there is
            none.
    """

    key: tuple[str, ...]
    names: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    schema: pa.Schema
    foldings: Mapping[str, Folding]
    retracted: str | None = None

    @classmethod
    def of(cls, bolt: PersistentAggregate, inputs: Fields) -> Aggregation:
        """Return the aggregation of *bolt* over inputs with these fields."""
        names, aggregates = tuple(bolt.aggregates), bolt.stored_aggregates(inputs)
        foldings = {
            name: Folding.of(name, aggregate, inputs, bolt.retracted)
            for name, aggregate in zip(names, aggregates, strict=True)
            if isinstance(aggregate, PythonAggregate)
        }
        columns: list[Field] = [*bolt.key_fields(inputs)]
        for field in bolt.value_fields(inputs):
            columns += foldings[field.name].columns.fields if field.name in foldings else [field]
        schema = pa.schema([one for field in columns for one in Fields.of([field]).arrow_schema()])
        return cls(bolt.key, names, aggregates, schema, foldings, bolt.retracted)

    @property
    def ordered(self) -> bool:
        """Whether the result depends on the order of combining, as a sum of floats does."""
        return any(
            isinstance(aggregate, OwnAggregate)
            or (aggregate.operator == "add" and pa.types.is_floating(self.schema.field(name).type))
            for name, aggregate in zip(self.names, self.aggregates, strict=True)
        )

    @property
    def by_txid(self) -> bool:
        """Whether the txid decides between partial aggregates, as it does for First and Last."""
        return any(folding.aggregate.by_txid for folding in self.foldings.values())

    @property
    def keys(self) -> list[str]:
        """Names of the key columns."""
        return list(self.key or self.schema.names[:1])

    @property
    def stored(self) -> list[str]:
        """Names of the columns that are written to the store."""
        return [*self.keys, *self.names]

    def inputs_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return input rows as partial aggregates.

        There is one for each input row. If an aggregate is combined in Python, there is one for
        each key.
        """
        columns = dict(zip(self.keys, self._keys_of(batch), strict=True))
        for name, aggregate in zip(self.names, self.aggregates, strict=True):
            if name in self.foldings:
                folding = self.foldings[name]
                columns |= zip(folding.gathered, folding.inputs_of(batch), strict=True)
            else:
                column = self._signed(batch, self._input_of(batch, name, aggregate), name)
                columns[name] = _plain(column)
        if self.foldings:
            table = pa.Table.from_pydict(columns)
            return self._combined(table, lambda folding: folding.gathered, Folding.folded)
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=self.schema)

    def combine(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Combine partial aggregates into one for each key.

        Raises:
            ValueRefusedError: A sum does not fit its column, or the keys together exceed a column.
        """
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            size += _text_bytes(batch)
            if size > COLUMN_BYTES_MAX and waiting:
                waiting = [self._merged(waiting)]
                size = _text_bytes(waiting[0]) + _text_bytes(batch)
            if size > COLUMN_BYTES_MAX:
                raise self._too_large([*waiting, batch])
            waiting.append(batch)
        return self._merged(waiting)

    def _merged(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        if len(batches) == 1 and batches[0].num_rows == 1 and not self.foldings:
            return batches[0]  # Arrow takes 0.3 ms to find out that one row has one key.
        table = pa.Table.from_batches(batches, self.schema)
        return self._combined(table, self._names_of_partials, Folding.merged)

    def _names_of_partials(self, folding: Folding) -> list[str]:
        return list(folding.columns.fields.names)

    def _keys_of(self, batch: pa.RecordBatch) -> Iterator[pa.Array]:
        if not self.key:
            yield pa.repeat(GLOBAL_KEY, batch.num_rows)
        for name in self.key:
            yield _plain(batch.column(name)).cast(self.schema.field(name).type)

    def _input_of(self, batch: pa.RecordBatch, name: str, aggregate: Aggregate) -> pa.Array:
        kind = self.schema.field(name).type
        if aggregate.field is None:
            return pa.repeat(pa.scalar(1, kind), batch.num_rows)
        if isinstance(aggregate, Count):
            return batch.column(aggregate.field).is_valid().cast(kind)
        return batch.column(aggregate.field).cast(kind)

    def _signed(self, batch: pa.RecordBatch, column: pa.Array, name: str) -> pa.Array:
        """Return a column of values to add; those of retracted rows are negated."""
        if self.retracted is None:
            return column
        gone = batch.column(self.retracted).fill_null(False)
        try:
            return pc.if_else(gone, pc.negate_checked(pc.if_else(gone, column, None)), column)
        except pa.ArrowInvalid as error:
            raise self._unfit(name) from error

    def _combined(
        self,
        table: pa.Table,
        gathered: Callable[[Folding], list[str]],
        reduce: Callable[[Folding, list[pa.ChunkedArray]], list[pa.Array]],
    ) -> pa.RecordBatch:
        steps: list[tuple[object, ...]] = []
        for name, aggregate in zip(self.names, self.aggregates, strict=True):
            if name in self.foldings:
                steps += [(column, "list") for column in gathered(self.foldings[name])]
            elif aggregate.operator == "add":
                table = self._widened(table, name)
                options = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)
                steps.append((name, "sum", options))
            else:
                steps.append((name, aggregate.operator))
                if pa.types.is_floating(table.schema.field(name).type):
                    flag, values = f"flag of {name}", pc.is_nan(table.column(name))
                    values = values if aggregate.operator == "max" else pc.invert(values)
                    table = table.append_column(flag, pc.fill_null(values, False))
                    steps.append((flag, "any"))
        grouped = pa.TableGroupBy(table, self.keys, use_threads=False).aggregate(steps)
        found = iter(grouped.columns)
        columns = [next(found).combine_chunks() for _ in self.keys]
        for name, aggregate in zip(self.names, self.aggregates, strict=True):
            if name in self.foldings:
                folding = self.foldings[name]
                columns += reduce(folding, [next(found) for _ in gathered(folding)])
                continue
            column = next(found)
            if aggregate.operator != "add" and pa.types.is_floating(column.type):
                flag = next(found)
                only = flag if aggregate.operator == "max" else pc.invert(flag)
                column = pc.if_else(pc.and_(only, column.is_valid()), math.nan, column)
            columns.append(self._narrowed(column, name))
        if any(isinstance(column, pa.ChunkedArray) for column in columns):
            raise self._too_large([pa.table(columns, schema=self.schema)])
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _widened(self, table: pa.Table, name: str) -> pa.Table:
        """Return the table; column *name* is cast to a wider type if its sum could overflow."""
        column, at = table.column(name), table.schema.get_field_index(name)
        kind = column.type
        if pa.types.is_floating(kind) or not len(column):
            return table
        extremes = pc.min_max(column)
        bound = max(
            (
                abs(int(v.as_py().scaleb(kind.scale)) if pa.types.is_decimal(kind) else v.as_py())
                for v in extremes.values()
                if v.is_valid
            ),
            default=0,
        )
        largest = _DECIMAL_MAX if pa.types.is_decimal(kind) else _LONG_MAX
        if bound * len(column) <= largest:
            return table
        scale = kind.scale if pa.types.is_decimal(kind) else 0
        return table.set_column(at, name, column.cast(pa.decimal256(76, scale)))

    def _narrowed(self, column: pa.ChunkedArray, name: str) -> pa.Array:
        kind = self.schema.field(name).type
        try:
            return column.combine_chunks().cast(kind)
        except pa.ArrowInvalid as error:
            raise self._unfit(name) from error

    def _too_large(self, parts: Sequence[pa.RecordBatch | pa.Table]) -> ValueRefusedError:
        sizes = {
            name: sum(part.column(name).nbytes for part in parts)
            for name, kind in zip(self.schema.names, self.schema.types, strict=True)
            if _is_text(kind)
        }
        column = max(sizes, key=lambda name: sizes[name])
        return ValueRefusedError(
            "the keys of one batch and their values are too large for a column; got "
            f"{sizes[column]} bytes in column {column!r}; expected at most {COLUMN_BYTES_MAX}; no "
            "setting raises this limit; let the spout cut smaller batches, or aggregate shorter "
            "values",
            column=column,
            bytes=sizes[column],
        )

    def _unfit(self, name: str) -> ValueRefusedError:
        return ValueRefusedError(
            f"a sum does not fit value column {name!r}; got more than "
            f"{self.schema.field(name).type} holds; "
            "expected smaller values; aggregate a wider type, such as decimal(38,0)",
            column=name,
        )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _text_bytes(batch: pa.RecordBatch) -> int:
    """Return the number of bytes of the largest text column."""
    return max((column.nbytes for column in batch.columns if _is_text(column.type)), default=0)


def _plain(column: pa.Array) -> pa.Array:
    """Return a column in which equal floats have the same bits."""
    if not pa.types.is_floating(column.type):
        return column
    nan = pa.scalar(float("nan"), column.type)
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, pa.scalar(0.0, column.type)))


def _as_it_is(column: pa.Array) -> pa.Array:
    return column


Reduce = Callable[[Sequence[tuple[Any, ...]]], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Folding:
    """Combines one value column of a ``PersistentAggregate`` in Python.

    Attributes:
        name: Name of the value column.
        aggregate: The aggregate.
        columns: The columns of a partial aggregate.
        retracted: Name of the input field that says whether a row is retracted; None if there is
            none.
    """

    name: str
    aggregate: PythonAggregate
    columns: Columns
    retracted: str | None = None

    @classmethod
    def of(
        cls, name: str, aggregate: PythonAggregate, inputs: Fields, retracted: str | None
    ) -> Folding:
        """Return the folding of *aggregate* over inputs with these fields."""
        partial = Fields.of(aggregate.partial_fields(name, inputs))
        return cls(name, aggregate, Columns(name, "value", partial), retracted)

    @property
    def gathered(self) -> list[str]:
        """Names of the columns that are gathered from the input; there is at least one."""
        return [f"{self.name} input {at}" for at in range(len(self._read) or 1)]

    def inputs_of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the input columns. Without input fields there is one that only counts rows."""
        plain = _as_it_is if isinstance(self.aggregate, OwnAggregate) else _plain
        columns = [plain(batch.column(name)) for name in self._read]
        return columns or [pa.repeat(True, batch.num_rows)]

    def folded(self, lists: Sequence[pa.ChunkedArray]) -> list[pa.Array]:
        """Return the columns of a partial aggregate for each key, from lists of its input rows."""
        if self.aggregate.at_once and self.retracted is None:
            found = self.aggregate.folded_at_once(KeyedRows.of_lists(lists))
            if found is not None:
                return [found]
        return self._reduced(lists, self._partial)

    def merged(self, lists: Sequence[pa.ChunkedArray]) -> list[pa.Array]:
        """Return the columns of a partial aggregate for each key, from lists of several of them."""
        if self.aggregate.at_once:
            found = self.aggregate.united_at_once(KeyedRows.of_lists(lists))
            if found is not None:
                return [found]
        opened = self.columns.opened
        return self._reduced(lists, lambda rows: self.aggregate.merged([opened(r) for r in rows]))

    @property
    def _read(self) -> tuple[str, ...]:
        """Names of the input fields. The field that says whether a row is retracted comes last."""
        inputs = self.aggregate.inputs
        return inputs if self.retracted is None else (*inputs, self.retracted)

    def _partial(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        width = len(self.aggregate.inputs)
        if self.retracted is None:
            return self.aggregate.folded([row[:width] for row in rows])
        added = self.aggregate.folded([row[:width] for row in rows if not row[width]])
        return self.aggregate.without(added, [row[:width] for row in rows if row[width]])

    def _reduced(self, lists: Sequence[pa.ChunkedArray], reduce: Reduce) -> list[pa.Array]:
        partials = [
            self.columns.exact(reduce(list(zip(*parts, strict=True))))
            for parts in zip(*(column.to_pylist() for column in lists), strict=True)
        ]
        types = self.columns.fields.arrow_schema().types
        columns = list(zip(*partials, strict=True)) if partials else [()] * len(types)
        return [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
