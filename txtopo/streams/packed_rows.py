"""Rows as text: each row is a JSON list on one line, as a join buffers it."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from txtopo.state.json_columns import joined_texts, json_texts
from txtopo.state.keyed_columns import in_one_piece
from txtopo.tuples import Fields


def packed_rows(columns: Sequence[pa.Array | pa.ChunkedArray], count: int) -> pa.Array:
    """Return each row as text: a JSON list on one line. It depends on that row alone."""
    if not columns:
        return pa.array(["[]"] * count, pa.string())
    parts = [part for column in columns for part in (",", _texts(column))]
    return joined_texts(["[", *parts[1:], "]"]).cast(pa.string())


def unpacked_columns(rows: pa.Array, fields: Fields) -> dict[str, pa.Array]:
    """Return the columns of rows that :func:`packed_rows` made, by name."""
    schema = fields.arrow_schema()
    # All rows in one call.
    values = json.loads(f"[{','.join(rows.to_pylist())}]")
    columns = zip(*values, strict=True) if values else [()] * len(schema)
    return {
        each.name: _of_plain(column, each.type)
        for each, column in zip(schema, columns, strict=len(schema) > 0)
    }


def _texts(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the values of a column as JSON."""
    column = in_one_piece(column)
    if pa.types.is_binary(column.type):
        values = [v if v is None else base64.b64encode(v).decode() for v in column.to_pylist()]
        column = pa.array(values, pa.string())
    elif (stored := _stored_as(column.type)) is not None:
        column = column.cast(stored)
    return json_texts(column)


def _of_plain(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(kind):
        return pa.array([v if v is None else base64.b64decode(v) for v in values], kind)
    if (stored := _stored_as(kind)) is not None:
        return pa.array(values, stored).cast(kind)
    return pa.array(values, kind)


def _stored_as(kind: pa.DataType) -> pa.DataType | None:
    """Return the type whose values represent another type in JSON; None if it is the same."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.string() if pa.types.is_decimal(kind) else None
