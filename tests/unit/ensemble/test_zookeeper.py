"""What can go wrong between a coordinator and a real ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from tests.harness.servers.zookeeper import LONG_SESSION_S, ZooKeeperProcess
from tests.unit.ensemble.conftest import LIMIT_S, Open
from tests.unit.ensemble.proxy import Proxy
from txtopo.attempt import TransactionAttempt
from txtopo.ensemble import Journal, Node, Put, StoredBatch
from txtopo.ensemble.commands import CommandDesk, RealTime, answer_of, command_path
from txtopo.ensemble.zookeeper.access import ZooKeeperAccess
from txtopo.ensemble.zookeeper.state import ZooKeeperTransactionalState
from txtopo.errors import (
    AuthError,
    CoordinatorUnavailable,
    CorruptNodeError,
    FencedError,
    SchemaVersionError,
)
from txtopo.metadata import Json

pytestmark = pytest.mark.service("zookeeper")

BATCH = StoredBatch(TransactionAttempt(1, 0, 1), "metadata")


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
    Journal(opened(hosts, auth="owner:secret")).claim_epoch("one", token="ensemble")

    for digest, scheme in ((None, "world"), ("other:secret", "digest")):
        with pytest.raises(AuthError, match=rf"/{topology_id}; scheme '{scheme}'") as error:
            opened(hosts, auth=digest)
        assert "secret" not in str(error.value)
    assert Journal(opened(hosts, auth="owner:secret")).claim_epoch("one", token="ensemble") == 2


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


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.rule("txtopo.ensemble.commands", "Rules", 8)
def test_a_command_of_a_stranger_is_passed_over_and_named_and_the_next_is_answered(
    opened: Open,
    kazoo: KazooClient,
    topology_id: str,
    caplog: pytest.LogCaptureFixture,
    reads: bool,
) -> None:
    state = opened()
    journal = Journal(state)
    journal.claim_epoch({"host": "here"}, token="t")
    for number, verb in ((1, "kill"), (2, "deactivate")):
        command: Json = {"verb": verb, "arguments": {}, "by": {"host": "h", "pid": number}}
        state.apply([Put(command_path(number), command)])
    path = f"/txtopo/{topology_id}{command_path(1)}"
    stranger = [make_digest_acl("a", "b", all=True)]
    kazoo.set_acls(path, [*stranger, *([make_acl("world", "anyone", read=True)] if reads else [])])
    desk = CommandDesk(state, journal, None, RealTime())

    desk.serve()
    desk.serve()

    assert (desk.desired.status, desk.desired.command) == ("deactivated", 2)
    node = state.get(command_path(2))
    assert node is not None
    assert answer_of(2, node.value) is not None
    (warned,) = [each.getMessage() for each in caplog.records if "is skipped" in each.getMessage()]
    assert path in warned


@pytest.mark.row(3)
def test_corrupt_json_is_refused_with_its_path(
    opened: Open, kazoo: KazooClient, topology_id: str
) -> None:
    state = opened()
    state.apply([Put("/epoch", {"epoch": 1})])
    kazoo.set(f"/txtopo/{topology_id}/epoch", b"{")

    with pytest.raises(CorruptNodeError, match=f"/txtopo/{topology_id}/epoch"):
        Journal(state).claim_epoch("one", token="ensemble")


@pytest.mark.row(4)
def test_a_newer_schema_is_refused(opened: Open, kazoo: KazooClient, topology_id: str) -> None:
    state = opened()
    state.apply([Put("/epoch", {"epoch": 1})])
    kazoo.set(f"/txtopo/{topology_id}/epoch", b'{"schema":2}')

    with pytest.raises(SchemaVersionError, match="upgrade"):
        Journal(state).claim_epoch("one", token="ensemble")


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

    assert journal.claim_epoch("one", token="ensemble") == 1
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
    journal.claim_epoch("one", token="ensemble")
    proxy.lose_next_answer(landed=True)
    journal.store_batches([BATCH])
    Journal(opened()).claim_epoch("other", token="ensemble")

    with pytest.raises(FencedError, match=r"another process took over \(epoch 2\)"):
        journal.advance(2)


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


def test_with_credentials_each_node_belongs_to_its_creator(
    opened: Open, kazoo: KazooClient, zookeeper: ZooKeeperProcess, topology_id: str
) -> None:
    state = opened(f"{zookeeper.hosts}/{topology_id}", auth="owner:secret")
    Journal(state).claim_epoch("one", token="ensemble")
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
    ZooKeeperAccess(digest).warn_if_open(hosts)

    assert ("anyone who can connect to" in caplog.text) is warns


def test_a_closed_client_says_so(opened: Open) -> None:
    state = opened()
    state.close()

    with pytest.raises(CoordinatorUnavailable, match="is closed"):
        state.get("/current")


@pytest.mark.parametrize(
    ("asked_s", "negotiated_s"), [(2.0, 2.0), (0.1, 1.0), (1e6, LONG_SESSION_S)]
)
def test_a_client_knows_the_session_timeout_that_was_negotiated(
    zookeeper: ZooKeeperProcess, topology_id: str, asked_s: float, negotiated_s: float
) -> None:
    """A server allows from two ticks, which are 0.5 s here, to its own limit."""
    state = ZooKeeperTransactionalState(zookeeper.hosts, topology_id, session_timeout_s=asked_s)

    assert state.session_s == pytest.approx(negotiated_s)
    assert Journal(state).session_s == state.session_s
    state.close()
