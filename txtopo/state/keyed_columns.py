"""Rows of Arrow tables by key: where equal keys are, which rows are the last of their key, order.

The kernels are Arrow's and NumPy's, which are there anyway. Keys of several columns become one
column of numbers, which are equal where the keys are equal (:func:`codes_of`). So rows keep their
order; a join of Acero does not keep it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Flags = np.ndarray[Any, np.dtype[np.bool_]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]

_CODES_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows of some keys, in any order.

    Attributes:
        keys: The number of the key of each row, from 0.
        count: How many keys there are; a key may have no rows.
        columns: The columns of the rows.
    """

    keys: Numbers
    count: int
    columns: Sequence[pa.Array]

    @classmethod
    def of(cls, keys: Numbers, count: int, columns: Sequence[pa.ChunkedArray]) -> KeyedRows:
        """Return rows; each column becomes one piece."""
        return cls(keys, count, list(map(in_one_piece, columns)))

    @classmethod
    def of_lists(cls, lists: Sequence[pa.ChunkedArray]) -> KeyedRows:
        """Return the rows of columns that have a list for each key, without NULL."""
        count = len(lists[0])
        lengths = in_one_piece(pc.list_value_length(lists[0])).to_numpy()
        keys = np.repeat(np.arange(count), lengths)
        return cls.of(keys, count, [pc.list_flatten(column) for column in lists])

    def filter(self, flags: Flags) -> KeyedRows:
        """Return the rows with a flag, of the same keys."""
        if flags.all():
            return self
        columns = [column.filter(pa.array(flags)) for column in self.columns]
        return KeyedRows(self.keys[flags], self.count, columns)


def codes_of(keys: pa.Table, *, in_order: bool = False) -> Numbers:
    """Return a number for each key, from 0: equal numbers for equal keys, and for no others.

    NULL equals NULL, as far as this is concerned.

    Args:
        keys: The keys.
        in_order: Whether a larger key has a larger number, in the order of :func:`order_of`.
    """
    codes, count = np.zeros(keys.num_rows, np.int64), 1
    for column in map(zero_without_sign, keys.columns):
        encoded = pc.dictionary_encode(in_one_piece(column), null_encoding="encode")
        found = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        distinct = max(len(encoded.dictionary), 1)
        if in_order:
            values = pa.table([encoded.dictionary], names=["value"])
            found = np.argsort(order_of(values, ["value"]).to_numpy())[found]
        if count * distinct > _CODES_MAX:
            known, codes = np.unique(codes, return_inverse=True)
            count = len(known)
        codes, count = codes * distinct + found, count * distinct
    return codes


def positions(keys: pa.Table, among: pa.Table) -> pa.Int64Array:
    """Return for each key its place among distinct keys, NULL if it is not there.

    Args:
        keys: The keys.
        among: Distinct keys, in columns of the same types.
    """
    if not among.num_rows or not keys.num_rows:
        return pa.nulls(keys.num_rows, pa.int64())
    if keys.num_columns == 1:
        wanted = zero_without_sign(keys.column(0))
        known = in_one_piece(zero_without_sign(among.column(0)))
    else:
        pairs = zip(keys.columns, among.columns, strict=True)
        together = [_stacked(one, other) for one, other in pairs]
        codes = codes_of(pa.table(together, names=[str(at) for at in range(len(together))]))
        wanted, known = pa.array(codes[: keys.num_rows]), pa.array(codes[keys.num_rows :])
    return in_one_piece(pc.index_in(wanted, known)).cast(pa.int64())


def without_keys(rows: pa.Table, among: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the rows whose keys are not among those of other rows, which are distinct.

    Args:
        rows: The rows.
        among: Rows with the same key columns.
        names: The key columns.
    """
    return rows.filter(positions(rows.select(names), among.select(names)).is_null())


def last_of_each(
    rows: pa.Table, width: int, by: Sequence[str] = (), falling: Collection[str] = ()
) -> pa.Table:
    """Return rows sorted by their first columns; of rows that are equal there, only the last.

    Args:
        rows: The rows.
        width: How many of their columns are compared.
        by: The columns by which equal rows are ordered; by default as they are.
        falling: Those of *by* that are in descending order.
    """
    rows = rows.combine_chunks()
    rows = rows.take(order_of(rows, [*rows.column_names[:width], *by], falling))
    if rows.num_rows < 2:
        return rows
    again = same_as_before(rows.select(range(width)))
    if not again.any():
        return rows
    return rows.filter(pa.array(np.append(~again, True)))


def same_as_before(keys: pa.Table) -> Flags:
    """Return for each key but the first whether it equals the one before it."""
    same = np.ones(max(keys.num_rows - 1, 0), np.bool_)
    for column in map(in_one_piece, keys.columns):
        equal = pc.equal(column.slice(1), column.slice(0, max(len(column) - 1, 0)))
        same &= equal.fill_null(False).to_numpy(zero_copy_only=False)
    return same


def order_of(rows: pa.Table, names: Sequence[str], falling: Collection[str] = ()) -> pa.Array:
    """Return the places of rows in the order of some columns; equal rows keep their order.

    Args:
        rows: The rows.
        names: The columns, in ascending order: NULL first and NaN last.
        falling: Those of them that are in descending order: NaN first and NULL last.
    """
    columns: list[Any] = []
    orders: list[str] = []
    for name in names:
        column, order = rows.column(name), "descending" if name in falling else "ascending"
        parts = [column.is_valid()] if column.null_count else []
        if pa.types.is_floating(column.type):
            parts.append(pc.is_nan(column))
        columns += [*parts, column]
        orders += [order] * (len(parts) + 1)
    numbered = pa.table(columns, names=[str(at) for at in range(len(columns))])
    return pc.sort_indices(numbered, list(zip(numbered.column_names, orders, strict=True)))


def order_of_all(rows: pa.Table) -> pa.Array:
    """Return the places of rows in the order of all their columns: NaN and NULL last.

    It does not depend on the order in which the rows come: of -0.0 and 0.0, which are equal but
    differ, 0.0 is first.
    """
    columns: list[Any] = []
    for column in rows.columns:
        columns.append(column)
        if pa.types.is_floating(column.type):
            columns.append(pa.array(np.signbit(column.fill_null(0.0).to_numpy())))
    numbered = pa.table(columns, names=[str(at) for at in range(len(columns))])
    return pc.sort_indices(numbered, [(name, "ascending") for name in numbered.column_names])


def differing(rows: pa.Table, others: pa.Table) -> Flags:
    """Return for each row whether it differs from the other one; NULL equals NULL, NaN NaN."""
    found = np.zeros(rows.num_rows, np.bool_)
    for one, other in zip(rows.columns, others.columns, strict=True):
        same = pc.equal(one, other).fill_null(False)
        both = pc.and_(one.is_null(nan_is_null=True), other.is_null(nan_is_null=True))
        if pa.types.is_floating(one.type):
            both = pc.and_(both, pc.equal(one.is_null(), other.is_null()))
        found |= ~flags_of(pc.or_(same, both))
    return found


def there(places: pa.Int64Array) -> Flags:
    """Return which places there are; NULL is none."""
    return flags_of(places.is_valid())


def flags_of(flags: pa.ChunkedArray | pa.Array) -> Flags:
    """Return booleans without NULL as an array of NumPy."""
    found: Flags = in_one_piece(flags).to_numpy(zero_copy_only=False)
    return found


def is_key(rows: pa.Table, names: Sequence[str]) -> pa.Array | None:
    """Return which rows may equal a key of a state; None if all may.

    NULL and NaN equal nothing.
    """
    fits: Any = None
    for name in names:
        column = rows.column(name)
        if column.null_count or pa.types.is_floating(column.type):
            valid = pc.invert(column.is_null(nan_is_null=True))
            fits = valid if fits is None else pc.and_(fits, valid)
    return None if fits is None or pc.all(fits, min_count=0).as_py() else in_one_piece(fits)


def with_plain_zeros(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return rows with 0.0 for -0.0 in some columns, as a state has it in a key."""
    for name in names:
        at = rows.schema.get_field_index(name)
        if pa.types.is_floating(rows.schema.field(at).type):
            rows = rows.set_column(at, rows.schema.field(at), zero_without_sign(rows.column(at)))
    return rows


def zero_without_sign(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in which -0.0 is 0.0."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.add(column, pa.scalar(0.0, column.type))


def in_one_piece(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column in one piece."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # more than 2 GiB of text
            return pa.concat_arrays([c.cast(pa.large_string()) for c in column.chunks])
    return column


def _stacked(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([*one.chunks, *other.chunks], one.type)
