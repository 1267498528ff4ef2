"""Aggregation: how the rows for a ``PersistentAggregate`` become partial results, in columns.

Rows are combined where they are sent, partial results of the senders in the driver. Both are a
``group_by`` of Arrow: one row for each distinct key. NULL is a key like any other here (the state
refuses it), all NaN are one key, and so are 0.0 and -0.0.

A sum that leaves its type is an error, since Arrow would wrap it: a bound made of the largest
value is looked at first, and only where that does not do the sum is computed in wider numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.bolts.persistent_aggregate import GLOBAL_KEY, PersistentAggregate
from txtopo.errors import ValueRefusedError
from txtopo.state.aggregates import Aggregate, Count
from txtopo.tuples import Fields

_LONG_MAX = 2**63 - 1
_DECIMAL_MAX = 10**38 - 1


@dataclass(frozen=True, slots=True)
class Aggregation:
    """What is combined for one ``PersistentAggregate``.

    Attributes:
        key: Names of the key fields; empty for one row over everything.
        names: Names of the value columns.
        aggregates: How each of them is combined.
        schema: Key columns, then value columns.
    """

    key: tuple[str, ...]
    names: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    schema: pa.Schema

    @classmethod
    def of(cls, bolt: PersistentAggregate, inputs: Fields) -> Aggregation:
        """Return what *bolt* combines from inputs of these fields."""
        columns = Fields.of([*bolt.key_fields(inputs), *bolt.value_fields(inputs)])
        aggregates = tuple(bolt.aggregates.values())
        return cls(bolt.key, tuple(bolt.aggregates), aggregates, columns.arrow_schema())

    @property
    def ordered(self) -> bool:
        """Whether the order of combining shows in the result: sums of floats."""
        return any(
            aggregate.combine == "add" and pa.types.is_floating(self.schema.field(name).type)
            for name, aggregate in zip(self.names, self.aggregates, strict=True)
        )

    @property
    def keys(self) -> list[str]:
        """Names of the key columns."""
        return list(self.schema.names[: len(self.schema) - len(self.names)])

    def inputs_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as partial results of one row each: key columns, then value columns."""
        columns = [_plain(batch.column(name)) for name in self.key]
        if not self.key:
            columns = [pa.repeat(GLOBAL_KEY, batch.num_rows)]
        for name, aggregate in zip(self.names, self.aggregates, strict=True):
            kind = self.schema.field(name).type
            if aggregate.field is None:
                columns.append(pa.repeat(pa.scalar(1, kind), batch.num_rows))
            elif isinstance(aggregate, Count):
                columns.append(batch.column(aggregate.field).is_valid().cast(kind))
            else:
                columns.append(batch.column(aggregate.field).cast(kind))
        cast = [c.cast(f.type) for c, f in zip(columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(cast, schema=self.schema)

    def combine(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Combine partial results: one row for each key.

        Raises:
            ValueRefusedError: A sum does not fit its column.
        """
        table = pa.Table.from_batches(batches, self.schema)
        steps, options = [], []
        for name, aggregate in zip(self.names, self.aggregates, strict=True):
            if aggregate.combine == "add":
                table = self._widened(table, name)
                options = [pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)]
                steps.append((name, "sum", *options))
            else:
                steps.append((name, aggregate.combine))
        grouped = pa.TableGroupBy(table, self.keys, use_threads=False).aggregate(steps)
        columns = [grouped.column(at).combine_chunks() for at in range(len(self.keys))]
        for name, step in zip(self.names, steps, strict=True):
            columns.append(self._narrowed(grouped.column(f"{name}_{step[1]}"), name))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _widened(self, table: pa.Table, name: str) -> pa.Table:
        """Return the table with a column whose sum cannot wrap."""
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
            raise ValueRefusedError(
                f"a sum does not fit value column {name!r}; got more than {kind} holds; "
                "expected smaller values; aggregate a wider type, such as decimal(38,0)",
                column=name,
            ) from error


def _plain(column: pa.Array) -> pa.Array:
    """Return a key column in which equal floats have equal bits."""
    if not pa.types.is_floating(column.type):
        return column
    nan = pa.scalar(float("nan"), column.type)
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, pa.scalar(0.0, column.type)))
