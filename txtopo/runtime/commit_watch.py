"""CommitWatch: what becomes of the current commit.

Rules
-----
1. One commit is under way at a time. Events of a commit that was given up change nothing.
2. Whatever was sent to a state may be stored there, whatever the store answered. So when a commit
   fails or times out after that, the coordinator learns the bounds of what was sent, and pins them.
   The batches behind them leave the group first.
3. If nothing was sent, the batch whose committers hang fails, and the batches before it are
   committed without it.
4. A pinned group is written whole or not at all, so it is never shortened. Its time limit is the
   sum of its batches' limits. Any other group has the limit of one batch, since it could have been
   smaller.
5. A commit is never empty: when its first batch fails, that batch alone is the commit that failed.
6. No I/O, clock, thread or random number is used here. Each event has one method, which returns
   what to do, in order. Equal events give equal answers.

Theory of operation
-------------------
A worker runs the commit phase (:mod:`txtopo.runtime.commit_phase`) and records its progress
(:mod:`txtopo.runtime.commit_progress`). The loop acts when the worker returns, when the commit
times out, or when the coordinator has abandoned its attempts. Whichever comes first decides. User
code that may write elsewhere waits for its turn first (:mod:`txtopo.runtime.commit_permit`); the
time limit of the commit includes that wait.

The table, as a diagram. A test compares the two. ::

    IDLE     --STARTED--> WAITING
    WAITING  --TURN_CAME--> RUNNING
    WAITING  --TIMED_OUT, GIVEN_UP--> IDLE
    RUNNING  --RETURNED--> RETURNED
    RUNNING  --FAILED, TIMED_OUT, GIVEN_UP--> IDLE
    RETURNED --COMMITTED, GIVEN_UP--> IDLE

A commit that has returned stays the current one until the coordinator has handled its outcome. The
failure of a batch behind the written ones is reported first. A commit of which no batch was written
is given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from txtopo.attempt import TransactionAttempt, txids_text
from txtopo.coordinator.protocol import (
    CommitShortened,
    Failed,
    Failure,
    FailureKind,
    StartCommit,
)

COMMITTERS_SHARE = 0.25
"""The share of ``batch_timeout_s`` after which no further batch is added to a group. The rest is
for the committers of the last batch and for the stores."""


class WatchStatus(Enum):
    """The status of the current commit."""

    IDLE = auto()
    """There is no current commit."""
    WAITING = auto()
    """It waits for the user code of an earlier commit to return."""
    RUNNING = auto()
    """Its committers run, or its states are written."""
    RETURNED = auto()
    """The worker has returned, but the coordinator has not handled the whole outcome."""


class WatchEvent(Enum):
    """What changes the status of the current commit."""

    STARTED = auto()
    TURN_CAME = auto()
    RETURNED = auto()
    COMMITTED = auto()
    FAILED = auto()
    TIMED_OUT = auto()
    GIVEN_UP = auto()


AFTER: dict[tuple[WatchStatus, WatchEvent], WatchStatus] = {
    (WatchStatus.IDLE, WatchEvent.STARTED): WatchStatus.WAITING,
    (WatchStatus.WAITING, WatchEvent.TURN_CAME): WatchStatus.RUNNING,
    (WatchStatus.WAITING, WatchEvent.TIMED_OUT): WatchStatus.IDLE,
    (WatchStatus.WAITING, WatchEvent.GIVEN_UP): WatchStatus.IDLE,
    (WatchStatus.RUNNING, WatchEvent.RETURNED): WatchStatus.RETURNED,
    (WatchStatus.RUNNING, WatchEvent.FAILED): WatchStatus.IDLE,
    (WatchStatus.RUNNING, WatchEvent.TIMED_OUT): WatchStatus.IDLE,
    (WatchStatus.RUNNING, WatchEvent.GIVEN_UP): WatchStatus.IDLE,
    (WatchStatus.RETURNED, WatchEvent.COMMITTED): WatchStatus.IDLE,
    (WatchStatus.RETURNED, WatchEvent.GIVEN_UP): WatchStatus.IDLE,
}


# ---------------------------------------------------------------- what to do


@dataclass(frozen=True, slots=True)
class CancelCommit:
    """Cancel the jobs with this tag, and refuse all further steps of the worker."""

    tag: str


@dataclass(frozen=True, slots=True)
class TellCommitted:
    """All states hold these attempts: call :meth:`CommitWatch.committed`, tell the coordinator."""

    attempts: tuple[TransactionAttempt, ...]


Step = CancelCommit | CommitShortened | Failed | TellCommitted | StartCommit
"""``CommitShortened`` and ``Failed`` are events for the coordinator; ``StartCommit`` starts a
commit of the remaining batches."""


@dataclass(frozen=True, slots=True)
class WatchedCommit:
    """A commit that was started. Two commits of equal attempts are two objects.

    Attributes:
        action: What the coordinator asked for.
        tag: Tag of its jobs.
        limit_s: How long it may take.
        committers_s: After how long no further batch is added to a group that is not pinned.
    """

    action: StartCommit
    tag: str
    limit_s: float
    committers_s: float

    @property
    def attempts(self) -> tuple[TransactionAttempt, ...]:
        """The attempts of its group."""
        return self.action.attempts


class CommitWatch:
    """Watches the commits of one term, one at a time.

    Who calls it: the loop of the term. It carries out the returned steps in order.

    Args:
        timeout_s: How long a batch may take.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._status = WatchStatus.IDLE
        self._commit: WatchedCommit | None = None

    @property
    def status(self) -> WatchStatus:
        """The status of the current commit."""
        return self._status

    @property
    def commit(self) -> WatchedCommit | None:
        """The current commit, if one is under way."""
        return self._commit

    def start(self, action: StartCommit, tag: str) -> WatchedCommit:
        """Make a commit the current one. It waits for its turn, which may come at once."""
        assert self._commit is None, "one commit is under way at a time"
        limit_s = self._timeout_s * (len(action.attempts) if action.pinned else 1)
        commit = WatchedCommit(action, tag, limit_s, self._timeout_s * COMMITTERS_SHARE)
        self._move(AFTER[self._status, WatchEvent.STARTED], commit)
        return commit

    def turn_came(self, commit: WatchedCommit) -> bool:
        """Return whether a commit may run now; False if it was given up while it waited."""
        return self._takes(commit, WatchEvent.TURN_CAME)

    def returned(
        self, commit: WatchedCommit, written: int, failed: Failed | None
    ) -> Sequence[Step]:
        """Return the steps after the worker has returned.

        Args:
            commit: The commit.
            written: How many of its batches are in all states, from the first on.
            failed: The failure of the next batch, if its user code failed.
        """
        if not self._takes(commit, WatchEvent.RETURNED):
            return []
        steps: list[Step] = []
        if (left := commit.attempts[max(1, written) :]) and not commit.action.pinned:
            steps += [CommitShortened(left)]
        if failed is not None:
            steps += [failed]
        if written:
            steps += [TellCommitted(commit.attempts[:written])]
        return checked(commit, steps)

    def committed(self, commit: WatchedCommit) -> None:
        """Record that a commit is done, right before the coordinator hears of it."""
        self._takes(commit, WatchEvent.COMMITTED)

    def failed(self, commit: WatchedCommit, failure: Failure, sent: int) -> Sequence[Step]:
        """Give the commit up after an error of a store or of the cluster; return the steps.

        Args:
            commit: The commit.
            failure: Why it failed.
            sent: How many of its batches a state was asked to write.
        """
        if not self._takes(commit, WatchEvent.FAILED):
            return []
        return checked(commit, [CancelCommit(commit.tag), *told_as_sent(commit, failure, sent)])

    def timed_out(self, commit: WatchedCommit, batch: int, sent: int) -> Sequence[Step]:
        """Give the commit up because its time limit has passed; return the steps.

        Args:
            commit: The commit.
            batch: Index of the batch whose committers run, if nothing was sent.
            sent: How many of its batches a state was asked to write.
        """
        if not self._takes(commit, WatchEvent.TIMED_OUT):
            return []
        failure = Failure(FailureKind.COUNTED, TimeoutError(too_late(commit, batch, sent)))
        cancel = CancelCommit(commit.tag)
        if sent:
            return checked(commit, [cancel, *told_as_sent(commit, failure, sent)])
        failed = Failed(commit.attempts[batch], failure, unsent=True)
        before = () if commit.action.pinned else commit.attempts[:batch]
        if not before:
            return checked(commit, [cancel, failed])
        # The batches before it have done nothing wrong, and no state was asked to write them.
        shortened = CommitShortened(commit.attempts[batch:])
        again = replace(commit.action, attempts=before)
        return checked(commit, [cancel, shortened, failed, again])

    def give_up(self) -> Sequence[Step]:
        """Give the current commit up, if there is one; return the steps."""
        if (commit := self._commit) is None:
            return []
        self._move(AFTER[self._status, WatchEvent.GIVEN_UP], None)
        return [CancelCommit(commit.tag)]

    def _takes(self, commit: WatchedCommit, event: WatchEvent) -> bool:
        """Move to the next status, and return True, if *commit* is current and expects *event*."""
        after = AFTER.get((self._status, event)) if commit is self._commit else None
        if after is None:
            return False
        self._move(after, None if after is WatchStatus.IDLE else commit)
        return True

    def _move(self, status: WatchStatus, commit: WatchedCommit | None) -> None:
        self._status, self._commit = status, commit
        assert (commit is None) == (self._status is WatchStatus.IDLE), (
            "a status is that of a commit"
        )


def told_as_sent(commit: WatchedCommit, failure: Failure, sent: int) -> list[Step]:
    """Return the events for the coordinator after a commit failed, with the bounds of its write."""
    steps: list[Step] = []
    if sent and (left := commit.attempts[sent:]):
        steps += [CommitShortened(left)]
    return [*steps, Failed(commit.attempts[0], failure, unsent=not sent)]


def too_late(commit: WatchedCommit, batch: int, sent: int) -> str:
    """Return the message of a commit that took too long."""
    first = commit.attempts[0 if sent else batch].txid
    return (
        f"the commit of {txids_text(first, first + max(0, sent - 1))} did not end in "
        f"{commit.limit_s:g} s; check for a {'store' if sent else 'committer'} that hangs, or "
        "raise batch_timeout_s"
    )


def checked(commit: WatchedCommit, steps: list[Step]) -> list[Step]:
    """Check what holds for all steps. A breach is a bug of ours, so these are assertions."""
    shortened = [each for each in steps if isinstance(each, CommitShortened)]
    assert not (commit.action.pinned and shortened), "a pinned group is not shortened"
    for each in shortened:
        assert commit.attempts[0] not in each.attempts, "a commit is never empty"
        assert commit.attempts[-1] in each.attempts, "a group is shortened at its end"
    return steps
