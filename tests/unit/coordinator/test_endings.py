"""How a run ends: poison, bugs, and because it was asked to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.harness.metadata import of_one
from tests.unit.coordinator.script import COUNTED, FATAL, INFRASTRUCTURE, STORM, Script
from txtopo.coordinator.protocol import (
    Activated,
    Cancel,
    Committed,
    Failed,
    Failure,
    Planned,
    Resumed,
    Stop,
    StopRequested,
    Tick,
)
from txtopo.errors import FencedError, PoisonBatchError

POISON = replace(STORM, attempts_max=3)


def stop_of(script: Script, txid: int, failure: Failure) -> Stop:
    action = script.coordinator.handle(Failed(script.attempt(txid), failure))[-1]
    assert isinstance(action, Stop)
    return action


@pytest.mark.row(19)
def test_r12_a_poison_batch_ends_the_run_with_what_an_operator_needs() -> None:
    script = Script(POISON, s=10)
    script.fail(1)
    script.fail(1)

    error = stop_of(script, 1, COUNTED).error

    assert isinstance(error, PoisonBatchError)
    assert (error.txid, error.component, error.failures) == (1, "bolt", 3)
    assert error.__cause__ is COUNTED.error
    for part in ("txid 1", "'bolt'", "3 times", "no"):
        assert part in str(error)


@pytest.mark.row(18)
def test_failures_of_the_infrastructure_do_not_count() -> None:
    script = Script(POISON, s=10)
    for _ in range(9):
        script.fail(1, INFRASTRUCTURE)
        script.tell(Resumed(1))

    assert script.transaction(1).failures == 0


def test_batches_that_are_abandoned_with_another_do_not_count() -> None:
    script = Script(POISON, s=10)
    script.fail(1)

    assert [t.failures for t in script.coordinator.transactions] == [1, 0, 0, 0]


def test_what_is_before_a_bug_is_committed_first() -> None:
    script = Script(STORM, s=10)
    doomed = tuple(script.attempt(txid) for txid in (3, 4))
    assert script.coordinator.handle(Failed(doomed[0], FATAL)) == [Cancel(doomed)]

    assert script.commit(1) == ["C1"]
    assert script.tick() == []
    assert script.fail(2) == ["Cancel", "B2 10"]
    script.ack(2)
    last = script.coordinator.handle(Committed((script.attempt(2),)))
    assert last[-1] == Stop(FATAL.error)


def test_the_lowest_of_several_endings_wins() -> None:
    script = Script(STORM, s=10)
    script.fail(4, FATAL)
    earlier = replace(FATAL, error=KeyError("earlier"))
    script.fail(2, earlier)

    script.ack(1)
    assert script.coordinator.handle(Committed((script.attempt(1),)))[-1] == Stop(earlier.error)


def test_a_broken_promise_is_never_tried_again() -> None:
    fenced = replace(COUNTED, error=FencedError("deposed"))

    assert stop_of(Script(STORM, s=10), 1, fenced).error is fenced.error


def test_a_bug_in_planning_ends_the_run_behind_the_last_planned_batch() -> None:
    script = Script(STORM, s=10)
    script.s = None
    script.ack(1)
    script.answers = []
    coordinator = script.coordinator
    coordinator.handle(Committed((script.attempt(1),)))
    asked = replace(script.attempt(4), txid=5)

    assert coordinator.handle(Failed(asked, FATAL)) == []
    assert coordinator.handle(Planned(asked, of_one(10))) == []
    for txid in (2, 3):
        script.commit(txid)
    script.ack(4)
    assert coordinator.handle(Committed((script.attempt(4),)))[-1] == Stop(FATAL.error)


def test_a_stop_drops_what_is_not_committing() -> None:
    script = Script(STORM, s=10)
    attempts = tuple(t.attempt for t in script.coordinator.transactions)

    assert script.coordinator.handle(StopRequested()) == [Cancel(attempts), Stop(None)]


def test_a_stop_finishes_the_commit_in_hand() -> None:
    script = Script(STORM, s=10)
    script.ack(1)
    script.ack(2)

    assert script.tell(StopRequested()) == ["Cancel"]
    assert script.tell(Tick(), Activated(), StopRequested()) == []
    assert script.ack(1) == ["Stop"]
    assert script.durable_current == 2


@pytest.mark.parametrize("failure", [COUNTED, INFRASTRUCTURE])
def test_a_commit_in_hand_that_fails_is_not_tried_again(failure: Failure) -> None:
    script = Script(STORM, s=10)
    script.ack(1)
    script.tell(StopRequested())

    assert stop_of(script, 1, failure).error is None


def test_a_stop_does_not_hide_what_went_wrong_in_the_commit_in_hand() -> None:
    script = Script(STORM, s=10)
    script.ack(1)
    script.tell(StopRequested())

    assert stop_of(script, 1, FATAL).error is FATAL.error


def test_nothing_happens_after_the_stop() -> None:
    script = Script(STORM, s=10)
    attempt = script.attempt(1)
    script.tell(StopRequested())

    assert script.tell(Tick(), StopRequested(), Failed(attempt, FATAL), Committed((attempt,))) == []


def test_a_stop_before_anything_was_planned() -> None:
    assert Script(STORM).tell(StopRequested()) == ["Stop"]


def test_a_later_start_goes_on_at_the_poison_batch() -> None:
    script = Script(replace(STORM, attempts_max=1), s=10)
    script.fail(2)
    script.commit(1)

    assert script.restart() == ["B2 10", "B3 10", "B4 10", "B5 10"]


def test_an_ending_hides_what_was_planned_behind_it_before_a_restart() -> None:
    script = Script(STORM, s=10)
    script.settings = replace(STORM, window_txids=3)
    script.restart()
    script.fail(3, FATAL)

    assert script.commit(1) == ["C1"]
    assert sorted(script.phases()) == [2]


def test_a_stop_does_not_hide_why_the_run_would_have_ended_here() -> None:
    script = Script(STORM, s=10)
    script.ack(1)
    script.fail(2, FATAL)

    assert script.tell(StopRequested()) == []
    assert script.coordinator.handle(Committed((script.attempt(1),)))[-1] == Stop(FATAL.error)
