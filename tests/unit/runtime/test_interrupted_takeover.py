"""A run that is stopped while it takes over leaves nothing open."""

from __future__ import annotations

import threading

import pytest

from state_backends.memory import MemoryBackend, MemoryStore
from tests.harness.polling import LIMIT_S, wait_until
from tests.unit.runtime.loop_world import running, topology_of
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.plugins.stores import Claim, StateTable
from txtopo.state import Ledger, State, open_state, register_backend


class SlowBackend(MemoryBackend):
    """Claims when it is told to, and counts itself."""

    claiming = threading.Event()
    go_on = threading.Event()
    opened = 0

    def __init__(self, store: MemoryStore, table: StateTable) -> None:
        super().__init__(store, table)
        SlowBackend.opened += 1

    def claim(self, claim: Claim) -> Ledger:
        SlowBackend.claiming.set()
        assert SlowBackend.go_on.wait(LIMIT_S)
        return super().claim(claim)

    def close(self) -> None:
        SlowBackend.opened -= 1


@pytest.fixture
def slow() -> State:
    store = MemoryStore()

    def opened(url: str, table: StateTable) -> SlowBackend:
        return SlowBackend(store, table)

    register_backend("slow", opened)
    return open_state("slow:")


def test_states_are_closed_that_were_claimed_too_late_for_anybody(slow: State) -> None:
    with running(topology_of(slow), MemoryEnsemble()) as run:
        assert SlowBackend.claiming.wait(LIMIT_S)
        run.stop(LIMIT_S)
        SlowBackend.go_on.set()
        wait_until(lambda: SlowBackend.opened == 0, "the claimed state is closed")
