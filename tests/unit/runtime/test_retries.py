"""Nothing is tried again without a warning that says what, how often, why, and when again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.runs import Changes
from tests.unit.runtime.loop_world import (
    Total,
    expected,
    memory_state,
    running,
    stored,
    topology_of,
)
from tests.unit.runtime.test_outages import FlakyBackend, flaky
from txtopo import FailedException
from txtopo.ensemble.journal import Journal
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import AuthError, FencedError, PoisonBatchError, StoreUnavailable
from txtopo.log_records import CAUSE_CHARACTERS_MAX, one_line
from txtopo.plugins.stores import StateTable
from txtopo.runtime.handle import TopologyRun
from txtopo.runtime.progress import BatchCommitted, BatchFailed, BatchPlanned, TopologyEvent
from txtopo.state import State, open_state, register_backend
from txtopo.tuples import Tuple

__all__ = ["flaky"]


def said(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the attributes of each warning of a failure."""
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    return [vars(each) for each in warnings if each.name == "txtopo.runtime"]


def test_each_try_at_a_store_that_is_away_is_told_with_a_growing_pause(
    flaky: State, caplog: pytest.LogCaptureFixture
) -> None:
    FlakyBackend.script = {3: ["before"] * 4, 5: ["before"]}

    with running(topology_of(flaky), MemoryEnsemble(), group_txids_max=1) as run:
        run.process_all_available(LIMIT_S)

    warned = said(caplog)
    assert [each["txid"] for each in warned] == [3, 3, 3, 3, 5]
    assert [each["attempt"] for each in warned][:4] == [0, 1, 2, 3]
    assert [each["failures"] for each in warned] == [1, 2, 3, 4, 1]
    assert [each["pause_s"] for each in warned] == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.01])
    assert {(each["topology"], each["epoch"]) for each in warned} == {("totals", 1)}
    assert {each["cause"] for each in warned} == {"StoreUnavailable: the store is away; try again"}
    assert caplog.messages[0] == (
        "topology 'totals': attempt 0 of txid 3 failed; got StoreUnavailable: the store is away; "
        "try again; failures in a row: 1; tried again in 0.01 s"
    )


class Unlucky(Total):
    """Fails the batch that holds the amount 13, always."""

    def execute(self, tuple: Tuple) -> None:
        if tuple["amount"] == 13:
            raise FailedException("13 brings bad luck\nand more of it")
        super().execute(tuple)


def test_each_failed_attempt_is_told_and_so_is_the_end(caplog: pytest.LogCaptureFixture) -> None:
    topology = topology_of(memory_state(), Unlucky())
    changes = Changes()

    with (
        running(topology, MemoryEnsemble(), changes, attempts_max=3) as run,
        pytest.raises(PoisonBatchError),
    ):
        run.process_all_available(LIMIT_S)

    warned = said(caplog)
    assert [(each["txid"], each["attempt"], each["failures"]) for each in warned] == [
        (5, 0, 1),
        (5, 1, 2),
        (5, 2, 3),
    ]
    assert [each["pause_s"] for each in warned] == [0.01, 0.02, None]
    assert warned[2]["message"].endswith("failures in a row: 3; not tried again by this run")
    end = caplog.records[-1]
    assert (end.levelname, vars(end)["topology"]) == ("ERROR", "totals")
    assert "has ended with an error; got PoisonBatchError: batch of txid 5" in end.getMessage()
    assert [each.pause_s for each in changes.of(BatchFailed)] == [0.01, 0.02, None]
    assert {each["component"] for each in warned} == {"total"}
    assert warned[0]["cause"] == "FailedException: 13 brings bad luck; and more of it"


class UnluckyForTwentyAttempts(Unlucky):
    """Fails the batch that holds the amount 13 more often than any default allows."""

    def execute(self, tuple: Tuple) -> None:
        if self.attempt.attempt < 20:
            super().execute(tuple)
        else:
            Total.execute(self, tuple)


def test_without_a_limit_a_batch_is_replayed_until_it_succeeds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = memory_state()

    with running(
        topology_of(state, UnluckyForTwentyAttempts()),
        MemoryEnsemble(),
        attempts_max=None,
        backoff_s=0.0001,
    ) as run:
        run.process_all_available(LIMIT_S)
        progress = next(each for each in run.recent_progress if each.txid == 5)

    assert stored(state) == (12, expected())
    assert progress.failures == 20
    assert [each["failures"] for each in said(caplog)] == [*range(1, 21)]
    assert [each["pause_s"] for each in said(caplog)][:4] == [0.0001, 0.0002, 0.0004, 0.0008]


class Pausing:
    """Runs a topology whose batch of txid 5 fails and then pauses for an hour."""

    def __init__(self, *, repaired: bool = False) -> None:
        self.state, self.changes = memory_state(), Changes()
        self.topology = topology_of(self.state, RepairedUnlucky() if repaired else Unlucky())

    @contextmanager
    def run(self) -> Iterator[TopologyRun]:
        hour = {"backoff_s": 3600.0}
        with running(self.topology, MemoryEnsemble(), self.changes, **hour) as run:
            wait_until(lambda: self.changes.of(BatchFailed), "a batch has failed")
            yield run


class RepairedUnlucky(Unlucky):
    """Fails only the first attempt."""

    def execute(self, tuple: Tuple) -> None:
        if self.attempt.attempt == 0:
            super().execute(tuple)
        else:
            Total.execute(self, tuple)


def test_batches_before_one_that_pauses_are_committed() -> None:
    pausing = Pausing()

    with pausing.run():
        wait_until(lambda: pausing.changes.committed == [1, 2, 3, 4], "txids 1 to 4 are committed")


def test_a_stop_does_not_wait_for_a_pause() -> None:
    with Pausing().run() as run:
        run.stop(LIMIT_S)

        assert run.status == "stopped"


def test_a_deactivation_does_not_wait_for_a_pause() -> None:
    """It drains: what is in flight is tried again at once, and the rest is not planned."""
    pausing = Pausing(repaired=True)

    with pausing.run() as run:
        run.deactivate()
        run.process_all_available(LIMIT_S)

        planned = len(pausing.changes.of(BatchPlanned))
        assert planned >= 5
        assert stored(pausing.state) == (planned, expected(planned))


def test_each_try_to_write_to_zookeeper_is_told(caplog: pytest.LogCaptureFixture) -> None:
    state, ensemble = memory_state(), MemoryEnsemble()

    def outage(change: TopologyEvent) -> None:
        if isinstance(change, BatchCommitted) and change.progress.txid == 3:
            ensemble.reachable = False

    with running(topology_of(state), ensemble, Changes(outage), max_spout_pending=1) as run:
        while len(said(caplog)) < 4:
            assert not run.await_termination(0.01)
        ensemble.reachable = True
        run.process_all_available(LIMIT_S)

    warned = said(caplog)
    assert [each["failures"] for each in warned[:4]] == [1, 2, 3, 4]
    assert {each["txid"] for each in warned} <= {3, 4}
    assert {each["epoch"] for each in warned} == {1}
    assert all("the write to zookeeper that txid" in message for message in caplog.messages)
    assert stored(state) == (12, expected())


def test_a_lost_session_is_told_and_the_count_begins_again_with_a_commit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state, ensemble = memory_state(), MemoryEnsemble()

    def expire(change: object) -> None:
        if isinstance(change, BatchCommitted) and change.progress.txid in (3, 7):
            ensemble.expire_leader("totals")

    with running(topology_of(state), ensemble, Changes(expire), max_spout_pending=2) as run:
        run.process_all_available(LIMIT_S)

    warned = [each for each in said(caplog) if "holds the leadership" in each["message"]]
    assert [(each["epoch"], each["failures"]) for each in warned] == [(1, 1), (2, 1)]
    assert "the session of epoch 1 with zookeeper was lost" in warned[0]["cause"]


def test_a_claim_that_another_was_faster_with_is_made_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without one it would be a loop as quick as ZooKeeper answers."""
    state, claims, claim_epoch = memory_state(), [0], Journal.claim_epoch

    def claimed(journal: Journal, *arguments: Any, **more: Any) -> int:
        claims[0] += 1
        if claims[0] < 4:
            raise FencedError("another claimed at the same time")
        return claim_epoch(journal, *arguments, **more)

    monkeypatch.setattr(Journal, "claim_epoch", claimed)
    with running(topology_of(state), MemoryEnsemble()) as run:
        run.process_all_available(LIMIT_S)

    warned = [each for each in said(caplog) if "the claim of an epoch" in each["message"]]
    assert [(each["failures"], each["pause_s"]) for each in warned] == [
        (1, 0.01),
        (2, 0.02),
        (3, 0.04),
    ]


def test_what_lasts_ends_the_run_and_is_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    def refused(url: str, table: StateTable) -> FlakyBackend:
        raise AuthError("permission denied")

    register_backend("refusing", refused)
    with pytest.raises(AuthError), running(topology_of(open_state("refusing:")), MemoryEnsemble()):
        pass

    assert said(caplog) == []


def test_a_cause_is_one_line_of_a_readable_length() -> None:
    assert one_line(StoreUnavailable("a\nb")) == "StoreUnavailable: a; b"
    assert len(one_line(ValueError("x" * 10_000))) < CAUSE_CHARACTERS_MAX + 10
