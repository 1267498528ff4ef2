"""Decimals in SQLite: whole numbers of their last digit.

SQLite has no decimals. A ``decimal(10,2)`` is kept as a whole number of hundredths in an INTEGER
column, so plain SQL compares, sorts and sums it exactly. 64 bits hold 18 digits. The view shows the
number itself, as ``price / 1e2``: a float, exact to 15 digits, like any number with a fraction in
SQLite. Text with all digits would sort wrongly, and ``max()`` of text would be wrong.

Rules
-----
1. A column has at most 18 digits. A wider one is refused when the topology is built, and again when
   the state is opened to write.
2. The type of a sum is ``decimal(38,…)`` whatever it adds. Its column holds 18 digits, and a batch
   that would exceed them is refused as a whole, by a CHECK of the table. The names of the CHECKs
   record where the decimal points are.
"""

from __future__ import annotations

import decimal
from functools import cache
from typing import Any

import sqlalchemy as sa

from state_backends.sql.dialect import SqlDialect, StateColumns
from txtopo.errors import TopologyError, ValueRefusedError
from txtopo.plugins.stores import Aggregate, Field, StateTable

DIGITS = 18
"""The most digits of a decimal; the sum of two such numbers still fits 64 bits."""

# Room for the 38 digits of a partial sum. Nothing is rounded.
_EXACT = decimal.Context(prec=76, traps=[decimal.Inexact, decimal.InvalidOperation])

_NO_FIT = (decimal.DecimalException, OverflowError, ValueError)


class ScaledDecimal(sa.types.TypeDecorator[int]):
    """The type of a column that holds a decimal as a whole number of its last digit.

    Args:
        digits: The most digits of a number.
        scale: How many of them are after the point.
    """

    impl = sa.Integer
    cache_ok = True

    def __init__(self, digits: int, scale: int) -> None:
        super().__init__()
        self.digits = digits
        self.scale = scale

    def __str__(self) -> str:
        return f"{self.digits} digits, {self.scale} of them after the point"

    def whole(self, value: decimal.Decimal | str) -> int:
        """Return a number in the stored form.

        Raises:
            decimal.DecimalException, OverflowError, ValueError: It is not a number, or has more
                digits than the column.
        """
        shifted = _EXACT.scaleb(decimal.Decimal(value), self.scale)
        whole = int(_EXACT.to_integral_exact(shifted))
        if abs(whole) >= 10**self.digits:
            raise OverflowError
        return whole

    def number(self, kept: int) -> decimal.Decimal:
        """Return the number from its stored form."""
        return _EXACT.scaleb(decimal.Decimal(kept), -self.scale)


@cache
def decimal_column(kind: str) -> ScaledDecimal:
    """Return the column type for a field type ``decimal(p,s)``."""
    precision, scale = (int(part) for part in kind[8:-1].split(","))
    return ScaledDecimal(min(precision, DIGITS), scale)


def encoded_decimals(field: Field, column: list[decimal.Decimal | None]) -> list[int | None]:
    """Return a column of decimals as SQLite stores it.

    Raises:
        ValueRefusedError: A value has more digits than the column.
    """
    kind = decimal_column(field.type)
    whole: list[int | None] = []
    try:
        for value in column:
            whole.append(None if value is None else kind.whole(value))
    except _NO_FIT as error:
        raise ValueRefusedError(
            f"SQLite keeps {kind}, of field {field.name!r}; got {value}; nothing of its batch was "
            "written; keep the state in PostgreSQL, which allows 38 digits",
            field=field.name,
        ) from error
    return whole


def check_decimals(state: StateTable) -> None:
    """Check that SQLite can keep the decimals of a state.

    Raises:
        TopologyError: A column is too wide; declare it narrower, or use PostgreSQL.
    """
    aggregates: list[Aggregate | None] = [*state.aggregates] or [None] * len(state.value)
    columns = [*((field, None) for field in state.key), *zip(state.value, aggregates, strict=True)]
    for field, aggregate in columns:
        if not field.type.startswith("decimal"):
            continue
        precision, scale = (int(part) for part in field.type[8:-1].split(","))
        summed = aggregate is not None and aggregate.operator == "add"
        # A sum needs a digit before the point as well.
        if scale >= DIGITS if summed else precision > DIGITS:
            what = f"a sum with {scale} of them after the point" if summed else field.type
            raise TopologyError(
                f"SQLite keeps decimals of at most {DIGITS} digits; got {what} for {field.name!r} "
                f"of state {state.name!r}; expected e.g. "
                f"decimal({DIGITS},2){' as its input' if summed else ''}; declare a narrower "
                "type, or keep the state in PostgreSQL, which allows 38 digits",
                state=state.name,
                field=field.name,
            )


def add_checks(columns: StateColumns) -> None:
    """Add a CHECK for each decimal to a table, as rule 2 says."""
    for column in (*columns.keys, *columns.values):
        kind = column.type
        if isinstance(kind, ScaledDecimal):
            most = 10**kind.digits - 1
            # The message of an error quotes the name.
            more = "; PostgreSQL allows 38" if kind.digits == DIGITS else ""
            name = f"{column.name}: {kind}{more}"
            check = sa.CheckConstraint(column.between(-most, most), name=name)
            columns.table.append_constraint(check)


def shown_decimal(column: sa.ColumnElement[Any], kind: ScaledDecimal) -> sa.ColumnElement[Any]:
    """Return the number itself, for the view; without a fraction it stays a whole number."""
    if not kind.scale:
        return column
    # A power of ten up to 1e22 is an exact float, so the quotient is rounded once.
    return column.op("/")(sa.literal_column(f"1e{kind.scale}"))


def text_decimal(connection: sa.Connection, dialect: SqlDialect) -> str | None:
    """Return the name of a column that is text but should be a decimal; None if there is none."""
    found = sa.inspect(connection).get_columns(dialect.state.name)
    texts = {each["name"] for each in found if isinstance(each["type"], sa.Text)}
    decimals = (c for c in dialect.columns.table.columns if isinstance(c.type, ScaledDecimal))
    return next((column.name for column in decimals if column.name in texts), None)
