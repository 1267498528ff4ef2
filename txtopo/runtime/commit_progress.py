"""CommitProgress: what the worker of a commit has begun, for the loop that may give it up.

A commit runs on its own thread, for as long as its committers and stores take. Before each step the
worker asks whether the step is still wanted. When the loop gives the commit up, it asks how far the
worker got. The two questions may come at the same moment, so each is answered under one lock: the
worker's step is either noted before the commit was given up, or refused. So if nothing is noted as
sent, nothing was sent and nothing will be.

The record belongs to one commit: the loop makes it and hands it to the worker. The lock is held for
a few assignments only, never during a wait.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a commit got.

    Attributes:
        batch: Index of the batch whose committers run, or ran last.
        sent: How many batches are in the last write that was sent to a state; 0 if none was sent.
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
        """Record that the committers of a batch are about to run, and return whether they may."""
        with self._lock:
            if self._wanted:
                self._reached = Reached(batch, self._reached.sent)
            return self._wanted

    def sends(self, batches: int) -> bool:
        """Record that *batches* batches are about to be sent to a state; return if they may."""
        with self._lock:
            if self._wanted:
                self._reached = Reached(self._reached.batch, batches)
            return self._wanted

    def close(self) -> Reached:
        """Refuse all further steps, and return how far the commit got."""
        with self._lock:
            self._wanted = False
            return self._reached
