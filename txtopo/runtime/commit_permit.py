"""How a leader checks that it still leads, before user code writes to a database of its own.

A state refuses writes of a deposed leader, since its ledger holds the epoch. Other databases do
not. So the leader confirms its epoch in ZooKeeper right before each call that may write to one
(:mod:`txtopo.topology.elsewhere`), and works on one txid at a time.

Rules
-----
1. An answer is valid from the moment at which the question was sent. ZooKeeper heard of this
   process then or later, so the session lasts at least for the negotiated timeout after it.
2. An answer is valid for a third of that time, by this process's own clock, which only goes
   forward. So a leader that hears nothing from ZooKeeper gives up before another can be elected.
3. A process runs the user code of one commit at a time, even across terms: a commit begins after
   the user code of the previous one has returned. The stores of the previous one may still be
   writing, since their ledgers refuse late writes.

One gap remains: a process may freeze between its question and the write of the user's code, and
continue after another one has taken over. Only the database can refuse that write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from txtopo.errors import CoordinatorUnavailable, RunLostError
from txtopo.stages.permits import NotPermitted

if TYPE_CHECKING:
    from txtopo.attempt import TransactionAttempt
    from txtopo.ensemble.journal import Journal

COUNTS_SHARE = 1 / 3
"""The share of the session's time for which an answer is valid. kazoo considers a connection lost
after two thirds. A server may end a session one of its ticks late, but never early."""

COUNTS_S = 1.0
"""How long an answer is valid if the ensemble does not tell how long a session lasts."""

ASKS_MAX = 3
"""How often ZooKeeper is asked in a row if each answer comes too late to be valid."""


class CommitPermit:
    """The permit of one attempt; see :class:`~txtopo.stages.permits.Permit`.

    Args:
        attempt: The attempt.
        journal: The journal of the term.
        now: Returns the time on a clock that only goes forward.
        wanted: Returns whether the attempt is still current.
        given_back: Called once when all user code has returned, on the thread of the commit.
    """

    def __init__(
        self,
        attempt: TransactionAttempt,
        journal: Journal,
        now: Callable[[], float],
        wanted: Callable[[], bool],
        given_back: Callable[[], None],
    ) -> None:
        self._attempt, self._journal = attempt, journal
        self._now, self._wanted = now, wanted
        self._given_back: Callable[[], None] | None = given_back
        session_s = journal.session_s
        self._counts_s = COUNTS_S if session_s is None else session_s * COUNTS_SHARE
        self._until_s: float | None = None

    def ask(self) -> None:
        """Confirm the epoch in ZooKeeper. Blocks.

        Raises:
            NotPermitted: This leader was deposed, the attempt was abandoned, or ZooKeeper did not
                answer in time.
        """
        for _ in range(ASKS_MAX):
            self._check_wanted()
            asked_s = self._now()
            try:
                self._journal.confirm()
            except Exception as error:
                raise NotPermitted(error) from error
            self._until_s = asked_s + self._counts_s
            if self._counts:
                self._check_wanted()
                return
        raise NotPermitted(self._too_late())

    def look(self) -> None:
        """Ask again if the last answer is no longer valid."""
        if not self._counts:
            self.ask()
        self._check_wanted()

    def check(self) -> None:
        """Check the last answer without asking.

        Raises:
            NotPermitted: The answer is no longer valid, or the attempt was abandoned.
        """
        self._check_wanted()
        if not self._counts:
            raise NotPermitted(self._too_late())

    def give_back(self) -> None:
        """Let the next commit begin. A second call does nothing."""
        given_back, self._given_back = self._given_back, None
        if given_back is not None:
            given_back()

    @property
    def _counts(self) -> bool:
        return self._until_s is not None and self._now() < self._until_s

    def _too_late(self) -> CoordinatorUnavailable:
        return CoordinatorUnavailable(
            "the last answer of zookeeper is too old to prove that this process leads; got none "
            f"within {self._counts_s:g} s; expected one right before user code commits "
            f"{self._attempt}; check the load of zookeeper and of this machine",
            txid=self._attempt.txid,
            limit_s=self._counts_s,
        )

    def _check_wanted(self) -> None:
        if not self._wanted():
            text = f"attempt {self._attempt} was abandoned during its commit phase"
            raise NotPermitted(RunLostError(text))


class CommitTurns:
    """Lets the user code of one commit run at a time, across terms. Used on the loop only."""

    def __init__(self) -> None:
        self._taken = False
        self._next: Callable[[], None] | None = None

    def take(self, begin: Callable[[], None]) -> None:
        """Call *begin* now, or when the commit that has the turn leaves it.

        *begin* must lead to a call of :meth:`leave`. If several commits wait, only the last one
        begins: the others were given up.
        """
        if self._taken:
            self._next = begin
            return
        self._taken = True
        begin()

    def leave(self) -> None:
        """End a turn, and let the next commit begin."""
        self._taken, begin, self._next = False, self._next, None
        if begin is not None:
            self.take(begin)
