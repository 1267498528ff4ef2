"""ZooKeeper that cannot be used as it is: said at the start, with what was found there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from tests.faults.bad_inputs.evidence import held, untouched
from tests.faults.bad_inputs.lone_server import LoneServer
from tests.faults.bad_inputs.numbers import bad_input
from tests.faults.bad_inputs.topologies import keeping
from tests.harness.polling import LIMIT_S
from tests.harness.runs import Storage
from tests.harness.servers.zookeeper import ZooKeeperProcess
from txtopo import Config, ZooKeeper
from txtopo.ensemble.zookeeper import diagnosis
from txtopo.errors import AuthError, CoordinatorUnavailable
from txtopo.runtime.start import start_topology


class Silent(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on the tests' standard error."""


@pytest.fixture
def web() -> Iterator[str]:
    """Hosts where a web server answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(autouse=True)
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a host the time to answer, however slow the machine is."""
    monkeypatch.setattr(diagnosis, "ANSWER_S", LIMIT_S)


@pytest.fixture
def kazoo(zookeeper: ZooKeeperProcess) -> Iterator[KazooClient]:
    """Another program that looks at the nodes."""
    client = KazooClient(zookeeper.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def refused_to_start(
    hosts: str, error: type[Exception], match: str, connect_timeout_s: float = 0.5
) -> Exception:
    """Start a topology, which must not touch its state."""
    storage = Storage.in_memory()
    config = Config(
        carrier="local",
        zookeeper=ZooKeeper(hosts, session_timeout_s=10, connect_timeout_s=connect_timeout_s),
    )
    with untouched(storage), pytest.raises(error, match=match) as caught:
        start_topology(keeping(storage, [["a", 1]]).graph, None, config)
    return caught.value


@bad_input(36)
@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("no-such-host.invalid:2181", "cannot be resolved"),
        ("127.0.0.1:1", "refuses connections, nothing listens there"),
    ],
)
def test_hosts_that_lead_nowhere_are_told_apart(host: str, found: str) -> None:
    error = refused_to_start(
        host,
        CoordinatorUnavailable,
        f"zookeeper cannot be reached; tried {host} for 0.5 s; {host} {found}; check that it runs",
    )

    assert isinstance(error, CoordinatorUnavailable)
    assert error.hosts == host


@pytest.mark.integration
@bad_input(36)
def test_a_web_server_is_not_taken_for_a_slow_zookeeper(web: str) -> None:
    refused_to_start(
        f"127.0.0.1:1,{web}",
        CoordinatorUnavailable,
        rf"127.0.0.1:1 refuses .*; {web} is not zookeeper; it answers b'<!DOCTYPE HTML",
    )


@bad_input(38)
def test_a_chroot_that_is_not_there_is_made(
    zookeeper: ZooKeeperProcess, kazoo: KazooClient, tmp_path: Path
) -> None:
    storage, chroot = Storage.in_sqlite(tmp_path), f"/{uuid.uuid4().hex}/below"
    config = Config(carrier="local", zookeeper=f"{zookeeper.hosts}{chroot}")

    with start_topology(keeping(storage, [["a", 1]]).graph, None, config) as run:
        run.process_all_available(LIMIT_S)

    assert kazoo.get_children(chroot) == ["keeping"]
    assert held(storage).rows == {"a": 1}


@bad_input(38)
def test_a_chroot_that_may_not_be_made_is_refused_with_its_path(
    zookeeper: ZooKeeperProcess, kazoo: KazooClient
) -> None:
    locked = f"/{uuid.uuid4().hex}"
    everyone_reads = make_acl("world", "anyone", read=True)
    kazoo.create(locked, acl=[make_digest_acl("a", "b", all=True), everyone_reads])

    refused_to_start(
        f"{zookeeper.hosts}{locked}/below",
        AuthError,
        f"zookeeper refuses access to {locked}/below; scheme 'world' at .*; check zookeeper.auth",
        connect_timeout_s=60,
    )
    assert kazoo.get_children(locked) == []


@bad_input(39)
@pytest.mark.service("zookeeper")
def test_a_server_without_a_quorum_is_not_written_to() -> None:
    with LoneServer() as server:
        refused_to_start(
            server.hosts,
            CoordinatorUnavailable,
            f"{server.hosts} has no quorum: it is read-only or serves no clients; restart the "
            "other",
            connect_timeout_s=2,
        )
