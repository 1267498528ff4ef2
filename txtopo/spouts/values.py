"""Values: columns of the declared types that Python and every store can hold, or which row cannot.

Arrow holds more than what comes after it: text that is no UTF-8, times in the year 292,278. Such a
value passes a spout, and then a bolt or a store fails without knowing where it came from. So every
reader hands its columns through here, where the record is still known.

JSON: records that hold one object each, as columns.

Arrow's parser reads a block of records at once, ten times as fast as a parser that is called for
each. But it knows nothing of records: objects may stand side by side, or go on behind a newline,
and only their number can be compared. And a ``null`` that is no value of an object makes it write
where it must not: the process dies. So a block is proven harmless before it is parsed:

1. Every record begins with ``{`` and ends with ``}``, with one newline between two of them and none
   inside. Arrow refuses a newline in a text. So at a newline all texts are closed, and an object
   that went on behind it would need a comma between ``}`` and ``{``. Hence no object does: each
   record holds one object or more, and nothing that began before.
2. No ``}`` outside of texts is followed by anything but ``,``, ``}``, ``]`` or the record's end.
   What follows an object is not one of the first three, or Arrow refuses it. Hence nothing follows.

Both are looked at for all records at once. Where something does follow a ``}``, it may be space, or
inside a text: then a search that passes over both decides. Newlines inside a record that lie
between its values are made tabs first, which Arrow refuses in a text too.
"""

from __future__ import annotations

import datetime
import re
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


# Arrow counts the bytes of a block in 32 bits; smaller ones also take less memory.
BLOCK_BYTES_MAX = 64 * 1024 * 1024

_MAY_FOLLOW = bytes(sign in b",}]\n" for sign in range(256))

_TABS = bytes.maketrans(b"\r\n", b"\t\t")

_FOLLOWED = re.compile(rb"\}[ \t\r]*[^,}\] \t\r\n]")

_TEXT = re.compile(rb'"[^"\\\n]*(?:\\.[^"\\\n]*)*"')


def objects(records: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """Return the fields of JSON objects, one row a record.

    A field that is missing or ``null`` is NULL; others are not looked at. Whether a record is
    refused does not depend on those beside it.

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
    """Return records as a block that is harmless.

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

    signs = np.frombuffer(block, np.uint8)
    newlines = np.flatnonzero(signs == ord("\n"))
    apart = (signs[newlines - 1] == ord("}")) & (signs[newlines + 1] == ord("{"))
    return len(newlines) == records - 1 and bool(apart.all())


def _nothing_follows(block: bytes) -> bool:
    """Whether each } has one of the signs that may follow it right behind."""
    import numpy as np

    signs = np.frombuffer(block, np.uint8)
    closing = np.flatnonzero(signs[:-1] == ord("}"))
    return bool(np.frombuffer(_MAY_FOLLOW, np.bool_)[signs[closing + 1]].all())
