"""Clients of one topology that no other test uses, in memory and in ZooKeeper."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.services.zookeeper import LONG_SESSION_S
from tests.transactional_state.proxy import Proxy
from txtopo.transactional_state import (
    MemoryEnsemble,
    MemoryTransactionalState,
    TransactionalState,
)

Connect = Callable[[], TransactionalState]
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
        from txtopo.transactional_state.zookeeper.state import ZooKeeperTransactionalState

        hosts = request.getfixturevalue("zookeeper").hosts

        def make() -> TransactionalState:
            return ZooKeeperTransactionalState(
                hosts, topology_id, session_timeout_s=LONG_SESSION_S, connect_timeout_s=120
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
