"""States in MariaDB, and what happens when the connection or the server goes."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from tests.services.mariadb import MariaServer
from tests.services.tcp_proxy import TcpProxy
from tests.state_backends.schema_suite import SchemaSuite
from txtopo.errors import (
    AuthError,
    StoreUnavailable,
    TopologyError,
    UnknownOutcomeError,
    ValueRefusedError,
)
from txtopo.state import Count, Fields, Min, Puts, State, open_state
from txtopo.testing.conformance import MillionKeysSuite, StateBackendSuite
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.service("mariadb")
_numbers = itertools.count()


@pytest.fixture
def url(mariadb: MariaServer) -> str:
    return mariadb.create_database(f"states{next(_numbers)}")


@pytest.fixture
def state(url: str) -> State:
    return open_state(url, table="counts")


@pytest.fixture
def proxy(mariadb: MariaServer) -> Iterator[TcpProxy]:
    with TcpProxy(mariadb.port) as proxy:
        yield proxy


@pytest.fixture
def distant(url: str, proxy: TcpProxy) -> StateDriver:
    parsed = sa.make_url(url).set(port=proxy.port)
    state = open_state(parsed.render_as_string(hide_password=False), table="counts")
    store = StateDriver(state)
    store.puts(1, {"a": 1})
    return store


@pytest.mark.slow
class TestMillionKeys(MillionKeysSuite):
    pass


class TestStateBackend(StateBackendSuite):
    refused = frozenset(
        {
            *("nan", "infinity", "negative zero"),
            *("surrogates in keys", "surrogates in strings"),
        }
    )
    # Each takes 60 ms; two hundred are tried on the stores without a server.
    histories = 40


class TestSchema(SchemaSuite):
    pass


def test_row_36_a_commit_that_landed_is_found_in_the_ledger(
    distant: StateDriver, proxy: TcpProxy
) -> None:
    proxy.lose(b"\x03COMMIT", landed=True)

    assert distant.puts(2, {"a": 2}).txid == 2
    assert distant.contents() == {"a": 2}


def test_row_36_without_the_ledger_the_outcome_is_unknown(
    distant: StateDriver, proxy: TcpProxy
) -> None:
    proxy.lose(b"\x03COMMIT", landed=True)

    with pytest.raises(UnknownOutcomeError):
        distant.backend.commit(distant.attempt(2), Puts({("a",): (2,)}))


def test_row_37_a_commit_that_was_lost_is_tried_again(
    distant: StateDriver, proxy: TcpProxy
) -> None:
    proxy.lose(b"\x03COMMIT", landed=False)

    with pytest.raises(StoreUnavailable, match="try again"):
        distant.puts(2, {"a": 2})
    assert distant.contents() == {"a": 1}
    assert distant.puts(2, {"a": 2}, attempt=1).txid == 2


@pytest.mark.parametrize("marker", [b"FOR UPDATE", b"counts_touched", b"JSON_TABLE"])
def test_a_connection_lost_before_the_commit_writes_nothing(
    distant: StateDriver, proxy: TcpProxy, marker: bytes
) -> None:
    proxy.lose(marker, landed=True)

    with pytest.raises(StoreUnavailable):
        distant.puts(2, {"a": 2, "b": 2})
    assert distant.contents() == {"a": 1}
    assert distant.puts(2, {"a": 2, "b": 2}).txid == 2


def test_row_28_a_store_that_is_down_is_unavailable(distant: StateDriver, proxy: TcpProxy) -> None:
    proxy.cut()

    with pytest.raises(StoreUnavailable):
        distant.puts(2, {"a": 2})
    proxy.mend()
    assert distant.puts(2, {"a": 2}).txid == 2


def test_row_30_a_lock_that_stays_is_an_unavailable_store(
    state: State, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state_backends.sql.mariadb_server._LOCK_TIMEOUT_S", 1)
    monkeypatch.setattr("state_backends.sql.backend._TRIES_MAX", 1)
    store = StateDriver(state)
    with sa.create_engine(url).connect() as zombie:
        zombie.execute(sa.text("SELECT 1 FROM txtopo_ledger FOR UPDATE"))

        with pytest.raises(StoreUnavailable, match="locked by another transaction"):
            store.puts(1, {"a": 1})
    assert store.puts(1, {"a": 1}).txid == 1


def test_row_2_a_wrong_password_is_refused_without_showing_it(mariadb: MariaServer) -> None:
    mariadb.create_database("closed")
    state = open_state(mariadb.url_of("closed", "not-the-word"), table="counts")

    with pytest.raises(AuthError) as caught:
        state.open().create()
    assert "not-the-word" not in f"{caught.value} {state!r}"


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
        reading.open().claim("topology", 2)


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
    monkeypatch.setattr("state_backends.sql.snapshot._ROWS_AT_A_TIME", 7)
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
        with pytest.raises(TopologyError, match="not kept through"):
            open_state(f"{scheme}://h/d")
