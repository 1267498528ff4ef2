"""How the types of fields are kept in PostgreSQL, and how they travel to it."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

_TYPES: dict[str, TypeEngine[Any]] = {
    "binary": sa.LargeBinary(),
    "boolean": sa.Boolean(),
    "byte": sa.SmallInteger(),
    "short": sa.SmallInteger(),
    "int": sa.Integer(),
    "long": sa.BigInteger(),
    "float": sa.REAL(),
    "double": sa.Double(),
    "date": sa.Date(),
    "timestamp": sa.TIMESTAMP(timezone=True),
    "timestamp_ntz": sa.TIMESTAMP(),
}


def plain_type(kind: str) -> TypeEngine[Any]:
    """Return the type for a field type, as parameters have it."""
    if kind.startswith("decimal"):
        precision, scale = (int(part) for part in kind[8:-1].split(","))
        return sa.Numeric(precision, scale)
    return _TYPES.get(kind, sa.Text())


def column_type(kind: str) -> TypeEngine[Any]:
    """Return the column type for a field type; text compares as bytes, as in Python."""
    return sa.Text(collation="C") if kind == "string" else plain_type(kind)


def as_float(value: float | None) -> float | None:
    """Return a 32-bit float as Python has it; it travels with as few digits as tell it apart."""
    return None if value is None else float(struct.unpack("f", struct.pack("f", value))[0])


def as_csv(table: pa.Table) -> pa.Buffer:
    """Return a table as ``COPY … (FORMAT csv)`` reads it: NULL is nothing, strings are quoted."""
    columns = [_readable(column) for column in table.columns]
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(
        pa.table(columns, names=table.column_names),
        sink,
        pyarrow.csv.WriteOptions(include_header=False),
    )
    return sink.getvalue()


def as_array(column: pa.ChunkedArray) -> str:
    """Return a column as PostgreSQL writes an array; many times faster than the driver's lists."""
    texts = _readable(column).cast(pa.string())
    for special in ("\\", '"'):
        texts = pc.replace_substring(texts, special, "\\" + special)
    items = pc.binary_join_element_wise('"', texts, '"', "").fill_null("NULL")
    return "{" + ",".join(items.to_pylist()) + "}"


def _readable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_binary(column.type):
        texts = [None if value is None else "\\x" + value.hex() for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_decimal(column.type):
        return column.cast(pa.string())
    return column
