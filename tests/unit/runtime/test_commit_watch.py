"""The watch over a commit: what becomes of a group that returns, fails or takes too long."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.harness.diagrams import drawn
from txtopo.attempt import TransactionAttempt
from txtopo.coordinator.protocol import (
    CommitShortened,
    Failed,
    Failure,
    FailureKind,
    StartCommit,
)
from txtopo.errors import FailedException, StoreUnavailable
from txtopo.runtime import commit_watch
from txtopo.runtime.commit_watch import (
    AFTER,
    CancelCommit,
    CommitWatch,
    Step,
    TellCommitted,
    WatchedCommit,
    WatchEvent,
    WatchStatus,
)

ONE, TWO, THREE = GROUP = tuple(TransactionAttempt(txid, 0, 1) for txid in (1, 2, 3))
CANCEL = CancelCommit("tag")
AWAY = Failure(FailureKind.INFRASTRUCTURE, StoreUnavailable("the store is away"))
REFUSED = Failure(FailureKind.COUNTED, FailedException("no"), "bolt")


class Watched:
    """A watch with a commit of three batches under way."""

    def __init__(self, *, pinned: bool = False, turn: bool = True) -> None:
        self.watch = CommitWatch(timeout_s=10.0)
        self.action = StartCommit(GROUP, pinned)
        self.commit: WatchedCommit = self.watch.start(self.action, "tag")
        if turn:
            assert self.watch.turn_came(self.commit)

    def returned(self, written: int, failed: TransactionAttempt | None = None) -> Sequence[Step]:
        lost = None if failed is None else Failed(failed, REFUSED, unsent=True)
        return self.watch.returned(self.commit, written, lost)

    def timed_out(self, *, batch: int = 0, sent: int = 0) -> Sequence[Step]:
        return self.watch.timed_out(self.commit, batch, sent)


def text_of(steps: Sequence[Step]) -> str:
    """Return the text of the failure in some steps."""
    (failed,) = [each for each in steps if isinstance(each, Failed)]
    return str(failed.failure.error)


def without_failures(steps: Sequence[Step]) -> list[object]:
    """Return some steps with the attempt and the pin instead of each failure."""
    return [
        (each.attempt, "unsent" if each.unsent else "sent") if isinstance(each, Failed) else each
        for each in steps
    ]


def test_the_diagram_in_the_header_is_the_table() -> None:
    diagram = drawn(AFTER)

    assert diagram in (commit_watch.__doc__ or ""), f"put this into the header:\n{diagram}"


# ---------------------------------------------------------------- the worker returns


def test_a_group_that_every_state_has_is_told_and_then_nothing_is_under_way() -> None:
    one = Watched()

    assert one.returned(3) == [TellCommitted(GROUP)]
    assert one.watch.commit is one.commit
    one.watch.committed(one.commit)
    assert one.watch.commit is None


RETURNS: list[tuple[str, int, TransactionAttempt | None, list[object]]] = [
    ("it was cut short", 2, None, [CommitShortened((THREE,)), TellCommitted((ONE, TWO))]),
    (
        "its second batch fails",
        1,
        TWO,
        [CommitShortened((TWO, THREE)), (TWO, "unsent"), TellCommitted((ONE,))],
    ),
    ("its first batch fails", 0, ONE, [CommitShortened((TWO, THREE)), (ONE, "unsent")]),
    ("its last batch fails", 2, THREE, [CommitShortened((THREE,)), (THREE, "unsent")]),
]


@pytest.mark.parametrize(
    ("written", "failed", "expected"),
    [each[1:] for each in RETURNS],
    ids=[each[0] for each in RETURNS],
)
@pytest.mark.rule("txtopo.runtime.commit_watch", "Rules", 5)
def test_what_was_not_committed_leaves_the_group_first(
    written: int, failed: TransactionAttempt | None, expected: list[object]
) -> None:
    told = without_failures(Watched().returned(written, failed))

    assert told[: len(expected)] == expected


@pytest.mark.rule("txtopo.runtime.commit_watch", "Rules", 4)
def test_a_pinned_group_that_fails_is_told_whole() -> None:
    one = Watched(pinned=True)

    assert without_failures(one.returned(0, TWO)) == [(TWO, "unsent")]


def test_a_commit_of_which_nothing_was_written_is_given_up_when_that_was_told() -> None:
    one = Watched()
    one.returned(0, ONE)

    assert one.watch.give_up() == [CANCEL]
    assert one.watch.commit is None


# ---------------------------------------------------------------- it fails

FAILURES: list[tuple[str, int, list[object]]] = [
    ("nothing was sent", 0, [CANCEL, (ONE, "unsent")]),
    ("the first was sent", 1, [CANCEL, CommitShortened((TWO, THREE)), (ONE, "sent")]),
    ("two were sent", 2, [CANCEL, CommitShortened((THREE,)), (ONE, "sent")]),
    ("all were sent", 3, [CANCEL, (ONE, "sent")]),
]


@pytest.mark.parametrize(
    ("sent", "expected"), [each[1:] for each in FAILURES], ids=[each[0] for each in FAILURES]
)
@pytest.mark.rule("txtopo.runtime.commit_watch", "Rules", 2)
def test_a_commit_that_fails_is_pinned_with_the_bounds_of_what_was_sent(
    sent: int, expected: list[object]
) -> None:
    one = Watched()

    assert without_failures(one.watch.failed(one.commit, AWAY, sent)) == expected
    assert one.watch.commit is None


@pytest.mark.parametrize(
    ("sent", "expected"),
    [each[1:] for each in FAILURES[1:]],
    ids=[each[0] for each in FAILURES[1:]],
)
@pytest.mark.rule("txtopo.runtime.commit_watch", "Rules", 2)
def test_a_commit_whose_store_hangs_is_pinned_in_the_same_way(
    sent: int, expected: list[object]
) -> None:
    steps = Watched().timed_out(batch=2, sent=sent)

    assert without_failures(steps) == expected
    assert "a store that hangs" in text_of(steps)


# ---------------------------------------------------------------- its time is over


@pytest.mark.rule("txtopo.runtime.commit_watch", "Rules", 3)
def test_a_batch_whose_committer_hangs_is_named_and_those_before_it_are_committed() -> None:
    steps = Watched().timed_out(batch=1)

    assert without_failures(steps) == [
        CANCEL,
        CommitShortened((TWO, THREE)),
        (TWO, "unsent"),
        StartCommit((ONE,), pinned=False),
    ]
    assert text_of(steps) == (
        "the commit of txid 2 did not end in 10 s; check for a committer that hangs, or raise "
        "batch_timeout_s"
    )


@pytest.mark.rule("txtopo.runtime.commit_watch", "Rules", 3)
def test_nothing_is_before_the_first_batch() -> None:
    assert without_failures(Watched().timed_out(batch=0)) == [CANCEL, (ONE, "unsent")]


@pytest.mark.rule("txtopo.runtime.commit_watch", "Rules", 4)
def test_of_a_pinned_group_nothing_is_committed_without_the_rest() -> None:
    one = Watched(pinned=True)

    assert without_failures(one.timed_out(batch=1)) == [CANCEL, (TWO, "unsent")]


@pytest.mark.parametrize(("pinned", "limit_s"), [(False, 10.0), (True, 30.0)])
@pytest.mark.rule("txtopo.runtime.commit_watch", "Rules", 4)
def test_a_pinned_group_has_the_time_of_all_its_batches(pinned: bool, limit_s: float) -> None:
    one = Watched(pinned=pinned)

    assert (one.commit.limit_s, one.commit.committers_s) == (limit_s, 2.5)


def test_the_time_of_a_commit_includes_its_wait() -> None:
    one = Watched(turn=False)

    assert without_failures(one.timed_out()) == [CANCEL, (ONE, "unsent")]
    assert not one.watch.turn_came(one.commit)


# ---------------------------------------------------------------- what changes nothing


@pytest.mark.rule("txtopo.runtime.commit_watch", "Rules", 1)
def test_a_second_commit_waits_until_the_first_is_done() -> None:
    one = Watched()

    with pytest.raises(AssertionError, match="one commit is under way"):
        one.watch.start(one.action, "tag")


@pytest.mark.rule("txtopo.runtime.commit_watch", "Rules", 1)
def test_a_commit_that_was_given_up_is_not_heard_while_an_equal_one_is_under_way() -> None:
    one = Watched()
    one.watch.give_up()
    later = one.watch.start(one.action, "tag")
    one.watch.turn_came(later)
    assert later == one.commit

    assert not one.watch.turn_came(one.commit)
    assert one.returned(3) == []
    assert one.watch.failed(one.commit, AWAY, 3) == []
    assert one.timed_out() == []
    one.watch.committed(one.commit)
    assert one.watch.commit is later


def in_status(status: WatchStatus) -> Watched:
    one = Watched(turn=status in (WatchStatus.RUNNING, WatchStatus.RETURNED))
    if status is WatchStatus.RETURNED:
        one.returned(3)
    elif status is WatchStatus.IDLE:
        one.watch.give_up()
    assert one.watch.status is status
    return one


EVENTS: dict[WatchEvent, Callable[[Watched], object]] = {
    WatchEvent.TURN_CAME: lambda one: one.watch.turn_came(one.commit),
    WatchEvent.RETURNED: lambda one: one.returned(3),
    WatchEvent.COMMITTED: lambda one: one.watch.committed(one.commit),
    WatchEvent.FAILED: lambda one: one.watch.failed(one.commit, AWAY, 0),
    WatchEvent.TIMED_OUT: lambda one: one.timed_out(),
    WatchEvent.GIVEN_UP: lambda one: one.watch.give_up(),
}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name)
@pytest.mark.parametrize("status", WatchStatus, ids=lambda status: status.name)
@pytest.mark.rule("txtopo.runtime.commit_watch", "Rules", 1)
def test_an_event_does_what_the_table_says_and_otherwise_nothing(
    status: WatchStatus, event: WatchEvent
) -> None:
    one = in_status(status)

    answer = EVENTS[event](one)

    assert one.watch.status is AFTER.get((status, event), status)
    if (status, event) not in AFTER:
        assert not answer


@pytest.mark.rule("txtopo.runtime.commit_watch", "Rules", 6)
def test_equal_events_give_equal_answers() -> None:
    def story() -> str:
        return repr([Watched().returned(1, TWO), Watched().timed_out(batch=1)])  # errors differ

    assert story() == story()
