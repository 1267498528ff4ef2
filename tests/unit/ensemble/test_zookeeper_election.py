"""Who leads when real sessions expire, are suspended, or belong to processes that died."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.harness.servers.zookeeper import LONG_SESSION_S, ZooKeeperProcess
from tests.unit.ensemble.conftest import LIMIT_S, Open
from tests.unit.ensemble.proxy import Proxy
from txtopo.attempt import TransactionAttempt
from txtopo.ensemble import Journal, Put, StoredBatch, this_process
from txtopo.errors import CoordinatorUnavailable, FencedError

pytestmark = pytest.mark.service("zookeeper")

PIPE: dict[str, Any] = {"stdout": subprocess.PIPE, "check": True}
BATCH = StoredBatch(TransactionAttempt(1, 0, 1), "metadata")


def nothing() -> None:
    """Lose a leadership that nobody minds."""


@pytest.mark.row(16)
def test_an_expired_session_ends_the_leadership_and_a_rival_leads(
    opened: Open, proxy: Proxy, zookeeper: ZooKeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = threading.Event()
    state, rival = opened(proxy.hosts), opened()
    journal = Journal(state)
    assert state.lead("one", timeout_s=1, on_lost=lost.set)
    journal.claim_epoch("one", token="ensemble")
    id = state._session._client.client_id  # known while there is a connection
    proxy.cut()
    expire(id, zookeeper)

    assert rival.lead("rival", timeout_s=LIMIT_S, on_lost=nothing)
    Journal(rival).claim_epoch("rival", token="ensemble")
    assert not lost.is_set()
    with monkeypatch.context() as patch:
        patch.setattr(state._session, "_session_timeout_s", 0.5)  # how long a call waits
        with pytest.raises(CoordinatorUnavailable):
            journal.store_batches([BATCH])
    proxy.repair()

    assert lost.wait(LIMIT_S)
    with pytest.raises(FencedError, match=r"another process took over \(epoch 2\)"):
        journal.store_batches([BATCH])
    assert state.lead("one", timeout_s=0.2, on_lost=nothing) is None
    assert state.leader() == "rival"


def test_a_candidate_whose_session_expires_while_it_asks_does_not_wait_for_itself(
    opened: Open, proxy: Proxy, zookeeper: ZooKeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place that it then takes is one of the new session, and nobody leads in it."""
    asks, lost = threading.Event(), threading.Event()
    state, rival = opened(proxy.hosts), opened()
    id = state._session._client.client_id
    proxy.cut()
    monkeypatch.setattr(state._session, "locate", asks.set)  # called while it waits
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(state.lead, "one", timeout_s=1, on_lost=lost.set)
        assert asks.wait(LIMIT_S)
        expire(id, zookeeper)
        proxy.repair()
        assert first.result(LIMIT_S)
    assert lost.wait(LIMIT_S)

    leadership = state.lead("one", timeout_s=1, on_lost=nothing)
    assert leadership
    leadership.release()

    assert rival.lead("rival", timeout_s=1, on_lost=nothing)


def test_a_place_that_could_not_be_given_up_is_given_up_later(
    opened: Open, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = opened(proxy.hosts)
    leadership = state.lead("one", timeout_s=1, on_lost=nothing)
    assert leadership
    proxy.cut()
    with monkeypatch.context() as patch:
        patch.setattr(state._session, "_session_timeout_s", 0.2)  # how long a call waits
        leadership.release()
    proxy.repair()

    assert state.lead("one", timeout_s=1, on_lost=nothing)


def expire(id: tuple[int, bytes], zookeeper: ZooKeeperProcess) -> None:
    """End a session on the server, as its time would: another client takes it over and ends it."""
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
    threading.Timer(0.5, proxy.repair).start()

    state.apply([Put("/current", 1)])

    assert not lost.is_set()
    assert state.leader() == "one"


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
