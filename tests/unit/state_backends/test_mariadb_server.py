"""What a MariaDB server, its session and its tables must be before a state is kept there."""

from __future__ import annotations

import itertools
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from state_backends.sql.mariadb import MariadbDialect
from tests.harness.servers.mariadb import MariaServer
from txtopo import Fields
from txtopo.errors import (
    PromiseError,
    SchemaDrift,
    StoreUnavailable,
    TopologyError,
    ValueRefusedError,
)
from txtopo.state import State, open_state
from txtopo.state.backend import StateTable
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.service("mariadb")
_numbers = itertools.count()


@pytest.fixture
def url(mariadb: MariaServer) -> str:
    return mariadb.create_database(f"servers{next(_numbers)}")


@pytest.fixture
def state(url: str) -> State:
    return open_state(url, table="counts")


def test_a_table_of_another_engine_is_refused(state: State, url: str) -> None:
    """MyISAM writes each row for good at once."""
    StateDriver(state)
    with sa.create_engine(url).begin() as connection:
        connection.exec_driver_sql("ALTER TABLE counts MODIFY `key` VARCHAR(200), ENGINE=MyISAM")

    with pytest.raises(SchemaDrift, match="its engine is MyISAM, which cannot roll a batch back"):
        StateDriver(state)


@pytest.mark.parametrize("option", ["autocommit=true", "init_command=SELECT+1", "charset=latin1"])
def test_options_that_change_what_a_write_is_are_refused(url: str, option: str) -> None:
    with pytest.raises(TopologyError, match=f"the option {option.partition('=')[0]!r}"):
        open_state(f"{url}?{option}", table="counts").open()


def test_connections_share_a_context_of_tls_unless_their_url_has_settings_of_it(url: str) -> None:
    """PyMySQL reads the certificates of all authorities for each connection."""
    engines = (engine_of(url), engine_of(url), sa.create_engine(url))
    first, second, plain = map(driver_connection, engines)

    assert first.ctx is second.ctx
    assert first.ctx.verify_mode is plain.ctx.verify_mode is ssl.CERT_NONE
    with pytest.raises(sa.exc.OperationalError, match="SSL is required"):
        driver_connection(engine_of(f"{url}?ssl_check_hostname=false"))


def engine_of(url: str) -> sa.Engine:
    return MariadbDialect(
        sa.make_url(url), StateTable("counts", "opaque", Fields("key string"), Fields("value long"))
    ).engine()


def driver_connection(engine: sa.Engine) -> Any:
    return engine.connect().connection.driver_connection


def test_a_server_that_may_lose_a_commit_is_refused(state: State, url: str) -> None:
    with sa.create_engine(url).connect() as connection:
        connection.exec_driver_sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        try:
            with pytest.raises(TopologyError, match="at_trx_commit is '2', so a crash"):
                state.open().create()
        finally:
            connection.exec_driver_sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    assert StateDriver(state).puts(1, {"a": 1}).txid == 1


def test_a_server_that_leaves_the_disk_to_the_operating_system_is_refused() -> None:
    """Its other settings say that each commit is flushed."""
    with MariaServer({"innodb-flush-method": "nosync"}) as server:
        state = open_state(server.create_database("careless"), table="counts")
        with pytest.raises(TopologyError, match="innodb_flush_method is 'nosync', so a crash"):
            state.open().create()


def test_a_server_that_may_leave_half_a_page_is_refused() -> None:
    with MariaServer({"innodb-doublewrite": "OFF"}) as server:
        state = open_state(server.create_database("torn"), table="counts")
        with pytest.raises(TopologyError, match="innodb_doublewrite is 'OFF', so a crash"):
            state.open().create()


def test_a_server_whose_binary_log_is_behind_is_refused() -> None:
    """A restart takes back what the log lacks, though its commit was answered."""
    with MariaServer({"log-bin": "binlog", "sync-binlog": "0"}) as server:
        url = server.create_database("logged")
        state = open_state(url, table="counts")
        with pytest.raises(TopologyError, match="log_bin is on, but sync_binlog is not 1"):
            state.open().create()

        with sa.create_engine(url).connect() as connection:
            connection.exec_driver_sql("SET GLOBAL sync_binlog = 1")
        assert StateDriver(state).puts(1, {"a": 1}).txid == 1


def test_a_key_of_more_columns_than_the_server_takes_ends_the_run(state: State) -> None:
    names = ", ".join(f"k{at} long" for at in range(33))
    state = state.with_columns(Fields(names), Fields("n long"))

    with pytest.raises(PromiseError, match="Too many key parts"):
        state.open().create()


def test_rows_fit_a_small_packet_or_are_refused(state: State, url: str) -> None:
    """Signs have up to four bytes; what was too long came back as a server that has gone away."""
    state = state.with_columns(Fields("key string"), Fields("value string"))
    with sa.create_engine(url).connect() as connection:
        (usual,) = connection.exec_driver_sql("SELECT @@GLOBAL.max_allowed_packet").one()
        connection.exec_driver_sql(f"SET GLOBAL max_allowed_packet = {2**20}")
        try:
            store = StateDriver(state)
            rows = {f"k{n}": "\N{ELEPHANT}" * 500 for n in range(1000)}
            store.puts(1, rows)
            with pytest.raises(ValueRefusedError, match="which is max_allowed_packet"):
                store.puts(2, {"a": "\N{ELEPHANT}" * 300_000})
            assert store.contents() == rows
        finally:
            connection.exec_driver_sql(f"SET GLOBAL max_allowed_packet = {usual}")


def test_who_makes_tables_waits_for_others(
    state: State, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state_backends.sql.mariadb._CREATION_TIMEOUT_S", 0)
    monkeypatch.setattr("state_backends.sql.backend._TRIES_MAX", 1)
    with sa.create_engine(url).connect() as other:
        lock = "CONCAT('txtopo.', MD5(DATABASE()))"
        assert other.exec_driver_sql(f"SELECT GET_LOCK({lock}, 0)").scalar() == 1

        with pytest.raises(StoreUnavailable, match="another process is creating tables"):
            state.open().create()
        other.exec_driver_sql(f"DO RELEASE_LOCK({lock})")
        for _ in range(2):
            StateDriver(state)
        assert other.exec_driver_sql(f"SELECT IS_FREE_LOCK({lock})").scalar() == 1


def test_several_who_make_tables_at_once_make_them_once(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last one waits for five others, however slow the disk is.
    monkeypatch.setattr("state_backends.sql.mariadb._CREATION_TIMEOUT_S", 600)
    with ThreadPoolExecutor(6) as pool:
        for made in [pool.submit(state.open().create) for _ in range(6)]:
            made.result()

    assert StateDriver(state).contents() == {}


def test_a_crash_while_tables_are_made_is_made_good(state: State, url: str) -> None:
    """Each statement that makes a table ends the transaction."""
    StateDriver(state)
    with sa.create_engine(url).begin() as connection:
        for text in ("DROP VIEW counts_view", "DROP TABLE counts_touched", "DROP TABLE counts"):
            connection.exec_driver_sql(text)
            assert StateDriver(state).contents() == {}
    store = StateDriver(state)
    store.puts(1, {"a": 1})
    store.puts(1, {"b": 1}, attempt=1)

    assert store.contents() == {"b": 1}


def test_a_lost_list_of_keys_is_not_recreated(state: State, url: str) -> None:
    """An undo that finds no keys would leave the rows of an abandoned attempt."""
    StateDriver(state).puts(1, {"a": 1})
    with sa.create_engine(url).begin() as connection:
        connection.exec_driver_sql("DROP TABLE counts_touched")

    with pytest.raises(SchemaDrift, match="could not be undone"):
        StateDriver(state)
