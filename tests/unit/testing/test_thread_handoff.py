from __future__ import annotations

import threading

import pytest

from txtopo.testing.simulation.clock import BlockingWork, ThreadHandoff


def test_a_lock_that_is_held_across_a_point_is_reported_with_the_place_that_waits_for_it() -> None:
    """Else a simulation would hang: the holder is parked until the waiter comes back."""
    handoff, lock = ThreadHandoff(stuck_s=0.2), threading.Lock()

    def holds_it_across_a_point() -> None:
        with lock:
            handoff.park()

    def waits_for_it() -> None:
        with lock:
            pass

    handoff.hand_to(BlockingWork(holds_it_across_a_point))

    with pytest.raises(AssertionError, match=r"a lock that another.*(?s:.)*in waits_for_it"):
        handoff.hand_to(BlockingWork(waits_for_it))


def test_a_lock_that_is_released_before_a_point_is_free_for_others() -> None:
    handoff, lock = ThreadHandoff(stuck_s=60), threading.Lock()
    entered: list[int] = []

    def uses_it() -> None:
        with lock:
            entered.append(len(entered))
        handoff.park()

    for work in (BlockingWork(uses_it), BlockingWork(uses_it)):
        handoff.hand_to(work)

    assert entered == [0, 1]
