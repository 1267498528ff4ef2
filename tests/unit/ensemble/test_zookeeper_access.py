"""Who gets at the transactional state: a real server with TLS, SASL and ACLs, and its strangers."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

from tests.faults.bad_inputs.topologies import keeping
from tests.harness.polling import LIMIT_S
from tests.harness.runs import Storage
from tests.harness.servers.certificates import Authority
from tests.harness.servers.guarded_zookeeper import USERS, GuardedZooKeeper
from tests.harness.servers.zookeeper import LONG_SESSION_S
from txtopo import Config, ZooKeeper
from txtopo.ensemble import TransactionalState, open_transactional_state
from txtopo.ensemble.zookeeper import diagnosis
from txtopo.ensemble.zookeeper.access import ZooKeeperAccess
from txtopo.errors import AuthError, ConfigError, CoordinatorUnavailable
from txtopo.runtime.start import start_topology

pytestmark = pytest.mark.service("zookeeper")

Visit = Callable[..., KazooClient]
ROWS = [["a", 1], ["b", 2]]
# One for each right that an ACL gives.
USES: tuple[Callable[[KazooClient, str], object], ...] = (
    lambda client, path: client.get(path),
    lambda client, path: client.get_children(path),
    lambda client, path: client.set(path, b"{}"),
    lambda client, path: client.create(f"{path}/new", b"{}"),
    lambda client, path: client.set_acls(path, OPEN_ACL_UNSAFE),
)


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedZooKeeper]:
    """A server with TLS and users."""
    with GuardedZooKeeper() as server:
        yield server


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a server take its time for the first handshake of its life, on a busy machine."""
    monkeypatch.setattr(diagnosis, "ANSWER_S", 120.0)


@pytest.fixture
def visit(guarded: GuardedZooKeeper) -> Iterator[Visit]:
    """Connect as another program does, to the plain port."""
    clients: list[KazooClient] = []

    def connect(**settings: Any) -> KazooClient:
        clients.append(KazooClient(guarded.hosts, timeout=LONG_SESSION_S, **settings))
        clients[-1].start(LIMIT_S)
        return clients[-1]

    yield connect
    for client in clients:
        client.stop()
        client.close()


def sasl(user: str, password: str | None = None) -> dict[str, str]:
    word = USERS[user] if password is None else password
    return {"mechanism": "DIGEST-MD5", "username": user, "password": word}


def config(hosts: str, **settings: Any) -> Config:
    usual: dict[str, Any] = {
        "session_timeout_s": LONG_SESSION_S,
        "connect_timeout_s": LIMIT_S,
    }
    return Config(carrier="local", zookeeper=ZooKeeper(hosts, **usual | settings))


def run_through(hosts: str, folder: Path, **settings: Any) -> dict[Any, Any]:
    """Run a whole topology and return what it kept."""
    storage = Storage.in_sqlite(folder)
    with start_topology(keeping(storage, ROWS).graph, None, config(hosts, **settings)) as run:
        run.process_all_available(LIMIT_S)
    return storage.read("kept")


def opened(hosts: str, **settings: Any) -> TransactionalState:
    return open_transactional_state(config(hosts, **settings).zookeeper, "keeping")


def nodes_below(client: KazooClient, path: str) -> list[str]:
    """Return a node and all nodes below it."""
    children = [f"{path}/{name}" for name in client.get_children(path)]
    return [path, *(node for child in children for node in nodes_below(client, child))]


@pytest.mark.parametrize("scheme", ["digest", "sasl"])
def test_with_credentials_nobody_else_reads_or_writes_any_node(
    guarded: GuardedZooKeeper, visit: Visit, tmp_path: Path, scheme: str
) -> None:
    """Creator-only is the default; nothing but the credentials is configured."""
    chroot = f"/{uuid.uuid4().hex}"
    if scheme == "digest":
        owner: dict[str, Any] = {"auth": "owner:secret"}
        friend = visit(auth_data=[("digest", "owner:secret")])
        strangers = [visit(), visit(auth_data=[("digest", "other:secret")])]
    else:
        owner = {"auth": sasl("owner")}
        friend = visit(sasl_options=sasl("owner"))
        strangers = [visit(), visit(sasl_options=sasl("other"))]
    run_through(f"{guarded.hosts}{chroot}", tmp_path, **owner)

    nodes = nodes_below(friend, chroot)
    assert {path.removeprefix(f"{chroot}/keeping") for path in nodes} >= {"/epoch", "/current"}
    for path in nodes:
        assert [entry.id.scheme for entry in friend.get_acls(path)[0]] == [scheme]
        for stranger in strangers:
            for use in USES:
                with pytest.raises(NoAuthError):
                    use(stranger, path)
    with pytest.raises(AuthError, match="zookeeper refuses access to"):
        opened(f"{guarded.hosts}{chroot}")


def test_a_topology_runs_over_tls_with_a_login(guarded: GuardedZooKeeper, tmp_path: Path) -> None:
    kept = run_through(
        f"{guarded.secure_hosts}/{uuid.uuid4().hex}",
        tmp_path,
        tls={"ca": str(guarded.authority.file)},
        auth=sasl("owner"),
    )

    assert kept == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("user", "password"), [("owner", "not-the-word"), ("other", ""), ("owner", "word-of-the-other")]
)
def test_a_login_with_another_password_is_refused_at_once(
    guarded: GuardedZooKeeper, user: str, password: str
) -> None:
    wrong = sasl(user, password)

    with pytest.raises(AuthError, match="scheme 'sasl'") as caught:
        opened(guarded.hosts, auth=wrong, connect_timeout_s=300)
    assert not password or password not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_a_certificate_of_a_stranger_is_refused(guarded: GuardedZooKeeper, tmp_path: Path) -> None:
    """Certificates are verified though nobody asked for it."""
    stranger = Authority(tmp_path, "stranger")

    for tls in ({"ca": str(stranger.file)}, {}):
        with pytest.raises(
            CoordinatorUnavailable,
            match=f"{guarded.secure_hosts} has a certificate that is not trusted "
            r"\(unable to get local issuer certificate\); check 'ca' in zookeeper.tls",
        ):
            opened(guarded.secure_hosts, tls=tls, connect_timeout_s=0.5)


def test_a_certificate_for_another_host_is_refused(guarded: GuardedZooKeeper) -> None:
    port = guarded.secure_hosts.partition(":")[2]
    trusted = {"ca": str(guarded.authority.file)}

    with pytest.raises(
        CoordinatorUnavailable, match=r"Hostname mismatch.*names in the certificate"
    ):
        opened(f"localhost:{port}", tls=trusted, connect_timeout_s=0.5)
    opened(f"localhost:{port}/{uuid.uuid4().hex}", tls={**trusted, "check_hostname": False}).close()


def test_verifying_is_left_out_only_when_told_and_not_without_a_word(
    guarded: GuardedZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = f"{guarded.secure_hosts}/{uuid.uuid4().hex}"
    opened(hosts, tls={"verify_certs": False}).close()

    assert "verify_certs=False: a man in the middle could impersonate" in caplog.text


def test_a_port_for_tls_and_a_plain_one_are_told_apart(guarded: GuardedZooKeeper) -> None:
    trusted = {"ca": str(guarded.authority.file)}

    with pytest.raises(CoordinatorUnavailable, match="does not accept the TLS connection"):
        opened(guarded.hosts, tls=trusted, connect_timeout_s=0.5)
    with pytest.raises(CoordinatorUnavailable, match=r"does it use TLS\? set zookeeper.tls"):
        opened(guarded.secure_hosts, connect_timeout_s=0.5)


def test_a_server_that_asks_for_certificates_of_clients(tmp_path: Path) -> None:
    with GuardedZooKeeper(clients_certified=True) as server:
        trusted = {"ca": str(server.authority.file)}
        own = server.authority.sign("client", address=None)
        files = {"certfile": str(own.certificate), "keyfile": str(own.key)}

        with pytest.raises(CoordinatorUnavailable, match="require 'certfile' and 'keyfile'"):
            opened(server.secure_hosts, tls=trusted, connect_timeout_s=0.5)
        opened(server.secure_hosts, tls={**trusted, **files}).close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ca": "/no/such/file.pem"}, "cannot be used: .*No such file.*; got ca '/no/such/file"),
        ({"ca": __file__}, "cannot be used: .*; expected readable PEM"),
        ({"certfile": "a"}, "has one of 'certfile' and 'keyfile'"),
        ({"verify_certs": "no"}, "'verify_certs' in zookeeper.tls is of the wrong type; got str"),
        ({"ca": True}, "'ca' in zookeeper.tls is of the wrong type; got bool"),
        ({"verify_certs": False, "check_hostname": True}, "which needs 'verify_certs'"),
    ],
)
def test_tls_settings_that_cannot_work_are_refused_before_anything_connects(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        opened("no-such-host.invalid:1", tls=settings, connect_timeout_s=300)


@pytest.mark.parametrize("name", ["auth", "tls"])
def test_what_the_embedded_server_does_not_have_is_not_left_out_silently(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"zookeeper\.{name}.* is only for your own ZooKeeper"):
        open_transactional_state(ZooKeeper("embedded", **{name: {}}), "t")  # type: ignore[arg-type]


@pytest.mark.parametrize(("hosts", "warns"), [("zk1:2181", True), ("127.0.0.1:2181", False)])
def test_a_password_that_is_sent_without_tls_is_warned_about(
    caplog: pytest.LogCaptureFixture, hosts: str, warns: bool
) -> None:
    with caplog.at_level(logging.WARNING, "txtopo"):
        ZooKeeperAccess("owner:secret").warn_if_open(hosts)
        ZooKeeperAccess("owner:secret", tls={}).warn_if_open(hosts)

    said = [each.getMessage() for each in caplog.records if "plain text" in each.getMessage()]
    assert len(said) == warns
    assert "secret" not in caplog.text
