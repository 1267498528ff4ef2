"""A deadlock with a stranger in PostgreSQL: the whole write is made again."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
import sqlalchemy as sa

from state_backends.sql import backend as sql_backend
from tests.services.postgresql import PostgresServer
from txtopo.errors import StoreUnavailable
from txtopo.state import open_state
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.service("postgresql")
LIMIT_S = 60.0
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@pytest.fixture
def url(postgresql: PostgresServer) -> str:
    name = f"deadlock_{uuid4().hex}"
    url = postgresql.create_database(name)
    engine = sa.create_engine(postgresql.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        # Who waits this long looks for a deadlock, and gives up: the store, which waits first.
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET deadlock_timeout = '500ms'")
    engine.dispose()
    return url


def stand_in_the_way(url: str, row_locked: threading.Event) -> None:
    """Lock a row, and when the store waits for it, want its ledger."""
    engine = sa.create_engine(url)
    with engine.begin() as stranger:
        stranger.exec_driver_sql("SET deadlock_timeout = '1h'")
        stranger.exec_driver_sql("SELECT * FROM counts WHERE key = 'a' FOR UPDATE")
        row_locked.set()
        end = time.monotonic() + LIMIT_S
        while not stranger.exec_driver_sql(WAITING).scalar_one():
            assert time.monotonic() < end, "the store never waited"
            time.sleep(0.01)
        stranger.exec_driver_sql("SELECT * FROM txtopo_ledger FOR UPDATE")
    engine.dispose()


@pytest.mark.row(32)
def test_a_deadlock_costs_another_try_and_counts_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wakes up first gets the lock that was given back, so it may come to more than one."""
    monkeypatch.setattr(sql_backend, "_TRIES_MAX", 100)
    store = StateDriver(open_state(url, table="counts"))
    store.puts(1, {"a": 1})
    row_locked = threading.Event()

    with ThreadPoolExecutor(1) as pool:
        stranger = pool.submit(stand_in_the_way, url, row_locked)
        assert row_locked.wait(LIMIT_S)
        ledger = store.puts(2, {"a": 2, "b": 2})
        stranger.result(LIMIT_S)

    assert ledger.txid == 2
    assert store.contents() == {"a": 2, "b": 2}
    assert deadlocks(url) >= 1
    store.close()


@pytest.mark.row(32)
def test_after_a_few_tries_it_is_an_unavailable_store_that_was_not_written(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_backend, "_TRIES_MAX", 1)
    store = StateDriver(open_state(url, table="counts"))
    store.puts(1, {"a": 1})
    row_locked = threading.Event()

    with ThreadPoolExecutor(1) as pool:
        stranger = pool.submit(stand_in_the_way, url, row_locked)
        assert row_locked.wait(LIMIT_S)
        with pytest.raises(StoreUnavailable, match="deadlock"):
            store.puts(2, {"a": 2, "b": 2})
        stranger.result(LIMIT_S)

    assert store.contents() == {"a": 1}
    assert store.puts(2, {"a": 2, "b": 2}, attempt=1).txid == 2
    store.close()


def deadlocks(url: str) -> int:
    """Return how many deadlocks the server found in this database; it counts them a bit later."""
    engine = sa.create_engine(url)
    end = time.monotonic() + LIMIT_S
    count = 0
    while not count and time.monotonic() < end:
        with engine.begin() as connection:
            count = int(connection.exec_driver_sql(DEADLOCKS).scalar_one())
        time.sleep(0.05)
    engine.dispose()
    return count
