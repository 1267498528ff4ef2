"""A write of transactional state that a slow thread makes when its term is long over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.harness.polling import LIMIT_S
from tests.unit.runtime.loop_world import BATCHES, expected, memory_state, stored, topology_of
from txtopo import Config
from txtopo.ensemble.journal import Journal
from txtopo.ensemble.memory import MemoryEnsemble, MemoryTransactionalState
from txtopo.runtime.scheduler import Done, ThreadScheduler
from txtopo.runtime.start import start_topology

T = TypeVar("T")


class SlowThread(ThreadScheduler):
    """Stops the first thread that comes to a point, until it is told to continue."""

    def __init__(self, point: str) -> None:
        super().__init__("slow-thread")
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.done = threading.Event()
        self._point = point
        self._slow: int | None = None

    def point(self, name: str) -> None:
        if name == self._point and self._slow is None:
            self._slow = threading.get_ident()
            self.reached.set()
            assert self.go_on.wait(LIMIT_S)

    def submit(self, work: Callable[[], T], done: Done) -> None:
        def noted() -> T:
            try:
                return work()
            finally:
                if self._slow == threading.get_ident():
                    self.done.set()

        super().submit(noted, done)


@pytest.mark.row(52, 53)
@pytest.mark.rule("txtopo.runtime.takeover", "Order", 3)
def test_a_write_of_a_term_that_is_over_is_refused_though_the_same_process_leads_again() -> None:
    """It had begun, so nobody could call it back; it must not continue under the new epoch."""
    state, ensemble, slow = memory_state(), MemoryEnsemble(), SlowThread("advance.before")
    config = Config(carrier="local", zookeeper="memory", backoff_s=0.01, poll_interval_s=0.005)
    run = start_topology(topology_of(state).graph, None, config, scheduler=slow, ensemble=ensemble)
    try:
        assert slow.reached.wait(LIMIT_S)
        ensemble.expire_leader("totals")
        run.process_all_available(LIMIT_S)
        slow.go_on.set()
        assert slow.done.wait(LIMIT_S)

        contents = Journal(MemoryTransactionalState("totals", ensemble)).load()
        assert (contents.current, max(contents.batches)) == (BATCHES + 1, BATCHES)
        assert stored(state) == (BATCHES, expected())
    finally:
        run.stop(LIMIT_S)
