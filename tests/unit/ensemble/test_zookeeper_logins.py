"""Logins by SASL that fail: what ends a run, and what is tried again, on a real server."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.harness.servers.guarded_zookeeper import USERS, GuardedZooKeeper
from tests.harness.servers.zookeeper import LONG_SESSION_S
from tests.unit.ensemble.proxy import Proxy
from txtopo.ensemble import Node, Put
from txtopo.ensemble.zookeeper.session import LOSSES_MAX
from txtopo.ensemble.zookeeper.state import ZooKeeperTransactionalState
from txtopo.errors import AuthError, CoordinatorUnavailable

pytestmark = pytest.mark.service("zookeeper")

Open = Callable[..., ZooKeeperTransactionalState]
LIMIT_S = 120.0
OWNER = {"mechanism": "DIGEST-MD5", "username": "owner", "password": USERS["owner"]}


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedZooKeeper]:
    """A server with users."""
    with GuardedZooKeeper() as server:
        yield server


@pytest.fixture
def between(guarded: GuardedZooKeeper) -> Iterator[Proxy]:
    """A network that loses logins when it is told to."""
    with Proxy(guarded.port) as proxy:
        yield proxy


@pytest.fixture
def opened() -> Iterator[Open]:
    """Open a client of a topology of its own."""
    states: list[ZooKeeperTransactionalState] = []

    def open_client(hosts: str, **settings: Any) -> ZooKeeperTransactionalState:
        usual: dict[str, Any] = {
            "session_timeout_s": LONG_SESSION_S,
            "connect_timeout_s": LIMIT_S,
            "auth": OWNER,
        }
        states.append(ZooKeeperTransactionalState(hosts, uuid.uuid4().hex, **usual | settings))
        return states[-1]

    yield open_client
    for state in states:
        state.close()


@pytest.mark.row(14, 15)
def test_a_login_that_is_lost_after_an_earlier_one_is_tried_again_until_it_succeeds(
    opened: Open, between: Proxy
) -> None:
    """However often: the session and with it the leadership are the same afterwards."""
    state, lost = opened(between.hosts), threading.Event()
    assert state.lead("one", timeout_s=LIMIT_S, on_lost=lost.set)
    state.apply([Put("/current", 1)])
    between.lose_next_login(landed=False, times=LOSSES_MAX)
    between.lose_next_login(landed=True)

    _reconnect(between)
    _until_done(lambda: state.apply([Put("/current", 2)]))

    assert state.get("/current") == Node(2, 1)
    assert state.leader() == "one"
    assert not lost.is_set()


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.row(1)
def test_a_first_login_that_is_lost_is_tried_again(
    opened: Open, between: Proxy, landed: bool
) -> None:
    between.lose_next_login(landed=landed, times=LOSSES_MAX - 1)

    opened(between.hosts).apply([Put("/current", 1)])


@pytest.mark.row(2)
def test_a_server_that_hangs_up_on_every_first_login_refuses(opened: Open, between: Proxy) -> None:
    """That is how old servers say no; nobody has to wait for the end of the limit to hear it."""
    between.lose_next_login(landed=False, times=100)

    with pytest.raises(AuthError, match=r"scheme 'sasl'.*check zookeeper.auth"):
        opened(between.hosts, connect_timeout_s=300)
    assert between.logins == LOSSES_MAX


def test_a_server_that_is_killed_and_back_is_logged_in_to_again(
    opened: Open, guarded: GuardedZooKeeper
) -> None:
    state = opened(guarded.hosts)
    state.apply([Put("/current", 1)])

    guarded.kill()
    guarded.start()
    _until_done(lambda: state.apply([Put("/current", 2)]))

    assert state.get("/current") == Node(2, 1)


@pytest.mark.row(2)
def test_a_password_that_was_changed_meanwhile_ends_the_run(opened: Open) -> None:
    """The server says it, so no later try can help, though an earlier login went well."""
    with GuardedZooKeeper() as server:
        state = opened(server.hosts)
        users = server.folder / "jaas.conf"

        server.kill()
        users.write_text(users.read_text().replace(USERS["owner"], "another-word"))
        server.start()

        with pytest.raises(AuthError, match="scheme 'sasl'"):
            _until_done(lambda: state.apply([Put("/current", 1)]))


@pytest.mark.row(2)
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_that_requires_a_login_says_so_to_whoever_has_none(opened: Open) -> None:
    server = GuardedZooKeeper()
    server.options = (*server.options, "-Dzookeeper.sessionRequireClientSASLAuth=true")
    with server:
        for sasl, scheme in ((None, "world"), (OWNER | {"password": "wrong"}, "sasl")):
            with pytest.raises(AuthError, match=f"scheme '{scheme}'.*check zookeeper.auth"):
                opened(server.hosts, auth=sasl, connect_timeout_s=300)
        opened(server.hosts)


def _reconnect(between: Proxy) -> None:
    between.cut()
    between.repair()


def _until_done(write: Callable[[], None]) -> None:
    """Write as the runtime does: what ZooKeeper's absence stopped is done again."""
    for _ in range(20):
        try:
            return write()
        except CoordinatorUnavailable as error:
            last = error
    raise last
