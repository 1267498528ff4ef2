"""ColumnRows: the rows of a write by key, kept as Arrow columns until somebody reads them by key.

A committer that has its rows in Arrow passes them on in this form, and a store that writes columns
accepts them; then no row becomes a Python object on the way. To all other code it is a mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from txtopo.state.columns import values_of

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.state.backend import Key, Values


class ColumnRows(Mapping["Key", "Values | None"]):
    """Values by key; of rows with equal keys the last one counts.

    Args:
        rows: The key columns, then the value columns, with exact values.
        width: The number of key columns.

    Attributes:
        table: The rows that count, sorted by key.
    """

    def __init__(self, rows: pa.Table, width: int) -> None:
        self.table = _last_of_each(rows, width)
        self._width = width
        self._by_key: dict[Key, Values | None] | None = None

    def merged(self, later: Sequence[ColumnRows]) -> ColumnRows:
        """Return these rows with those of later writes."""
        import pyarrow as pa

        return ColumnRows(
            pa.concat_tables([self.table, *(each.table for each in later)]), self._width
        )

    def _rows(self) -> Mapping[Key, Values | None]:
        if self._by_key is None:
            columns = [values_of(column) for column in self.table.columns]
            keys, values = columns[: self._width], columns[self._width :]
            pairs = zip(zip(*keys, strict=True), zip(*values, strict=True), strict=True)
            self._by_key = dict(pairs)
        return self._by_key

    def __getitem__(self, key: Key) -> Values | None:
        return self._rows()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._rows()

    def __iter__(self) -> Iterator[Key]:
        return iter(self._rows())

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return ColumnRows, (self.table, self._width)


def merged_rows(
    parts: Sequence[Mapping[Key, Values | None]],
) -> Mapping[Key, Values | None]:
    """Return the rows of several writes; of rows with equal keys the last write's row counts."""
    parts = [part for part in parts if part]
    columns = [part for part in parts if isinstance(part, ColumnRows)]
    if parts and len(columns) == len(parts):
        return columns[0].merged(columns[1:]) if len(parts) > 1 else columns[0]
    merged: dict[Key, Values | None] = {}
    for part in parts:
        merged.update(part)
    return merged


def _last_of_each(rows: pa.Table, width: int) -> pa.Table:
    """Return rows sorted by their first columns; of rows that are equal there, only the last."""
    import pyarrow as pa
    import pyarrow.compute as pc

    order = [(name, "ascending") for name in rows.column_names[:width]]
    rows = rows.combine_chunks()
    rows = rows.take(pc.sort_indices(rows, order))  # a stable sort
    if rows.num_rows < 2:
        return rows
    keys = rows.columns[:width]
    again = reduce(pc.and_, [pc.equal(key.slice(1), key.slice(0, len(key) - 1)) for key in keys])
    if not pc.any(again).as_py():
        return rows
    last = pa.chunked_array([*pc.invert(again).chunks, pa.array([True])])
    return rows.filter(last)
