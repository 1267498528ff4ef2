"""Work that a store does for itself beside the commits: folds, and the end of old files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

_log = logging.getLogger(__name__)


class Lane:
    """One thread for one piece of work at a time; what comes meanwhile is dropped.

    What fails is logged and dropped as well: readers see the same, and a later commit asks again.

    Args:
        what: What is tidied, for the log.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._closed = False
        self._pool: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None

    def submit(self, work: Callable[[], None]) -> None:
        """Begin with *work*, unless something is under way or the lane is closed."""
        if self._closed or (self._running is not None and not self._running.done()):
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
            _log.warning(
                "%s was not tidied: %s: %s; readers see the same, and a later commit tries again",
                self._what,
                type(error).__name__,
                error,
            )
