"""Values that a spout reads: columns of the declared types, or the row that does not fit.

Arrow can hold values that Python and the stores cannot: text that is not UTF-8, times in the year
292,278. Such a value would pass the spout, and then a bolt or a store would fail without knowing
where it came from. So every spout checks its columns here, while the record is still known.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from txtopo.fitting import fitted_array

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

_EPOCH = datetime.date(1970, 1, 1).toordinal()

_DAYS = (datetime.date.min.toordinal() - _EPOCH, datetime.date.max.toordinal() - _EPOCH)

_DAY_US = 86_400 * 1_000_000

_MICROSECONDS = (_DAYS[0] * _DAY_US, (_DAYS[1] + 1) * _DAY_US - 1)

T = TypeVar("T")

Read = Callable[[int, int, "pa.Schema"], object]
"""(first row, last row exclusive, fields) -> ignored; raises if these rows cannot be read."""


class UnreadableRow(NamedTuple):
    """The first row that cannot be read, and why.

    Attributes:
        row: Number of the row, from 0; None if each row can be read by itself.
        field: The field that cannot be read; None for the row as a whole.
        reason: The text of the error.
    """

    row: int | None
    field: str | None
    reason: str


INT96_UNIT = "us"
"""The unit in which Spark's INT96 times are read: in Arrow's own, ns, years from 2262 on wrap."""


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of *schema*, cast to its types.

    Raises:
        ValueError: A value does not fit its type; :func:`first_unreadable` finds which.
        TypeError: A column cannot be cast to the declared type.
    """
    import pyarrow as pa

    columns = [fitted_field(table.column(field.name), field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def fitted_field(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return a column cast to the type of a field, and checked if the field is required.

    It raises as :func:`fitted` does.
    """
    check_required(column, field)
    return _fitted(column, field.type)


def check_required(column: pa.Array, field: pa.Field) -> None:
    """Check that a column has no NULL, if its field is required, which is not nullable in Arrow.

    Raises:
        ValueError: It has one.
    """
    if not field.nullable and column.null_count:
        raise ValueError(f"{field.name!r} is NULL or missing, and it is required")


def fitted_column(column: pa.Array, declared: pa.DataType) -> pa.Array:
    """Return a column cast to a type; raises as :func:`fitted` does."""
    return _fitted(column, declared)


def first_unreadable(rows: int, schema: pa.Schema, read: Read) -> UnreadableRow:
    """Find the first row that cannot be read, and its field, by bisection.

    Args:
        rows: The number of rows.
        schema: The fields.
        read: Reads some rows, with some of the fields or none. Whether a row can be read must not
            depend on the other rows.
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
        return UnreadableRow(None, None, "")
    reason = str(error) or "it has another type"
    if _failure(read, start, end, pa.schema([])) is None:
        for field in schema:
            if _failure(read, start, end, pa.schema([field])) is not None:
                return UnreadableRow(start, field.name, reason)
    return UnreadableRow(start, None, reason)


def readable(
    rows: int, read: Callable[[int, int], T], refuse: Callable[[int, Exception], None]
) -> Iterator[T]:
    """Read all readable rows, in few parts; report the others one by one, in order.

    Args:
        rows: The number of rows.
        read: (first row, last row exclusive) -> these rows. Whether a row can be read must not
            depend on the other rows. A ``TypeError`` is not the fault of a row, and is raised.
        refuse: Called with each row that cannot be read, and its error.
    """
    waiting = [(0, rows)]
    while waiting:
        start, end = waiting.pop()
        try:
            part = read(start, end)
        except (ValueError, OverflowError) as error:
            if end - start == 1:
                refuse(start, error)
                continue
            if end == start:
                raise
            middle = (start + end) // 2
            waiting += [(middle, end), (start, middle)]
        else:
            yield part


def row_values(table: pa.Table | pa.RecordBatch, row: int) -> dict[str, object]:
    """Return the values of a row; bytes or a number where Python cannot hold one."""
    import pyarrow as pa

    values: dict[str, object] = {}
    for name, column in zip(table.schema.names, table.slice(row, 1).columns, strict=True):
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        try:
            values[name] = column.to_pylist()[0]
        except (ValueError, OverflowError, LookupError):  # the last one: for an unknown time zone
            kind = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                kind = pa.binary()
            values[name] = column.cast(kind).to_pylist()[0]
    return values


def damaged(error: OSError, filesystem: fs.FileSystem) -> bool:
    """Return whether reading failed because the file itself is damaged, so that it fails again.

    Arrow raises the same error for a damaged file and for a failing disk. The error of a local disk
    has an ``errno``. On another filesystem it cannot be distinguished from an outage, so it does
    not count as damage.
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
        column = fitted_array(column, declared)
    if pa.types.is_string(declared) or pa.types.is_large_string(declared):
        column.validate(full=True)  # the only check that finds text that is not UTF-8
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
