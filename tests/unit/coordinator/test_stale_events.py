"""Late, doubled, foreign and illegal events ask for nothing and change nothing."""

from __future__ import annotations

import copy
from dataclasses import FrozenInstanceError, replace

import pytest

from tests.harness.metadata import of_one
from tests.unit.coordinator.script import COUNTED, FATAL, INFRASTRUCTURE, OPAQUE, STORM, Script
from txtopo.attempt import TransactionAttempt
from txtopo.coordinator import Coordinator, Phase
from txtopo.coordinator.protocol import (
    Committed,
    Event,
    Failed,
    NotReady,
    Planned,
    Processed,
    Resumed,
    RunFailed,
)


def events_of(attempt: TransactionAttempt) -> list[Event]:
    return [
        Planned(attempt, of_one(7)),
        NotReady(attempt),
        Processed((attempt,), (of_one(7, {"0": 7}),)),
        Committed((attempt,)),
        Failed(attempt, COUNTED),
        Failed(attempt, FATAL),
        Failed(attempt, INFRASTRUCTURE),
        RunFailed((attempt,), COUNTED),
        RunFailed((attempt,), FATAL),
    ]


def in_all_phases() -> Script:
    """1 commits, 2 is processed, 3 processes, 4 waits for a job; all in their second attempt."""
    script = Script(replace(STORM, jobs_max=1), s=10)
    script.fail(1)
    script.ack(1)
    script.ack(2)
    phases = [Phase.COMMITTING, Phase.PROCESSED, Phase.PROCESSING, Phase.PLANNED]
    assert list(script.phases().values()) == phases
    return script


def state(coordinator: Coordinator) -> dict[str, object]:
    return {**vars(coordinator), "_table": vars(coordinator._table)}


def assert_no_effect(coordinator: Coordinator, *events: Event) -> None:
    before = copy.deepcopy(state(coordinator))

    for event in events:
        assert coordinator.handle(event) == [], event
        assert state(coordinator) == before, event


@pytest.mark.rule("txtopo.coordinator.machine", "Rules", 3)
def test_an_event_of_another_attempt_changes_nothing() -> None:
    """Storm's W3: a late failure killed a healthy attempt."""
    script = in_all_phases()
    coordinator = script.coordinator
    current = {transaction.attempt for transaction in coordinator.transactions}
    everything = {
        TransactionAttempt(txid, attempt, epoch)
        for txid in range(7)
        for attempt in range(3)
        for epoch in (1, 2)
    }

    events = [event for other in sorted(everything - current) for event in events_of(other)]
    assert_no_effect(coordinator, *events)


@pytest.mark.rule("txtopo.coordinator.machine", "Rules", 3)
def test_a_doubled_answer_changes_nothing() -> None:
    script = Script(replace(STORM, window_txids=1), s=None)
    asked = TransactionAttempt(1, 0, 1)
    assert_no_effect(script.coordinator, NotReady(asked))
    script.s = 10
    script.tick()
    attempt = script.attempt(1)
    assert_no_effect(script.coordinator, Planned(attempt, of_one(11)))
    script.ack(1)
    assert_no_effect(script.coordinator, Processed((attempt,), (of_one(10),)))
    script.ack(1)
    assert_no_effect(script.coordinator, Committed((attempt,)))


def test_a_commit_that_was_not_asked_for_changes_nothing() -> None:
    script = Script(STORM, s=10)
    script.ack(2)

    assert_no_effect(script.coordinator, Committed((script.attempt(1),)))
    assert_no_effect(script.coordinator, Committed((script.attempt(2),)))


@pytest.mark.rule("txtopo.coordinator.machine", "Rules", 1, 3)
def test_a_batch_that_waits_for_a_job_cannot_fail_or_be_processed() -> None:
    script = Script(replace(STORM, jobs_max=1, window_txids=2), s=10)
    attempt = script.attempt(2)

    assert_no_effect(script.coordinator, *events_of(attempt))


def test_a_pause_that_was_not_asked_for_ends_without_effect() -> None:
    assert_no_effect(Script(STORM, s=10).coordinator, Resumed(1))


def test_a_late_tail_of_a_run_does_not_hide_its_head() -> None:
    """The rule holds for each attempt of a run."""
    settings = replace(STORM, window_txids=6, run_txids_max=3, jobs_max=1)
    script = Script(settings, s=10)
    old = script.starts[0]
    script.ack(1)
    script.fail(2)
    processed = Processed(old.attempts, old.metadata)

    assert_no_effect(script.coordinator, processed)


def test_an_opaque_end_of_an_abandoned_attempt_is_forgotten() -> None:
    """A late cut must not become the start of the next batch."""
    script = Script(OPAQUE, s=10)
    old = script.attempt(1)
    script.fail(1)

    late = Processed((old,), (of_one(10, {"0": 99}),))

    assert_no_effect(script.coordinator, late)


@pytest.mark.rule("txtopo.coordinator.machine", "Rules", 1)
def test_a_transaction_that_was_handed_out_cannot_be_changed() -> None:
    (transaction, *_) = Script(STORM, s=10).coordinator.transactions

    with pytest.raises(FrozenInstanceError):
        transaction.phase = Phase.GONE  # type: ignore[misc]
