"""How consecutive batches share a job."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.coordinator.script import COUNTED, FATAL, INFRASTRUCTURE, Script
from txtopo.coordinator import CoordinatorSettings
from txtopo.coordinator.protocol import Committed, Failed, Resumed, RunFailed, Stop
from txtopo.errors import FencedError, PoisonBatchError

RUNS = CoordinatorSettings(window_txids=9, run_txids_max=3, jobs_max=2, attempts_max=3)
FULL = ["B1 10 B2 10 B3 10", "B4 10 B5 10 B6 10"]


def test_full_runs_start_while_there_are_jobs() -> None:
    script = Script(RUNS)
    script.s = 10

    assert script.tick() == FULL
    assert len(script.phases()) == 9


def test_a_third_run_starts_when_a_job_ends_not_when_a_commit_frees_one_place() -> None:
    """Starting whatever is ready would give runs of 3, 1, 1, 1 and so on."""
    script = Script(RUNS, s=10)

    assert script.ack(1) == ["C1"]
    assert script.ack(1) == []
    assert script.ack(2) == ["C2"]
    assert script.ack(3) == ["B7 10 B8 10 B9 10"]


def test_a_short_run_starts_when_the_spout_has_no_more() -> None:
    script = Script(RUNS)
    script.answers = [10, 10, None]

    assert script.tick() == ["B1 10 B2 10"]


def test_a_failure_leaves_the_batches_before_it_in_their_run() -> None:
    script = Script(RUNS, s=10)
    script.ack(1)

    assert script.fail(2) == ["Cancel", "B2 10 B3 10 B4 10", "B5 10 B6 10 B7 10"]
    assert script.ack(1) == []


def test_a_kept_result_ends_a_run_before_it() -> None:
    script = Script(RUNS, s=10)
    script.ack(4)

    assert script.fail(3) == ["Cancel", "B3 10"]
    script.ack(1)
    assert script.ack(2) == ["B5 10 B6 10 B7 10"]


def test_a_run_that_names_no_batch_is_repeated_one_txid_a_job() -> None:
    script = Script(RUNS, s=10)

    assert script.fail_run(1, 2, 3) == ["Cancel", "B1 10", "B2 10"]
    assert script.ack(1) == ["C1", "B3 10"]
    assert script.ack(2) == ["B4 10 B5 10 B6 10"]


def test_a_lost_executor_does_not_take_a_run_apart() -> None:
    script = Script(RUNS, s=10)
    script.fail_run(1, 2, 3, failure=INFRASTRUCTURE)

    assert script.tell(Resumed(1)) == FULL


def test_a_run_that_names_no_batch_counts_only_if_it_has_one_txid() -> None:
    script = Script(replace(RUNS, attempts_max=2), s=10)
    script.fail_run(1, 2, 3)
    assert script.transaction(1).failures == 0

    script.fail_run(1)
    assert script.transaction(1).failures == 1
    assert script.fail_run(1)[-1] == "Stop"


def test_a_run_fails_from_its_first_current_attempt_on() -> None:
    """Its head is processed, and the rest fails without a name."""
    script = Script(RUNS, s=10)
    run = script.starts[0].attempts
    script.ack(1)

    actions = script.tell(RunFailed(run, COUNTED))

    assert actions == ["Cancel", "B2 10", "B3 10"]
    assert script.attempt(1) == run[0]


def test_a_late_failure_of_a_run_changes_nothing() -> None:
    script = Script(RUNS, s=10)
    run = script.starts[0].attempts
    script.fail(1)

    assert script.tell(RunFailed(run, COUNTED)) == []


def test_a_broken_promise_of_a_run_ends_at_its_first_txid() -> None:
    script = Script(RUNS, s=10)
    fenced = replace(COUNTED, error=FencedError("deposed"))

    assert script.fail_run(4, 5, 6, failure=fenced) == ["Cancel"]
    assert sorted(script.phases()) == [1, 2, 3]
    assert script.fail_run(1, 2, 3, failure=FATAL) == ["Cancel", "Stop"]


def test_a_batch_that_fails_by_name_in_a_run_counts() -> None:
    script = Script(replace(RUNS, attempts_max=1), s=10)
    actions = script.coordinator.handle(Failed(script.attempt(2), COUNTED))

    assert type(actions[0]).__name__ == "Cancel"
    assert sorted(script.phases()) == [1]
    script.ack(1)
    stop = script.coordinator.handle(Committed((script.attempt(1),)))[-1]
    assert isinstance(stop, Stop)
    assert isinstance(stop.error, PoisonBatchError)


def test_the_last_run_of_a_pinned_group_does_not_wait_for_room_that_its_commit_would_make() -> None:
    settings = replace(RUNS, window_txids=5, run_txids_max=2, jobs_max=1, group_txids_max=5)
    script = Script(settings, s=10)
    for txid in (1, 2, 3, 4):
        script.ack(txid)
    script.restart(pinned=5)

    for txid in (1, 2, 3, 4):
        script.ack(txid)

    assert "C1-5" in script.ack(5)
