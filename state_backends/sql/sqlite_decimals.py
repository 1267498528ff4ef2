"""Decimals in SQLite: whole numbers of their last digit; in tables of earlier versions, text.

SQLite has no decimals. A ``decimal(10,2)`` is kept as a whole number of hundredths in an INTEGER
column, so plain SQL compares, sorts and sums it exactly. 64 bits hold 18 digits. The view shows the
number itself, as ``price / 1e2``: a float, exact to 15 digits, like any number with a fraction in
SQLite. Text with all digits would sort wrongly, and text was what ``max()`` got wrong.

Rules
-----
1. A column has at most 18 digits. A wider one is refused when the topology is built, and again when
   the state is opened to write.
2. The type of a sum is ``decimal(38,…)`` whatever it adds. Its column takes 18 digits, and a batch
   that brings it beyond them is refused whole, by a CHECK of the table. The names of the CHECKs
   tell where the points are.
3. Schema 3 of a row of the ledger says that the decimals of its state are whole numbers. Versions
   that would take hundredths for units refuse such a row, readers and writers alike.
4. A table of an earlier version has text in these columns, and is read as it is. Opening the state
   to write makes it anew, in the transaction that checks the tables: a crash leaves the one table
   or the other. A user's own table is not touched; it is refused.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from state_backends.sql.dialect import SCALED_SCHEMA, SqlDialect, StateColumns
from txtopo.errors import SchemaDrift, TopologyError, ValueRefusedError
from txtopo.plugins.stores import Aggregate, Field, StateTable

DIGITS = 18
"""The most digits of a decimal; the sum of two such numbers still fits 64 bits."""

# Room for the 38 digits of a partial sum. Nothing is rounded.
_EXACT = decimal.Context(prec=76, traps=[decimal.Inexact, decimal.InvalidOperation])

_NO_FIT = (decimal.DecimalException, OverflowError, ValueError)

_ROWS_AT_A_TIME = 10_000


class ScaledDecimal(sa.types.TypeDecorator[int]):
    """The type of a column that holds a decimal as a whole number of its last digit.

    Args:
        digits: The most digits of a number.
        scale: How many of them are behind the point.
    """

    impl = sa.Integer
    cache_ok = True

    def __init__(self, digits: int, scale: int) -> None:
        super().__init__()
        self.digits = digits
        self.scale = scale

    def __str__(self) -> str:
        return f"{self.digits} digits, {self.scale} of them behind the point"

    def whole(self, value: decimal.Decimal | str) -> int:
        """Return a number as it is kept.

        Raises:
            decimal.DecimalException, OverflowError, ValueError: It is no number, or has more digits
                than the column.
        """
        shifted = _EXACT.scaleb(decimal.Decimal(value), self.scale)
        whole = int(_EXACT.to_integral_exact(shifted))
        if abs(whole) >= 10**self.digits:
            raise OverflowError
        return whole

    def number(self, kept: int | str) -> decimal.Decimal:
        """Return the number that is kept, by an earlier version as text."""
        if isinstance(kept, str):
            return decimal.Decimal(kept)
        return _EXACT.scaleb(decimal.Decimal(kept), -self.scale)


@cache
def decimal_column(kind: str) -> ScaledDecimal:
    """Return the column type for a field type ``decimal(p,s)``."""
    precision, scale = (int(part) for part in kind[8:-1].split(","))
    return ScaledDecimal(min(precision, DIGITS), scale)


def encoded_decimals(field: Field, column: list[decimal.Decimal | None]) -> list[int | None]:
    """Return a column of decimals as SQLite keeps it.

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
            "written; keep the state in PostgreSQL, which has 38 digits",
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
            what = f"a sum with {scale} of them behind the point" if summed else field.type
            raise TopologyError(
                f"SQLite keeps decimals of at most {DIGITS} digits; got {what} for "
                f"{field.name!r} of state {state.name!r}; expected e.g. decimal({DIGITS},2)"
                f"{' as its input' if summed else ''}; declare it narrower, or keep the state in "
                "PostgreSQL, which has 38 digits",
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
            more = "; PostgreSQL has 38" if kind.digits == DIGITS else ""
            name = f"{column.name}: {kind}{more}"
            check = sa.CheckConstraint(column.between(-most, most), name=name)
            columns.table.append_constraint(check)


def shown_decimal(column: sa.ColumnElement[Any], kind: ScaledDecimal) -> sa.ColumnElement[Any]:
    """Return the number itself, for the view; one without a fraction stays a whole number."""
    if not kind.scale:
        return column
    # A power of ten up to 1e22 is an exact float, so the quotient is rounded once.
    return column.op("/")(sa.literal_column(f"1e{kind.scale}"))


def keys_are_text(connection: sa.Connection, keys: Sequence[sa.Column[Any]]) -> bool:
    """Return whether the decimals in the keys of a table are text, as in an earlier version."""
    first = next(filter(_is_decimal, keys), None)
    if first is None:
        return False
    found = connection.execute(sa.select(sa.func.typeof(first)).limit(1)).scalar()
    return bool(found == "text")


def text_decimal(connection: sa.Connection, dialect: SqlDialect) -> str | None:
    """Return the name of a column that is text, as in earlier versions, and should be a decimal."""
    types = _types(connection, dialect)
    decimals = filter(_is_decimal, dialect.columns.table.columns)
    return next((one.name for one in decimals if types.get(one.name) == "TEXT"), None)


def made_earlier(connection: sa.Connection, dialect: SqlDialect) -> bool:
    """Return whether the decimals of a table are text, and the rest is as its state declares."""
    columns = dialect.columns.table.columns
    earlier = {
        column.name: "TEXT" if _is_decimal(column) else dialect.type_name(column.type, connection)
        for column in columns
    }
    return any(map(_is_decimal, columns)) and _types(connection, dialect) == earlier


def _is_decimal(column: sa.Column[Any]) -> bool:
    return isinstance(column.type, ScaledDecimal)


def _types(connection: sa.Connection, dialect: SqlDialect) -> dict[str, str]:
    found = sa.inspect(connection).get_columns(dialect.state.name)
    return {column["name"]: dialect.type_name(column["type"], connection) for column in found}


def bring_up(connection: sa.Connection, dialect: SqlDialect, label: str) -> None:
    """Make a table of an earlier version anew, with its rows, indexes and triggers.

    Raises:
        SchemaDrift: The text of a decimal is no number, or has too many digits.
    """
    table, run = dialect.columns.table, connection.exec_driver_sql
    preparer = connection.dialect.identifier_preparer
    name = preparer.format_table(table)
    names = ", ".join(preparer.format_column(column) for column in table.columns)
    beside = run(
        "SELECT sql FROM sqlite_schema "
        "WHERE tbl_name = ? AND type IN ('index', 'trigger') AND sql IS NOT NULL",
        (table.name,),
    )
    again = list(beside.scalars())
    run(f"CREATE TEMP TABLE txtopo_earlier AS SELECT {names} FROM {name}")  # noqa: S608 - quoted
    run(f"DROP TABLE {name}")
    table.create(connection)
    marks = ", ".join("?" for _ in table.columns)
    into = f"INSERT INTO {name} ({names}) VALUES ({marks})"  # noqa: S608 - quoted
    rows = run("SELECT * FROM temp.txtopo_earlier")
    for chunk in rows.partitions(_ROWS_AT_A_TIME):
        run(into, [tuple(_brought_up(dialect, label, tuple(row))) for row in chunk])
    run("DROP TABLE temp.txtopo_earlier")
    for statement in again:
        run(statement)
    ledger = dialect.ledger
    marked = sa.update(ledger).values(schema_version=SCALED_SCHEMA)
    connection.execute(marked.where(ledger.c.state == dialect.state.name))


def _brought_up(dialect: SqlDialect, label: str, row: tuple[Any, ...]) -> Iterator[Any]:
    for column, value in zip(dialect.columns.table.columns, row, strict=True):
        kind = column.type
        if value is None or not isinstance(kind, ScaledDecimal):
            yield value
            continue
        try:
            yield kind.whole(value)
        except _NO_FIT as error:
            raise SchemaDrift(
                f"{label} was made by an earlier version and cannot be brought up; got {value!r} "
                f"in column {column.name!r} of the key {row[: len(dialect.columns.keys)]}; SQLite "
                f"keeps {kind}; nothing was changed; it can be read as before: take it with "
                "open_state(…).reader() to PostgreSQL, which has 38 digits",
                column=column.name,
            ) from error
