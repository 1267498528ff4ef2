"""What a server, database or user sets for sessions changes nothing, and poolers are recognised."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from tests.harness.servers import pgbouncer
from tests.unit.sources.driving import Planner, emit
from txtopo import Fields, open_state
from txtopo.errors import TopologyError
from txtopo.spouts import QueryTransactionalSpout
from txtopo.sql_sessions import POSTGRESQL, is_shared
from txtopo.testing.conformance.driver import StateDriver, named, putting
from txtopo.testing.conformance.rules import exactly

if TYPE_CHECKING:
    from tests.harness.servers.mariadb import MariaServer
    from tests.harness.servers.postgresql import PostgresServer

HOSTILE = {
    "TimeZone": "America/New_York",
    "DateStyle": "German, DMY",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "-10",
    "bytea_output": "escape",
    "client_encoding": "LATIN1",
    "standard_conforming_strings": "off",
    "array_nulls": "off",
    "transform_null_equals": "on",
}
HOSTILE_MYSQL = {
    "time_zone": "'-05:00'",
    "sql_select_limit": "1",
    "sql_auto_is_null": "1",
    "div_precision_increment": "0",
    "sql_mode": "'PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
    "tx_isolation": "'READ-UNCOMMITTED'",
    "unique_checks": "0",
}

FIELDS = Fields("x double, f float, day date, at timestamp, b binary, text string")
MOMENT = dt.datetime(2020, 11, 1, 6, 30, 0, 123456, dt.UTC)
ROWS = {
    n: (
        x,
        123456.7890625,
        MOMENT.date(),
        MOMENT + dt.timedelta(hours=n),
        b"\0\\\xff",
        f"茶 {n} \\ ' \\n",
    )
    for n, x in enumerate((0.1 + 0.2, 1 / 3, 2.0**0.5, 1e300))
}


def check_state(url: str) -> None:
    """Check that a state keeps, undoes and reads values exactly."""
    state = open_state(url, table="kept", key=Fields("n int"), value=FIELDS)
    store = StateDriver(state)
    try:
        expected = exactly({n: named(FIELDS, *row) for n, row in ROWS.items()})
        store.run(1, putting(ROWS))
        assert exactly(store.contents()) == expected
        store.run(2, putting(dict.fromkeys(ROWS, ROWS[0])))
        store.run(2, putting({}), 1)
        with state.reader() as reader:
            assert exactly(dict(reader.items())) == expected
    finally:
        store.close()


def check_query(url: str, table: str = "source") -> None:
    """Check that a spout reads the rows of a table exactly."""
    fields = Fields.of([*Fields("n int"), *FIELDS])
    spout = QueryTransactionalSpout(url, table, "n", fields, settle_s=0)
    (batch,) = Planner(spout).all()
    assert exactly(emit(spout, batch)) == exactly([(n, *row) for n, row in ROWS.items()])


def make_source(engine: sa.Engine, columns: str) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE source (n INT PRIMARY KEY, {columns})")
        insert = sa.text("INSERT INTO source VALUES (:n, :x, :f, :day, :at, :b, :text)")
        names = ("n", *FIELDS.names)
        connection.execute(
            insert, [dict(zip(names, (n, *row), strict=True)) for n, row in ROWS.items()]
        )
    engine.dispose()


COLUMNS = "x FLOAT8, f REAL, day DATE, at TIMESTAMPTZ, b BYTEA, text TEXT"


@pytest.mark.service("postgresql")
class TestPostgresql:
    def test_every_setting_that_a_session_needs_is_tried(self) -> None:
        assert set(HOSTILE) == set(POSTGRESQL)
        assert all(HOSTILE[name] != POSTGRESQL[name] for name in HOSTILE)

    def test_what_a_database_sets_changes_nothing(self, postgresql: PostgresServer) -> None:
        url = postgresql.create_database("hostile")
        make_source(sa.create_engine(url), COLUMNS)
        for name, text in HOSTILE.items():
            postgresql.execute(f"ALTER DATABASE hostile SET {name} = '{text}'")

        check_state(url)
        check_query(url)

    def test_a_database_that_holds_no_unicode_is_refused(self, postgresql: PostgresServer) -> None:
        postgresql.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
        state = open_state(postgresql.url_of("latin"), table="kept")

        with pytest.raises(TopologyError, match="encoding is 'LATIN1'"):
            StateDriver(state)


@pytest.fixture
def hostile(mariadb: MariaServer) -> Iterator[str]:
    """A database of a server whose sessions begin with odd settings."""
    url = mariadb.create_database("hostile")
    columns = "x DOUBLE, f FLOAT, day DATE, at DATETIME(6), b VARBINARY(9), text CHAR(40)"
    charset = " CHARACTER SET utf8mb4"
    make_source(sa.create_engine(url), columns + charset)
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        names = list(HOSTILE_MYSQL)
        asked = ", ".join(f"@@global.{name}" for name in names)
        before = connection.exec_driver_sql(f"SELECT {asked}").one()
        for name, text in HOSTILE_MYSQL.items():
            connection.exec_driver_sql(f"SET GLOBAL {name} = {text}")
        yield url
        for name, given in zip(names, before, strict=True):
            connection.exec_driver_sql(f"SET GLOBAL {name} = %s", (given,))
    engine.dispose()


@pytest.mark.service("mariadb")
def test_what_a_mariadb_sets_changes_nothing(hostile: str) -> None:
    check_state(hostile)
    check_query(hostile)


_NUMBERS = count()


@pytest.fixture
def pooled(postgresql: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database through a pooler in the mode of the test."""
    if pgbouncer.find_program() is None:
        pytest.skip("no PgBouncer (try make services)")
    name = f"pooled_{next(_NUMBERS)}"
    postgresql.create_database(name)
    with pgbouncer.PgBouncer(postgresql, request.param) as pooler:
        yield pooler.url_of(name)


in_mode = pytest.mark.parametrize("pooled", ["transaction", "session"], indirect=True)


def session_of(url: str) -> Any:
    import psycopg

    return psycopg.connect(url.replace("+psycopg", ""))


@pytest.mark.service("postgresql")
class TestPooler:
    @in_mode
    def test_a_session_that_others_get_is_told_from_ones_own(
        self, pooled: str, request: pytest.FixtureRequest
    ) -> None:
        with session_of(pooled) as driver:
            shared = is_shared(driver, lambda: session_of(pooled))

        assert shared == ("transaction" in request.node.name)

    @in_mode
    def test_states_and_queries_are_right(
        self, pooled: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
    ) -> None:
        make_source(sa.create_engine(pooled), COLUMNS)

        with caplog.at_level(logging.WARNING, "txtopo"):
            check_state(pooled)
            check_query(pooled)
        told = [each for each in caplog.messages if "pool_mode = transaction" in each]
        assert bool(told) == ("transaction" in request.node.name)

    @pytest.mark.parametrize("pooled", ["transaction"], indirect=True)
    def test_two_states_with_many_rows_share_a_session(self, pooled: str) -> None:
        """Many rows come through a temporary table, whose columns differ."""
        numbers = StateDriver(open_state(pooled, table="numbers", key=Fields("n int")))
        words = StateDriver(
            open_state(pooled, table="words", key=Fields("w string"), value=Fields("a date"))
        )
        rows, days = dict.fromkeys(range(3000), 7), {str(n): MOMENT.date() for n in range(3000)}
        for txid in (1, 2):
            numbers.run(txid, putting(rows))
            words.run(txid, putting(days))
        numbers.run(2, putting({0: 8}), 1)

        assert numbers.contents() == {**rows, 0: 8}
        assert words.contents() == days
        numbers.close()
        words.close()

    @pytest.mark.parametrize("pooled", ["transaction"], indirect=True)
    def test_nobody_else_gets_its_settings(self, pooled: str) -> None:
        with session_of(pooled) as driver:
            before = driver.execute("SHOW lock_timeout").fetchone()
            driver.commit()
            check_state(pooled)
            found = [driver.execute(f"SHOW {name}").fetchone() for name in ("lock_timeout", "jit")]
        assert found == [before, ("on",)]
