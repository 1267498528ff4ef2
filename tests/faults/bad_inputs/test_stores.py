"""Stores that are unreachable, or not safe enough, are refused before anything is written."""

from __future__ import annotations

import random
import sqlite3
import string
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from state_backends.sql.failures import translated
from tests.faults.bad_inputs.by_hand import statements
from tests.faults.bad_inputs.evidence import KEPT, held, nothing_committed, untouched
from tests.faults.bad_inputs.numbers import bad_input
from tests.faults.bad_inputs.topologies import keeping
from tests.harness.runs import Storage, run_to_end
from tests.harness.servers.postgresql import PostgresServer
from txtopo.errors import (
    AuthError,
    ConfigError,
    ForeignStateError,
    PromiseError,
    StoreUnavailable,
    TopologyError,
    ValueRefusedError,
)
from txtopo.state import open_state
from txtopo.testing.conformance.driver import StateDriver

ROWS = [["a", 1], ["b", 2]]


def refused(url: str, error: type[Exception], match: str) -> Exception:
    """Start a topology with a state in *url*, which must raise; no node is written."""
    storage = Storage(url)
    with pytest.raises(error, match=match) as caught:
        run_to_end(keeping(storage, ROWS), storage)
    assert storage.ensemble.nodes == {}
    return caught.value


@bad_input(49)
@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid"])
def test_a_database_that_is_down_is_said_at_the_start(host: str) -> None:
    error = refused(
        f"postgresql://user:secret@{host}/words",
        StoreUnavailable,
        r"cannot use state 'kept' in postgresql://user:\*\*\*@.*; nothing was written",
    )

    assert "secret" not in str(error)


@bad_input(50)
def test_a_wrong_password_is_refused_and_not_shown(postgresql: PostgresServer) -> None:
    error = refused(
        postgresql.url_of("postgres", "not-the-word"),
        AuthError,
        r"state 'kept' in .*:\*\*\*@.* cannot be used with this URL: .*password authentication "
        "failed.*; nothing was written; check the user, password, database and permissions",
    )

    assert "not-the-word" not in f"{error!r} {error.__cause__!r} {error.facts}"  # type: ignore[attr-defined]


@bad_input(50)
def test_a_database_that_is_not_there_is_refused(postgresql: PostgresServer) -> None:
    refused(postgresql.url_of("nowhere"), AuthError, 'database "nowhere" does not exist')


@bad_input(51, 57)
@pytest.mark.parametrize("scheme", ["oracle", "mssql", "mssql+pyodbc", "duckdb"])
def test_a_database_that_is_not_known_to_keep_the_promise_is_refused(scheme: str) -> None:
    """Such as one that commits each DDL statement, or a row at a time (MyISAM)."""
    name = scheme.partition("+")[0]
    with pytest.raises(
        TopologyError,
        match=f"no state backend for '{name}'; known are .*memory, .*postgresql, .*sqlite.*; "
        "install the plug-in that provides it, or call register_backend",
    ) as caught:
        open_state(f"{scheme}://user:secret@host/words")
    assert caught.value.scheme == name
    assert "secret" not in str(caught.value)


@bad_input(51)
@pytest.mark.parametrize(
    "driver",
    ["postgresql+psycopg2", "postgresql+asyncpg", "sqlite+aiosqlite", "mysql+mysqldb"],
)
def test_a_driver_that_is_not_tested_is_refused(driver: str) -> None:
    with pytest.raises(
        TopologyError, match=rf"cannot be stored through '{driver.replace('+', r'[+]')}'"
    ):
        open_state(f"{driver}://user:secret@host/words")


@bad_input(52)
@pytest.mark.parametrize(
    ("scheme", "module", "driver", "extra"),
    [("postgresql", "psycopg", "psycopg", "postgres"), ("mysql", "pymysql", "PyMySQL", "mysql")],
)
def test_a_driver_that_is_not_installed_is_named_with_the_extra(
    monkeypatch: pytest.MonkeyPatch, scheme: str, module: str, driver: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)

    refused(
        f"{scheme}://user:secret@127.0.0.1:1/words",
        ConfigError,
        rf"{scheme}:// needs the package {driver}; it is not installed; "
        rf"install it with: pip install 'txtopo\[{extra}\]'",
    )


@bad_input(55)
@pytest.mark.row(44)
def test_a_replica_is_refused_with_a_hint_to_the_primary(postgresql: PostgresServer) -> None:
    """A replica answers every write in the words of a transaction that is read-only."""
    url = postgresql.create_database("replica")
    run_to_end(keeping(Storage(url), ROWS), Storage(url))
    before = held(Storage(url))

    refused(
        f"{url}?options=-c%20default_transaction_read_only%3Don",
        StoreUnavailable,
        "state 'kept' in .* is read-only: .*; nothing was written; expected a primary; is this a "
        "replica",
    )
    assert held(Storage(url)) == before


@bad_input(56)
@pytest.mark.parametrize("rights", [(), ("SELECT",), ("SELECT", "UPDATE")])
def test_a_user_who_may_not_write_is_refused(
    postgresql: PostgresServer, rights: tuple[str, ...]
) -> None:
    """Whether it may read nothing, all, or change the ledger alone."""
    name = f"reader{len(rights)}"
    url = postgresql.create_database(name)
    storage = Storage(url)
    run_to_end(keeping(storage, ROWS[:1]), storage)
    grants = [f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}"] * ("SELECT" in rights)
    grants += [f"GRANT UPDATE ON txtopo_ledger TO {name}"] * ("UPDATE" in rights)
    statements(storage, f"CREATE ROLE {name} LOGIN PASSWORD 'secret'", *grants)
    as_reader = sa.make_url(url).set(username=name, password="secret")
    reader = Storage(as_reader.render_as_string(hide_password=False), ensemble=storage.ensemble)

    with (
        nothing_committed(storage),
        pytest.raises(AuthError, match="cannot be used with this URL: permission denied") as caught,
    ):
        run_to_end(keeping(reader, ROWS), reader)
    assert "secret" not in str(caught.value)


@bad_input(56)
@pytest.mark.parametrize("state", ["42501", "28P01", "3D000"])
def test_a_refusal_is_understood_in_any_language(state: str) -> None:
    class Verweigert(Exception):
        sqlstate = state

    error = translated(Verweigert("keine Berechtigung für Tabelle"), "state 'kept'")

    assert isinstance(error, AuthError)
    assert "keine Berechtigung für Tabelle; nothing was written; check user" in str(error)


@bad_input(56)
@pytest.mark.integration
def test_a_file_that_is_opened_for_reading_is_refused(tmp_path: Path) -> None:
    storage = Storage.in_sqlite(tmp_path)
    run_to_end(keeping(storage, ROWS[:1]), storage)
    url = f"sqlite:///file:{tmp_path}/states.db?mode=ro&uri=true"
    reader = Storage(url, ensemble=storage.ensemble)

    with (
        nothing_committed(storage),
        pytest.raises(
            AuthError, match=r"cannot be used with this URL.*readonly database; nothing was"
        ),
    ):
        run_to_end(keeping(reader, ROWS), reader)


@bad_input(58)
def test_an_engine_is_no_url() -> None:
    """Nobody can say what its transactions do; states make engines of their own."""
    engine: Any = sa.create_engine(
        "postgresql+psycopg://user:secret@host/words", isolation_level="AUTOCOMMIT"
    )

    with pytest.raises(
        TopologyError, match=r"cannot read the URL of a state; got 'Engine"
    ) as caught:
        open_state(engine)
    assert "secret" not in str(caught.value)


@bad_input(58)
def test_autocommit_in_a_url_does_not_take_a_batch_apart(postgresql: PostgresServer) -> None:
    """The list of touched keys is written before the rows; here the rows cannot be."""
    url = postgresql.create_database("autocommit") + "?autocommit=true"
    store = StateDriver(open_state(url, table=KEPT))
    store.puts(1, {"a": 1})
    long = "".join(random.Random(58).choices(string.ascii_letters, k=10_000))

    with untouched(Storage(url)), pytest.raises(ValueRefusedError, match="index row requires"):
        store.puts(2, {"b": 2, long: 3})
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT txid FROM kept_touched").scalar() == 1
    engine.dispose()


@bad_input(60)
@pytest.mark.integration
def test_a_locked_file_is_unavailable_and_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage.in_sqlite(tmp_path)
    run_to_end(keeping(storage, ROWS[:1]), storage)
    other = sqlite3.connect(tmp_path / "states.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with monkeypatch.context() as patch, untouched(storage):
        patch.setattr("state_backends.sql.sqlite._BUSY_TIMEOUT_S", 0.01)
        with pytest.raises(StoreUnavailable, match=r"locked by another .*gave up after 3 tries"):
            run_to_end(keeping(storage, ROWS), storage)
    other.execute("ROLLBACK")
    other.close()
    run_to_end(keeping(storage, ROWS), storage)
    assert held(storage).rows == {"a": 1, "b": 2}


@bad_input(67)
@pytest.mark.row(9)
def test_a_state_of_another_topology_is_refused_with_both_names(storage: Storage) -> None:
    """The ledger names its owner, as the id of an application does in Delta."""
    StateDriver(storage.state(KEPT), topology="owner").puts(1, {"a": 9})

    with (
        nothing_committed(storage),
        pytest.raises(
            ForeignStateError, match=r"got state 'kept'.*'keeping'; its ledger names .*'owner'"
        ) as caught,
    ):
        run_to_end(keeping(storage, ROWS), storage)
    assert isinstance(caught.value, PromiseError)
    assert (caught.value.topology, caught.value.owner) == ("keeping", "owner")
