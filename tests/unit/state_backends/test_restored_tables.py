"""A start notices a table that is restored without its ledger, and a ledger without its table."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from state_backends.redis.client import client_of
from txtopo import Fields
from txtopo.errors import StoreDamagedError
from txtopo.state import Count, State, open_state
from txtopo.state.witness import KEY_CHARS_MAX
from txtopo.testing.conformance.driver import StateDriver

_numbers = itertools.count()
STORES = ("sqlite", "postgresql", "mariadb", "redis")
TABLE, LEDGER = "counts", "txtopo_ledger"
Back = Callable[[str], None]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request, tmp_path, request.param)


def url_of(request: pytest.FixtureRequest, folder: Path, store: str) -> str:
    if store == "sqlite":
        return f"sqlite:///{folder}/states.db"
    if store == "postgresql":
        return str(request.getfixturevalue("postgresql_schema"))
    if store == "redis":
        return str(request.getfixturevalue("redis_server").empty())
    return str(request.getfixturevalue("mariadb").create_database(f"restored{next(_numbers)}"))


@pytest.fixture
def state(url: str) -> State:
    return open_state(url, table=TABLE)


def kept(url: str) -> Back:
    """Keep a copy of all tables; return a function that brings one back, as ``pg_restore -t``."""
    if url.startswith("redis"):
        client: Any = client_of(url)
        names = {TABLE: "txtopo:{counts}:rows", LEDGER: "txtopo:{counts}:head"}
        dumped = {name: client.dump(key) for name, key in names.items()}
        return lambda name: client.restore(names[name], 0, dumped[name], replace=True)
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        tables = [name for name in sa.inspect(connection).get_table_names() if "kept" not in name]
        for name in tables:
            connection.exec_driver_sql(f"CREATE TABLE kept_{name} AS SELECT * FROM {name}")

    def back(name: str) -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DELETE FROM {name}")
            connection.exec_driver_sql(f"INSERT INTO {name} SELECT * FROM kept_{name}")
        engine.dispose()

    return back


def written(state: State, url: str) -> tuple[StateDriver, Back]:
    """Return a state that holds txid 4, and what brings back a table as of txid 2."""
    store = StateDriver(state)
    store.puts(1, {"a": 1, "b": 1})
    store.puts(2, {"a": 2})
    back = kept(url)
    store.puts(3, {"a": 3, "c": 3})
    store.puts(4, {"a": 4})
    return store, back


@pytest.mark.rule("txtopo.state.witness", "Rules", 1, 3)
def test_a_table_that_is_restored_alone_is_noticed(state: State, url: str) -> None:
    store, back = written(state, url)
    store.puts(5, {})
    back(TABLE)
    store.close()

    with pytest.raises(StoreDamagedError, match=r"key .'a'.* is of txid 2; expected one of txid 4"):
        StateDriver(state, epoch=2)


def test_a_ledger_that_is_restored_alone_is_noticed(state: State, url: str) -> None:
    store, back = written(state, url)
    back(LEDGER)
    store.close()

    with pytest.raises(
        StoreDamagedError, match=r"is of txid 4; expected one of txid 2.* ledger rest"
    ):
        StateDriver(state, epoch=2)


def test_a_row_that_is_missing_is_noticed(state: State, url: str) -> None:
    store, back = written(state, url)
    store.puts(5, {"new": 5})
    back(TABLE)
    store.close()

    with pytest.raises(StoreDamagedError, match="is missing; expected one of txid 5"):
        StateDriver(state, epoch=2)


def test_a_row_that_was_deleted_and_is_back_is_noticed(state: State, url: str) -> None:
    store, back = written(state, url)
    store.puts(5, {"a": None})
    store.puts(6, {})
    back(TABLE)
    store.close()

    with pytest.raises(StoreDamagedError, match="is of txid 2; expected no such row"):
        StateDriver(state, epoch=2)


def test_table_and_ledger_of_one_moment_are_taken(state: State, url: str) -> None:
    """What is behind ZooKeeper is told by its txid."""
    store, back = written(state, url)
    back(TABLE)
    back(LEDGER)
    store.close()

    assert StateDriver(state, epoch=2).ledger.txid == 2


@pytest.mark.parametrize("url", ["postgresql", "mariadb"], indirect=True)
def test_an_undo_by_a_list_of_another_txid_is_refused(state: State, url: str) -> None:
    """It would find other rows than those of its txid, and they would count twice."""
    store, back = written(state, url)
    back("counts_touched")

    with pytest.raises(StoreDamagedError, match="txid 4 cannot be taken back"):
        store.puts(4, {"a": 40}, attempt=1)
    assert store.contents() == {"a": 4, "b": 1, "c": 3}
    store.close()


@pytest.mark.parametrize("url", ["postgresql", "mariadb"], indirect=True)
def test_a_log_that_is_restored_alone_is_noticed_and_a_fold_is_none(url: str) -> None:
    state = open_state(url, table=TABLE, mode="log").with_columns(
        Fields("key string"), Fields("value long"), aggregates=(Count(),)
    )
    store = StateDriver(state)
    store.merge(1, [("a", 1)])
    back = kept(url)
    for txid in range(2, 40):
        store.merge(txid, [("a", 1), (f"k{txid}", 1)])
    for txid in range(40, 80):
        store.merge(txid, [])
    store.close()
    successor = StateDriver(state, epoch=2)
    assert successor.contents()["a"] == 39
    successor.close()

    back(TABLE)
    with pytest.raises(StoreDamagedError, match="the newest row is of txid 1; expected one of"):
        StateDriver(state, epoch=3)


@pytest.mark.rule("txtopo.state.witness", "Rules", 4)
@pytest.mark.parametrize("url", ["sqlite", "redis"], indirect=True)
def test_a_row_that_has_expired_is_not_missed(url: str) -> None:
    state = open_state(url, table=TABLE).with_columns(Fields("key string"), Fields("value long"))
    state = state.ranged("value")
    store = StateDriver(state)
    store.puts(1, {"old": 1})
    for txid in range(2, 5):
        store.puts(txid, {})
    while store.backend.expire(1, 4):
        pass
    assert store.contents() == {}
    store.close()

    StateDriver(state, epoch=2).close()


@pytest.mark.rule("txtopo.state.witness", "Rules", 4)
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_user_may_change_a_table_of_the_users_own(url: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE counts (key TEXT NOT NULL PRIMARY KEY, value INTEGER) STRICT"
        )
    state = open_state(url, table=TABLE, add_columns=True).with_columns(
        Fields("key string"), Fields("value long")
    )
    store = StateDriver(state)
    store.puts(1, {"a": 1})
    store.close()
    for epoch, change in enumerate(
        (
            "UPDATE counts SET value = 7",
            "DELETE FROM counts",
            "INSERT INTO counts (key, value) VALUES ('a', 9)",
        ),
        2,
    ):
        with engine.begin() as connection:
            connection.exec_driver_sql(change)
        StateDriver(state, epoch=epoch).close()
    engine.dispose()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_key_that_is_too_long_for_the_ledger_is_not_noted(state: State) -> None:
    store = StateDriver(state)
    store.puts(1, {"a": 1})
    store.puts(2, {"a" * KEY_CHARS_MAX: 1})

    held = store.held()
    assert held is not None
    assert held.witness == ""
    store.close()
