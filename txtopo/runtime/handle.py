"""TopologyRun: what the user holds of a running topology, after Spark's ``StreamingQuery``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout

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

    def process_all_available(self, timeout_s: float | None = None) -> None:
        """Wait until the spout has nothing left and all of it is committed.

        Raises:
            TimeoutError: The time is up; the run goes on.
            Exception: The run ended with it.
        """
        future: Future[None] = Future()
        self._post(lambda: self._driver.wait_for_rest(future), future)
        try:
            future.result(timeout_s)
        except FutureTimeout as error:
            if future.done():
                raise
            raise TimeoutError(
                f"topology {self._id!r} has not processed all that is available in {timeout_s} s; "
                f"its status is {self.status}; its last progress is {self.last_progress}"
            ) from error

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the run ends; return whether it has.

        Raises:
            Exception: The run ended with it.
        """
        try:
            error = self._driver.ended.result(timeout_s)
        except FutureTimeout:
            return False
        if error is not None:
            raise error
        return True

    def exception(self) -> Exception | None:
        """Return what the run ended with; None while it is active and after a plain stop."""
        return self._driver.ended.result() if self._driver.ended.done() else None

    def stop(self, timeout_s: float | None = None) -> None:
        """Finish the commit in hand, drop the rest, and wait until the run has ended.

        Raises:
            TimeoutError: The time is up; the run still stops.
        """
        self._driver.post(self._driver.stop)
        try:
            self._driver.ended.result(timeout_s)
        except FutureTimeout as error:
            raise TimeoutError(
                f"topology {self._id!r} did not stop in {timeout_s} s; a committer may hang"
            ) from error

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

    def _post(self, callback: Callable[[], None], future: Future[None]) -> None:
        """Post to the loop; when the run has ended meanwhile, resolve the future as it did."""
        self._driver.post(callback)

        def ended(done: Future[Exception | None]) -> None:
            if future.done():
                return
            error = done.result()
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(None)

        self._driver.ended.add_done_callback(ended)


class RecentProgress(TopologyListener):
    """Keeps the last progress of a run."""

    def __init__(self) -> None:
        self.progress: deque[Progress] = deque(maxlen=RECENT_PROGRESS_MAX)

    def on_change(self, change: Change) -> None:
        """Keep the progress of a commit."""
        if isinstance(change, BatchCommitted):
            self.progress.append(change.progress)
