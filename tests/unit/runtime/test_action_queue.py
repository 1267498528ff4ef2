"""The queue of a term's actions: what may be done now, and what waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.diagrams import drawn
from tests.harness.metadata import of_one
from txtopo.attempt import TransactionAttempt
from txtopo.coordinator.protocol import Action, Advance, Cancel, Stop, StoreBatches
from txtopo.errors import CoordinatorUnavailable, FencedError
from txtopo.runtime import action_queue
from txtopo.runtime.action_queue import (
    AFTER,
    ActionQueue,
    EndTerm,
    EnsembleUse,
    QueueEvent,
    RepeatWrite,
    StartBeat,
)

ATTEMPT = TransactionAttempt(2, 0, 1)
STORE = StoreBatches((ATTEMPT,), (of_one(1),))
ADVANCE = Advance(2)
CANCEL = Cancel((ATTEMPT,))
AWAY = CoordinatorUnavailable("zookeeper is away")


def taken(queue: ActionQueue) -> list[Action | StartBeat]:
    """Return all that may be done now."""
    found: list[Action | StartBeat] = []
    while (action := queue.next()) is not None:
        found.append(action)
    return found


def queue_with(*actions: Action) -> ActionQueue:
    queue = ActionQueue()
    queue.add(actions)
    return queue


def beating(*actions: Action) -> ActionQueue:
    """Return a queue whose actions came during a beat."""
    queue = ActionQueue()
    queue.beat_due()
    assert taken(queue) == [StartBeat()]
    queue.add(actions)
    return queue


def test_the_diagram_in_the_header_is_the_table() -> None:
    diagram = drawn(AFTER)

    assert diagram in (action_queue.__doc__ or ""), f"put this into the header:\n{diagram}"


def test_the_invariants_are_checked_after_each_event() -> None:
    queue = ActionQueue()
    queue._failures = 1

    with pytest.raises(AssertionError, match="only a write fails"):
        queue.next()


@pytest.mark.rule("txtopo.runtime.action_queue", "Rules", 1)
def test_actions_wait_for_the_write_before_them_and_keep_their_order() -> None:
    queue = queue_with(CANCEL, STORE, ADVANCE, CANCEL)

    assert taken(queue) == [CANCEL, STORE]
    assert not queue.at_rest
    queue.written()
    assert taken(queue) == [ADVANCE]
    queue.written()
    assert taken(queue) == [CANCEL]
    assert queue.at_rest


def test_what_is_added_while_an_action_is_done_comes_behind_the_others() -> None:
    queue = queue_with(CANCEL, STORE)

    assert queue.next() == CANCEL
    queue.add([ADVANCE])
    assert taken(queue) == [STORE]
    queue.written()
    assert taken(queue) == [ADVANCE]


@pytest.mark.rule("txtopo.runtime.action_queue", "Rules", 2)
def test_a_write_waits_for_the_beat_and_other_actions_do_not() -> None:
    queue = beating(CANCEL, STORE, CANCEL)

    assert taken(queue) == [CANCEL]
    queue.beat_ended()
    assert taken(queue) == [STORE]


@pytest.mark.rule("txtopo.runtime.action_queue", "Rules", 2)
def test_a_beat_that_is_due_during_a_write_begins_before_the_next_action() -> None:
    """Otherwise a topology with a write always under way would never answer an operator."""
    queue = queue_with(STORE, ADVANCE)

    assert taken(queue) == [STORE]
    queue.beat_due()
    assert taken(queue) == []
    assert queue.beat_waits
    queue.written()
    assert taken(queue) == [StartBeat()]
    assert not queue.beat_waits
    queue.beat_ended()
    assert taken(queue) == [ADVANCE]


@pytest.mark.rule("txtopo.runtime.action_queue", "Rules", 3)
def test_a_write_is_repeated_until_it_succeeds_and_then_failures_count_from_one() -> None:
    queue = queue_with(STORE, ADVANCE)
    taken(queue)

    for failures in (1, 2, 3):
        assert queue.write_failed(AWAY, committing=False) == RepeatWrite(STORE, failures)
        assert taken(queue) == []
        assert queue.pause_ended() == STORE
    queue.written()
    assert taken(queue) == [ADVANCE]
    assert queue.write_failed(AWAY, committing=False) == RepeatWrite(ADVANCE, 1)


@pytest.mark.rule("txtopo.runtime.action_queue", "Rules", 3)
def test_no_beat_comes_between_a_write_and_its_repetition() -> None:
    queue = queue_with(STORE)
    taken(queue)
    queue.write_failed(AWAY, committing=False)

    queue.beat_due()

    assert taken(queue) == []
    assert queue.pause_ended() == STORE
    assert taken(queue) == []


@pytest.mark.parametrize("committing", [True, False])
def test_any_other_error_of_a_write_ends_the_term(committing: bool) -> None:
    queue, error = queue_with(STORE, CANCEL), FencedError("another one leads")
    taken(queue)

    assert queue.write_failed(error, committing=committing) == EndTerm(error)
    assert taken(queue) == []


@pytest.mark.rule("txtopo.runtime.action_queue", "Rules", 3)
def test_a_run_that_ends_repeats_no_write_and_ends_as_the_coordinator_has_decided() -> None:
    cause = ValueError("a poison batch")
    queue = queue_with(ADVANCE, CANCEL, Stop(cause))
    taken(queue)

    assert queue.write_failed(AWAY, committing=True) == EndTerm(cause)


def test_a_run_that_was_asked_to_stop_repeats_a_write_while_its_last_commit_needs_it() -> None:
    queue = queue_with(STORE)
    taken(queue)
    queue.stop()

    assert queue.write_failed(AWAY, committing=True) == RepeatWrite(STORE, 1)
    assert queue.pause_ended() == STORE
    assert queue.write_failed(AWAY, committing=False) == EndTerm(None)


def test_a_run_that_stops_beats_no_more_also_if_a_beat_has_waited() -> None:
    queue = queue_with(STORE)
    taken(queue)
    queue.beat_due()

    queue.stop()
    queue.written()
    assert taken(queue) == []
    queue.beat_due()
    assert taken(queue) == []


STEPS: dict[EnsembleUse, Callable[[], ActionQueue]] = {
    EnsembleUse.FREE: ActionQueue,
    EnsembleUse.WRITING: lambda: queue_in(EnsembleUse.WRITING),
    EnsembleUse.PAUSING: lambda: queue_in(EnsembleUse.PAUSING),
    EnsembleUse.BEATING: lambda: beating(),
    EnsembleUse.OVER: lambda: queue_in(EnsembleUse.OVER),
}


def queue_in(use: EnsembleUse) -> ActionQueue:
    queue = queue_with(STORE)
    taken(queue)
    if use is EnsembleUse.PAUSING:
        queue.write_failed(AWAY, committing=False)
    elif use is EnsembleUse.OVER:
        queue.close()
    return queue


EVENTS: dict[QueueEvent, Callable[[ActionQueue], object]] = {
    QueueEvent.WRITTEN: ActionQueue.written,
    QueueEvent.WRITE_FAILED: lambda queue: queue.write_failed(AWAY, committing=True),
    QueueEvent.PAUSE_ENDED: ActionQueue.pause_ended,
    QueueEvent.BEAT_ENDED: ActionQueue.beat_ended,
    QueueEvent.CLOSED: ActionQueue.close,
}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name)
@pytest.mark.parametrize("use", STEPS, ids=lambda use: use.name)
@pytest.mark.rule("txtopo.runtime.action_queue", "Rules", 5)
def test_an_event_does_what_the_table_says_and_otherwise_nothing(
    use: EnsembleUse, event: QueueEvent
) -> None:
    queue = STEPS[use]()
    assert queue.use is use

    answer = EVENTS[event](queue)

    assert queue.use is AFTER.get((use, event), use)
    if (use, event) not in AFTER:
        assert answer is None


@pytest.mark.parametrize("use", STEPS, ids=lambda use: use.name)
def test_nothing_leaves_the_queue_after_the_end_of_the_term(use: EnsembleUse) -> None:
    queue = STEPS[use]()
    queue.add([CANCEL, ADVANCE])
    queue.beat_due()

    queue.close()

    queue.add([CANCEL])
    queue.beat_due()
    assert taken(queue) == []
    assert queue.at_rest


@pytest.mark.rule("txtopo.runtime.action_queue", "Rules", 4)
def test_equal_events_give_equal_answers() -> None:
    def story() -> list[object]:
        queue = queue_with(CANCEL, STORE, ADVANCE)
        told: list[object] = [*taken(queue), queue.write_failed(AWAY, committing=False)]
        queue.beat_due()
        told += [queue.pause_ended()]
        queue.written()
        told += taken(queue)
        queue.beat_ended()
        return [*told, *taken(queue)]

    assert story() == story()
