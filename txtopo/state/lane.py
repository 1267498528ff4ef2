"""Work that a store does for itself beside the commits: folds, and the end of old files."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from txtopo.retries import warn_of_retry

SKIPPED_MAX = 1024
"""After n failures in a row the next 2^n submissions are dropped, and at most so many."""


class Lane:
    """One thread for one piece of work at a time; what comes meanwhile is dropped.

    What fails is logged and dropped as well: readers see the same, and a later commit asks again,
    the later the more often it has failed in a row. It ends no run, whatever it failed for: the
    commits are the judges of a store that refuses to be written.

    Args:
        what: What is tidied, for the log.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._closed = False
        self._failures = self._skip = 0
        self._pool: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None

    def submit(self, work: Callable[[], None]) -> None:
        """Begin with *work*, unless something is under way or the lane is closed."""
        if self._closed or (self._running is not None and not self._running.done()):
            return
        if self._skip:
            self._skip -= 1
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="txtopo-lane")
        try:
            self._running = self._pool.submit(self._guarded, work)
        except RuntimeError:
            return  # it was closed meanwhile

    def close(self) -> None:
        """Wait for what is under way, and take no more."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - nobody waits for it, and all of it may fail
            self._failures += 1
            self._skip = min(2**self._failures, SKIPPED_MAX)
            warn_of_retry(
                f"to tidy {self._what}, of which readers see the same,",
                error,
                topology=None,
                failures=self._failures,
            )
        else:
            self._failures = 0
