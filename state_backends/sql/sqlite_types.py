"""How the types of fields are kept in SQLite, which has four.

Dates and timestamps are text that sorts as they do, booleans 0 and 1. Decimals are text with all
digits of their scale; a function of this module adds and compares them, exactly.
"""

from __future__ import annotations

import datetime
import decimal
import sqlite3
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

from txtopo.errors import ValueRefusedError
from txtopo.state import Field

COMBINE_DECIMALS = "txtopo_combine_decimals"
_TYPES: dict[str, TypeEngine[Any]] = {
    "binary": sa.LargeBinary(),
    "boolean": sa.Integer(),
    "byte": sa.Integer(),
    "short": sa.Integer(),
    "int": sa.Integer(),
    "long": sa.Integer(),
    "float": sa.REAL(),
    "double": sa.REAL(),
}
_DIGITS_MAX = 38


def column_type(kind: str) -> TypeEngine[Any]:
    """Return the column type for a field type; the rest is text."""
    return _TYPES.get(kind, sa.Text())


def encode(field: Field, column: list[Any]) -> list[Any]:
    """Return a column as SQLite has it.

    Raises:
        ValueRefusedError: A NaN, which SQLite would turn into NULL.
    """
    kind = field.type.partition("(")[0]
    if kind in ("float", "double") and any(value != value for value in column):
        raise ValueRefusedError(
            f"SQLite has no NaN; got one in field {field.name!r}; nothing of its batch was "
            "written; filter it, or keep the state in PostgreSQL",
            field=field.name,
        )
    if kind not in _ENCODE:
        return column
    change = _ENCODE[kind]
    return [None if value is None else change(value) for value in column]


def decode(kind: str, value: Any) -> Any:
    """Return what SQLite has as a value of a field type."""
    change = _DECODE.get(kind.partition("(")[0])
    return value if value is None or change is None else change(value)


def register_functions(driver: sqlite3.Connection) -> None:
    """Make the decimal function known to a connection."""
    driver.create_function(COMBINE_DECIMALS, 3, _combine_decimals, deterministic=True)


def _combine_decimals(combine: str, left: str | None, right: str | None) -> str | None:
    if left is None or right is None:
        return right if left is None else left
    first, second = decimal.Decimal(left), decimal.Decimal(right)
    if combine == "min":
        return _from_decimal(min(first, second))
    if combine == "max":
        return _from_decimal(max(first, second))
    # An error here makes the statement fail, and with it the whole write.
    context = decimal.Context(prec=_DIGITS_MAX, traps=[decimal.Inexact, decimal.InvalidOperation])
    return _from_decimal(context.add(first, second))


def _from_decimal(value: decimal.Decimal) -> str:
    # -0 and 0 are one key.
    return format(abs(value) if value.is_zero() else value, "f")


def _from_moment(value: datetime.datetime) -> str:
    return value.isoformat(" ", "microseconds")


_ENCODE: dict[str, Callable[[Any], Any]] = {
    "boolean": int,
    "decimal": _from_decimal,
    "date": datetime.date.isoformat,
    "timestamp": lambda value: _from_moment(value.astimezone(datetime.UTC)),
    "timestamp_ntz": _from_moment,
}
_DECODE: dict[str, Callable[[Any], Any]] = {
    "boolean": bool,
    "decimal": decimal.Decimal,
    "date": datetime.date.fromisoformat,
    "timestamp": datetime.datetime.fromisoformat,
    "timestamp_ntz": datetime.datetime.fromisoformat,
}
