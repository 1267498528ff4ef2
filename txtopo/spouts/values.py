"""Values: columns of the declared types that Python and every store can hold, or which row cannot.

Arrow holds more than what comes after it: text that is no UTF-8, times in the year 292,278. Such a
value passes a spout, and then a bolt or a store fails without knowing where it came from. So every
reader hands its columns through here, where the record is still known.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

_EPOCH = datetime.date(1970, 1, 1).toordinal()
_DAYS = (datetime.date.min.toordinal() - _EPOCH, datetime.date.max.toordinal() - _EPOCH)
_DAY_US = 86_400 * 1_000_000
_MICROSECONDS = (_DAYS[0] * _DAY_US, (_DAYS[1] + 1) * _DAY_US - 1)

Read = Callable[[int, int, "pa.Schema"], object]
"""(first row, last row exclusive, fields) -> anything; raises if these rows cannot be read."""


class Bad(NamedTuple):
    """Why rows cannot be read.

    Attributes:
        row: The first that cannot, from 0; None if each alone can.
        field: Which field of it; None if it is the row as a whole.
        reason: What was said of it.
    """

    row: int | None
    field: str | None
    reason: str


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema, as its types.

    Raises:
        ValueError: A value cannot be held; :func:`first_bad` finds which.
        TypeError: A column is of a type that cannot become the declared one.
    """
    import pyarrow as pa

    columns = [_fitted(table.column(field.name), field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def fitted_column(column: pa.Array, declared: pa.DataType) -> pa.Array:
    """Return a column as a type; raises as :func:`fitted` does."""
    return _fitted(column, declared)


def first_bad(rows: int, schema: pa.Schema, read: Read) -> Bad:
    """Find the row, and the field of it, that cannot be read, by halves.

    Args:
        rows: How many there are.
        schema: The fields.
        read: Reads some rows, with some of the fields or none; whether a row can be read must not
            depend on the others.
    """
    import pyarrow as pa

    start, end = 0, rows
    while end - start > 1:
        middle = (start + end) // 2
        if _failure(read, start, middle, schema) is None:
            start = middle
        else:
            end = middle
    error = _failure(read, start, end, schema)
    if error is None or not rows:
        return Bad(None, None, "")
    if _failure(read, start, end, pa.schema([])) is None:
        for field in schema:
            if _failure(read, start, end, pa.schema([field])) is not None:
                return Bad(start, field.name, str(error))
    return Bad(start, None, str(error))


def damaged(error: OSError, filesystem: fs.FileSystem) -> bool:
    """Whether an error of reading is about what a file holds, and comes again.

    Arrow tells both as the same error. One of a local disk has a number; what another filesystem
    says cannot be told from an outage, so it is tried again.
    """
    from pyarrow import fs

    while isinstance(filesystem, fs.SubTreeFileSystem):
        filesystem = filesystem.base_fs
    return error.errno is None and isinstance(filesystem, fs.LocalFileSystem)


def _failure(read: Read, start: int, end: int, schema: pa.Schema) -> Exception | None:
    import pyarrow as pa

    try:
        read(start, end, schema)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        return error
    return None


def _fitted(column: pa.ChunkedArray | pa.Array, declared: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if column.type != declared:
        try:
            column = column.cast(declared)
        except pa.ArrowNotImplementedError as error:
            raise TypeError(f"{column.type} cannot become {declared}") from error
    if pa.types.is_string(declared) or pa.types.is_large_string(declared):
        column.validate(full=True)  # the only check that sees text that is no UTF-8
    elif pa.types.is_timestamp(declared):
        _check_range(column.cast(pa.int64()), _MICROSECONDS, "microseconds")
    elif pa.types.is_date32(declared):
        _check_range(column.cast(pa.int32()), _DAYS, "days")
    return column


def _check_range(numbers: pa.Array, bounds: Sequence[int], unit: str) -> None:
    import pyarrow.compute as pc

    found = pc.min_max(numbers)
    for end in (found["min"].as_py(), found["max"].as_py()):
        if end is not None and not bounds[0] <= end <= bounds[1]:
            raise ValueError(f"{end} {unit} since 1970 are not in the years 1 to 9999")
