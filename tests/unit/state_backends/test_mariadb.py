"""States in MariaDB, and what happens when the connection or the server goes."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Mapping
from typing import ClassVar

import pytest
import sqlalchemy as sa

from state_backends.sql import mariadb
from tests.harness.chance import most
from tests.harness.servers.mariadb import MariaServer
from tests.harness.servers.tcp_proxy import TcpProxy
from tests.unit.state_backends.connection_suite import ConnectionSuite
from tests.unit.state_backends.extent import OwnExtent
from tests.unit.state_backends.patience import MARIADB_PATIENCE
from tests.unit.state_backends.schema_suite import SchemaSuite
from txtopo import Fields
from txtopo.errors import (
    AuthError,
    StoreUnavailable,
    TopologyError,
    ValueRefusedError,
)
from txtopo.state import Count, Min, State, open_state
from txtopo.testing.conformance import MillionKeysSuite, StateBackendSuite
from txtopo.testing.conformance.driver import StateDriver, claim_of
from txtopo.testing.conformance.pace import DEATHS_MIN

pytestmark = pytest.mark.service("mariadb")
_numbers = itertools.count()


@pytest.fixture
def url(mariadb: MariaServer) -> str:
    return mariadb.create_database(f"states{next(_numbers)}")


@pytest.fixture
def state(url: str) -> State:
    return open_state(url, table="counts")


@pytest.mark.slow
class TestMillionKeys(MillionKeysSuite):
    pass


class TestStateBackend(OwnExtent, StateBackendSuite):
    refused = frozenset(
        {
            *("nan", "infinity", "negative zero"),
            *("surrogates in keys", "surrogates in strings"),
        }
    )
    # Each takes 60 ms; two hundred are tried on the stores without a server.
    histories = most(40, otherwise=10)
    deaths = DEATHS_MIN
    # A million are tried by the slow tests.
    keys_max = most(20_000, otherwise=1_000)


class TestSchema(SchemaSuite):
    pass


class TestConnection(ConnectionSuite):
    commit_marker = b"\x03COMMIT"
    lock_settings: ClassVar[Mapping[str, object]] = {
        "state_backends.sql.mariadb._LOCK_TIMEOUT_S": 1,
        "state_backends.sql.backend._TRIES_MAX": 1,
    }
    silence_settings: ClassVar[Mapping[str, object]] = {
        "state_backends.sql.mariadb._CONNECT_TIMEOUT_S": 2,
        "state_backends.sql.mariadb._CONNECTION": {
            name: 1_000 if name == "TCP_USER_TIMEOUT" else 1 for name in mariadb._CONNECTION
        },
    }
    patience = MARIADB_PATIENCE

    @pytest.fixture
    def server(self, mariadb: MariaServer) -> MariaServer:
        return mariadb

    @pytest.mark.parametrize("marker", [b"UPDATE txtopo_ledger", b"counts_touched", b"JSON_TABLE"])
    def test_a_connection_lost_before_the_commit_writes_nothing(
        self, distant: StateDriver, proxy: TcpProxy, marker: bytes
    ) -> None:
        proxy.lose(marker, landed=True)

        with pytest.raises(StoreUnavailable):
            distant.puts(2, {"a": 2, "b": 2})
        assert distant.contents() == {"a": 1}
        assert distant.puts(2, {"a": 2, "b": 2}).txid == 2


def test_a_database_that_is_not_there_is_refused(mariadb: MariaServer) -> None:
    with pytest.raises(AuthError, match="Unknown database 'nowhere'"):
        open_state(mariadb.url_of("nowhere"), table="counts").open().create()


def test_a_user_who_may_not_write_is_refused(state: State, url: str) -> None:
    StateDriver(state).puts(1, {"a": 1})
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for text in (
            "CREATE USER IF NOT EXISTS reader@'127.0.0.1' IDENTIFIED BY 'word'",
            f"GRANT SELECT ON `{engine.url.database}`.* TO reader@'127.0.0.1'",
        ):
            connection.exec_driver_sql(text)
    as_reader = engine.url.set(username="reader", password="word")
    reading = open_state(as_reader.render_as_string(hide_password=False), table="counts")

    with reading.reader() as reader:
        assert dict(reader.items()) == {"a": 1}
    with pytest.raises(AuthError, match="command denied"):
        reading.open().claim(claim_of("topology", 2))


def test_previous_values_are_kept_before_the_new_ones_are_set(url: str) -> None:
    """MariaDB assigns from left to right, with what was assigned before."""
    fields = Fields("n long, low string")
    state = open_state(url, table="both").with_columns(
        Fields("key string"), fields, (Count(), Min("x"))
    )
    store = StateDriver(state)
    store.merge(1, [("a", 1, "y")])
    store.merge(2, [("a", 5, "x")])

    with sa.create_engine(url).connect() as connection:
        found = connection.exec_driver_sql("SELECT * FROM `both`").one()
    assert tuple(found) == ("a", 6, "x", 2, 1, "y", 1, 0)
    store.puts(3, {"a": None})
    with sa.create_engine(url).connect() as connection:
        found = connection.exec_driver_sql("SELECT * FROM `both`").one()
    assert tuple(found) == ("a", 6, "x", 3, 6, "x", 2, 1)


def test_a_key_beyond_an_index_entry_is_refused(state: State) -> None:
    store = StateDriver(state)
    store.puts(1, {"🐘" * 768: 1})

    with pytest.raises(ValueRefusedError, match="holds at most 768"):
        store.puts(2, {"b": 1, "a" * 769: 1})
    assert store.contents() == {"🐘" * 768: 1}


def test_a_reading_beside_writes_does_not_move(state: State) -> None:
    """The connection of the reading may have been one that writes, READ COMMITTED."""
    store, other = StateDriver(state), StateDriver(state)
    store.puts(1, {"a": 1})

    with store.backend.snapshot() as snapshot:
        other.puts(2, {"a": 2, "b": 2})
        assert snapshot.ledger is not None
        assert snapshot.ledger.txid == 1
        found = snapshot.rows([("a",), ("b",)])
    assert {key: row.current for key, row in found.items()} == {("a",): (1,)}


def test_a_reading_of_many_rows_takes_questions_in_between(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver drops the rest of a result when it is asked something else."""
    monkeypatch.setattr("state_backends.sql.backend._ROWS_AT_A_TIME", 7)
    state = open_state(url, table="pairs", key=Fields("x double, day date, s string"))
    store = StateDriver(state)
    day = datetime.date(2013, 7, 4)
    rows = {(n % 3 / 7, day.replace(day=n % 5 + 1), f"{n}"): n for n in range(50)}
    store.puts(1, rows)

    with state.reader() as reader:
        assert {key: reader.get(key) for key, _ in reader.items()} == rows


def test_what_a_database_of_another_character_set_holds_is_exact(mariadb: MariaServer) -> None:
    """JSON_TABLE would read text in that of the database, with a '?' for what it lacks."""
    url = mariadb.create_database("western")
    with sa.create_engine(url).begin() as connection:
        connection.exec_driver_sql("ALTER DATABASE western CHARACTER SET latin1")
    store = StateDriver(open_state(url, table="texts", value=Fields("value string")))

    store.puts(1, {"żółć 🐘": "\u2028ü", "ż": "🐘"})

    assert store.contents() == {"żółć 🐘": "\u2028ü", "ż": "🐘"}


def test_other_drivers_are_refused() -> None:
    for scheme in ("mysql+mysqldb", "mariadb+mariadbconnector", "mysql+aiomysql"):
        with pytest.raises(TopologyError, match="cannot be stored through"):
            open_state(f"{scheme}://h/d")
