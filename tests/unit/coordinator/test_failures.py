"""What is replayed, what is kept, what is counted, and when there is a pause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.harness.metadata import CUTTING, of_one
from tests.unit.coordinator.script import COUNTED, INFRASTRUCTURE, OPAQUE, STORM, Script
from txtopo.coordinator import Phase
from txtopo.coordinator.protocol import (
    Action,
    Backoff,
    Cancel,
    Deactivated,
    Failed,
    Failure,
    Processed,
    Resumed,
    StartCommit,
    StartProcessing,
    StopRequested,
    StoreBatches,
)


def test_a_failure_cancels_what_it_abandons_and_nothing_before_it() -> None:
    script = Script(STORM, s=10)
    abandoned = tuple(script.attempt(txid) for txid in (2, 3, 4))

    actions = script.coordinator.handle(Failed(abandoned[0], COUNTED))

    assert actions[0] == Cancel(abandoned)


def test_what_no_job_has_seen_is_not_cancelled() -> None:
    script = Script(replace(STORM, jobs_max=1), s=10)
    attempt = script.attempt(1)

    actions = script.coordinator.handle(Failed(attempt, COUNTED))

    assert actions[0] == Cancel((attempt,))
    assert [t.attempt.attempt for t in script.coordinator.transactions] == [1, 1, 1, 1]


def test_attempts_of_the_failed_and_all_later_batches_grow() -> None:
    script = Script(STORM, s=10)
    script.fail(3)
    script.fail(2)

    assert [t.attempt.attempt for t in script.coordinator.transactions] == [0, 1, 2, 2]


def test_r7_attempts_grow_over_a_restart() -> None:
    script = Script(STORM, s=10)
    script.fail(1)
    seen = [t.attempt for t in script.coordinator.transactions]

    script.restart()

    assert min(t.attempt for t in script.coordinator.transactions) > max(seen)


def test_processed_results_of_a_repeatable_spout_are_kept() -> None:
    """Storm threw them away (W13): a replay of a batch before them cannot change them."""
    script = Script(STORM, s=10)
    script.ack(2)
    script.ack(4)
    kept = script.attempt(2), script.attempt(4)

    assert script.fail(1) == ["Cancel", "B1 10", "B3 10"]
    assert (script.attempt(2), script.attempt(4)) == kept
    assert script.ack(1) == ["C1"]
    assert script.ack(1) == ["C2", "B5 10"]


def test_processed_results_of_an_opaque_spout_are_never_kept() -> None:
    settings = replace(OPAQUE, cutting_spouts=frozenset(), jobs_max=4)
    script = Script(settings, s=10)
    script.ack(2)

    assert script.fail(1) == ["Cancel", "B1 10", "B2 10", "B3 10", "B4 10"]


def test_a_failed_commit_repeats_both_phases() -> None:
    script = Script(STORM, s=10)
    script.ack(1)

    assert script.fail(1) == ["Cancel", "B1 10", "B2 10", "B3 10", "B4 10"]
    assert script.phases()[1] is Phase.PROCESSING


def test_r11_results_that_are_gone_fail_their_batch_at_once() -> None:
    script = Script(STORM, s=10)
    script.ack(2)

    assert script.fail(2) == ["Cancel", "B2 10", "B3 10", "B4 10"]


@pytest.mark.rule("txtopo.coordinator.machine", "Order of durability", 1)
def test_a_repeatable_batch_is_durable_with_its_attempt_before_it_is_processed() -> None:
    script = Script(STORM, s=10)
    script.fail(2)

    assert script.stored_attempts[2] == script.attempt(2)
    script.tell(Failed(script.attempt(4), COUNTED))
    actions = script.coordinator.handle(Resumed(4))
    assert [type(action).__name__ for action in actions] == ["StoreBatches", "StartProcessing"]


def test_an_opaque_batch_is_durable_with_its_attempt_before_its_commit() -> None:
    """Also one whose emitters have nothing to say."""
    script = Script(replace(OPAQUE, cutting_spouts=frozenset()), s=10)
    assert script.stored == {}

    script.ack(1)

    assert script.stored_attempts[1] == script.attempt(1)
    assert script.phases()[1] is Phase.COMMITTING


@pytest.mark.rule("txtopo.coordinator.machine", "Order of durability", 2)
def test_batches_are_stored_in_order_though_they_are_processed_in_any() -> None:
    """A gap would mix two plans after a restart."""
    script = Script(replace(OPAQUE, cutting_spouts=frozenset(), jobs_max=4), s=10)

    script.ack(2)
    assert sorted(script.stored) == []
    script.ack(1)
    assert sorted(script.stored) == [1, 2]


def test_a_store_that_holds_its_metadata_is_not_written_again() -> None:
    script = Script(STORM, s=10)
    writes = script.writes

    script.ack(1)

    assert script.writes == writes


def test_an_infrastructure_fault_pauses_before_anything_is_started() -> None:
    script = Script(STORM, s=10)

    assert script.fail(1, INFRASTRUCTURE) == ["Cancel", "Backoff"]
    assert script.tick() == []
    assert script.tell(Resumed(1)) == ["B1 10", "B2 10", "B3 10", "B4 10"]


def pauses(actions: list[Action]) -> list[Backoff]:
    return [action for action in actions if isinstance(action, Backoff)]


def test_pauses_after_faults_grow_until_a_commit() -> None:
    script = Script(STORM, s=10)
    seen = []
    for _ in range(2):
        seen += script.coordinator.handle(Failed(script.attempt(4), INFRASTRUCTURE))
        script.tell(Resumed(4))
    script.commit(1)
    seen += script.coordinator.handle(Failed(script.attempt(4), INFRASTRUCTURE))

    assert pauses(seen) == [Backoff(4, 1), Backoff(4, 2), Backoff(4, 1)]


def test_pauses_of_a_batch_grow_with_its_own_failures_also_over_commits() -> None:
    script = Script(STORM, s=10)
    seen = []
    for _ in range(2):
        seen += script.coordinator.handle(Failed(script.attempt(4), COUNTED))
        script.tell(Resumed(4))
    script.commit(1)
    seen += script.coordinator.handle(Failed(script.attempt(3), COUNTED))
    seen += script.coordinator.handle(Failed(script.attempt(2), COUNTED))
    script.tell(Resumed(2), Resumed(3))
    seen += script.coordinator.handle(Failed(script.attempt(4), COUNTED))

    assert pauses(seen) == [
        Backoff(4, 1),
        Backoff(4, 2),
        Backoff(3, 1),
        Backoff(2, 1),
        Backoff(4, 3),
    ]


@pytest.mark.parametrize("failure", [COUNTED, INFRASTRUCTURE])
def test_nothing_of_a_pausing_batch_and_later_ones_is_started_until_its_pause_ends(
    failure: Failure,
) -> None:
    script = Script(STORM, s=10)

    assert script.tell(Failed(script.attempt(2), failure)) == ["Cancel", "Backoff"]
    assert script.tick() == []
    assert script.tell(Resumed(3)) == []
    assert script.tell(Resumed(2)) == ["B2 10", "B3 10", "B4 10"]


@pytest.mark.parametrize("failure", [COUNTED, INFRASTRUCTURE])
def test_earlier_batches_are_processed_and_committed_in_a_pause(failure: Failure) -> None:
    script = Script(replace(STORM, jobs_max=1), s=10)
    script.ack(1)
    script.ack(2)
    script.tell(Failed(script.attempt(3), failure))

    assert script.fail(1) == ["Cancel", "B1 10"]
    assert script.ack(1) == ["C1"]
    assert script.ack(1) == ["C2"]
    assert script.ack(2) == []
    assert script.tell(Resumed(3)) == ["B3 10"]


def test_a_batch_that_was_processed_is_not_committed_in_the_pause_of_an_earlier_one() -> None:
    script = Script(STORM, s=10)
    script.ack(2)
    script.tell(Failed(script.attempt(1), COUNTED))

    assert script.tick() == []
    script.tell(Resumed(1))
    assert script.commit(1) == ["C1", "C2", "B5 10"]


def test_pauses_of_two_batches_end_each_for_itself() -> None:
    script = Script(STORM, s=10)
    script.tell(Failed(script.attempt(3), COUNTED))
    script.tell(Failed(script.attempt(1), COUNTED))

    assert script.tell(Resumed(3)) == []
    assert script.tell(Resumed(1)) == ["B1 10", "B2 10", "B3 10", "B4 10"]
    script.tell(Failed(script.attempt(3), COUNTED))
    script.tell(Failed(script.attempt(1), COUNTED))
    assert script.tell(Resumed(1)) == ["B1 10", "B2 10"]
    assert script.tell(Resumed(3)) == ["B3 10", "B4 10"]


def test_no_new_batch_is_planned_behind_one_that_pauses() -> None:
    script = Script(STORM, s=None)
    script.answers = [10]
    script.tick()
    script.tell(Failed(script.attempt(1), COUNTED))
    script.s = 10

    assert script.tick() == []
    assert script.tell(Resumed(1)) == ["B1 10", "B2 10", "B3 10", "B4 10"]


@pytest.mark.parametrize("failure", [COUNTED, INFRASTRUCTURE])
def test_a_stop_ends_a_pause(failure: Failure) -> None:
    script = Script(STORM, s=10)
    script.tell(Failed(script.attempt(1), failure))

    assert script.tell(StopRequested()) == ["Stop"]


@pytest.mark.parametrize("failure", [COUNTED, INFRASTRUCTURE])
def test_a_deactivation_ends_a_pause_and_what_is_in_flight_goes_on(failure: Failure) -> None:
    script = Script(STORM, s=10)
    script.tell(Failed(script.attempt(1), failure))

    assert script.tell(Deactivated()) == ["B1 10", "B2 10", "B3 10", "B4 10"]
    assert script.tell(Resumed(1)) == []
    assert script.tell(Failed(script.attempt(1), failure)) == ["Cancel", "Backoff"]


def test_without_a_limit_a_batch_is_tried_again_for_ever() -> None:
    """As in Storm, whose batches have no number of attempts (W13); but with pauses."""
    script = Script(replace(STORM, attempts_max=None), s=10)
    seen = []
    for _ in range(200):
        seen += script.coordinator.handle(Failed(script.attempt(1), COUNTED))
        script.tell(Resumed(1))

    assert pauses(seen) == [Backoff(1, failures) for failures in range(1, 201)]
    assert script.commit(1)[0] == "C1"


@pytest.mark.rule("txtopo.coordinator.machine", "Order of durability", 2)
def test_the_cut_is_durable_before_the_commit() -> None:
    script = Script(replace(STORM, cutting_spouts=CUTTING), s=10)
    attempt = script.attempt(1)
    metadata = of_one(10, {"0": 2})
    store, *others = script.coordinator.handle(Processed((attempt,), (metadata,)))

    assert isinstance(store, StoreBatches)
    assert (store.attempts[0], store.metadata[0]) == (attempt, metadata)
    assert type(others[0]).__name__ == "StartCommit"


def test_the_cut_of_a_batch_and_the_plan_of_the_next_run_are_stored_in_one_write() -> None:
    """So a batch that is alone in its run costs two writes with its ``Advance``, and not three."""
    script = Script(replace(STORM, cutting_spouts=CUTTING), s=10)
    attempt, cut = script.attempt(1), of_one(10, {"0": 2})

    store, commit, process, *_ = script.coordinator.handle(Processed((attempt,), (cut,)))

    assert isinstance(store, StoreBatches)
    assert isinstance(commit, StartCommit)
    assert isinstance(process, StartProcessing)
    assert store.attempts == (*commit.attempts, *process.attempts)
    assert store.metadata == (cut, *process.metadata)
