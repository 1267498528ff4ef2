"""What COPY of PostgreSQL writes becomes columns with the same values."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pytest

from state_backends.sql.postgresql import of_csv
from txtopo import Fields
from txtopo.errors import ValueRefusedError
from txtopo.state import open_state
from txtopo.testing.conformance.driver import StateDriver

if TYPE_CHECKING:
    from tests.harness.servers.postgresql import PostgresServer

FIELDS = Fields(
    "k string, text string, part double, at timestamp, day date, data binary, ok boolean, "
    "cost decimal(38,10), n long"
)
SCHEMA = FIELDS.arrow_schema()
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


def test_a_row_has_the_values_that_the_server_writes() -> None:
    text = (
        '"","say ""hi"", \n\r\n",NaN,2026-01-01 12:00:00+00,2026-01-01,\\x00ff,t,-0.0000000001,3\n'
        '",",  \\N,Infinity,0001-01-01 00:00:00.5+00,0001-01-01,\\x,f,2,-9223372036854775808\n'
        "NULL,,,,,,,,\n"
    )
    rows = [tuple(row.values()) for row in of_csv(text.encode(), SCHEMA).to_pylist()]

    day = datetime.date(2026, 1, 1)
    assert math.isnan(rows[0][2])
    assert (*rows[0][:2], *rows[0][3:]) == (
        *("", 'say "hi", \n\r\n', NOON, day, b"\x00\xff", True, decimal.Decimal("-1E-10"), 3),
    )
    first = datetime.datetime(1, 1, 1, microsecond=500_000, tzinfo=datetime.UTC)
    assert rows[1] == (
        *(",", "  \\N", math.inf, first, first.date(), b"", False, decimal.Decimal(2), -(2**63)),
    )
    assert rows[2] == ("NULL", *(None,) * 8)


def test_a_table_without_rows_has_its_columns() -> None:
    assert of_csv(b"", SCHEMA) == SCHEMA.empty_table()


def test_a_row_may_be_longer_than_a_block_of_the_parser() -> None:
    """A block has 1 MiB by default; an aggregate of many values is longer."""
    schema = pa.schema({"k": pa.string(), "text": pa.string()})
    long = "x,\n" * 1_000_000
    table = of_csv(f'a,"{long}"\nb,"{long}"\nc,\n'.encode(), schema)

    assert table.column("text").to_pylist() == [long, long, None]


@pytest.mark.service("postgresql")
def test_a_percent_sign_in_a_name_is_read(postgresql: PostgresServer) -> None:
    """psycopg reads two of them as one, but only in a statement with parameters."""
    state = open_state(postgresql.create_database("percent"), table="odd")
    key, value = Fields("`a %` string"), Fields("`%s %(b)s` long, at long")
    store = StateDriver(state.with_columns(key, value).ranged("at"))
    store.run(1, lambda state: state.put("x", (1, 2)))

    both = store.run(
        2, lambda state: [state.columns_between("at", above, None) for above in (None, 1)]
    )
    assert [found.to_pylist() for found in both] == [[{"a %": "x", "%s %(b)s": 1, "at": 2}]] * 2


@pytest.mark.service("postgresql")
def test_a_time_that_nobody_can_read_is_refused_by_name(postgresql: PostgresServer) -> None:
    url = postgresql.create_database("infinite")
    columns = Fields("key string"), Fields("at timestamp")
    store = StateDriver(open_state(url, table="times").with_columns(*columns).ranged("at"))
    store.run(1, lambda state: state.put("x", NOON))
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute("UPDATE times SET at = 'infinity'")

    with pytest.raises(ValueRefusedError, match=r"'times'.*infinity"):
        store.run(2, lambda state: state.columns_between("at", None, None))
