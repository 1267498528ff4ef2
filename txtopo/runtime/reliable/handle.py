"""ReliableRun: what the user holds of a running at-least-once topology."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout

from txtopo.errors import StateUsageError
from txtopo.runtime.progress import Change, TopologyListener
from txtopo.runtime.reliable.driver import ReliableDriver
from txtopo.runtime.reliable.progress import Progressed, ReliableProgress

RECENT_PROGRESS_MAX = 100


class ReliableRun:
    """A running at-least-once topology. All methods may be called from any thread.

    The same as :class:`~txtopo.runtime.handle.TopologyRun`, the handle of a transactional one.

    Example:
        >>> run = topology.start(config=Config(carrier="local", max_spout_pending=1000))
        >>> run.process_all_available()
        >>> run.last_progress.acked
        >>> run.stop()
    """

    def __init__(self, id: str, driver: ReliableDriver, recent: RecentReliableProgress) -> None:
        self._id = id
        self._driver = driver
        self._recent = recent

    @property
    def id(self) -> str:
        """Id of the topology."""
        return self._id

    @property
    def status(self) -> str:
        """One of starting, running, deactivated, stopping, stopped, failed."""
        return self._driver.status

    @property
    def is_active(self) -> bool:
        """Whether the run has not ended."""
        return not self._driver.ended.done()

    @property
    def last_progress(self) -> ReliableProgress | None:
        """The last progress, told each second, at rest and at the end; None before the first."""
        return self._recent.progress[-1] if self._recent.progress else None

    @property
    def recent_progress(self) -> list[ReliableProgress]:
        """The last progresses, oldest first."""
        return list(self._recent.progress)

    def process_all_available(self, timeout: float | None = None) -> None:
        """Wait until the spouts have nothing left and every tree has ended.

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
        """Close spouts and bolts, drop what is under way, and wait until the run has ended.

        What was not acked is still with the source. Called by a listener, spout or bolt it does not
        wait.

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
                f"topology {self._id!r} did not stop in {timeout} s; a spout or bolt may hang"
            ) from error

    def deactivate(self) -> None:
        """Emit no new tuples; what is pending is processed and acked (Storm ``deactivate``)."""
        self._driver.post(lambda: self._driver.set_active(False))

    def activate(self) -> None:
        """Emit again; a run that was started inactive is set up only now."""
        self._driver.post(lambda: self._driver.set_active(True))

    def __enter__(self) -> ReliableRun:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _refuse_on_loop(self, method: str) -> None:
        if self._driver.on_loop():
            raise StateUsageError(
                f"{method} was called by a listener, a spout or a bolt, on a thread that it would "
                "wait for; "
                "call it from another thread"
            )


class RecentReliableProgress(TopologyListener):
    """Keeps the last progresses of a run."""

    def __init__(self) -> None:
        self.progress: deque[ReliableProgress] = deque(maxlen=RECENT_PROGRESS_MAX)

    def on_change(self, change: Change) -> None:
        """Keep a progress."""
        if isinstance(change, Progressed):
            self.progress.append(change.progress)
