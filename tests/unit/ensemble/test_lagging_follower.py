"""A coordinator whose server lags behind its ensemble does not believe what it reads there.

ZooKeeper answers reads from the server that a client is connected to, and a write is done when a
majority has it. So the other servers may show what was before, as long as they please; ``sync``
makes them catch up. On one server, or on three that are fast, nothing is missing without it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.harness.servers.lagging_ensemble import LaggingEnsemble
from tests.harness.servers.zookeeper import LONG_SESSION_S
from tests.unit.ensemble.conftest import LIMIT_S
from txtopo.attempt import TransactionAttempt
from txtopo.ensemble import Journal, Put, StoredBatch
from txtopo.ensemble.nodes import CURRENT
from txtopo.ensemble.zookeeper.state import ZooKeeperTransactionalState
from txtopo.errors import FencedError

pytestmark = [pytest.mark.service("zookeeper"), pytest.mark.row(6)]
Behind = Callable[[], None]


@pytest.fixture(scope="module")
def ensemble() -> Iterator[LaggingEnsemble]:
    with LaggingEnsemble() as ensemble:
        assert ensemble.laggard.mode == "follower"
        yield ensemble
        ensemble.release()


@pytest.fixture
def topology_id() -> str:
    return uuid.uuid4().hex


def connected(hosts: str, topology_id: str) -> ZooKeeperTransactionalState:
    return ZooKeeperTransactionalState(
        hosts, topology_id, session_timeout_s=LONG_SESSION_S, connect_timeout_s=LIMIT_S
    )


@pytest.fixture
def ahead(ensemble: LaggingEnsemble, topology_id: str) -> Iterator[ZooKeeperTransactionalState]:
    """A client of the servers that do not lag."""
    hosts = ",".join(member.hosts for member in ensemble.members[1:])
    state = connected(hosts, topology_id)
    yield state
    state.close()


@pytest.fixture
def behind(ensemble: LaggingEnsemble, topology_id: str) -> Iterator[ZooKeeperTransactionalState]:
    """A client of the server that lags; connected before it does."""
    state = connected(ensemble.laggard.hosts, topology_id)
    yield state
    ensemble.release()
    state.close()


@pytest.fixture
def lag(ensemble: LaggingEnsemble, topology_id: str) -> Callable[[], None]:
    """Let the server of *behind* hear nothing until it has itself asked about the topology."""
    return lambda: ensemble.hold(topology_id.encode())


def test_what_was_written_elsewhere_is_seen_after_a_synchronization_alone(
    ahead: ZooKeeperTransactionalState, behind: ZooKeeperTransactionalState, lag: Behind
) -> None:
    ahead.apply([Put(CURRENT, 1)])
    behind.synchronize()
    lag()
    ahead.apply([Put(CURRENT, 2)])

    old = behind.get(CURRENT)
    assert old is not None
    assert old.value == 1, "the server does not lag, so this test shows nothing"
    behind.synchronize()
    new = behind.get(CURRENT)
    assert new is not None
    assert new.value == 2


def test_a_new_leader_claims_above_an_epoch_that_its_server_has_not_heard_of(
    ahead: ZooKeeperTransactionalState, behind: ZooKeeperTransactionalState, lag: Behind
) -> None:
    """Else it would take the next epoch to be free, be refused, and believe that another leads."""
    first, second, third = Journal(ahead), Journal(ahead), Journal(behind)
    first.claim_epoch("first", token="ensemble")
    first.store_batches([StoredBatch(TransactionAttempt(1, 0, 1), "metadata")])
    behind.synchronize()
    lag()
    second.claim_epoch("second", token="ensemble")
    second.advance(2)

    assert third.claim_epoch("third", token="ensemble") == 3
    assert third.load().current == 2


def test_a_deposed_leader_finds_out_though_its_server_has_not_heard_of_it(
    ahead: ZooKeeperTransactionalState, behind: ZooKeeperTransactionalState, lag: Behind
) -> None:
    """Else it would blame the store for what its successor has done."""
    deposed = Journal(behind)
    deposed.claim_epoch("first", token="ensemble")
    lag()
    Journal(ahead).claim_epoch("second", token="ensemble")

    with pytest.raises(FencedError, match=r"another process took over \(epoch 2\)"):
        deposed.confirm()
