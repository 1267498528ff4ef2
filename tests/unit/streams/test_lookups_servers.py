"""Lookups in tables of real databases: times with and without a zone, and dates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.streams.test_lookups import countries_in, joined, run
from txtopo.streams import QueryLookup, lookups

sqlalchemy = pytest.importorskip("sqlalchemy")
if TYPE_CHECKING:
    from sqlalchemy import Engine

    from tests.harness.servers.postgresql import PostgresServer

KINDS = {
    "timestamp": ("TIMESTAMPTZ", "now() - interval '{} seconds'"),
    "timestamp_ntz": ("TIMESTAMP", "now() at time zone 'utc' - interval '{} seconds'"),
    "date": ("DATE", "(now() at time zone 'utc')::date - {} / 10"),
}


@pytest.fixture
def postgres(postgresql: PostgresServer) -> Iterator[Engine]:
    url = sqlalchemy.make_url(postgresql.url).set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(url)
    yield engine
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("DROP TABLE IF EXISTS shops"))
    engine.dispose()


@pytest.mark.service("postgresql")
@pytest.mark.parametrize("kind", KINDS)
def test_the_newest_row_of_a_table_in_postgresql_counts(
    kind: str, postgres: Engine, postgresql: PostgresServer, tmp_path: Path
) -> None:
    lookups._loaded.clear()
    column, ago = KINDS[kind]
    with postgres.begin() as connection:

        def execute(statement: str) -> None:
            connection.execute(sqlalchemy.text(statement))

        execute(f"CREATE TABLE shops (shop TEXT, country TEXT, since {column} NOT NULL)")
        for shop, country, ago_s in (
            ("a", "Austria", 40),
            ("a", "Albania", 20),
            ("b", "Brazil", 30),
            ("b", "not yet", -100),
        ):
            execute(f"INSERT INTO shops VALUES ('{shop}', '{country}', {ago.format(ago_s)})")
    source = QueryLookup(postgresql.url, "shops", as_of=f"since {kind}", settle_s=0)
    url = f"sqlite:///{tmp_path}/states.db"

    run(joined(source, url))

    nobody: dict[str, Any] = dict.fromkeys(["s3", "s4"])
    assert countries_in(url) == nobody | {"s1": "Albania", "s2": "Brazil", "s5": "Albania"}


@pytest.mark.service("postgresql")
def test_a_row_of_the_future_does_not_count_in_a_postgresql_that_is_in_berlin(
    postgres: Engine, postgresql: PostgresServer, tmp_path: Path
) -> None:
    """Times without a zone are in UTC; by the zone of Berlin, those of the next hour have come."""
    lookups._loaded.clear()
    role = f'ALTER ROLE "{postgres.url.username}"'
    with postgres.begin() as connection:

        def execute(statement: str) -> None:
            connection.execute(sqlalchemy.text(statement))

        execute("CREATE TABLE shops (shop TEXT, country TEXT, since TIMESTAMP NOT NULL)")
        for country, ago_s in (("Austria", 20), ("not yet", -1800)):
            since = f"now() at time zone 'utc' - interval '{ago_s} seconds'"
            execute(f"INSERT INTO shops VALUES ('a', '{country}', {since})")
        execute(f"{role} SET TimeZone = 'Europe/Berlin'")
    source = QueryLookup(postgresql.url, "shops", as_of="since", settle_s=0)
    url = f"sqlite:///{tmp_path}/states.db"

    try:
        run(joined(source, url))
    finally:
        with postgres.begin() as connection:
            connection.execute(sqlalchemy.text(f"{role} RESET TimeZone"))

    assert countries_in(url)["s1"] == "Austria"
