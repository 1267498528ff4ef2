"""Tables of real servers: their keys, their clocks, and transactions that commit late."""

from __future__ import annotations

import datetime
import itertools
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, create_engine, text

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.servers.tcp_proxy import TcpProxy
from tests.unit.sources.driving import Planner, context, emit
from txtopo import Config, Fields
from txtopo.errors import (
    ConfigError,
    EmitError,
    InfrastructureError,
    OffsetRegression,
    SourceDataLost,
)
from txtopo.plugins.spouts import LastBatch
from txtopo.sources.query import source as query_source
from txtopo.spouts import QueryTransactionalSpout

if TYPE_CHECKING:
    from tests.harness.servers.mariadb import MariaServer
    from tests.harness.servers.postgresql import PostgresServer

FIELDS = Fields("id long, at timestamp, amount decimal(10,2), word string")


def engine_of(url: str) -> Iterator[Engine]:
    engine = create_engine(url.replace("mariadb://", "mariadb+pymysql://"))
    yield engine
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS words"))
    engine.dispose()


@pytest.fixture
def postgres(postgresql: PostgresServer) -> Iterator[Engine]:
    yield from engine_of(postgresql.url)


_numbers = itertools.count()


@pytest.fixture
def maria(mariadb: MariaServer) -> Iterator[Engine]:
    yield from engine_of(mariadb.create_database(f"query{next(_numbers)}"))


def spout(engine: Engine, **options: Any) -> QueryTransactionalSpout:
    url = engine.url.render_as_string(hide_password=False)
    settings = {"query": "words", "key": "id", "fields": FIELDS, "settle_s": 0, **options}
    return QueryTransactionalSpout(url, **settings)


def fill(engine: Engine, kind: str, *ids: int) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                f"CREATE TABLE words (id BIGINT PRIMARY KEY, at {kind}, amount DECIMAL(10,2), "
                "word VARCHAR(20))"
            )
        )
    add(engine, *ids)


def add(engine: Engine, *ids: int) -> None:
    with engine.begin() as connection:
        for id in ids:
            at = f"2026-01-01 12:00:00.{id:06}"
            insert = "INSERT INTO words VALUES (:id, :at, 0.25, 'ä: 100%')"
            connection.execute(text(insert), {"id": id, "at": at})


def check_ahead(engine: Engine) -> None:
    """A time that has not come waits, and a row before a number far ahead is noticed."""
    insert = "INSERT INTO words VALUES ({}, '{}-01-01 12:00:00', 0.25, '')"
    with engine.begin() as connection:
        connection.execute(text(insert.format(2, 2100)))
    add(engine, 3)
    made = spout(engine, key="at")
    planner = Planner(made)
    assert [row[0] for batch in planner.all() for row in emit(made, batch)] == [1, 3]
    assert "up to 2100-01-01 12:00:00" in str(planner.coordinator.held_back())

    with engine.begin() as connection:
        for id in (-(2**62), 2**63 - 1):
            connection.execute(text(insert.format(id, 2026)))
    planner = Planner(spout(engine, batch_rows_max=2))
    planner.all()
    assert planner.metadata["gaps"][1] == [3, 2**63 - 1]  # type: ignore[index,call-overload]
    add(engine, 4)
    with pytest.raises(OffsetRegression, match=r"got id 4, between 3 and 9223372036854775807"):
        planner.plan()


def check_by_time(engine: Engine) -> None:
    """Times come back as the same key, whatever the time zone of the server is."""
    made = spout(engine, key="at", batch_rows_max=2)
    batches = Planner(made).all()

    assert [[row[0] for row in emit(made, batch)] for batch in batches] == [[1, 2], [3, 4], [5]]
    (row,) = emit(made, batches[2])
    assert (str(row[2]), row[3]) == ("0.25", "ä: 100%")
    assert Planner(spout(engine, settle_s=1000)).plan() is None, "its clock is understood"


@pytest.mark.service("postgresql")
def test_postgresql(postgres: Engine) -> None:
    with postgres.begin() as connection:
        connection.execute(text("SET TIME ZONE 'Asia/Kathmandu'"))
    fill(postgres, "TIMESTAMPTZ", 1, 2, 3, 4, 5)

    check_by_time(postgres)


@pytest.mark.service("mariadb")
def test_mariadb(maria: Engine) -> None:
    fill(maria, "DATETIME(6)", 1, 2, 3, 4, 5)

    check_by_time(maria)
    with maria.begin() as connection:
        connection.execute(text("DELETE FROM words WHERE id > 1"))
    check_ahead(maria)


@pytest.mark.service("postgresql")
def test_keys_far_ahead_in_postgresql(postgres: Engine) -> None:
    fill(postgres, "TIMESTAMPTZ", 1)

    check_ahead(postgres)


def check_a_night(engine: Engine, kind: str, *, declared: str, in_utc: str) -> None:
    """Rows of the night in which summer time ends come one by one, every half an hour.

    A session in Berlin has the hour from 2 to 3 twice, and half of its rows would be passed over.
    """
    with engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE words (at {kind} PRIMARY KEY, id BIGINT)"))
    url = engine.url.render_as_string(hide_password=False)
    fields = Fields(f"at {declared}, id long")
    made = QueryTransactionalSpout(url, "words", "at", fields, settle_s=0)
    planner = Planner(made)
    start = datetime.datetime(2026, 10, 24, 23, 30)
    zone = datetime.UTC if declared == "timestamp" else None
    times = [start + datetime.timedelta(minutes=30 * number) for number in range(6)]

    found = []
    for number, time in enumerate(times):
        with engine.begin() as connection:
            at = time.isoformat(" ")
            connection.execute(text(in_utc))
            connection.execute(text(f"INSERT INTO words VALUES ('{at}', {number})"))
        metadata = planner.plan()
        found += [] if metadata is None else emit(made, metadata)

    assert found == [(time.replace(tzinfo=zone), number) for number, time in enumerate(times)]


@pytest.mark.service("postgresql")
@pytest.mark.parametrize(
    ("kind", "declared"),
    [
        ("TIMESTAMP", "timestamp"),
        ("TIMESTAMPTZ", "timestamp"),
        ("TIMESTAMP", "timestamp_ntz"),
    ],
)
def test_each_row_is_read_once_from_a_postgresql_that_is_in_berlin(
    postgres: Engine, kind: str, declared: str
) -> None:
    with of_user(postgres, "TimeZone", "Europe/Berlin"):
        check_a_night(postgres, kind, declared=declared, in_utc="SET LOCAL TIME ZONE 'UTC'")


@pytest.mark.service("postgresql")
def test_times_without_a_zone_are_in_utc_where_an_hour_is_missing_in_berlin(
    postgres: Engine,
) -> None:
    """Berlin has no 02:30 on the 29th of March; a session there reads 03:30."""
    with of_user(postgres, "TimeZone", "Europe/Berlin"):
        with postgres.begin() as connection:
            connection.execute(text("CREATE TABLE words (at TIMESTAMP, id BIGINT)"))
            for id, at in enumerate(["01:30", "02:30", "03:00", "03:30"]):
                connection.execute(text(f"INSERT INTO words VALUES ('2026-03-29 {at}', {id})"))
        made = spout(postgres, key="at", fields=Fields("at timestamp, id long"), batch_rows_max=1)

        found = [emit(made, metadata) for metadata in Planner(made).all()]

    minutes = [[(row[0].hour, row[0].minute, row[1]) for row in rows] for rows in found]
    assert minutes == [[(1, 30, 0)], [(2, 30, 1)], [(3, 0, 2)], [(3, 30, 3)]]


@contextmanager
def of_user(engine: Engine, setting: str, value: str) -> Iterator[None]:
    """Give the sessions of a user of PostgreSQL a setting for a while."""
    role = f'ALTER ROLE "{engine.url.username}"'
    with engine.begin() as connection:
        connection.execute(text(f"{role} SET {setting} = '{value}'"))
    engine.dispose()
    try:
        yield
    finally:
        with engine.begin() as connection:
            connection.execute(text(f"{role} RESET {setting}"))
        engine.dispose()


@pytest.fixture
def maria_in_berlin(mariadb: MariaServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """A server of its own, since MariaDB takes its zone from the process."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    with type(mariadb)() as server:
        yield from engine_of(server.create_database("query"))


@pytest.mark.service("mariadb")
def test_each_row_is_read_once_from_a_mariadb_that_is_in_berlin(maria_in_berlin: Engine) -> None:
    for declared, kind in (
        ("timestamp", "TIMESTAMP(6) NOT NULL"),
        ("timestamp_ntz", "DATETIME(6)"),
    ):
        with maria_in_berlin.begin() as connection:
            connection.execute(text("DROP TABLE IF EXISTS words"))

        check_a_night(
            maria_in_berlin,
            kind,
            declared=declared,
            in_utc="SET time_zone = '+00:00'",
        )


@pytest.mark.service("postgresql")
@pytest.mark.parametrize(
    ("column", "declared", "value", "got"),
    [
        (
            "NUMERIC(10,1)",
            "long",
            "1",
            r"is not a long; got Decimal\('1.0'\), a Decimal; expected a w",
        ),
        (
            "DOUBLE PRECISION",
            "long",
            "1",
            r"is not a long; got 1.0, a float; expected a whole number",
        ),
        (
            "TIMESTAMP",
            "date",
            "'2026-01-01 02:00'",
            r"is not a date; got datetime.*; expected a date",
        ),
        (
            "DATE",
            "timestamp",
            "'2026-01-01'",
            r"is not a timestamp; got .*; expected a date with a t",
        ),
        (
            "TIMESTAMPTZ",
            "timestamp",
            "'infinity'",
            r"cannot be read: .*infinity.*; expected .*repair",
        ),
        (
            "DATE",
            "date",
            "'-infinity'",
            r"cannot be read: .*-infinity.*; expected .*; repair the row",
        ),
    ],
)
def test_a_key_of_another_type_is_named(
    postgres: Engine, column: str, declared: str, value: str, got: str
) -> None:
    with postgres.begin() as connection:
        connection.execute(text(f"CREATE TABLE words (at {column}, id BIGINT)"))
    made = spout(postgres, key="at", fields=Fields(f"at {declared}, id long"))
    planner = Planner(made)
    assert planner.plan() is None
    with postgres.begin() as connection:
        connection.execute(text(f"INSERT INTO words VALUES ({value}, 1)"))

    with pytest.raises(EmitError, match=got):
        planner.plan()
    with pytest.raises(ConfigError, match=got):
        Planner(made)


@pytest.mark.skipif(sys.platform != "linux", reason="the proxy loses packets on Linux")
@pytest.mark.service("postgresql")
def test_a_server_that_is_gone_without_a_word_is_noticed_while_it_is_asked(
    postgres: Engine, postgresql: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in set(query_source._PROBES) - {"connect_timeout"}:
        monkeypatch.setitem(query_source._PROBES, name, 1_000 if name == "tcp_user_timeout" else 1)
    asked = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'"
    with TcpProxy(postgresql.port) as proxy:
        url = postgres.url.set(port=proxy.port).render_as_string(hide_password=False)
        source = query_source.QuerySource(url, "words", "id", "long", FIELDS)

        def ask() -> None:
            with source.connected(source.engine()) as connection:
                connection.execute(text("SELECT pg_sleep(30)"))

        asking = ThreadPoolExecutor(1).submit(ask)
        with postgres.connect().execution_options(isolation_level="AUTOCOMMIT") as other:
            wait_until(lambda: other.execute(text(asked)).scalar(), "it is asked")
        proxy.half_open()

        with pytest.raises(InfrastructureError):
            asking.result(LIMIT_S)


@pytest.mark.service("postgresql")
def test_a_row_that_is_committed_late_is_read_when_keys_settle(postgres: Engine) -> None:
    """1 is drawn first and committed last; without settling it would be passed over."""
    fill(postgres, "TIMESTAMPTZ")
    made = spout(postgres, settle_s=0.5)
    planner = made.coordinator(Config(), context())
    late = postgres.connect()
    late.execute(text("INSERT INTO words (id) VALUES (1)"))
    add(postgres, 2)

    assert not planner.is_ready(1, LastBatch())
    late.commit()
    late.close()
    while not planner.is_ready(1, LastBatch()):
        pass
    metadata = planner.initialize_transaction(1, None)

    assert [row[0] for row in emit(made, metadata)] == [1, 2]


@pytest.mark.service("postgresql")
def test_a_server_that_is_down_is_tried_again_and_a_lost_table_is_not(
    postgresql: PostgresServer, postgres: Engine
) -> None:
    fill(postgres, "TIMESTAMPTZ", 1)
    made = spout(postgres)
    metadata = Planner(made).plan()
    with postgres.begin() as connection:
        connection.execute(text("DROP TABLE words"))

    with pytest.raises(SourceDataLost, match=r"(?s)'words' cannot be read.*was the table changed"):
        emit(made, metadata)
    away = QueryTransactionalSpout(
        "postgresql://u:hidden@127.0.0.1:1/db", "words", "id", FIELDS, settle_s=0
    )
    with pytest.raises(InfrastructureError) as caught:
        emit(away, metadata)
    assert "hidden" not in str(caught.value)


def store_a_moment(engine: Engine, kind: str, value: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE words (id BIGINT, at {kind})"))
        connection.execute(text(f"INSERT INTO words VALUES (1, '{value}')"))


@pytest.mark.service("postgresql")
@pytest.mark.parametrize(
    ("declared", "why"),
    [("timestamp_ntz", "it has a time zone, and a timestamp_ntz has none"), ("date", "time zone")],
)
def test_a_moment_is_not_read_as_the_clock_of_some_zone(
    postgres: Engine, declared: str, why: str
) -> None:
    store_a_moment(postgres, "TIMESTAMPTZ", "2026-01-01 00:00+00")
    made = spout(postgres, fields=Fields(f"id long, at {declared}"))
    metadata = Planner(made).plan()

    with pytest.raises(EmitError, match=rf"field 'at' of the row of 'words' with id 1 .*{why}"):
        emit(made, metadata)


@pytest.mark.service("postgresql")
def test_json_is_read_as_its_text(postgres: Engine) -> None:
    """As it was written: a state keeps ``json`` in such a column."""
    with postgres.begin() as connection:
        connection.execute(text("CREATE TABLE words (id BIGINT, doc JSON, other JSONB)"))
        connection.exec_driver_sql("""INSERT INTO words VALUES (1, '{"a":1e3}', '{"b":[]}')""")
    made = spout(postgres, fields=Fields("id long, doc string, other string"))

    assert emit(made, Planner(made).plan()) == [(1, '{"a":1e3}', '{"b": []}')]


@pytest.mark.service("mariadb")
def test_nor_is_a_timestamp_of_mariadb(maria: Engine) -> None:
    """The driver gives it without a zone, as a DATETIME."""
    store_a_moment(maria, "TIMESTAMP", "2026-01-01 00:00")
    made = spout(maria, fields=Fields("id long, at timestamp_ntz"))
    metadata = Planner(made).plan()

    with pytest.raises(
        EmitError, match=r"'at' of 'words' is a TIMESTAMP, .* declare it as one, or conv"
    ):
        emit(made, metadata)


@pytest.mark.service("postgresql")
def test_nor_is_a_key_that_is_a_moment(postgres: Engine) -> None:
    store_a_moment(postgres, "TIMESTAMPTZ", "2026-01-01 00:00+00")
    made = spout(postgres, key="at", fields=Fields("id long, at timestamp_ntz"))
    metadata = Planner(made).plan()

    with pytest.raises(EmitError, match=r"field 'at' of the row of 'words' .*it has a time zone"):
        emit(made, metadata)
