"""Names are quoted or refused, and values are bound, so that neither is ever run as SQL.

Each odd name is tried as a table, a key column, a value column and a value, in every store. It is
refused before anything is written, or it is kept like any other, and nothing else is touched.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.faults.bad_inputs.topologies import Keep
from tests.faults.security.names import ODD, VICTIM
from tests.harness.polling import LIMIT_S
from tests.harness.runs import Storage, running
from tests.harness.servers.zookeeper import ZooKeeperProcess
from txtopo import Config, Fields, TransactionalTopologyBuilder, ZooKeeper
from txtopo.errors import ConfigError, TopologyError, ValueRefusedError
from txtopo.runtime.start import start_topology
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state import State, open_state
from txtopo.testing.conformance.driver import StateDriver
from txtopo.tuples import Field

STORES = [
    "memory",
    pytest.param("sqlite", marks=pytest.mark.integration),
    pytest.param("delta", marks=pytest.mark.integration),
    pytest.param("postgresql", marks=pytest.mark.service("postgresql")),
    pytest.param("mariadb", marks=[pytest.mark.service("mariadb"), pytest.mark.slow]),
    pytest.param("redis", marks=pytest.mark.service("redis")),
]
ROLES = ("table", "key", "value")
DEEP = "one/two/three/four"
_numbers = itertools.count()


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new storage, with a table that must survive."""
    kind: str = request.param
    if kind in ("memory", "delta", "redis"):
        if kind == "redis":
            yield request.getfixturevalue("redis_server").empty(42)
        else:
            (tmp_path / DEEP).mkdir(parents=True)
            yield f"delta://{tmp_path / DEEP}" if kind == "delta" else "memory://names"
        return
    if kind == "sqlite":
        made = f"sqlite:///{tmp_path / 'states.db'}"
    else:
        made = request.getfixturevalue(kind).create_schema(f"names{next(_numbers)}")
    engine = sa.create_engine(made)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE {VICTIM} (id INTEGER)")
    yield made
    assert VICTIM in sa.inspect(engine).get_table_names()
    engine.dispose()


def declared(url: str, table: str, key: str, value: str) -> State:
    """Return a state with these names."""
    key_field, value_field = Field(key, "string"), Field(value, "string")
    return open_state(url, table=table, key=Fields.of([key_field]), value=Fields.of([value_field]))


def kept(url: str, name: str, *roles: str) -> bool:
    """Use a state with a name in these roles; return whether it was not refused."""
    names = {role: f"{role}{next(_numbers)}" for role in ROLES} | dict.fromkeys(roles, name)
    if roles == ROLES:
        names["value"] = f"{name}2"
    try:
        store = StateDriver(declared(url, **names))
    except TopologyError:
        return False
    store.puts(1, {"a": name})
    store.puts(2, {"a": "2", "b": "3"})
    store.puts(2, {"b": "4"}, attempt=1)
    with open_state(url, table=names["table"]).reader() as reader:
        assert dict(reader.items()) == {"a": name, "b": "4"}
    store.backend.close()
    return True


def test_odd_names_are_kept_or_refused_when_a_state_is_declared(url: str, tmp_path: Path) -> None:
    anchor = open_state(url, table="anchor")
    whole = {what for what, name in ODD.items() if kept(url, name, *ROLES)}
    parts = {
        role: whole | {what for what in set(ODD) - whole if kept(url, ODD[what], role)}
        for role in ROLES
    }

    assert parts["table"] >= {"semicolon", "drop by quote", "drop by double quote", "word of SQL"}
    for role in ("key", "value"):
        assert parts[role] >= {"word of SQL", "quote", "not ASCII"}
    assert anchor
    strays = [path for path in tmp_path.rglob("*evil*") if DEEP not in str(path)]
    assert strays == []


def test_odd_values_are_values(url: str) -> None:
    state = open_state(url, table="kept", key=Fields("key string"), value=Fields("value string"))
    store, stored = StateDriver(state), {}
    for txid, name in enumerate(ODD.values(), 1):
        try:
            store.puts(txid, {name: name})
            stored[name] = name
        except ValueRefusedError:
            store.puts(txid, {}, attempt=1)
        assert store.contents() == stored

    assert len(stored) >= len(ODD) - 3


def topology_of(topology: str, bolt: str, state: str, storage: Storage) -> Any:
    """Build a topology with these ids."""
    spout = MemoryTransactionalSpout({0: [["a", 1]]}, Fields("key string, value long"), 1)
    builder = TransactionalTopologyBuilder(topology, "spout", spout)
    keep = builder.set_bolt(bolt, Named(state)).global_grouping("spout")
    keep.with_state(state, storage.state("kept"))
    return builder.build_topology()


class Named(Keep):
    """Keeps in a state of any name."""

    def __init__(self, state: str) -> None:
        super().__init__()
        self.state = state

    def finish_batch(self) -> None:
        with self.context.state(self.state).transaction(self.attempt) as state:
            for each in self.tuples:
                state.put(each[0], each[1])


def test_odd_ids_do_not_leave_their_place_in_zookeeper(
    zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    """An id becomes one node below the chroot, or it is refused; no id reaches another's nodes."""
    from kazoo.client import KazooClient

    chroot = "/odd-ids/of-this-test"
    config = Config(
        carrier="local", zookeeper=ZooKeeper(f"{zookeeper.hosts}{chroot}", session_timeout_s=4)
    )
    client = KazooClient(zookeeper.hosts)
    client.start(30)
    before = set(client.get_children("/"))
    ran = set()
    for at, (what, name) in enumerate(ODD.items()):
        storage = Storage(f"sqlite:///{tmp_path / f'{at}.db'}")
        try:
            topology = topology_of(name, name, name, storage)
        except TopologyError:
            continue
        with start_topology(topology.graph, None, config) as run:
            run.process_all_available(LIMIT_S)
        assert storage.read("kept") == {"a": 1}, what
        ran.add(name)

    assert set(client.get_children(chroot)) == ran
    assert set(client.get_children("/")) - before == {"odd-ids"}
    assert {ODD["drop by quote"], ODD["percent"]} <= ran
    assert not {ODD["upwards"], ODD["absolute"], ODD["NUL"]} & ran
    client.stop()
    client.close()


@pytest.mark.parametrize("hosts", ["a:1/x/../y", "a:1/./x", "a:1/x/\0"])
def test_a_chroot_does_not_lead_elsewhere(hosts: str) -> None:
    with (
        pytest.raises(ConfigError, match=r"chroot cannot be read|cannot be sent"),
        running(
            topology_of("t", "b", "s", Storage.in_memory()),
            Storage.in_memory(),
            Config(carrier="local", zookeeper=hosts),
        ),
    ):
        pass
