"""Values that a spout reads: columns of the declared types, or the row that does not fit.

Arrow holds values that Python and the stores cannot: text that is not UTF-8, times in the year
292,278. Such a value would pass the spout, and then a bolt or a store would fail without knowing
where it came from. So every spout checks its columns here, where the record is still known.

JSON objects (:func:`objects`)
------------------------------
Arrow's parser reads a block of records at once, ten times as fast as a parser that is called for
each record. But it does not know records: several objects may be on a line, or an object may go on
after a newline, and only their total number can be compared. Worse, a ``null`` outside of an object
makes it write to memory that it does not own, and the process dies. So a block is checked before it
is parsed:

* Every record begins with ``{`` and ends with ``}``; there is one newline between two records and
  none inside. Arrow refuses a newline in a string. So all strings are closed at a newline, and an
  object that went on after it would need a comma between ``}`` and ``{``. Hence none does: each
  record holds one object or more, and nothing of an earlier record.
* Outside of strings, every ``}`` is followed by ``,``, ``}``, ``]`` or the end of the record. The
  first three cannot follow an object at the top level, or Arrow refuses them. Hence nothing
  follows the first object of a record.

Both checks look at all records at once. Where something else follows a ``}``, it may be a space, or
inside a string; a slower search that skips both then decides. Newlines between the values of a
record are first replaced by tabs, which Arrow refuses in strings as well.
"""

from __future__ import annotations

import datetime
import re
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


class Bad(NamedTuple):
    """The first row that cannot be read, and why.

    Attributes:
        row: Number of the row, from 0; None if each row can be read by itself.
        field: The field that cannot be read; None for the row as a whole.
        reason: The text of the error.
    """

    row: int | None
    field: str | None
    reason: str


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of *schema*, cast to its types.

    Raises:
        ValueError: A value does not fit its type; :func:`first_bad` finds which.
        TypeError: A column cannot be cast to the declared type.
    """
    import pyarrow as pa

    columns = [_fitted(table.column(field.name), field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def fitted_column(column: pa.Array, declared: pa.DataType) -> pa.Array:
    """Return a column cast to a type; raises as :func:`fitted` does."""
    return _fitted(column, declared)


def first_bad(rows: int, schema: pa.Schema, read: Read) -> Bad:
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
        return Bad(None, None, "")
    if _failure(read, start, end, pa.schema([])) is None:
        for field in schema:
            if _failure(read, start, end, pa.schema([field])) is not None:
                return Bad(start, field.name, str(error))
    return Bad(start, None, str(error))


def readable(
    rows: int, read: Callable[[int, int], T], refuse: Callable[[int, Exception], None]
) -> Iterator[T]:
    """Read all rows that can be read, in few parts; tell those that cannot, one by one, in order.

    Args:
        rows: The number of rows.
        read: (first row, last row exclusive) -> these rows. Whether a row can be read must not
            depend on the other rows. A ``TypeError`` is no fault of a row, and is raised.
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
        except (ValueError, OverflowError, LookupError):  # the last: of an unknown time zone
            kind = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                kind = pa.binary()
            values[name] = column.cast(kind).to_pylist()[0]
    return values


def damaged(error: OSError, filesystem: fs.FileSystem) -> bool:
    """Return whether reading failed because the file itself is damaged, so that it fails again.

    Arrow raises the same error for a damaged file and for a failing disk. That of a local disk has
    an ``errno``. That of another filesystem cannot be told from an outage, so it is not damage.
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
            column = fitted_array(column, declared)
        except pa.ArrowNotImplementedError as error:
            raise TypeError(f"{column.type} cannot become {declared}") from error
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


# Arrow counts the bytes of a block in 32 bits; smaller ones also take less memory.
BLOCK_BYTES_MAX = 64 * 1024 * 1024

_MAY_FOLLOW = bytes(byte in b",}]\n" for byte in range(256))

_TABS = bytes.maketrans(b"\r\n", b"\t\t")

_FOLLOWED = re.compile(rb"\}[ \t\r]*[^,}\] \t\r\n]")

_TEXT = re.compile(rb'"[^"\\\n]*(?:\\.[^"\\\n]*)*"')


def objects(records: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """Return the fields of JSON objects as columns, one row for each record.

    A field that is missing or ``null`` is NULL; undeclared fields are ignored. Whether a record is
    refused does not depend on the other records.

    Raises:
        ValueError: A record is not one object, or a value does not fit its field.
    """
    import pyarrow as pa
    from pyarrow import json as arrow_json

    if not records:
        return schema.empty_table()
    block = _proven(records)
    if len(block) > BLOCK_BYTES_MAX and len(records) > 1:
        middle = len(records) // 2
        halves = [objects(records[:middle], schema), objects(records[middle:], schema)]
        return pa.concat_tables(halves)
    if len(block) >= 2**31 - 1:
        raise ValueError(f"it has {len(block)} bytes; expected less than 2 GiB")
    # Without any field, Arrow would not count the rows.
    asked = schema if len(schema) else pa.schema([("\0", pa.bool_())])
    table = arrow_json.read_json(
        pa.BufferReader(block),
        arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        arrow_json.ParseOptions(explicit_schema=asked, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != len(records):
        raise ValueError(f"{len(records)} records hold {table.num_rows} objects")
    return fitted(table, schema)


def _proven(records: Sequence[bytes]) -> bytes:
    """Return records as one block that Arrow can parse safely.

    Raises:
        ValueError: A record is not one object.
    """
    block = b"\n".join(records)
    if not _one_a_line(block, len(records)):
        block = b"\n".join([record.translate(_TABS).strip(b" \t") for record in records])
        if not _one_a_line(block, len(records)):
            raise ValueError("it is no JSON object")
    if _nothing_follows(block):
        return block
    if _FOLLOWED.search(block) and _FOLLOWED.search(_TEXT.sub(b'""', block)):
        raise ValueError("it is more than one JSON object")
    return block


def _one_a_line(block: bytes, records: int) -> bool:
    # Where Arrow looks for the end of its last row, a carriage return is a newline too.
    if not block.startswith(b"{") or not block.endswith(b"}") or b"\r" in block:
        return False
    import numpy as np

    characters = np.frombuffer(block, np.uint8)
    newlines = np.flatnonzero(characters == ord("\n"))
    apart = (characters[newlines - 1] == ord("}")) & (characters[newlines + 1] == ord("{"))
    return len(newlines) == records - 1 and bool(apart.all())


def _nothing_follows(block: bytes) -> bool:
    """Return whether each } is directly followed by a character that may follow it."""
    import numpy as np

    characters = np.frombuffer(block, np.uint8)
    closing = np.flatnonzero(characters[:-1] == ord("}"))
    return bool(np.frombuffer(_MAY_FOLLOW, np.bool_)[characters[closing + 1]].all())
