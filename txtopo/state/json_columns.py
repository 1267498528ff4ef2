"""Values of Arrow columns as JSON text."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

# What JSON, as Python's json writes it, escapes.
_ESCAPED = r'["\\]|[^ -~]'

# A line break inside a text is escaped, so every line break separates two values.
_LINES = json.JSONEncoder(separators=("\n", ":"))


def json_texts(column: pa.Array) -> pa.Array:
    """Return the JSON text of each value, as ``json.dumps`` writes it: a ``large_string``.

    NaN and the infinities are written as Python's json reads them.

    Args:
        column: Whole numbers, floats, booleans or texts.
    """
    # Arrow is ten times as fast where no value needs Python; Python is faster for all at once.
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return column.cast(pa.large_string()).fill_null("null")
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        escaped = pc.match_substring_regex(column, _ESCAPED)
        if not pc.any(escaped, min_count=0).as_py():
            return joined_texts(['"', column.cast(pa.large_string()), '"']).fill_null("null")
    values = column.to_pylist()
    lines = _LINES.encode(values)[1:-1].split("\n") if values else []
    return pa.array(lines, pa.large_string())


def joined_texts(parts: Sequence[pa.Array | str]) -> pa.Array:
    """Return the texts of each row, one after the other; NULL if one of them is.

    Args:
        parts: Columns of ``large_string``, and texts that are the same in each row.
    """
    texts = [pa.scalar(p, pa.large_string()) if isinstance(p, str) else p for p in parts]
    return pc.binary_join_element_wise(*texts, pa.scalar("", pa.large_string()))
