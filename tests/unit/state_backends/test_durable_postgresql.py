"""What a PostgreSQL session must be when it commits: nothing but a power cut shows it else."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from tests.harness.servers.postgresql import PostgresServer
from tests.unit.state_backends.logs import counted
from tests.unit.state_backends.watching import statements_said, work
from txtopo.errors import TopologyError
from txtopo.state import open_state
from txtopo.state.log_mode import SEGMENTS_OF_A_TIER
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.service("postgresql")
_numbers = itertools.count()
Commit = tuple[str, str, bool]
"""What synchronous_commit was, the isolation level, and whether the main thread committed."""


@pytest.fixture
def url(postgresql: PostgresServer) -> str:
    return postgresql.create_database(f"durable{next(_numbers)}")


@pytest.fixture
def at_commit() -> Iterator[list[Commit]]:
    """What each session of this process is in the moment in which it commits."""
    seen: list[Commit] = []
    main = threading.current_thread()

    def look(connection: sa.Connection) -> None:
        waits = connection.exec_driver_sql("SHOW synchronous_commit").scalar_one()
        level = connection.exec_driver_sql("SHOW transaction_isolation").scalar_one()
        seen.append((waits, level, threading.current_thread() is main))

    sa.event.listen(sa.Engine, "commit", look)
    yield seen
    sa.event.remove(sa.Engine, "commit", look)


@contextmanager
def changed(url: str, *statements: str) -> Iterator[None]:
    """Say something to the server, and take back what was said of the role and the database."""
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    name = sa.make_url(url).database
    try:
        with engine.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
        yield
    finally:
        with engine.connect() as connection:
            connection.exec_driver_sql("ALTER ROLE txtopo RESET ALL")
            connection.exec_driver_sql(f"ALTER DATABASE {name} RESET ALL")
            connection.exec_driver_sql("ALTER SYSTEM RESET ALL")
            connection.exec_driver_sql("SELECT pg_reload_conf()")
        engine.dispose()


def test_each_session_that_commits_waits_for_the_disk(url: str, at_commit: list[Commit]) -> None:
    work(open_state(url, table="counts"))

    assert len(at_commit) >= 8
    assert {waits for waits, _, _ in at_commit} == {"on"}


@pytest.mark.parametrize("who", ["url", "role", "database", "server"])
def test_who_turned_it_off_does_not_matter(url: str, at_commit: list[Commit], who: str) -> None:
    database = sa.make_url(url).database
    off = {
        "url": "SELECT 1",
        "role": "ALTER ROLE txtopo SET synchronous_commit = off",
        "database": f"ALTER DATABASE {database} SET synchronous_commit = off",
        "server": "ALTER SYSTEM SET synchronous_commit = off",
    }[who]
    state_url = f"{url}?options=-csynchronous_commit%3Doff" if who == "url" else url
    with changed(url, off, "SELECT pg_reload_conf()"):
        work(open_state(state_url, table="counts"))

    assert len(at_commit) >= 8
    assert {waits for waits, _, _ in at_commit} == {"on"}


def test_a_fold_does_not_wait_and_leaves_a_session_that_does(
    url: str, at_commit: list[Commit]
) -> None:
    """Its session goes back to the pool: the commits that come after it may get that one.

    A fold that is lost loses nothing that was in it: see ``postgresql_log.py``.
    """
    store = StateDriver(counted(url))
    for txid in range(1, 2 * SEGMENTS_OF_A_TIER + 1):
        store.merge(txid, [("a", 1)])
        if txid % SEGMENTS_OF_A_TIER == 0:
            store.backend.close()  # waits for the fold
    store.close()

    folds = {waits for waits, _, main in at_commit if not main}
    assert folds == {"off"}
    assert {waits for waits, _, main in at_commit if main} == {"on"}


@pytest.mark.rule("state_backends.sql.postgresql_log", "Folds", 2)
def test_a_session_that_folded_waits_for_the_disk_again(url: str) -> None:
    from state_backends.sql.backend import SqlBackend
    from state_backends.sql.postgresql_log import PostgresqlLogDialect

    store = StateDriver(counted(url))
    store.merge(1, [("a", 1)])
    store.merge(2, [("a", 1)])
    backend = store.backend
    assert isinstance(backend, SqlBackend)
    assert isinstance(backend._dialect, PostgresqlLogDialect)
    with backend._engine.connect() as connection:
        backend._dialect.folder.prepare(connection)
        backend._dialect.folder.folded(connection, [1])

        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar_one() == "on"


def test_a_server_without_fsync_is_refused(url: str) -> None:
    state = open_state(url, table="counts")
    with (
        changed(url, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"),
        pytest.raises(TopologyError, match="fsync is 'off', so a crash of the machine may lose"),
    ):
        StateDriver(state)
    assert StateDriver(state).puts(1, {"a": 1}).txid == 1


def test_a_server_that_may_write_half_a_page_is_told_of(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    state = open_state(url, table="counts")
    with (
        changed(url, "ALTER SYSTEM SET full_page_writes = off", "SELECT pg_reload_conf()"),
        caplog.at_level(logging.WARNING, "txtopo.state"),
    ):
        StateDriver(state)

    assert "full_page_writes = off; a crash of the machine may leave half a page" in caplog.text


def test_ledger_and_rows_of_a_reading_are_of_one_instant(url: str) -> None:
    """Also in a session that has written before, whose writes are READ COMMITTED."""
    store = StateDriver(open_state(url, table="counts"))
    store.puts(1, {"a": 1})
    with store.backend.snapshot() as snapshot:
        assert snapshot.ledger is not None
        store.puts(2, {"a": 2})

        assert snapshot.ledger.txid == 1
        assert [row.visible() for _, row in snapshot.items()] == [(1,)]


@pytest.mark.rule("state_backends.sql.backend", "Rules", 1)
def test_a_write_locks_the_ledger_before_anything_else(url: str) -> None:
    """Two coordinators that read it beside each other would both take their turn."""
    store = StateDriver(open_state(url, table="counts"))
    with statements_said() as said:
        store.puts(1, {"a": 1})
    with statements_said() as said_later:
        store.puts(2, {"a": 2})

    assert said[0].endswith("FOR UPDATE")
    assert said_later[0].startswith("UPDATE txtopo_ledger")
