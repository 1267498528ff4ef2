"""Types in docs/reference/stores.md: the column of each, and what plain SQL sees in it.

The column types and the texts of Redis are made by the code of the stores. What plain SQL sees is
in :data:`SEEN`; ``SchemaSuite`` compares that with SQLite, PostgreSQL and MariaDB.
``python -m tests.unit.testing.conformance.types_page`` writes the section; a test holds the page to
it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from deltalake import Schema
from sqlalchemy.types import TypeEngine

from state_backends.sql import mariadb_rows
from state_backends.sql import postgresql as postgresql_state
from state_backends.sql import sqlite as sqlite_state
from tests.harness.report_page import DOCS, table, write_section
from txtopo.plugins.stores import Row, RowText, StateTable
from txtopo.state import open_state
from txtopo.testing.conformance.driver import StateDriver, putting
from txtopo.tuples import Fields

PAGE = DOCS / "reference" / "stores.md"
TITLE = "Types"
HEAD = """\
# Stores

What each store guarantees and refuses, the type of each column, and what a commit costs.
"""
NOON = datetime.datetime(2013, 7, 4, 12, 30, 15, 250_000)
EXAMPLES: dict[str, Any] = {
    "boolean": True,
    "byte": -1,
    "short": -1,
    "int": -1,
    "long": -1,
    "float": 0.5,
    "double": 0.1,
    "decimal(10,2)": Decimal("9.10"),
    "string": "é",
    "binary": b"\x00\xff",
    "date": NOON.date(),
    "timestamp": NOON.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-4))),
    "timestamp_ntz": NOON,
    "json": {"a": [1]},
}
"""A value of each type."""
_SAME = {
    **dict.fromkeys(("byte", "short", "int", "long"), "-1"),
    "float": "0.5",
    "double": "0.1",
    "decimal(10,2)": "9.10",
    "string": "é",
    "date": "2013-07-04",
    "json": '{"a":[1]}',
}
SEEN: dict[str, dict[str, str]] = {
    "sqlite": _SAME
    | {
        "boolean": "1",
        "decimal(10,2)": "910",
        "binary": "0x00FF",
        "timestamp": "2013-07-04 16:30:15.250000+00:00",
        "timestamp_ntz": "2013-07-04 12:30:15.250000",
    },
    "postgresql": _SAME
    | {
        "boolean": "true",
        "binary": r"\x00ff",
        "timestamp": "2013-07-04 16:30:15.25+00",
        "timestamp_ntz": "2013-07-04 12:30:15.25",
    },
    "mariadb": _SAME
    | {
        "boolean": "1",
        "binary": "0x00FF",
        "timestamp": "2013-07-04 16:30:15.250000",
        "timestamp_ntz": "2013-07-04 12:30:15.250000",
    },
}
"""What plain SQL sees of the examples in the table, by store. The view shows the same, except in
:data:`SEEN_IN_VIEW`."""
SEEN_IN_VIEW = {"sqlite": {"decimal(10,2)": "9.1"}}
COLUMNS = ("type", "SQLite", "PostgreSQL", "MariaDB, MySQL", "Delta", "Redis, backing maps")
PROSE = """\
The type of a key or value column in the store, and what plain SQL shows of an example. "view" marks
where the view `<table>_view` differs from the table. The previous values (`prev_…`) have the types
of the values. In memory, values are Python objects.

* **SQLite stores decimals as whole numbers, in units of their last digit.** The table compares,
  sorts and sums them exactly: `SELECT max(price), sum(price) FROM prices`, then divide by 10^scale.
  The view divides: its numbers are floats, exact to 15 digits, like any fractional number in
  SQLite. The names of the table's CHECKs contain the scales.
* **SQLite keeps decimals of at most 18 digits.** A wider key or value is refused when the topology
  is built. The type of a sum or mean is `decimal(38,…)` in every store; in SQLite a batch whose sum
  or mean exceeds 18 digits is refused. PostgreSQL, MariaDB, MySQL, Delta, Redis and memory keep 38
  digits.
* **Your own table in SQLite** needs an INTEGER column for a decimal, in units of the last digit:
  9.10 in a `decimal(10,2)` is 910. Any other column type is refused.
* Text and bytes in a MariaDB or MySQL key are `VARCHAR` and `VARBINARY`, which can be indexed.
* **`json` in PostgreSQL is `JSON`, not `JSONB`,** which would change values: the float 1e300
  becomes a whole number, -0.0 becomes 0.0, and `\\u0000` is refused. Functions and operators read
  `JSON`; for those of `JSONB` alone write `doc::jsonb`. MariaDB's `JSON` is `LONGTEXT` with a
  CHECK, and MySQL's changes values as `JSONB` does; the functions of both read text.
* A `timestamp` is a point in time, in UTC where the column has no time zone. A `timestamp_ntz` is
  kept as given.
""".splitlines()


def type_lines() -> Iterator[str]:
    """Yield the section in Markdown."""
    yield from PROSE
    yield ""
    yield from table(COLUMNS, map(_cells, EXAMPLES))


def _cells(kind: str) -> tuple[str, ...]:
    types = {
        "sqlite": _column(sqlite_state.column_type(kind), "sqlite"),
        "postgresql": _column(postgresql_state.column_type(kind), "postgresql+psycopg"),
        "mariadb": _column(mariadb_rows.column_type(kind), "mariadb+pymysql"),
    }
    delta = Schema.from_arrow(Fields(f"x {kind}").arrow_schema()).fields[0].type
    shown = [_cell(types[store], store, kind) for store in SEEN]
    return (f"`{kind}`", *shown, f"`{getattr(delta, 'type', delta)}`", f"`{_as_text(kind)}`")


def _column(kind: TypeEngine[Any], driver: str) -> str:
    dialect = sa.make_url(f"{driver}://").get_dialect()
    return kind.compile(dialect()).partition(" CHARACTER")[0]


def _cell(column: str, store: str, kind: str) -> str:
    view = SEEN_IN_VIEW.get(store, {}).get(kind)
    return f"`{column}`: `{SEEN[store][kind]}`" + (f"; view `{view}`" if view else "")


def _as_text(kind: str) -> str:
    """Return the example in the text of a row; its txid comes first."""
    state = StateTable("examples", "transactional", Fields("k long"), Fields(f"x {kind}"))
    value = '{"a":[1]}' if kind == "json" else EXAMPLES[kind]
    return RowText(state).row(Row(1, (value,)))[4:-2]


def seen(url: str, engine: sa.Engine) -> list[dict[str, str]]:
    """Return what plain SQL sees of the examples, in the table and in the view of a new state."""
    fields = Fields(", ".join(f"c{at} {kind}" for at, kind in enumerate(EXAMPLES)))
    store = StateDriver(open_state(url, table="examples", value=fields))
    store.run(1, putting({"a": tuple(EXAMPLES.values())}))
    store.close()
    columns = [_text(engine.dialect.name, at, kind) for at, kind in enumerate(EXAMPLES)]
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SET TIME ZONE 'UTC'")
        queries = [f"SELECT {', '.join(columns)} FROM examples{end}" for end in ("", "_view")]
        rows = [connection.exec_driver_sql(query).one() for query in queries]
    return [dict(zip(EXAMPLES, row, strict=True)) for row in rows]


def expected(database: str) -> list[dict[str, str]]:
    """Return what the page says that :func:`seen` returns."""
    store = "mariadb" if database == "mysql" else database
    return [SEEN[store], SEEN[store] | SEEN_IN_VIEW.get(store, {})]


def _text(database: str, at: int, kind: str) -> str:
    """Return the expression for an example as text."""
    if kind == "binary" and database != "postgresql":
        return f"'0x' || hex(c{at})" if database == "sqlite" else f"concat('0x', hex(c{at}))"
    return f"CAST(c{at} AS {'CHAR' if database in ('mysql', 'mariadb') else 'TEXT'})"


if __name__ == "__main__":
    write_section(PAGE, TITLE, type_lines(), HEAD)
