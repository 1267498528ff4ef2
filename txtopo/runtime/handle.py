"""Handles: how users wait for, stop and look at a running topology.

``topology.start()`` returns one, as Spark returns a ``StreamingQuery``.
"""

from __future__ import annotations

import math
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from txtopo.clock import now
from txtopo.errors import StateUsageError
from txtopo.notebook import html_of
from txtopo.runtime.progress import Progress, ReliableProgress, TopologyEvent, TopologyListener
from txtopo.runtime.watching import Figures, WatchedRun, Watcher

if TYPE_CHECKING:
    from txtopo.runtime.needs import SilentServer

RECENT_PROGRESS_MAX = 100

SLICE_S = 1.0
"""The longest time for which a caller waits without a look at its signals; see :func:`done_in`."""

P = TypeVar("P")

Q = TypeVar("Q", covariant=True)


class RunHandle(Generic[P]):
    """A running topology. All methods may be called from any thread.

    Attributes:
        hangs: Words for the part that may hang if a stop takes too long, for the error.
        callers: Words for callers that must not wait, for the error.
    """

    hangs: ClassVar[str]
    callers: ClassVar[str]

    def __init__(
        self,
        id: str,
        driver: RunDriver,
        recent: RecentProgress[P],
        watcher: Watcher,
        silent: Sequence[SilentServer] = (),
    ) -> None:
        self._id = id
        self._silent = silent
        self._driver = driver
        self._recent = recent
        self._watcher = watcher
        # Whether a method has raised, returned or shown the error that ended the run.
        self._told = False
        watcher.attach(driver)

    @property
    def id(self) -> str:
        """Id of the topology."""
        return self._id

    @property
    def status(self) -> str:
        """The status in one word."""
        return self._driver.status

    @property
    def board(self) -> Figures:
        """The figures of the run, such as txids, failures, rates and latencies."""
        return self._watcher.figures

    @property
    def page_url(self) -> str | None:
        """The address of the run's page; None without ``Config(page=…)``."""
        return self.board.page

    @property
    def is_active(self) -> bool:
        """Whether the topology has not ended."""
        return not self._driver.ended.done()

    @property
    def last_progress(self) -> P | None:
        """The last progress, or None before the first."""
        return self._recent.progress[-1] if self._recent.progress else None

    @property
    def recent_progress(self) -> list[P]:
        """The last progresses, the oldest first."""
        return list(self._recent.progress)

    def process_all_available(self, timeout: float | None = None) -> None:
        """Wait until the spouts have nothing left and everything is processed.

        Args:
            timeout: Maximum number of seconds to wait; None for no limit.

        Raises:
            TimeoutError: The time is up; the topology continues.
            Exception: The topology ended with this error.
        """
        self._refuse_on_loop("process_all_available")
        future: Future[None] = Future()
        self._driver.post(lambda: self._driver.wait_for_rest(future))
        if self._driver.ended.done():
            # Perhaps the loop had ended before the callback was posted.
            self.await_termination()
            return
        if not done_in(future, timeout) and future.cancel():
            raise TimeoutError(
                f"topology {self._id!r} has not processed all that is available in {timeout} s; "
                f"its status is {self.status}; its last progress is {self.last_progress}"
                f"{self._hindrances()}"
            )
        try:
            future.result()
        except Exception:
            self._told = True
            raise

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the topology ends; return whether it has.

        Args:
            timeout: Maximum number of seconds to wait; None for no limit.

        Raises:
            Exception: The topology ended with this error.
        """
        self._refuse_on_loop("await_termination")
        if not done_in(self._driver.ended, timeout):
            return False
        error = self._driver.ended.result()
        if error is not None:
            self._told = True
            raise error
        return True

    def exception(self) -> Exception | None:
        """Return the error that ended the topology; None while it is active or after a stop.

        A topology that is being restarted is active.
        """
        self._told = self._told or self._driver.ended.done()
        return self._driver.ended.result() if self._driver.ended.done() else None

    def stop(self, timeout: float | None = None) -> None:
        """Stop the topology, and wait until it has ended.

        It does not wait if a listener calls it, or any other code on a thread of the topology. A
        failed run raises its error here at the latest, so that no program mistakes it for a run
        that was stopped.

        Args:
            timeout: Maximum number of seconds to wait; None for no limit.

        Raises:
            TimeoutError: The time is up; the topology is still stopping.
            Exception: The topology ended with this error, and no other method of the handle has
                raised, returned or shown it.
        """
        self._driver.post(self._driver.stop)
        if self._driver.on_loop():
            return
        if not done_in(self._driver.ended, timeout):
            raise TimeoutError(
                f"topology {self._id!r} did not stop in {timeout} s; {self.hangs} may hang"
                f"{self._hindrances()}"
            )
        failure = self._driver.ended.result()
        if failure is not None and not self._told:
            self._told = True
            raise failure

    def stop_on(self, *numbers: signal.Signals) -> None:
        """Stop the topology on these signals, as :meth:`stop` does, without waiting.

        Call it once in the main thread, before waiting for the end:
        ``run.stop_on(signal.SIGTERM, signal.SIGINT)``, then ``run.await_termination()``, which
        returns when the run has ended. The first signal restores the handlers that were there
        before, so that a second signal ends a process whose committer or bolt hangs.

        Raises:
            ValueError: Called in another thread; Python handles signals in the main thread only.
        """
        before = {number: signal.getsignal(number) for number in numbers}

        def stop(received: int, frame: FrameType | None) -> None:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._driver.post(self._driver.stop)

        for number in numbers:
            signal.signal(number, stop)

    def watch(self, seconds: float | None = None) -> None:
        """Show the run until it ends, or the time is up.

        In a notebook one output is updated about twice a second; interrupting the kernel ends the
        watching, not the run. Elsewhere a line is printed when something has changed, at most every
        two seconds. An error that ends the run is shown, not raised: ``await_termination`` raises
        it.

        Args:
            seconds: How long to watch at most; None for no limit.

        Raises:
            StateUsageError: Called on a thread of the topology, which would block it.
        """
        self._refuse_on_loop("watch")
        self._watcher.show(self._driver.ended, seconds)
        self._told = self._told or self._driver.ended.done()

    def _repr_html_(self) -> str:
        return html_of(self)

    def _hindrances(self) -> str:
        """Return what may keep the topology from its end, as the next parts of an error."""
        told = [_last_failure(each) for each in self.board.failures(1)]
        held: Any = (self._driver.pace or {}).get("held_back") or {}
        told += [f"{name!r} is held back: {why}" for name, why in held.items()]
        if self.last_progress is None:
            told += [
                f"{each.name} did not answer at its start: {each.found}" for each in self._silent
            ]
        return "".join(f"; {each}" for each in told)

    def deactivate(self) -> None:
        """Let the spouts emit nothing new; the rest is processed (Storm ``deactivate``)."""
        self._driver.post(lambda: self._driver.set_active(False))

    def activate(self) -> None:
        """Let the spouts emit again."""
        self._driver.post(lambda: self._driver.set_active(True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exc_info: object) -> None:
        self._told = self._told or kind is not None  # the block's own error is raised
        self.stop()

    def _refuse_on_loop(self, method: str) -> None:
        if self._driver.on_loop():
            raise StateUsageError(
                f"{method} was called by {self.callers} that it would have to wait for; call it "
                "from a different thread",
                method=method,
            )


def done_in(future: Future[Any], timeout: float | None) -> bool:
    """Wait until a future is done, and return whether it is.

    Args:
        future: What is waited for.
        timeout: Maximum number of seconds to wait; None for no limit.
    """
    # Python calls the handler of a signal in the main thread, when that thread runs Python code
    # again. The system may hand the signal to another thread, or to the main thread right before it
    # begins to wait. Then nothing wakes the main thread, so it has to wake by itself.
    deadline_s = math.inf if timeout is None else now() + timeout
    while not future.done() and (left_s := deadline_s - now()) > 0:
        wait([future], min(SLICE_S, left_s))
    return future.done()


def _last_failure(row: Mapping[str, Any]) -> str:
    where = "" if row["component"] is None else f", in {row['component']!r},"
    return f"its last failure{where} was {row['cause']}"


class RecentProgress(TopologyListener, Generic[P]):
    """Keeps the last progresses.

    Args:
        told: The class of changes that carry a progress.
    """

    def __init__(self, told: type[Progressing[P]]) -> None:
        self._told = told
        self.progress: deque[P] = deque(maxlen=RECENT_PROGRESS_MAX)

    def on_change(self, change: TopologyEvent) -> None:
        """Keep the progress of a change."""
        if isinstance(change, self._told):
            self.progress.append(change.progress)


class TopologyRun(RunHandle[Progress]):
    """A running topology. All methods may be called from any thread.

    ``status`` is one of starting, standby, running, deactivated, leadership lost, restarting,
    stopping, stopped, killed, failed. There is a progress after each commit.
    ``process_all_available`` waits until the spout has nothing left and all batches are committed.
    ``stop`` finishes the current commit and drops all other batches. After ``deactivate`` no new
    batches are planned, and those in flight are committed. It applies to this run only; operators
    can deactivate the topology independently.

    Example:
        >>> run = topology.start(config=Config(carrier="local", zookeeper="memory"))
        >>> run.process_all_available()
        >>> run.stop()
    """

    hangs: ClassVar[str] = "a committer"
    callers: ClassVar[str] = "a listener, on the loop"


class ReliableRun(RunHandle[ReliableProgress]):
    """A running at-least-once topology. All methods may be called from any thread.

    ``status`` is one of starting, running, deactivated, restarting, stopping, stopped, failed; with
    ``AtLeastOnceConfig.zookeeper`` also standby, leadership lost, killed. There is a progress each
    second, at rest and at the end. ``process_all_available`` waits until the spouts have nothing
    left and every tuple tree has ended. ``stop`` closes spouts and bolts and drops pending tuples;
    the source still has those that were not acked. After ``deactivate`` no new tuples are emitted,
    and pending ones are processed and acked. ``activate`` also starts the slots of a topology that
    was started inactive.

    Example:
        >>> run = topology.start(config=AtLeastOnceConfig(carrier="local"))
        >>> run.process_all_available()
        >>> run.last_progress.acked
        2
        >>> run.stop()
    """

    hangs: ClassVar[str] = "a spout or bolt"
    callers: ClassVar[str] = "a listener, a spout or a bolt, on a thread"


@dataclass(slots=True)
class _Waiter:
    future: Future[None]
    asks_before: int


class IdleWaiters:
    """Resolves futures when a term, or an at-least-once topology, is at rest. For the loop only.

    Data that was available when the waiting began must have been processed. So the spout must be
    asked once more with nothing in flight, and answer that it has no rows.
    """

    def __init__(self) -> None:
        self._waiting: list[_Waiter] = []

    @property
    def waiting(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    def add(self, future: Future[None], term: Resting | None) -> None:
        """Add a future; *term* is the current one, if any."""
        self._waiting.append(_Waiter(future, term.asks if term else 0))

    def begin(self) -> None:
        """Make waiters count the asks of the spout from 0 again, because a new term begins."""
        for waiter in self._waiting:
            waiter.asks_before = 0

    def resolve(self, term: Resting | None, *, active: bool) -> None:
        """Resolve the futures if *term* is at rest and, if *active*, the spout had nothing.

        A deactivated topology does not ask its spout.
        """
        if term is None or not self._waiting or not term.at_rest:
            return
        ready = [w for w in self._waiting if not active or term.dry_ask > w.asks_before]
        self._waiting = [w for w in self._waiting if w not in ready and not w.future.done()]
        for waiter in ready:
            resolve(waiter.future, None)

    def end(self, error: Exception | None) -> None:
        """Resolve all futures, because the topology has ended."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            resolve(waiter.future, error)


def resolve(future: Future[None], error: Exception | None) -> None:
    """Resolve a future, unless it was cancelled."""
    with suppress(InvalidStateError):
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(None)


class RunDriver(WatchedRun, Protocol):
    """The methods of a driver that a handle calls."""

    @property
    def ended(self) -> Future[Exception | None]:
        """A future that is done when the topology has ended; its result is the error, or None."""
        ...

    def post(self, callback: Callable[[], None]) -> None:
        """Call *callback* on the loop."""
        ...

    def on_loop(self) -> bool:
        """Return whether the caller is on a thread that the end of the loop waits for."""
        ...

    def wait_for_rest(self, future: Future[None]) -> None:
        """Resolve *future* when nothing is left to do."""
        ...

    def stop(self) -> None:
        """Start to end the topology."""
        ...

    def set_active(self, active: bool) -> None:
        """Activate or deactivate the spouts."""
        ...


class Progressing(Protocol[Q]):
    """A change that carries a progress."""

    @property
    def progress(self) -> Q:
        """The progress of the batch or of the topology."""
        ...


class Resting(Protocol):
    """A term, or an at-least-once topology, as :class:`IdleWaiters` see it."""

    @property
    def at_rest(self) -> bool:
        """Whether nothing is in flight."""
        ...

    @property
    def asks(self) -> int:
        """Number of the last time that a spout was asked for data."""
        ...

    @property
    def dry_ask(self) -> int:
        """Number of the last time that a spout was asked and had no data."""
        ...
