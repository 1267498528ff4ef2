"""A deadlock with a stranger in PostgreSQL: the whole write is made again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
import sqlalchemy as sa

from state_backends.sql import backend as sql_backend
from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.servers.postgresql import PostgresServer
from tests.unit.state_backends.patience import POSTGRESQL_PATIENCE
from txtopo.errors import StoreUnavailable
from txtopo.state import open_state
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.service("postgresql")
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@pytest.fixture
def url(postgresql: PostgresServer) -> str:
    name = f"deadlock_{uuid4().hex}"
    url = postgresql.create_database(name)
    engine = sa.create_engine(postgresql.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        # Who waits this long looks for a deadlock, and gives up: the store.
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET deadlock_timeout = '500ms'")
    engine.dispose()
    return url


@pytest.fixture
def store(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateDriver]:
    """A store that has written one txid, and gives up waiting for nothing but a deadlock."""
    for name, value in POSTGRESQL_PATIENCE.items():
        monkeypatch.setattr(name, value)
    store = StateDriver(open_state(url, table="counts"))
    store.puts(1, {"a": 1})
    yield store
    store.close()


class Stranger:
    """Locks a row, and wants the ledger when the store has it; only then the store wants the row.

    The store looks for a deadlock once, half a second after it began to wait: by then there is one.
    """

    def __init__(self, store: StateDriver) -> None:
        self._url = store.state.url
        self._row_locked, self._ledger_locked = threading.Event(), threading.Event()
        store.backend.point = self._on_point

    def stand_in_the_way(self) -> None:
        """Wait for the ledger, with the row in hand."""
        engine = sa.create_engine(self._url)
        with engine.begin() as connection:
            connection.exec_driver_sql("SET deadlock_timeout = '1h'")
            connection.exec_driver_sql("SELECT * FROM counts WHERE key = 'a' FOR UPDATE")
            self._row_locked.set()
            assert self._ledger_locked.wait(LIMIT_S)
            connection.exec_driver_sql("SELECT * FROM txtopo_ledger FOR UPDATE")
        engine.dispose()

    def wait(self) -> None:
        """Wait until the row is locked."""
        assert self._row_locked.wait(LIMIT_S)

    def _on_point(self, step: str) -> None:
        if step != "rows.before" or self._ledger_locked.is_set():
            return
        self._ledger_locked.set()
        wait_until(lambda: asked(self._url, WAITING), "the stranger waits")


@pytest.mark.row(32)
def test_a_deadlock_costs_another_try_and_counts_once(
    store: StateDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wakes up first gets the lock that was given back, so it may come to more than one."""
    monkeypatch.setattr(sql_backend, "_TRIES_MAX", 100)
    stranger = Stranger(store)

    with ThreadPoolExecutor(1) as pool:
        standing = pool.submit(stranger.stand_in_the_way)
        stranger.wait()
        ledger = store.puts(2, {"a": 2, "b": 2})
        standing.result(LIMIT_S)

    assert ledger.txid == 2
    assert store.contents() == {"a": 2, "b": 2}
    assert deadlocks(store) >= 1


@pytest.mark.row(32)
def test_after_a_few_tries_it_is_an_unavailable_store_that_was_not_written(
    store: StateDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_backend, "_TRIES_MAX", 1)
    stranger = Stranger(store)

    with ThreadPoolExecutor(1) as pool:
        standing = pool.submit(stranger.stand_in_the_way)
        stranger.wait()
        with pytest.raises(StoreUnavailable, match="deadlock detected"):
            store.puts(2, {"a": 2, "b": 2})
        standing.result(LIMIT_S)

    assert store.contents() == {"a": 1}
    assert store.puts(2, {"a": 2, "b": 2}, attempt=1).txid == 2


def deadlocks(store: StateDriver) -> int:
    """Return how many deadlocks the server found; a session tells them with a later transaction."""

    def count() -> int:
        store.held()
        return asked(store.state.url, DEADLOCKS)

    return wait_until(count, "the server tells of a deadlock", pause_s=0.05)


def asked(url: str, question: str) -> int:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = int(connection.exec_driver_sql(question).scalar_one())
    engine.dispose()
    return found
