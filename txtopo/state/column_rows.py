"""ColumnRows: the rows of a write by key, kept as Arrow columns until somebody reads them by key.

A committer that has its rows in Arrow passes them on in this form, and a store that writes columns
accepts them; then no row becomes a Python object on the way. To all other code it is a mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txtopo.state.columns import tuples_of, values_of

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.state.backend import Key, Values

DELETED = "deleted"
"""The last column of rows of which some are deleted; no column of a state has this name."""


class ColumnRows(Mapping["Key", "Values | None"]):
    """Values by key; of rows with equal keys the last one counts.

    Args:
        rows: The key columns, then the value columns, with exact values; then ``deleted``, a
            boolean, if some of the keys are deleted.
        width: The number of key columns.

    Attributes:
        table: The rows that count, sorted by key.
        width: The number of key columns.
    """

    def __init__(self, rows: pa.Table, width: int) -> None:
        from txtopo.state.keyed_columns import last_of_each

        self.table = last_of_each(rows, width)
        self.width = width
        self._by_key: dict[Key, Values | None] | None = None

    @property
    def deletes(self) -> bool:
        """Whether a key is deleted."""
        return bool(self.table.column_names[-1] == DELETED)

    def merged(self, later: Sequence[ColumnRows]) -> ColumnRows:
        """Return these rows with those of later writes."""
        import pyarrow as pa

        parts = [self, *later]
        if any(each.deletes for each in parts):
            tables = [each.marked for each in parts]
        else:
            tables = [each.table for each in parts]
        return ColumnRows(pa.concat_tables(tables), self.width)

    @property
    def marked(self) -> pa.Table:
        """The rows with the column ``deleted``."""
        import pyarrow as pa

        if self.deletes:
            return self.table
        return self.table.append_column(DELETED, pa.repeat(pa.scalar(False), self.table.num_rows))

    @property
    def kept(self) -> pa.Table:
        """The rows that are not deleted, without the column ``deleted``."""
        import pyarrow.compute as pc

        if not self.deletes:
            return self.table
        deleted = self.table.column(DELETED)
        return self.table.drop_columns([DELETED]).filter(pc.invert(deleted))

    def taken(self, places: pa.Int64Array) -> pa.Table:
        """Return the rows at some places, without those that are deleted; NULL is no place."""
        import pyarrow.compute as pc

        found = self.table.take(places.drop_null())
        if not self.deletes:
            return found
        return found.filter(pc.invert(found.column(DELETED))).drop_columns([DELETED])

    def _all(self) -> Mapping[Key, Values | None]:
        if self._by_key is None:
            columns = [values_of(column) for column in self.table.columns]
            deleted = columns.pop() if self.deletes else [False] * len(self)
            keys = zip(*columns[: self.width], strict=True)
            values = tuples_of(columns[self.width :], len(self))
            self._by_key = {
                key: None if gone else value
                for key, value, gone in zip(keys, values, deleted, strict=True)
            }
        return self._by_key

    def __getitem__(self, key: Key) -> Values | None:
        return self._all()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._all()

    def __iter__(self) -> Iterator[Key]:
        return iter(self._all())

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return ColumnRows, (self.table, self.width)


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
