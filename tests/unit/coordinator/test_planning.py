"""What the spout is asked, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.harness.metadata import CUTTING, of_one
from tests.unit.coordinator.script import COUNTED, INFRASTRUCTURE, OPAQUE, STORM, Script
from txtopo.attempt import TransactionAttempt
from txtopo.coordinator import Coordinator, CoordinatorSettings
from txtopo.coordinator.protocol import (
    Activated,
    Backoff,
    Deactivated,
    Failed,
    NotReady,
    PlanBatch,
    Planned,
    Processed,
    Resumed,
    StartProcessing,
    Tick,
)
from txtopo.metadata import BatchMetadata


def new(
    settings: CoordinatorSettings = STORM,
    current: int = 1,
    stored: Mapping[int, BatchMetadata] | None = None,
) -> Coordinator:
    return Coordinator(settings, epoch=1, current=current, stored=stored or {})


def test_one_question_is_open_at_a_time() -> None:
    coordinator = new()

    assert coordinator.start() == [PlanBatch(TransactionAttempt(1, 0, 1), 0, None)]
    assert coordinator.handle(Tick()) == []


def test_the_spout_is_told_the_batch_before() -> None:
    coordinator = new(stored={4: of_one("four")}, current=5)

    assert coordinator.start() == [
        PlanBatch(TransactionAttempt(5, 0, 1), 4, of_one("four")),
    ]
    actions = coordinator.handle(Planned(TransactionAttempt(5, 0, 1), of_one("five")))
    assert actions[-1] == PlanBatch(TransactionAttempt(6, 0, 1), 5, of_one("five"))


def test_a_partitioned_spout_is_told_the_newest_batch_whose_end_is_known() -> None:
    before = of_one(1, {"0": 8})
    coordinator = new(replace(STORM, cutting_spouts=CUTTING), stored={4: before}, current=5)
    coordinator.start()
    asked = [
        coordinator.handle(Planned(TransactionAttempt(5, 0, 1), of_one(1)))[-1],
        coordinator.handle(Processed((TransactionAttempt(5, 0, 1),), (of_one(1, {"0": 9}),)))[-1],
        coordinator.handle(Planned(TransactionAttempt(6, 0, 1), of_one(1)))[-1],
    ]

    # The plan of the previous txid is known, though its end is not.
    assert asked[0] == PlanBatch(TransactionAttempt(6, 0, 1), 4, before, of_one(1))
    known = of_one(1, {"0": 9})
    assert asked[2] == PlanBatch(TransactionAttempt(7, 0, 1), 5, known, of_one(1))


def test_a_spout_that_was_not_ready_is_asked_again_with_a_tick_only() -> None:
    script = Script(STORM, s=10)
    script.s = None
    script.commit(1)
    script.s = 10

    assert script.commit(2) == ["C2"]
    assert script.tick() == ["B5 10", "B6 10"]


def test_what_is_planned_does_not_wait_for_a_spout_that_is_slow_to_answer() -> None:
    """A spout may wait for data in ``is_ready``; the batches before it are not late for that."""
    coordinator = new(replace(STORM, window_txids=12, run_txids_max=3))
    coordinator.start()
    first = TransactionAttempt(1, 0, 1)
    assert coordinator.handle(Planned(first, of_one("a"))) == [
        PlanBatch(TransactionAttempt(2, 0, 1), 1, of_one("a"))
    ]

    started = coordinator.handle(Tick())

    assert [a.attempts for a in started if isinstance(a, StartProcessing)] == [(first,)]


def test_runs_wait_to_be_full_again_once_the_spout_has_answered() -> None:
    coordinator = new(replace(STORM, window_txids=12, run_txids_max=3))
    coordinator.start()
    coordinator.handle(Planned(TransactionAttempt(1, 0, 1), of_one("a")))
    coordinator.handle(Tick())

    answered = coordinator.handle(Planned(TransactionAttempt(2, 0, 1), of_one("b")))

    assert [type(action) for action in answered] == [PlanBatch]


def test_a_spout_that_had_nothing_is_asked_as_soon_as_it_is_activated_again() -> None:
    """No tick is to be waited for: while it was deactivated nobody asked, so nobody ticks."""
    coordinator = new()
    coordinator.start()
    coordinator.handle(NotReady(TransactionAttempt(1, 0, 1)))
    coordinator.handle(Deactivated())
    assert coordinator.handle(Tick()) == []

    assert coordinator.handle(Activated()) == [PlanBatch(TransactionAttempt(1, 0, 1), 0, None)]


def test_a_deactivated_spout_is_not_asked_but_what_is_in_flight_goes_on() -> None:
    script = Script(STORM, s=10)
    script.tell(Deactivated())

    assert script.commit(1) == ["C1"]
    assert script.tick() == []
    assert script.fail(2) == ["Cancel", "B2 10", "B3 10", "B4 10"]
    assert script.tell(Activated()) == ["B5 10"]


def test_what_was_planned_when_a_spout_was_deactivated_is_in_flight() -> None:
    coordinator = new()
    coordinator.start()
    coordinator.handle(Deactivated())

    actions = coordinator.handle(Planned(TransactionAttempt(1, 0, 1), of_one(10)))

    assert [type(action).__name__ for action in actions] == ["StoreBatches", "StartProcessing"]


@pytest.mark.row(10)
def test_a_fault_while_planning_pauses_and_asks_again() -> None:
    coordinator = new()
    coordinator.start()

    actions = coordinator.handle(Failed(TransactionAttempt(1, 0, 1), INFRASTRUCTURE))
    assert [type(action).__name__ for action in actions] == ["Backoff"]
    assert coordinator.handle(Tick()) == []
    assert coordinator.handle(Resumed(1)) == [PlanBatch(TransactionAttempt(1, 1, 1), 0, None)]


def test_a_failed_plan_is_asked_for_after_a_pause_and_counts() -> None:
    coordinator = new(replace(STORM, attempts_max=2))
    coordinator.start()

    assert coordinator.handle(Failed(TransactionAttempt(1, 0, 1), COUNTED)) == [Backoff(1, 1)]
    assert coordinator.handle(Resumed(1)) == [PlanBatch(TransactionAttempt(1, 1, 1), 0, None)]
    (stop,) = coordinator.handle(Failed(TransactionAttempt(1, 1, 1), COUNTED))
    assert "txid 1 failed 2 times" in str(stop)


def test_a_run_does_not_wait_for_a_spout_that_cannot_plan() -> None:
    coordinator = new(replace(STORM, window_txids=8, run_txids_max=4, jobs_max=1))
    coordinator.start()
    actions = coordinator.handle(Planned(TransactionAttempt(1, 0, 1), of_one(10)))
    assert [type(action).__name__ for action in actions] == ["PlanBatch"]

    actions = coordinator.handle(Failed(TransactionAttempt(2, 0, 1), INFRASTRUCTURE))

    assert [type(each).__name__ for each in actions] == [
        "Backoff",
        "StoreBatches",
        "StartProcessing",
    ]
    assert [type(each).__name__ for each in coordinator.handle(Resumed(2))] == ["PlanBatch"]


def test_a_smaller_window_after_a_restart_takes_in_what_was_planned_bit_by_bit() -> None:
    script = Script(STORM, s=10)
    script.settings = replace(STORM, window_txids=2)
    script.s = 99

    assert script.restart() == ["B1 10", "B2 10"]
    assert [*script.commit(1), *script.commit(2)] == ["C1", "B3 10", "C2", "B4 10"]
    assert script.commit(3) == ["C3", "B5 99"]


def test_what_was_planned_before_a_restart_is_in_flight_for_a_deactivated_spout() -> None:
    script = Script(STORM, s=10)
    script.settings = replace(STORM, window_txids=2)
    script.restart()
    script.tell(Deactivated())

    assert script.commit(1) == ["C1", "B3 10"]


def test_an_opaque_batch_is_replayed_after_a_restart_though_the_spout_is_not_ready() -> None:
    """A store may hold it already, and waits for the replay."""
    script = Script(OPAQUE, s=10)
    script.ack(1, {"0": 2})
    script.s = None

    assert script.restart() == ["B1 10"]
    assert script.starts[0].metadata == (of_one(10, None),)
