"""RunHandle: what both kinds of run have in common for those who hold them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from txtopo.errors import StateUsageError
from txtopo.runtime.progress import Change, TopologyListener

RECENT_PROGRESS_MAX = 100
P = TypeVar("P")
Q = TypeVar("Q", covariant=True)


class RunDriver(Protocol):
    """The loop of a run, as its handle uses it."""

    @property
    def status(self) -> str:
        """One word on how it stands."""
        ...

    @property
    def ended(self) -> Future[Exception | None]:
        """Done when the run has ended, with what it ended with."""
        ...

    def post(self, callback: Callable[[], None]) -> None:
        """Do something on the loop."""
        ...

    def on_loop(self) -> bool:
        """Whether the caller is on a thread that waits would hold up."""
        ...

    def wait_for_rest(self, future: Future[None]) -> None:
        """Settle *future* at rest."""
        ...

    def stop(self) -> None:
        """Begin to end."""
        ...

    def set_active(self, active: bool) -> None:
        """Go on, or pause."""
        ...


class Progressing(Protocol[Q]):
    """A change that tells a progress."""

    @property
    def progress(self) -> Q:
        """The progress."""
        ...


class RunHandle(Generic[P]):
    """A running topology. All methods may be called from any thread.

    Attributes:
        hangs: What may hang when a run does not stop, for the message.
        callers: Who must not wait for the run, and where they are, for the message.
    """

    hangs: ClassVar[str]
    callers: ClassVar[str]

    def __init__(self, id: str, driver: RunDriver, recent: RecentProgress[P]) -> None:
        self._id = id
        self._driver = driver
        self._recent = recent

    @property
    def id(self) -> str:
        """Id of the topology."""
        return self._id

    @property
    def status(self) -> str:
        """One word on how the run stands."""
        return self._driver.status

    @property
    def is_active(self) -> bool:
        """Whether the run has not ended."""
        return not self._driver.ended.done()

    @property
    def last_progress(self) -> P | None:
        """The last progress, or None before the first."""
        return self._recent.progress[-1] if self._recent.progress else None

    @property
    def recent_progress(self) -> list[P]:
        """The last progresses, oldest first."""
        return list(self._recent.progress)

    def process_all_available(self, timeout: float | None = None) -> None:
        """Wait until the spouts have nothing left and all of it is done.

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
        """End the run, and wait until it has ended.

        Called on a thread that this would wait for, it does not wait.

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
                f"topology {self._id!r} did not stop in {timeout} s; {self.hangs} may hang"
            ) from error

    def deactivate(self) -> None:
        """Take nothing new; what is in flight goes to its end (Storm ``deactivate``)."""
        self._driver.post(lambda: self._driver.set_active(False))

    def activate(self) -> None:
        """Go on."""
        self._driver.post(lambda: self._driver.set_active(True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _refuse_on_loop(self, method: str) -> None:
        if self._driver.on_loop():
            raise StateUsageError(
                f"{method} was called by {self.callers} that it would wait for; "
                "call it from another thread"
            )


class RecentProgress(TopologyListener, Generic[P]):
    """Keeps the last progresses of a run.

    Args:
        told: The change that tells one.
    """

    def __init__(self, told: type[Progressing[P]]) -> None:
        self._told = told
        self.progress: deque[P] = deque(maxlen=RECENT_PROGRESS_MAX)

    def on_change(self, change: Change) -> None:
        """Keep a progress."""
        if isinstance(change, self._told):
            self.progress.append(change.progress)
