"""JSON objects as columns: the form of each declared type in JSON, and how it is read.

=====================  ========================================================================
type                   in JSON
=====================  ========================================================================
string, boolean        as they are
byte, short, int,      a whole number, all digits of it
long
float, double          a number, which is not infinite; or ``"NaN"``, ``"Infinity"``,
                       ``"-Infinity"``, also without quotation marks
decimal                a number or text, whose digits fit
binary                 text, base64
date                   text, ISO 8601: ``"2026-01-31"``
timestamp              text, ISO 8601: ``"2026-01-31T08:00:00.5+02:00"``; UTC if it has no zone
timestamp_ntz          the same without a zone
=====================  ========================================================================

``KafkaSink`` and ``txtopo state export`` write values in this form, by
:mod:`txtopo.state.plain_values`. A number is never read as a date or time, since its unit is
unknown. A fraction of more than six digits is refused, unless the further digits are zeros.

One object a record
-------------------
Arrow's parser reads a block of records at once, ten times as fast as a parser that is called for
each record. But it does not distinguish records: several objects may be on a line, or an object may
continue after a newline, and only their total number can be compared. Worse, a ``null`` outside an
object makes it write to memory that it does not own, and the process dies. So a block is checked
before it is parsed:

* Every record begins with ``{`` and ends with ``}``; there is one newline between two records and
  none inside. Arrow refuses a newline in a string. So all strings are closed at a newline, and an
  object that continued after it would need a comma between ``}`` and ``{``. So no object continues:
  each record holds one object or more, and nothing of an earlier record.
* Outside of strings, every ``}`` is followed by ``,``, ``}``, ``]`` or the end of the record. The
  first three cannot follow an object at the top level, or Arrow refuses them. Hence nothing
  follows the first object of a record.

Both checks examine all records at once. If something else follows a ``}``, it may be a space, or
inside a string; then a slower search that skips both decides. Newlines between the values of a
record are first replaced by tabs, which Arrow refuses in strings as well.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from txtopo.collector import SeenFields
from txtopo.sources.values import check_required, fitted_column

if TYPE_CHECKING:
    import pyarrow as pa

# Arrow counts the bytes of a block in 32 bits; smaller blocks also take less memory.
BLOCK_BYTES_MAX = 64 * 1024 * 1024

# A field that none of so many records has is probably misspelled. Usually the first one has all.
SAMPLE_RECORDS_MAX = 200

_MAY_FOLLOW = bytes(byte in b",}]\n" for byte in range(256))

_TABS = bytes.maketrans(b"\r\n", b"\t\t")

_FOLLOWED = re.compile(rb"\}[ \t\r]*[^,}\] \t\r\n]")

_TEXT = re.compile(rb'"[^"\\\n]*(?:\\.[^"\\\n]*)*"')

# No double has this many digits.
_LONG = re.compile(rb"[0-9]{309}|" + _TEXT.pattern)


def objects(records: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """Return the fields of JSON objects as columns, one row for each record.

    A field that is missing or ``null`` is NULL, or refused if it is required, which is not nullable
    in the schema; undeclared fields are ignored. Whether a record is
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
    given, block = block, _with_bare_numbers(block, schema)
    asked = pa.schema([(field.name, _read_as(field.type)) for field in schema])
    # Without any field, Arrow would not count the rows.
    asked = asked if len(schema) else pa.schema([("\0", pa.bool_())])
    table = arrow_json.read_json(
        pa.BufferReader(block),
        arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        arrow_json.ParseOptions(explicit_schema=asked, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != len(records):
        raise ValueError(f"{len(records)} records hold {table.num_rows} objects")
    _check_long_numbers(given, table)
    columns = []
    for field in schema:
        column = table.column(field.name)
        check_required(column, field)
        columns.append(_converted(column, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def seen_fields(records: Iterable[bytes], names: Sequence[str]) -> SeenFields:
    """Return which of some fields the first records have; what is no object counts as no record."""
    missing, others, count = set(names), set[str](), 0
    for record in islice(records, SAMPLE_RECORDS_MAX):
        try:
            found = json.loads(record)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            count += 1
            missing -= found.keys()
            others |= found.keys()
        if not missing:
            break
    return SeenFields(count, frozenset(missing), frozenset(others.difference(names)))


def bytes_of(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return base64 texts as bytes.

    Raises:
        ValueError: One is not base64.
    """
    import pyarrow as pa

    found: list[bytes | None] = []
    for text in texts.to_pylist():
        try:
            found.append(None if text is None else base64.b64decode(text, validate=True))
        except binascii.Error as error:
            raise ValueError(f"{text!r:.100} is not base64: {error}") from error
    return pa.array(found, pa.binary())


def times_of(texts: pa.Array | pa.ChunkedArray, declared: pa.DataType) -> pa.Array:
    """Return texts in ISO 8601 as times; those without a zone are UTC if the type has one.

    Raises:
        ValueError: A text is not ISO 8601, or has a zone although the type has none.
    """
    import pyarrow.compute as pc

    with suppress(ValueError):  # usually Arrow accepts them unchanged, and returns the same times
        return fitted_column(texts, declared)
    texts = pc.replace_substring_regex(texts, _ZEROS, r"\1")
    if declared.tz is not None:
        texts = pc.replace_substring_regex(texts, _WITHOUT_ZONE, r"\0Z")
        texts = pc.replace_substring_regex(texts, _DAY, r"\0T00:00Z")
    return fitted_column(texts, declared)


def _read_as(declared: pa.DataType) -> pa.DataType:
    """Return the type as which Arrow's parser reads a field.

    By itself it reads a number as a date, text as bytes, and a number that is too large for a float
    as infinity; and it shifts a time with a zone that is declared without one.
    """
    import pyarrow as pa

    if pa.types.is_float32(declared):
        return pa.float64()
    as_text = (pa.types.is_date32, pa.types.is_timestamp, pa.types.is_binary)
    return pa.string() if any(each(declared) for each in as_text) else declared


def _converted(column: pa.ChunkedArray, declared: pa.DataType) -> pa.Array:
    """Return a column that was read as :func:`_read_as` says, as the declared type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_binary(declared):
        return bytes_of(column)
    if pa.types.is_timestamp(declared):
        return times_of(column, declared)
    if pa.types.is_float32(declared):
        infinite = pc.is_inf(column)
        single = column.cast(declared)
        if pc.any(pc.and_not(pc.is_inf(single), infinite)).as_py():
            raise ValueError("a number is beyond the range of a float")
        return single
    return fitted_column(column, declared)


# Digits of a fraction beyond the sixth; a time without a zone; a day alone.
_ZEROS = r"(\.\d{6})0+"
_WITHOUT_ZONE = r"^\d{4}-\d{2}-\d{2}[T ][\d:.]+$"
_DAY = r"^\d{4}-\d{2}-\d{2}$"


def _with_bare_numbers(block: bytes, schema: pa.Schema) -> bytes:
    """Return a block in which Arrow's parser accepts ``"NaN"`` and ``"Infinity"`` in floats.

    It accepts them only without quotation marks. Every text of a record is matched from its
    beginning, so a match is never within another text.
    """
    import pyarrow as pa

    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    if not floats or (b'"NaN"' not in block and b'Infinity"' not in block):
        return block
    names = {json.dumps(name, ensure_ascii=ascii) for name in floats for ascii in (True, False)}
    named = b"|".join(re.escape(name.encode()) for name in sorted(names))
    found = re.compile(rb'((?:%s)[ \t\r]*:[ \t\r]*)"(NaN|-?Infinity)"|%s' % (named, _TEXT.pattern))

    def bare(match: re.Match[bytes]) -> bytes:
        return match[0] if match[2] is None else match[1] + match[2]

    return b"\n".join(
        found.sub(bare, record) if b'"NaN"' in record or b'Infinity"' in record else record
        for record in block.split(b"\n")
    )


def _check_long_numbers(block: bytes, table: pa.Table) -> None:
    """Check that no number is infinite because of its many digits, which Arrow does not refuse."""
    import pyarrow as pa
    import pyarrow.compute as pc

    floats = (each for each in table.columns if pa.types.is_floating(each.type))
    if not any(pc.any(pc.is_inf(each)).as_py() for each in floats):
        return
    if any(found[0][:1] != b'"' for found in _LONG.finditer(block)):
        raise ValueError("a number is beyond the range of a double")


def _proven(records: Sequence[bytes]) -> bytes:
    """Return records as one block that Arrow can parse safely.

    Raises:
        ValueError: A record is not one object.
    """
    block = b"\n".join(records)
    if not _one_a_line(block, len(records)):
        block = b"\n".join([record.translate(_TABS).strip(b" \t") for record in records])
        if not _one_a_line(block, len(records)):
            raise ValueError("it is not a JSON object")
    if _nothing_follows(block):
        return block
    if _FOLLOWED.search(block) and _FOLLOWED.search(_TEXT.sub(b'""', block)):
        raise ValueError("it is more than one JSON object")
    return block


def _one_a_line(block: bytes, records: int) -> bool:
    # When Arrow looks for the end of the last row, a carriage return is also a newline.
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
