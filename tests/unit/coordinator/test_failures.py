"""What is replayed, what is kept, what is counted, and when there is a pause."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.coordinator.script import COUNTED, INFRASTRUCTURE, OPAQUE, STORM, Script
from txtopo.coordinator import Phase
from txtopo.coordinator.protocol import Backoff, Cancel, Failed, Processed, Resumed, StoreBatches
from txtopo.metadata import BatchMetadata

KEEPING = replace(STORM, keep_processed=True)


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
    script = Script(KEEPING, s=10)
    script.ack(2)
    script.ack(4)
    kept = script.attempt(2), script.attempt(4)

    assert script.fail(1) == ["Cancel", "B1 10", "B3 10"]
    assert (script.attempt(2), script.attempt(4)) == kept
    assert script.ack(1) == ["C1"]
    assert script.ack(1) == ["C2", "B5 10"]


def test_processed_results_of_an_opaque_spout_are_never_kept() -> None:
    settings = replace(OPAQUE, keep_processed=True, chained=False, jobs_max=4)
    script = Script(settings, s=10)
    script.ack(2)

    assert script.fail(1) == ["Cancel", "B1 10", "B2 10", "B3 10", "B4 10"]


def test_a_failed_commit_repeats_both_phases() -> None:
    script = Script(KEEPING, s=10)
    script.ack(1)

    assert script.fail(1) == ["Cancel", "B1 10", "B2 10", "B3 10", "B4 10"]
    assert script.phases()[1] is Phase.PROCESSING


def test_r11_results_that_are_gone_fail_their_batch_at_once() -> None:
    script = Script(STORM, s=10)
    script.ack(2)

    assert script.fail(2) == ["Cancel", "B2 10", "B3 10", "B4 10"]


def test_a_repeatable_batch_is_durable_with_its_attempt_before_it_is_processed() -> None:
    script = Script(STORM, s=10)
    script.fail(2)

    assert script.stored_attempts[2] == script.attempt(2)
    actions = script.coordinator.handle(Failed(script.attempt(4), COUNTED))
    assert [type(action).__name__ for action in actions] == [
        "Cancel",
        "StoreBatches",
        "StartProcessing",
    ]


def test_an_opaque_batch_is_durable_with_its_attempt_before_its_commit() -> None:
    """Also one whose emitters have nothing to say."""
    script = Script(replace(OPAQUE, chained=False), s=10)
    assert script.stored == {}

    script.ack(1)

    assert script.stored_attempts[1] == script.attempt(1)
    assert script.phases()[1] is Phase.COMMITTING


def test_batches_are_stored_in_order_though_they_are_processed_in_any() -> None:
    """A gap would mix two plans after a restart."""
    script = Script(replace(OPAQUE, chained=False, jobs_max=4), s=10)

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
    assert script.tell(Resumed()) == ["B1 10", "B2 10", "B3 10", "B4 10"]


def test_no_commit_starts_in_a_pause() -> None:
    script = Script(STORM, s=10)
    script.fail(2, INFRASTRUCTURE)

    assert script.ack(1) == []
    assert script.tell(Resumed())[0] == "C1"


def test_a_second_fault_in_a_pause_adds_no_second_one() -> None:
    script = Script(STORM, s=10)
    script.fail(2, INFRASTRUCTURE)

    assert script.fail(1, INFRASTRUCTURE) == ["Cancel"]


def test_pauses_grow_until_a_commit() -> None:
    script = Script(STORM, s=10)
    seen = []
    for _ in range(2):
        seen += script.coordinator.handle(Failed(script.attempt(4), INFRASTRUCTURE))
        script.tell(Resumed())
    script.commit(1)
    seen += script.coordinator.handle(Failed(script.attempt(4), INFRASTRUCTURE))

    assert [action for action in seen if isinstance(action, Backoff)] == [
        Backoff(1),
        Backoff(2),
        Backoff(1),
    ]


def test_the_cut_is_durable_before_the_commit() -> None:
    script = Script(replace(STORM, chained=True), s=10)
    attempt = script.attempt(1)
    metadata = BatchMetadata(10, {"0": 2})
    actions = script.coordinator.handle(Processed((attempt,), (metadata,)))

    assert actions[0] == StoreBatches((attempt,), (metadata,))
    assert type(actions[1]).__name__ == "StartCommit"
