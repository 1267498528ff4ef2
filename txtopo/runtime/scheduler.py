"""Scheduler: the one place where the runtime meets time, threads and blocking calls.

The runtime is one loop over one queue. It asks the scheduler for everything that is not a plain
computation: the time, a call after a delay, a blocking call on another thread. Each answer comes
back as a callback on the loop. A fault simulator puts another implementation in this place and runs
the real runtime in virtual time from one seed; ruff forbids ``time``, ``threading`` and ``random``
in every other file but ``threads.py``, which is a part of this one.

Threads of the real scheduler: workers, lanes, and the end of the process.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import logging
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from txtopo import clock
from txtopo.errors import InfrastructureError

T = TypeVar("T")

Callback = Callable[[], None]

Done = Callable[["Future[Any]"], None]


class Timer(Protocol):
    """A call that is still to come."""

    def cancel(self) -> None:
        """Do not make the call; harmless when it was made."""
        ...


class Scheduler(Protocol):
    """Time, delays, threads and blocking calls for one runtime loop."""

    def now(self) -> float:
        """Return seconds on a clock that only goes forward."""
        ...

    def wall_clock(self) -> float:
        """Return seconds since 1970; for showing, never for deciding."""
        ...

    def post(self, callback: Callback) -> None:
        """Have *callback* called on the loop; from any thread."""
        ...

    def on_loop(self) -> bool:
        """Return whether the caller is the loop, which must not wait for itself, or a lane."""
        ...

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        """Have *callback* called on the loop after a delay; from the loop only."""
        ...

    def submit(self, work: Callable[[], T], done: Done) -> None:
        """Run blocking *work* on another thread, then call *done* with its outcome on the loop."""
        ...

    def seed(self) -> int:
        """Return a random number of 64 bits."""
        ...

    def point(self, name: str) -> None:
        """Mark a durable step; does nothing. A simulator crashes the process here.

        The steps are listed in ARCHITECTURE.md. They are numbered as a txid passes them,
        ``P<n>.before`` and ``P<n>.after``; those of a state end with ``:<component id>.<state>``.
        """
        ...

    def start(self, first: Callback, crashed: Callable[[BaseException], None]) -> None:
        """Start the loop, which begins with *first*.

        Args:
            first: The first callback.
            crashed: Called on the loop with what a callback raised; the loop goes on.
        """
        ...

    def stop(self) -> None:
        """End the loop after the current callback; from the loop only."""
        ...


class SerialExecutor(Protocol):
    """A thread of its own for works that must all run on the same one, in order."""

    def submit(self, work: Callable[[], T], done: Done) -> None:
        """Run blocking *work* on the lane's thread, then call *done* on the loop."""
        ...

    def close(self) -> None:
        """Let the thread end after the works that were submitted."""
        ...


class LaneScheduler(Scheduler, Protocol):
    """A scheduler for at-least-once topologies, whose tasks live long."""

    def lane(self, name: str) -> SerialExecutor:
        """Return a new lane; from the loop only."""
        ...


class ThreadScheduler:
    """Real time and real threads. All threads are daemons: hung user code keeps no process."""

    def __init__(self, name: str) -> None:
        await_works_at_exit()
        self._name = name
        self._queue: queue.SimpleQueue[Callback] = queue.SimpleQueue()
        self._timers: list[_Timer] = []
        self._order = itertools.count()
        self._workers = Workers(name)
        self._running = True
        self._own: set[int] = set()  # threads that must not wait for the loop
        self._timer_turn = True

    def now(self) -> float:
        """Return seconds on the monotonic clock."""
        return clock.now()

    def wall_clock(self) -> float:
        """Return seconds since 1970."""
        return clock.wall_clock()

    def post(self, callback: Callback) -> None:
        """Put *callback* on the loop's queue."""
        self._queue.put(callback)

    def on_loop(self) -> bool:
        """Return whether the caller is the loop or a lane, which the end of the loop waits for."""
        return threading.get_ident() in self._own

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        """Put *callback* on the loop's list of timers."""
        timer = _Timer(self.now() + delay_s, next(self._order), callback)
        heapq.heappush(self._timers, timer)
        return timer

    def submit(self, work: Callable[[], T], done: Done) -> None:
        """Run *work* on an idle worker thread, or on a new one."""

        self._workers.run(self._errand(work, done))

    def submit_lasting(self, work: Callable[[], T], done: Done) -> None:
        """Do the same with a work that lasts as long as the run.

        It only waits for others, so the end of the process need not wait for it.
        """
        self._workers.run(self._lasting(work, done))

    def lane(self, name: str) -> SerialExecutor:
        """Return a thread that serves one lane."""
        return ThreadLane(f"{self._name}-{name}", self._errand, self._own)

    def lasting_lane(self, name: str) -> SerialExecutor:
        """Return a thread for works that last as long as the run, see :meth:`submit_lasting`."""
        return ThreadLane(f"{self._name}-{name}", self._lasting, self._own)

    def seed(self) -> int:
        """Return a random number of the operating system."""
        return int.from_bytes(os.urandom(8), "little")

    def point(self, name: str) -> None:
        """Do nothing."""

    def start(self, first: Callback, crashed: Callable[[BaseException], None]) -> None:
        """Start the loop on a thread of its own."""
        self._crashed = crashed
        self.post(first)
        threading.Thread(target=self._loop, name=self._name, daemon=True).start()

    def stop(self) -> None:
        """End the loop and let idle workers go."""
        self._running = False
        self._workers.close()

    def _errand(self, work: Callable[[], T], done: Done) -> Callback:
        def run() -> None:
            if UNDER_WAY.begin():
                future = _outcome(work)
                UNDER_WAY.done()
            else:  # whoever stops a run at the very end waits for an answer
                future = Future()
                future.set_exception(InfrastructureError("the process ends"))
            self.post(lambda: done(future))

        return run

    def _lasting(self, work: Callable[[], T], done: Done) -> Callback:
        def run() -> None:
            future = _outcome(work)
            self.post(lambda: done(future))

        return run

    def _loop(self) -> None:
        self._own.add(threading.get_ident())
        while self._running:
            self._call(self._next)
        # Whoever posted before the end is heard; there is no one left to wait for.
        while not self._queue.empty():
            self._call(self._queue.get)
        self._own.discard(threading.get_ident())  # another thread may be given the same one

    def _call(self, get: Callable[[], Callback | None]) -> None:
        try:
            callback = get()
            if callback is not None:
                callback()
        except BaseException as error:  # noqa: BLE001 - the one place; else the run would hang
            self._crashed(error)

    def _next(self) -> Callback | None:
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        if not self._timers:
            return self._queue.get()
        wait_s = self._timers[0].due_s - self.now()
        if wait_s <= 0:
            # In turns, so that timers that are always due, as quick ticks are, leave room.
            self._timer_turn = not self._timer_turn or self._queue.empty()
            if self._timer_turn:
                return heapq.heappop(self._timers).callback
            return self._queue.get()
        try:
            return self._queue.get(timeout=min(wait_s, threading.TIMEOUT_MAX))
        except queue.Empty:
            return None


def _outcome(work: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - every outcome goes back to the loop
        future.set_exception(error)
    return future


@dataclass(order=True, slots=True)
class _Timer:
    due_s: float
    order: int
    callback: Callback = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


if TYPE_CHECKING:
    pass

logger = logging.getLogger(__name__)

EXIT_TIMEOUT_S = 10.0
"""How long the end of the process waits for works that are under way."""


def await_works_at_exit() -> None:
    """Have the end of the process wait for works, before what was registered up to now.

    Whoever uses a client of a store or a source has to be done with it when that is closed.
    """
    atexit.unregister(UNDER_WAY.end)
    atexit.register(UNDER_WAY.end)


class Workers:
    """Daemon threads that wait for work; a pool of the library would join them at exit."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle: list[queue.SimpleQueue[Callback | None]] = []
        self._lock = threading.Lock()
        self._closed = False

    def run(self, work: Callback) -> None:
        """Do *work* on an idle thread, or on a new one."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = queue.SimpleQueue()
            name = f"{self._name}-worker"
            threading.Thread(target=self._serve, args=(inbox,), name=name, daemon=True).start()
        inbox.put(work)

    def close(self) -> None:
        """Let the threads end, each after its work."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _serve(self, inbox: queue.SimpleQueue[Callback | None]) -> None:
        while (work := inbox.get()) is not None:
            work()
            del work  # what it holds must not wait for the next work
            with self._lock:
                if self._closed:
                    return
                self._idle.append(inbox)


class Beat:
    """A daemon thread that makes a call again and again. Whatever the call does is short."""

    def __init__(self, interval_s: float, call: Callable[[], None]) -> None:
        self._interval_s = interval_s
        self._call = call
        self._over = threading.Event()
        threading.Thread(target=self._go, name="txtopo-beat", daemon=True).start()

    def close(self) -> None:
        """Make no more calls."""
        self._over.set()

    def _go(self) -> None:
        while not self._over.wait(self._interval_s):
            self._call()


def this_thread() -> int:
    """Return a number that no other thread has meanwhile."""
    return threading.get_ident()


class ThreadLane:
    """A daemon thread with a queue."""

    def __init__(
        self, name: str, errand: Callable[[Callable[[], Any], Done], Callback], own: set[int]
    ) -> None:
        self._errand = errand
        self._own = own
        self._queue: queue.SimpleQueue[Callback | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def submit(self, work: Callable[[], Any], done: Done) -> None:
        """Run *work* after those before it."""
        self._queue.put(self._errand(work, done))

    def close(self) -> None:
        """Let the thread end after the works that were submitted."""
        self._queue.put(None)

    def _serve(self) -> None:
        self._own.add(threading.get_ident())
        while (errand := self._queue.get()) is not None:
            errand()
            del errand  # what it holds must not wait for the next one
        self._own.discard(threading.get_ident())


class UnderWay:
    """Works that the threads of this process do, abandoned ones among them.

    A thread that Python ends while it is inside a library in C takes the whole process with it, so
    the end of the process waits a little for what is under way, and lets nothing new begin.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as the child of a fork does: it has none of the threads."""
        self._changed = threading.Condition()
        self._works = 0
        self._ended = False

    def begin(self) -> bool:
        """Count a work in; return False when it is too late for it."""
        with self._changed:
            self._works += not self._ended
            return not self._ended

    def done(self) -> None:
        """Count a work out."""
        with self._changed:
            self._works -= 1
            self._changed.notify_all()

    def end(self) -> None:
        """Wait for the works at the end of the process."""
        with self._changed:
            self._ended = True
            if not self._changed.wait_for(lambda: not self._works, EXIT_TIMEOUT_S):
                logger.warning("the process ends while %d works hang", self._works)


UNDER_WAY = UnderWay()

os.register_at_fork(after_in_child=UNDER_WAY.forget)
