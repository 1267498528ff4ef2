"""JSON: records that hold one object each, as columns.

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

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from txtopo.spouts.values import fitted

if TYPE_CHECKING:
    import pyarrow as pa

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
