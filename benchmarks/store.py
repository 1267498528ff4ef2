"""The stores: one database for each measurement, the upsert of the floor, the check."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pyarrow as pa
import sqlalchemy as sa

from benchmarks.data import Source
from benchmarks.workloads import Workload
from tests.harness.servers.postgresql import PostgresServer

TABLE = "counts"
_COUNTS = "CREATE TABLE counts (word text PRIMARY KEY, count bigint NOT NULL)"
_TOTALS = "CREATE TABLE counts (key text PRIMARY KEY, words bigint, letters bigint)"
_UPSERT_COUNTS = """
    INSERT INTO counts AS c SELECT * FROM unnest(%s::text[], %s::bigint[])
    ON CONFLICT (word) DO UPDATE SET count = c.count + excluded.count"""
_UPSERT_TOTALS = """
    INSERT INTO counts AS c SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bigint[])
    ON CONFLICT (key) DO UPDATE
    SET words = c.words + excluded.words, letters = c.letters + excluded.letters"""
_numbers = itertools.count(1)


@contextmanager
def fresh_database(server: PostgresServer) -> Iterator[str]:
    """Make an empty database, yield its URL, and drop it."""
    name = f"benchmark_{next(_numbers)}"
    yield server.create_database(name)
    with psycopg.connect(plain(server.url), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def sqlite_database(_: PostgresServer) -> Iterator[str]:
    """Yield the URL of a file of SQLite's, and remove it."""
    with tempfile.TemporaryDirectory(prefix="txtopo-benchmark-sqlite-") as folder:
        yield f"sqlite:///{folder}/counts.db"


def plain(url: str) -> str:
    """Return SQLAlchemy's URL as psycopg wants it."""
    return url.replace("+psycopg", "")


def create(connection: psycopg.Connection, workload: Workload) -> None:
    """Make the table that the floor and Structured Streaming write."""
    connection.execute(_TOTALS if workload.kind == "global" else _COUNTS)
    connection.commit()


def create_progress(connection: psycopg.Connection) -> None:
    """Make the table with the number of the last batch."""
    connection.execute("CREATE TABLE progress (batch bigint NOT NULL)")
    connection.execute("INSERT INTO progress VALUES (-1)")
    connection.commit()


def upsert(connection: psycopg.Connection, workload: Workload, result: pa.Table) -> None:
    """Add the counts of a batch, in one statement."""
    columns = [column.to_pylist() for column in result.columns]
    if workload.kind == "global":
        connection.execute(_UPSERT_TOTALS, [["global"], *columns])
    else:
        connection.execute(_UPSERT_COUNTS, columns)


def check(url: str, workload: Workload, source: Source, table: str) -> None:
    """Compare a table, or a view, with what the files hold."""
    engine = sa.create_engine(url)
    columns = "words, letters" if workload.kind == "global" else "word, count"
    with engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(sa.text(f"SELECT {columns} FROM {table}"))]
    engine.dispose()
    of_all = [(workload.words, source.letters)]
    found, expected = (rows, of_all) if workload.kind == "global" else (dict(rows), source.expected)
    if found != expected:
        raise AssertionError(f"{workload.name}: the store is wrong; got {str(found)[:200]}")
