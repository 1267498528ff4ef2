"""A batch whose values take long to combine, in a database that ends transactions that pause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count
from typing import Any

import pytest
import sqlalchemy as sa

from state_backends.sql.backend import SqlBackend
from tests.harness.servers.mariadb import MariaServer
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.tcp_proxy import TcpProxy
from txtopo import Count, Fields, OwnAggregate
from txtopo.clock import sleep
from txtopo.errors import StoreUnavailable
from txtopo.state import open_state
from txtopo.state.commit import commit_all_resolved
from txtopo.testing.conformance.driver import StateDriver, partials

LIMIT_S = 1
PAUSE_S = 1.3
TRIES_MAX = 8
_numbers = count()


class Slow(OwnAggregate):
    """A sum that takes longer to combine than a transaction may pause at first."""

    type = "long"

    def zero(self) -> int:
        return 0

    def add(self, value: int, n: int) -> int:
        return value + n

    def combine(self, left: int, right: int) -> int:
        sleep(PAUSE_S)
        return left + right


@pytest.fixture(
    params=[
        pytest.param("postgresql", marks=pytest.mark.service("postgresql")),
        pytest.param("mariadb", marks=pytest.mark.service("mariadb")),
    ]
)
def server(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> MariaServer | PostgresServer:
    """A database whose transactions may pause for a second at first."""
    monkeypatch.setattr(f"state_backends.sql.{request.param}._IDLE_TIMEOUT_S", LIMIT_S)
    found: MariaServer | PostgresServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def url(server: MariaServer | PostgresServer) -> str:
    return str(server.create_schema(f"pauses{next(_numbers)}"))


@pytest.fixture
def states(url: str) -> Iterator[list[StateDriver]]:
    """A state that is combined in the store, and one that is combined slowly in Python."""
    with (
        closing(opened(url, "fast", Count())) as fast,
        closing(opened(url, "slow", Slow("n"))) as slow,
    ):
        yield [fast, slow]


def opened(url: str, table: str, aggregate: Any) -> StateDriver:
    state = open_state(url, table=table)
    columns = state.with_columns(Fields("key string"), Fields("n long"), (aggregate,))
    return StateDriver(columns, component=table)


def commit(states: Sequence[StateDriver], txid: int, attempt: int = 0) -> None:
    """Add 1 to the same key of each; it is combined from the second txid on."""
    writes = [(each.backend, partials(each.state, [("a", 1)])) for each in states]
    commit_all_resolved(states[0].attempt(txid, attempt), writes)


@pytest.mark.rule("state_backends.sql.backend", "Rules", 7)
@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
def test_a_batch_that_takes_long_to_combine_gets_more_time(
    states: list[StateDriver], together: bool
) -> None:
    members = states if together else states[1:]
    commit(members, 1)
    failed: list[StoreUnavailable] = []
    for attempt in range(TRIES_MAX):
        try:
            commit(members, 2, attempt)
            break
        except StoreUnavailable as error:
            failed.append(error)

    assert [each.contents() for each in members] == [{"a": 2}] * len(members)
    assert [each.facts["timeout_s"] for each in failed] == [2**n for n in range(len(failed))]
    first = str(failed[0])
    assert first.startswith("cannot use state 'slow' in ")
    assert "because it received no statement for 1 s: " in first
    assert "; nothing was written; " in first
    assert "the next attempt may pause for 2 s; " in first


def test_more_time_for_one_state_is_none_for_another_on_the_same_connection(
    server: MariaServer | PostgresServer, states: list[StateDriver]
) -> None:
    fast, slow = (each.backend for each in states)
    assert isinstance(fast, SqlBackend)
    assert isinstance(slow, SqlBackend)
    slow._pause_s = 600.0
    commit(states, 1)
    commit(states[:1], 2)

    name, unit = ("idle_write_transaction_timeout", "")
    if isinstance(server, PostgresServer):
        name, unit = "idle_in_transaction_session_timeout", "s"
    with fast._connected() as connection:
        query = f"SHOW {name}" if unit else f"SELECT @@SESSION.{name}"
        (found,) = connection.exec_driver_sql(query).one()
    assert float(str(found).removesuffix(unit)) == LIMIT_S


def test_a_connection_that_is_lost_for_another_reason_gives_no_more_time(
    server: MariaServer | PostgresServer, url: str
) -> None:
    with TcpProxy(server.port) as proxy:
        distant = sa.make_url(url).set(port=proxy.port).render_as_string(hide_password=False)
        with closing(opened(distant, "fast", Count())) as store:
            proxy.lose(b"UPDATE txtopo_ledger", landed=True)
            with pytest.raises(StoreUnavailable) as caught:
                commit([store], 1)
            assert "timeout_s" not in caught.value.facts
            commit([store], 1, attempt=1)
            assert store.contents() == {"a": 1}
