"""CommitProgress: what the worker of a commit has begun, for the loop that may give it up.

A commit runs on a thread of its own, for as long as its committers and stores take. Before each
step the worker asks whether the step is still wanted. When the loop gives the commit up, it asks
how far the worker is. The two questions may come at the same moment, so each of them is one step
under the lock of the record: either the step of the worker was noted before the commit was given
up, or it is refused. So if nothing is noted as sent, nothing was sent and nothing will be.

The record belongs to one commit: the loop makes it, and hands it to the worker with the commit. The
lock is held for a few assignments only, never while anything waits.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a commit is.

    Attributes:
        batch: Index of the batch whose committers run, or ran last.
        sent: How many batches are in the write that a state was asked for last; 0 if no state was
            asked for one.
    """

    batch: int = 0
    sent: int = 0


class CommitProgress:
    """The progress of one commit. All methods may be called on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reached = Reached()
        self._wanted = True

    def wanted(self) -> bool:
        """Return whether the commit is still wanted."""
        with self._lock:
            return self._wanted

    def calls(self, batch: int) -> bool:
        """Note that the committers of a batch are about to run, and return whether they may."""
        with self._lock:
            if self._wanted:
                self._reached = Reached(batch, self._reached.sent)
            return self._wanted

    def sends(self, batches: int) -> bool:
        """Note that a state is about to get so many batches, and return whether it may."""
        with self._lock:
            if self._wanted:
                self._reached = Reached(self._reached.batch, batches)
            return self._wanted

    def close(self) -> Reached:
        """Refuse all further steps, and return how far the commit is."""
        with self._lock:
            self._wanted = False
            return self._reached
