"""Passwords appear nowhere: not in logs, errors, events, representations, nodes or command lines.

The list goes through what users see when all is well and when it is not: a wrong password, a
server that is down, a connection that is cut, in every store that has a password, with a digest
for ZooKeeper.
"""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
import traceback
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.faults.bad_inputs.topologies import Keep, keeping
from tests.faults.security.ear import Ear, command_lines
from tests.harness.polling import LIMIT_S
from tests.harness.runs import Storage
from tests.harness.servers.certificates import Authority
from tests.harness.servers.mariadb import MariaServer
from tests.harness.servers.postgresql_tls import TlsPostgresServer
from tests.harness.servers.redis import RedisServer
from tests.harness.servers.tcp_proxy import TcpProxy
from tests.harness.servers.zookeeper import ZooKeeperProcess
from tests.unit.builders.bolts import builder
from txtopo import Config, Topology, ZooKeeper
from txtopo.errors import AuthError, InfrastructureError, StoreUnavailable, TopologyError
from txtopo.plugins.stores import redacted_url
from txtopo.runtime.progress import BatchCommitted, TopologyEvent, TopologyListener
from txtopo.runtime.start import start_topology
from txtopo.state import open_state, register_backend
from txtopo.testing.conformance.driver import StateDriver

WRONG = "not-the-word-of-the-tests"
DIGEST = "digest-of-the-tests"
ROWS = [[str(at), at] for at in range(6)]
_numbers = itertools.count()
STORES = [
    pytest.param("postgresql", marks=pytest.mark.service("postgresql")),
    pytest.param("mariadb", marks=pytest.mark.service("mariadb")),
    pytest.param("redis", marks=pytest.mark.service("redis")),
]


@dataclass(frozen=True, slots=True)
class Store:
    """A server with a password.

    Attributes:
        url: Of an empty database of its own.
        port: Where it listens.
        password: What nobody shall hear.
    """

    url: str
    port: int
    password: str

    def at(self, *, port: int | None = None, password: str | None = None) -> str:
        """Return the URL with another port or password."""
        url = self.url.replace(f":{self.port}/", f":{port or self.port}/")
        return url.replace(self.password, password or self.password)


@pytest.fixture(scope="module")
def tls_postgres() -> Iterator[TlsPostgresServer]:
    """A cluster that takes connections with TLS only."""
    with TlsPostgresServer() as server:
        yield server


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    """Each store that has a password."""
    if request.param == "redis":
        redis: RedisServer = request.getfixturevalue("redis_server")
        return Store(redis.empty(), redis.port, redis.password)
    name = "tls_postgres" if request.param == "postgresql" else "mariadb"
    server: MariaServer | TlsPostgresServer = request.getfixturevalue(name)
    url = server.create_database(f"secret{next(_numbers)}")
    return Store(url, server.port, server.password)


@pytest.fixture
def ear(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Ear:
    return Ear(caplog, capfd)


@pytest.fixture
def config(zookeeper: ZooKeeperProcess) -> Config:
    return Config(
        carrier="local",
        zookeeper=ZooKeeper(f"{zookeeper.hosts}/{uuid.uuid4().hex}", auth=f"owner:{DIGEST}"),
        backoff_s=0.01,
    )


def run(topology: Topology, config: Config, ear: Ear, *others: TopologyListener) -> None:
    """Run a topology to its end, and hear all there is."""
    ear.hear(config, topology)
    try:
        with start_topology(topology.graph, None, config, [ear, *others]) as handle:
            handle.process_all_available(LIMIT_S)
            ear.hear(handle, handle.status, handle.last_progress, *handle.recent_progress)
    except Exception as error:
        ear.hear_error(error)
        raise


def test_a_run_that_goes_well_tells_no_password(store: Store, config: Config, ear: Ear) -> None:
    storage = Storage(store.url)
    state = storage.state("kept")
    run(keeping(storage, ROWS), config, ear)
    ear.hear(storage.ensemble, state, state.layout(), state.open(), vars(state.open()))
    ear.hear_nodes(config.zookeeper.hosts, f"owner:{DIGEST}")

    assert ear.lines_with('"current"')
    assert ear.lines_with(store.password, DIGEST) == []


def test_a_wrong_password_is_not_told(store: Store, config: Config, ear: Ear) -> None:
    with pytest.raises(AuthError):
        run(keeping(Storage(store.at(password=WRONG)), ROWS), config, ear)

    assert ear.lines_with("cannot be used with this URL")
    assert ear.lines_with(WRONG, store.password, DIGEST) == []


def test_a_server_that_is_down_tells_no_password(store: Store, config: Config, ear: Ear) -> None:
    with pytest.raises(StoreUnavailable):
        run(keeping(Storage(store.at(port=1)), ROWS), config, ear)

    assert ear.lines_with("nothing was written")
    assert ear.lines_with(store.password, DIGEST) == []


class Cutting(TopologyListener):
    """Cuts all connections after the second commit, and repairs them when that was noticed."""

    def __init__(self, proxy: TcpProxy) -> None:
        self._proxy = proxy
        self.noticed = False

    def on_change(self, change: TopologyEvent) -> None:
        if isinstance(change, BatchCommitted) and change.progress.txid == 2:
            self._proxy.cut()
        elif isinstance(getattr(change, "error", None), InfrastructureError):
            self.noticed = True
            self._proxy.repair()


def test_a_connection_that_is_cut_tells_no_password(store: Store, config: Config, ear: Ear) -> None:
    with TcpProxy(store.port) as proxy:
        storage, cutting = Storage(store.at(port=proxy.port)), Cutting(proxy)
        # One by one, so that others follow the first.
        run(keeping(storage, ROWS), replace(config, group_txids_max=1), ear, cutting)

        assert cutting.noticed
        assert storage.read("kept") == {str(at): at for at in range(6)}
    assert ear.lines_with(store.password, DIGEST) == []


@pytest.mark.service("postgresql")
def test_postgresql_is_talked_to_over_tls_alone(tls_postgres: TlsPostgresServer) -> None:
    """Its URL says ``verify-full``: signed by who is trusted, and made for the host."""
    store = StateDriver(open_state(tls_postgres.create_database("talk"), table="kept"))
    store.puts(1, {"a": 1})
    ours = "FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'txtopo'"
    with sa.create_engine(tls_postgres.url).connect() as connection:
        found = connection.execute(sa.text(f"SELECT DISTINCT ssl {ours}")).all()

    assert [tuple(row) for row in found] == [(True,)]


@pytest.mark.service("postgresql")
@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"sslmode": "disable"}, "no pg_hba.conf entry .* no encryption"),
        ({"sslrootcert": "STRANGER"}, "certificate verify failed"),
        ({"host": "localhost", "hostaddr": "127.0.0.1"}, 'does not match host name "localhost"'),
    ],
)
def test_postgresql_without_the_right_tls_is_refused(
    tls_postgres: TlsPostgresServer, tmp_path: Path, settings: dict[str, str], match: str
) -> None:
    stranger = str(Authority(tmp_path, "stranger").file)
    settings = {name: value.replace("STRANGER", stranger) for name, value in settings.items()}
    state = open_state(tls_postgres.url_with(**settings), table="kept")

    with pytest.raises((AuthError, StoreUnavailable), match=match) as caught:
        state.open().create()
    assert tls_postgres.password not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:WORD@host/db",
        "postgresql://user:WORD/with@signs:WORD@host/db?x=1",
        "postgresql:user:WORD@host/db",
        "redis://:WORD@host:1/0",
        "redis://host/0?password=WORD&db=1",
        "mysql://host/db?user=a&passwd=WORD",
        "s3://bucket/f?aws_secret_access_key=WORD&aws_session_token=WORD&region=eu",
        "abfss://box@account/f?sas_token=WORD",
        "postgresql://user:first line\nWORD@host/db",
    ],
)
def test_what_is_hidden_of_a_url(url: str) -> None:
    assert "WORD" not in redacted_url(url)
    assert redacted_url(url).startswith(url.partition(":")[0])


@pytest.mark.parametrize(
    "url",
    ["sqlite:////srv/a.db", "delta:///srv/a@b", "memory:", "redis://host:1/0?db=1", "sqlite://"],
)
def test_a_url_without_secrets_is_shown_as_it_is(url: str) -> None:
    assert redacted_url(url) == url


def test_a_url_in_place_of_a_state_is_not_repeated(ear: Ear) -> None:
    wrong: Any = f"postgresql://user:{WRONG}@host/db"
    with pytest.raises(TopologyError) as caught:
        _builder_with(wrong)
    ear.hear_error(caught.value)

    assert WRONG not in ear.told()


def _builder_with(state: Any) -> None:
    builder().set_bolt("keep", Keep()).global_grouping("spout").with_state("kept", state)


def _careless(url: str, table: object) -> Any:
    raise RuntimeError(f"cannot open {url}")


def test_a_plug_in_that_repeats_its_url_is_not_passed_on(ear: Ear) -> None:
    register_backend("careless", _careless)
    with pytest.raises(TopologyError, match="RuntimeError: cannot open") as caught:
        open_state(f"careless://user:{WRONG}@host", table="kept").open()

    shown = "".join(traceback.format_exception(caught.value))
    assert WRONG not in shown


@pytest.mark.parametrize("way", ["log", "print", "event", "error"])
def test_the_ear_hears_what_is_let_out(ear: Ear, way: str) -> None:
    """Else the tests above could not fail."""
    ways: dict[str, Callable[[], object]] = {
        "log": lambda: logging.getLogger("txtopo.any").debug("with %s", WRONG),
        "print": lambda: print(WRONG),
        "event": lambda: ear.hear(Config(zookeeper=WRONG)),
        "error": lambda: ear.hear_error(AuthError("no", url=WRONG)),
    }
    ways[way]()

    assert WRONG in ear.told()


@pytest.mark.integration
def test_command_lines_of_children_are_read() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()", WRONG], stdin=subprocess.PIPE) as child:
        lines = list(command_lines())
        child.communicate(b"\n")

    assert any(WRONG in line for line in lines)
