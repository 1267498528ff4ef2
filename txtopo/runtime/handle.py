"""RunHandle: what both kinds of run have in common for those who hold them.

TopologyRun: what the user holds of a running topology, after Spark's ``StreamingQuery``.

ReliableRun: what the user holds of a running at-least-once topology.

Waiters: threads that wait until everything available is committed.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from txtopo.errors import StateUsageError
from txtopo.runtime.progress import Progress, ReliableProgress, TopologyEvent, TopologyListener

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

    def on_change(self, change: TopologyEvent) -> None:
        """Keep a progress."""
        if isinstance(change, self._told):
            self.progress.append(change.progress)


class TopologyRun(RunHandle[Progress]):
    """A running topology. All methods may be called from any thread.

    ``status`` is one of starting, standby, running, deactivated, leadership lost, stopping,
    stopped, failed. There is a progress after each commit. ``process_all_available`` waits until
    the spout has nothing left and all of it is committed; ``stop`` finishes the commit in hand and
    drops the rest; ``deactivate`` plans no new batches, and what is in flight is committed.

    Example:
        >>> run = topology.start(spark, Config(max_spout_pending=4))
        >>> run.process_all_available()
        >>> run.stop()
    """

    hangs: ClassVar[str] = "a committer"
    callers: ClassVar[str] = "a listener, on the loop"

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


class ReliableRun(RunHandle[ReliableProgress]):
    """A running at-least-once topology. All methods may be called from any thread.

    ``status`` is one of starting, running, deactivated, stopping, stopped, failed. A progress is
    told each second, at rest and at the end. ``process_all_available`` waits until the spouts have
    nothing left and every tree has ended; ``stop`` closes spouts and bolts and drops what is under
    way: what was not acked is still with the source. ``deactivate`` emits no new tuples, and what
    is pending is processed and acked; ``activate`` sets a run up that was started inactive.

    Example:
        >>> run = topology.start(config=Config(carrier="local", max_spout_pending=1000))
        >>> run.process_all_available()
        >>> run.last_progress.acked
        >>> run.stop()
    """

    hangs: ClassVar[str] = "a spout or bolt"
    callers: ClassVar[str] = "a listener, a spout or a bolt, on a thread"


class Resting(Protocol):
    """What can be at rest: a term, or an at-least-once run."""

    @property
    def at_rest(self) -> bool:
        """Whether nothing is in flight."""
        ...

    @property
    def asks(self) -> int:
        """Number of the last time that a spout was asked for more."""
        ...

    @property
    def dry_ask(self) -> int:
        """Number of the last time that it had nothing."""
        ...


@dataclass(slots=True)
class _Waiter:
    future: Future[None]
    asks_before: int


class IdleWaiters:
    """Resolves futures when a term, or an at-least-once run, is at rest. Used on the loop only.

    What was available when the waiting began must have been seen, so the spout has to be asked once
    more, with nothing in flight, and say that it has nothing.
    """

    def __init__(self) -> None:
        self._waiting: list[_Waiter] = []

    @property
    def waiting(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    def add(self, future: Future[None], term: Resting | None) -> None:
        """Take in a future; *term* is the one that runs now, if any."""
        self._waiting.append(_Waiter(future, term.asks if term else 0))

    def begin(self) -> None:
        """Take note of a new term, which counts anew."""
        for waiter in self._waiting:
            waiter.asks_before = 0

    def resolve(self, term: Resting | None, *, active: bool) -> None:
        """Resolve what can be; a deactivated run need only have nothing in flight."""
        if term is None or not self._waiting or not term.at_rest:
            return
        ready = [w for w in self._waiting if not active or term.dry_ask > w.asks_before]
        self._waiting = [w for w in self._waiting if w not in ready and not w.future.done()]
        for waiter in ready:
            _set(waiter.future, None)

    def end(self, error: Exception | None) -> None:
        """Resolve all: the run has ended."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            _set(waiter.future, error)


def _set(future: Future[None], error: Exception | None) -> None:
    """Resolve a future, unless whoever waited has given up."""
    with suppress(InvalidStateError):
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(None)
