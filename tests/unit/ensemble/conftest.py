"""Clients of one topology that no other test uses, in memory and in ZooKeeper."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.servers.zookeeper import LONG_SESSION_S, ZooKeeperProcess
from tests.unit.ensemble.proxy import Proxy
from txtopo.ensemble import (
    MemoryEnsemble,
    MemoryTransactionalState,
    TransactionalState,
)

if TYPE_CHECKING:
    from txtopo.ensemble.zookeeper.state import ZooKeeperTransactionalState

Connect = Callable[[], TransactionalState]
Open = Callable[..., "ZooKeeperTransactionalState"]
LIMIT_S = 120.0
KINDS = ("memory", pytest.param("zookeeper", marks=pytest.mark.service("zookeeper")))


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Open one more client of the topology."""
    opened: list[TransactionalState] = []
    topology_id = uuid.uuid4().hex
    if request.param == "memory":
        ensemble = MemoryEnsemble()

        def make() -> TransactionalState:
            return MemoryTransactionalState(topology_id, ensemble)
    else:
        from txtopo.ensemble.zookeeper.state import ZooKeeperTransactionalState

        hosts = request.getfixturevalue("zookeeper").hosts

        def make() -> TransactionalState:
            return ZooKeeperTransactionalState(
                hosts, topology_id, session_timeout_s=LONG_SESSION_S, connect_timeout_s=LIMIT_S
            )

    def open_client() -> TransactionalState:
        opened.append(make())
        return opened[-1]

    yield open_client
    for state in opened:
        state.close()


@pytest.fixture
def state(connect: Connect) -> TransactionalState:
    """One client."""
    return connect()


@pytest.fixture
def proxy(request: pytest.FixtureRequest) -> Iterator[Proxy]:
    """A network between a client and ZooKeeper that fails when it is told to."""
    with Proxy(request.getfixturevalue("zookeeper").port) as between:
        yield between


@pytest.fixture
def topology_id() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def opened(zookeeper: ZooKeeperProcess, topology_id: str) -> Iterator[Open]:
    """Open a client of the topology of this test."""
    from txtopo.ensemble.zookeeper.state import ZooKeeperTransactionalState

    states: list[ZooKeeperTransactionalState] = []

    def open_client(hosts: str = zookeeper.hosts, **settings: Any) -> ZooKeeperTransactionalState:
        usual = {"session_timeout_s": LONG_SESSION_S, "connect_timeout_s": LIMIT_S}
        settings = usual | settings
        states.append(ZooKeeperTransactionalState(hosts, topology_id, **settings))
        return states[-1]

    yield open_client
    for state in states:
        state.close()
