"""TopologyRun: what the user holds of a running topology, after Spark's ``StreamingQuery``."""

from __future__ import annotations

import signal
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from types import FrameType

from txtopo.errors import StateUsageError
from txtopo.runtime.driver import TopologyDriver
from txtopo.runtime.progress import BatchCommitted, Change, Progress, TopologyListener

RECENT_PROGRESS_MAX = 100


class TopologyRun:
    """A running topology. All methods may be called from any thread.

    Example:
        >>> run = topology.start(spark, Config(max_spout_pending=4))
        >>> run.process_all_available()
        >>> run.stop()
    """

    def __init__(self, id: str, driver: TopologyDriver, recent: RecentProgress) -> None:
        self._id = id
        self._driver = driver
        self._recent = recent

    @property
    def id(self) -> str:
        """Id of the topology."""
        return self._id

    @property
    def status(self) -> str:
        """One of starting, standby, running, deactivated, leadership lost, stopping, stopped,
        failed."""
        return self._driver.status

    @property
    def is_active(self) -> bool:
        """Whether the run has not ended."""
        return not self._driver.ended.done()

    @property
    def last_progress(self) -> Progress | None:
        """The progress after the last commit of this run, or None."""
        return self._recent.progress[-1] if self._recent.progress else None

    @property
    def recent_progress(self) -> list[Progress]:
        """The progress after the last commits, oldest first."""
        return list(self._recent.progress)

    def process_all_available(self, timeout: float | None = None) -> None:
        """Wait until the spout has nothing left and all of it is committed.

        Args:
            timeout: Seconds to wait at the most; None for as long as it takes.

        Raises:
            TimeoutError: The time is up; the run goes on.
            Exception: The run ended with it.
        """
        self._refuse_on_loop("process_all_available")
        future: Future[None] = Future()
        self._driver.post(lambda: self._driver.wait_for_rest(future))
        if self._driver.ended.done():
            # Perhaps nobody hears what is posted now.
            self.await_termination()
            return
        try:
            future.result(timeout)
        except FutureTimeout as error:
            if not future.cancel():
                raise
            raise TimeoutError(
                f"topology {self._id!r} has not processed all that is available in {timeout} s; "
                f"its status is {self.status}; its last progress is {self.last_progress}"
            ) from error

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the run ends; return whether it has.

        Args:
            timeout: Seconds to wait at the most; None for as long as it takes.

        Raises:
            Exception: The run ended with it.
        """
        self._refuse_on_loop("await_termination")
        try:
            error = self._driver.ended.result(timeout)
        except FutureTimeout:
            return False
        if error is not None:
            raise error
        return True

    def exception(self) -> Exception | None:
        """Return what the run ended with; None while it is active and after a plain stop."""
        return self._driver.ended.result() if self._driver.ended.done() else None

    def stop(self, timeout: float | None = None) -> None:
        """Finish the commit in hand, drop the rest, and wait until the run has ended.

        Called by a listener it does not wait.

        Args:
            timeout: Seconds to wait at the most; None for as long as it takes.

        Raises:
            TimeoutError: The time is up; the run still stops.
        """
        self._driver.post(self._driver.stop)
        if self._driver.on_loop():
            return
        try:
            self._driver.ended.result(timeout)
        except FutureTimeout as error:
            raise TimeoutError(
                f"topology {self._id!r} did not stop in {timeout} s; a committer may hang"
            ) from error

    def stop_on(self, *numbers: signal.Signals) -> None:
        """Let signals stop the run as :meth:`stop` does, without waiting.

        Called once by the main thread, before it waits for the end:
        ``run.stop_on(signal.SIGTERM, signal.SIGINT)``, then ``run.await_termination()``, which
        returns when the commit in hand is done. The first signal gives the handler back that was
        there before, so that a second one ends a process whose committer hangs.

        Raises:
            ValueError: Called by another thread; Python handles signals in the main thread only.
        """
        before = {number: signal.getsignal(number) for number in numbers}

        def stop(received: int, frame: FrameType | None) -> None:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._driver.post(self._driver.stop)

        for number in numbers:
            signal.signal(number, stop)

    def deactivate(self) -> None:
        """Plan no new batches; what is in flight is committed (Storm ``deactivate``)."""
        self._driver.post(lambda: self._driver.set_active(False))

    def activate(self) -> None:
        """Plan new batches again."""
        self._driver.post(lambda: self._driver.set_active(True))

    def __enter__(self) -> TopologyRun:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _refuse_on_loop(self, method: str) -> None:
        if self._driver.on_loop():
            raise StateUsageError(
                f"{method} was called by a listener, on the loop that it would wait for; "
                "call it from another thread"
            )


class RecentProgress(TopologyListener):
    """Keeps the last progress of a run."""

    def __init__(self) -> None:
        self.progress: deque[Progress] = deque(maxlen=RECENT_PROGRESS_MAX)

    def on_change(self, change: Change) -> None:
        """Keep the progress of a commit."""
        if isinstance(change, BatchCommitted):
            self.progress.append(change.progress)
