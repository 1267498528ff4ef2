"""How the types of fields are kept in SQLite, which has four.

Dates and timestamps are text that sorts as they do, booleans 0 and 1. Decimals are text with all
digits of their scale; a function of this module adds and compares them, exactly.
"""

from __future__ import annotations

import datetime
import decimal
import math
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
_TRAPS = [decimal.Inexact, decimal.InvalidOperation]
_SUM = decimal.Context(prec=38, traps=_TRAPS)
_EXACT = decimal.Context(prec=39, traps=_TRAPS)


def column_type(kind: str) -> TypeEngine[Any]:
    """Return the column type for a field type; the rest is text."""
    return _TYPES.get(kind, sa.Text())


def encode(field: Field, column: list[Any]) -> list[Any]:
    """Return a column as SQLite has it.

    Raises:
        ValueRefusedError: A NaN, which SQLite would turn into NULL, or -0.0, which loses its sign.
    """
    kind = field.type.partition("(")[0]
    if kind in ("float", "double"):
        _check_floats(field, column)
    if kind not in _ENCODE:
        return column
    change = _ENCODE[kind]
    return [None if value is None else change(value) for value in column]


def _check_floats(field: Field, column: list[Any]) -> None:
    for value in column:
        nan = value != value
        if nan or (value == 0 and math.copysign(1, value) < 0):
            raise ValueRefusedError(
                f"SQLite has no {'NaN' if nan else 'negative zero'}; got one in field "
                f"{field.name!r}; nothing of its batch was written; filter it (add 0.0 to a zero), "
                "or keep the state in PostgreSQL",
                field=field.name,
            )


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
    # An error here makes the statement fail, and with it the whole write. All values of a column
    # have the digits of its scale, and 10**38 is exact in one digit: only quantize counts them.
    return _from_decimal(_SUM.quantize(_EXACT.add(first, second), first))


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
