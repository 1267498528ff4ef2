"""What can go wrong between a coordinator and a real ZooKeeper."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from tests.services.zookeeper import LONG_SESSION_S, ZooKeeperProcess
from tests.transactional_state.proxy import Proxy
from txtopo.attempt import TransactionAttempt
from txtopo.errors import (
    AuthError,
    CoordinatorUnavailable,
    CorruptNodeError,
    FencedError,
    SchemaVersionError,
)
from txtopo.transactional_state import Journal, Node, Put, StoredBatch, this_process
from txtopo.transactional_state.zookeeper.access import Access
from txtopo.transactional_state.zookeeper.state import ZooKeeperTransactionalState

pytestmark = pytest.mark.service("zookeeper")

Open = Callable[..., ZooKeeperTransactionalState]
PIPE: dict[str, Any] = {"stdout": subprocess.PIPE, "check": True}
LIMIT_S = 120.0
BATCH = StoredBatch(TransactionAttempt(1, 0, 1), "metadata")


def nothing() -> None:
    """Lose a leadership that nobody minds."""


@pytest.fixture
def topology_id() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def opened(zookeeper: ZooKeeperProcess, topology_id: str) -> Iterator[Open]:
    """Open a client of the topology of this test."""
    states: list[ZooKeeperTransactionalState] = []

    def open_client(hosts: str = zookeeper.hosts, **settings: Any) -> ZooKeeperTransactionalState:
        usual = {"session_timeout_s": LONG_SESSION_S, "connect_timeout_s": LIMIT_S}
        settings = usual | settings
        states.append(ZooKeeperTransactionalState(hosts, topology_id, **settings))
        return states[-1]

    yield open_client
    for state in states:
        state.close()


@pytest.fixture
def kazoo(zookeeper: ZooKeeperProcess) -> Iterator[KazooClient]:
    """Another program that looks at the nodes."""
    client = KazooClient(zookeeper.hosts, timeout=LONG_SESSION_S)
    client.start(LIMIT_S)
    yield client
    client.stop()
    client.close()


@pytest.mark.parametrize("hosts", ["127.0.0.1:1", "no-such-host.invalid:2181"])
@pytest.mark.row(1)
def test_hosts_that_do_not_answer_are_named(opened: Open, hosts: str) -> None:
    with pytest.raises(CoordinatorUnavailable, match=f"tried {hosts} for 0.5 s"):
        opened(hosts, connect_timeout_s=0.5)


@pytest.mark.row(1)
def test_a_server_that_comes_late_is_waited_for(zookeeper: ZooKeeperProcess) -> None:
    zookeeper.stop()
    starting = threading.Timer(0.5, zookeeper.start)
    starting.start()

    ZooKeeperTransactionalState(zookeeper.hosts, "late", connect_timeout_s=LIMIT_S).close()
    starting.join()


@pytest.mark.row(2)
def test_nodes_of_another_user_are_refused_with_path_and_scheme(
    opened: Open, zookeeper: ZooKeeperProcess, topology_id: str
) -> None:
    hosts = f"{zookeeper.hosts}/{topology_id}"
    Journal(opened(hosts, digest="owner:secret")).claim_epoch("one")

    for digest, scheme in ((None, "world"), ("other:secret", "digest")):
        with pytest.raises(AuthError, match=rf"/{topology_id}; scheme '{scheme}'") as error:
            opened(hosts, digest=digest)
        assert "secret" not in str(error.value)
    assert Journal(opened(hosts, digest="owner:secret")).claim_epoch("one") == 2


@pytest.mark.row(2)
def test_a_step_that_touches_a_forbidden_node_is_refused(
    opened: Open, kazoo: KazooClient, topology_id: str
) -> None:
    state = opened()
    state.apply([Put("/epoch", 1), Put("/current", 1)])
    kazoo.set_acls(f"/txtopo/{topology_id}/current", [make_digest_acl("a", "b", all=True)])

    with pytest.raises(AuthError, match=f"{topology_id}/current; scheme 'world'"):
        state.apply([Put("/epoch", 2), Put("/current", 2)])
    assert state.get("/epoch") == Node(1, 0)


@pytest.mark.row(3)
def test_corrupt_json_is_refused_with_its_path(
    opened: Open, kazoo: KazooClient, topology_id: str
) -> None:
    state = opened()
    state.apply([Put("/epoch", {"epoch": 1})])
    kazoo.set(f"/txtopo/{topology_id}/epoch", b"{")

    with pytest.raises(CorruptNodeError, match=f"/txtopo/{topology_id}/epoch"):
        Journal(state).claim_epoch("one")


@pytest.mark.row(4)
def test_a_newer_schema_is_refused(opened: Open, kazoo: KazooClient, topology_id: str) -> None:
    state = opened()
    state.apply([Put("/epoch", {"epoch": 1})])
    kazoo.set(f"/txtopo/{topology_id}/epoch", b'{"schema":9}')

    with pytest.raises(SchemaVersionError, match="upgrade"):
        Journal(state).claim_epoch("one")


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.row(14, 15)
def test_a_lost_answer_is_looked_up_and_the_step_done_once(
    opened: Open, proxy: Proxy, landed: bool
) -> None:
    state = opened(proxy.hosts)
    state.apply([Put("/current", 1)])
    proxy.lose_next_answer(landed=landed)
    sent = proxy.multis

    state.apply([Put("/current", 2)])

    assert state.get("/current") == Node(2, 1)
    assert proxy.multis - sent == (1 if landed else 2)


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.row(14, 15)
def test_a_claim_whose_answer_was_lost_is_not_taken_for_a_rival(
    opened: Open, proxy: Proxy, landed: bool
) -> None:
    journal = Journal(opened(proxy.hosts))
    proxy.lose_next_answer(landed=landed)

    assert journal.claim_epoch("one") == 1
    journal.store_batches([BATCH])


@pytest.mark.row(15)
def test_a_step_that_is_lost_twice_is_handed_back(opened: Open, proxy: Proxy) -> None:
    state = opened(proxy.hosts)
    state.apply([Put("/current", 1)])
    proxy.lose_next_answer(landed=False, times=2)

    with pytest.raises(CoordinatorUnavailable, match="lost 2 times"):
        state.apply([Put("/current", 2)])
    assert state.get("/current") == Node(1, 0)


@pytest.mark.row(14)
def test_a_landed_write_of_a_coordinator_deposed_since_stays_done(
    opened: Open, proxy: Proxy
) -> None:
    journal = Journal(opened(proxy.hosts))
    journal.claim_epoch("one")
    proxy.lose_next_answer(landed=True)
    journal.store_batches([BATCH])
    Journal(opened()).claim_epoch("other")

    with pytest.raises(FencedError, match="epoch 2 of other"):
        journal.advance(2, drop_before=1)


@pytest.mark.row(16)
def test_an_expired_session_ends_the_leadership_and_a_rival_leads(
    opened: Open, proxy: Proxy, zookeeper: ZooKeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = threading.Event()
    state, rival = opened(proxy.hosts), opened()
    journal = Journal(state)
    assert state.lead("one", timeout_s=1, on_lost=lost.set)
    journal.claim_epoch("one")
    proxy.cut()
    expire(state, zookeeper)

    assert rival.lead("rival", timeout_s=LIMIT_S, on_lost=nothing)
    Journal(rival).claim_epoch("rival")
    assert not lost.is_set()
    with monkeypatch.context() as patch:
        patch.setattr(state._session, "_session_timeout_s", 0.5)  # how long a call waits
        with pytest.raises(CoordinatorUnavailable):
            journal.store_batches([BATCH])
    proxy.mend()

    assert lost.wait(LIMIT_S)
    with pytest.raises(FencedError, match="epoch 2 of rival"):
        journal.store_batches([BATCH])
    assert state.lead("one", timeout_s=0.2, on_lost=nothing) is None
    assert state.leader() == "rival"


def expire(state: ZooKeeperTransactionalState, zookeeper: ZooKeeperProcess) -> None:
    """End a session on the server, as its time would: another client takes it over and ends it."""
    id = state._session._client.client_id
    client = KazooClient(zookeeper.hosts, client_id=id, timeout=LONG_SESSION_S)
    client.start(LIMIT_S)
    assert client.client_id[0] == id[0]
    client.stop()
    client.close()


def test_while_suspended_calls_wait_and_the_leadership_stays(opened: Open, proxy: Proxy) -> None:
    lost = threading.Event()
    state = opened(proxy.hosts)
    assert state.lead("one", timeout_s=1, on_lost=lost.set)
    proxy.cut()
    threading.Timer(0.5, proxy.mend).start()

    state.apply([Put("/current", 1)])

    assert not lost.is_set()
    assert state.leader() == "one"


@pytest.mark.row(50)
def test_what_was_acknowledged_survives_a_killed_server(
    opened: Open, zookeeper: ZooKeeperProcess
) -> None:
    state = opened()
    for value in range(20):
        state.apply([Put("/current", value)])
    zookeeper.kill()
    zookeeper.start()

    assert state.get("/current") == Node(19, 19)


def test_a_candidate_whose_process_died_is_not_waited_for(opened: Open) -> None:
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], **PIPE)
    state, other = opened(), opened()
    assert state.lead({**this_process(), "pid": int(dead.stdout)}, timeout_s=1, on_lost=nothing)

    assert other.lead(this_process(), timeout_s=0.3, on_lost=nothing)


def test_a_living_candidate_keeps_its_place(opened: Open) -> None:
    assert opened().lead(this_process(), timeout_s=1, on_lost=nothing)

    assert opened().lead(this_process(), timeout_s=0.3, on_lost=nothing) is None


def test_a_candidate_keeps_its_place_from_one_call_to_the_next(opened: Open) -> None:
    leader, early, late = opened(), opened(), opened()
    leadership = leader.lead("leader", timeout_s=1, on_lost=nothing)
    for _ in range(2):
        assert early.lead("early", timeout_s=0.1, on_lost=nothing) is None
        assert late.lead("late", timeout_s=0.1, on_lost=nothing) is None
    assert leadership is not None
    leadership.release()

    assert late.lead("late", timeout_s=0.2, on_lost=nothing) is None
    assert early.lead("early", timeout_s=1, on_lost=nothing)


def test_with_credentials_each_node_belongs_to_its_creator(
    opened: Open, kazoo: KazooClient, zookeeper: ZooKeeperProcess, topology_id: str
) -> None:
    state = opened(f"{zookeeper.hosts}/{topology_id}", digest="owner:secret")
    Journal(state).claim_epoch("one")
    kazoo.add_auth("digest", "owner:secret")

    for path in ("", f"/{topology_id}", f"/{topology_id}/epoch"):
        acl, _ = kazoo.get_acls(f"/{topology_id}{path}")
        assert [entry.id.scheme for entry in acl] == ["digest"]


@pytest.mark.parametrize(
    ("hosts", "digest", "warns"),
    [
        ("zk1:2181", None, True),
        ("127.0.0.1:1,zk2:1", None, True),
        ("localhost:2181,127.0.0.1:1,[::1]:2,::1", None, False),
        ("zk1:2181", "a:b", False),
    ],
)
def test_open_nodes_off_the_loopback_are_warned_about(
    caplog: pytest.LogCaptureFixture, hosts: str, digest: str | None, warns: bool
) -> None:
    Access(digest).warn_if_open(hosts)

    assert ("anyone who reaches" in caplog.text) is warns


def test_a_closed_client_says_so(opened: Open) -> None:
    state = opened()
    state.close()

    with pytest.raises(CoordinatorUnavailable, match="is closed"):
        state.get("/current")
