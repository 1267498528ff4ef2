"""Scheduler: gives the runtime its loop, time, threads, blocking calls and random numbers.

The runtime is one loop over one queue. It asks the scheduler for the time, for a call after a
delay, and for a blocking call on another thread. Each result comes back as a callback on the loop.
The simulator has a scheduler of its own, with which it runs the real runtime in virtual time from
one seed. So ruff forbids ``time``, ``random`` and the start of threads in other files.

No lock is held across :meth:`Scheduler.point` or a call that blocks: the simulator runs one thread
at a time, so a thread that is parked there would block the next one that needs the lock.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from txtopo import clock
from txtopo.errors import ProcessEnds
from txtopo.log_records import logger_of
from txtopo.retries import LOGGER

_logger = logger_of(LOGGER)

EXIT_TIMEOUT_S = 10.0
"""How long the end of the process waits for running work."""

T = TypeVar("T")
Callback = Callable[[], None]
Done = Callable[["Future[Any]"], None]


class Timer(Protocol):
    """A call that will be made after a delay."""

    def cancel(self) -> None:
        """Do not make the call. Does nothing if it was made already."""
        ...


class Scheduler(Protocol):
    """Time, delays, threads and blocking calls for one runtime loop."""

    def now(self) -> float:
        """Return seconds on a clock that only goes forward."""
        ...

    def steady(self) -> float:
        """Return seconds on a clock that nobody sets, and that continues while the machine sleeps.

        It shows how far the wall clock should have moved; no timer uses it.
        """
        ...

    def wall_clock(self) -> float:
        """Return seconds since 1970, for display only: the clock may be set back."""
        ...

    def post(self, callback: Callback) -> None:
        """Call *callback* on the loop; from any thread."""
        ...

    def on_loop(self) -> bool:
        """Return whether the caller is on a thread that must not wait for the loop.

        That is the loop itself, or a serial executor: the end of the loop waits for those.
        """
        ...

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        """Call *callback* on the loop after a delay; from the loop only."""
        ...

    def submit(self, work: Callable[[], T], done: Done) -> None:
        """Run blocking *work* on another thread, then call *done* on the loop with its outcome."""
        ...

    def beside(self, work: Callable[[], T]) -> Future[T]:
        """Run blocking *work* on another thread, which ends with it; also before the loop starts.

        The caller waits for the future, so it is not the loop.
        """
        ...

    def seed(self) -> int:
        """Return a random number of 64 bits."""
        ...

    def point(self, name: str) -> None:
        """Mark a durable step. It does nothing; a simulator may crash the process here.

        ARCHITECTURE.md lists the steps in the order in which a txid passes them. Their names end in
        ``.before`` and ``.after``; those of a state also in ``:<component id>.<state>``.
        """
        ...

    def start(self, first: Callback, crashed: Callable[[BaseException], None]) -> None:
        """Start the loop.

        Args:
            first: The first callback.
            crashed: Called on the loop with an exception of a callback; the loop continues.
        """
        ...

    def stop(self) -> None:
        """End the loop after the current callback; from the loop only."""
        ...


class SerialExecutor(Protocol):
    """A thread that runs blocking calls in order, for code that must stay on one thread."""

    def submit(self, work: Callable[[], T], done: Done) -> None:
        """Run blocking *work* on the thread, then call *done* on the loop with its outcome."""
        ...

    def close(self) -> None:
        """End the thread after all submitted work."""
        ...


class ExecutorScheduler(Scheduler, Protocol):
    """A scheduler for at-least-once topologies, in which each spout task has a thread."""

    def serial_executor(self, name: str) -> SerialExecutor:
        """Return a new thread that runs calls in order; from the loop only."""
        ...


class ThreadScheduler:
    """Real time and daemon threads: user code that hangs does not keep the process alive."""

    def __init__(self, name: str) -> None:
        await_works_at_exit()
        self._name = name
        self._queue: queue.SimpleQueue[Callback] = queue.SimpleQueue()
        self._timers: list[_Timer] = []
        self._order = itertools.count()
        self._workers = Workers(name)
        self._running = True
        self._own: set[int] = set()  # ids of the threads that must not wait for the loop
        self._timer_turn = True

    def now(self) -> float:
        """Return seconds on the monotonic clock."""
        return clock.now()

    def steady(self) -> float:
        """Return seconds on the clock that counts sleep."""
        return clock.steady()

    def wall_clock(self) -> float:
        """Return seconds since 1970."""
        return clock.wall_clock()

    def post(self, callback: Callback) -> None:
        """Put *callback* on the loop's queue."""
        self._queue.put(callback)

    def on_loop(self) -> bool:
        """Return whether the caller is the loop or a serial executor."""
        return threading.get_ident() in self._own

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        """Put *callback* on the loop's list of timers."""
        timer = _Timer(self.now() + delay_s, next(self._order), callback)
        heapq.heappush(self._timers, timer)
        return timer

    def submit(self, work: Callable[[], T], done: Done) -> None:
        """Run *work* on an idle worker thread, or on a new one."""
        self._workers.run(self._counted(work, done))

    def submit_lasting(self, work: Callable[[], T], done: Done) -> None:
        """Run *work* that lasts as long as the topology.

        Such work only waits for others, so the end of the process does not wait for it.
        """
        self._workers.run(self._uncounted(work, done))

    def beside(self, work: Callable[[], T]) -> Future[T]:
        """Run *work* on a thread of its own.

        The end of the process waits for the caller, which waits for the work.
        """
        future: Future[T] = Future()
        run = partial(_settle, future, work)
        threading.Thread(target=run, name=f"{self._name}-beside", daemon=True).start()
        return future

    def serial_executor(self, name: str) -> SerialExecutor:
        """Return a new thread that runs calls in order."""
        return ThreadExecutor(f"{self._name}-{name}", self._counted, self._own)

    def lasting_executor(self, name: str) -> SerialExecutor:
        """Return a new thread for work that lasts, see :meth:`submit_lasting`."""
        return ThreadExecutor(f"{self._name}-{name}", self._uncounted, self._own)

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

    def _counted(self, work: Callable[[], T], done: Done) -> Callback:
        def run() -> None:
            if WORK_IN_PROGRESS.begin():
                future = settled(work)
                WORK_IN_PROGRESS.done()
            else:  # a stop while the process ends waits for an outcome too
                future = Future()
                future.set_exception(ProcessEnds("the process ends"))
            self.post(lambda: done(future))

        return run

    def _uncounted(self, work: Callable[[], T], done: Done) -> Callback:
        def run() -> None:
            future = settled(work)
            self.post(lambda: done(future))

        return run

    def _loop(self) -> None:
        self._own.add(threading.get_ident())
        while self._running:
            self._call(self._next)
        # Callbacks that were posted before the end are called. The loop does not wait for work.
        while not self._queue.empty():
            self._call(self._queue.get)
        self._own.discard(threading.get_ident())  # a later thread may get the same id

    def _call(self, get: Callable[[], Callback | None]) -> None:
        try:
            callback = get()
            if callback is not None:
                callback()
        except BaseException as error:  # noqa: BLE001 - uncaught, it would hang the run
            self._crashed(error)

    def _next(self) -> Callback | None:
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        if not self._timers:
            return self._queue.get()
        wait_s = self._timers[0].due_s - self.now()
        if wait_s <= 0:
            # Timers and the queue take turns, so that timers which are always due do not starve it.
            self._timer_turn = not self._timer_turn or self._queue.empty()
            if self._timer_turn:
                return heapq.heappop(self._timers).callback
            return self._queue.get()
        try:
            return self._queue.get(timeout=min(wait_s, threading.TIMEOUT_MAX))
        except queue.Empty:
            return None


def settled(work: Callable[[], T]) -> Future[T]:
    """Run *work*, and return its result or exception as a future that is done."""
    future: Future[T] = Future()
    _settle(future, work)
    return future


def _settle(future: Future[T], work: Callable[[], T]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - every outcome goes to who waits for it
        future.set_exception(error)
    else:
        future.set_result(result)


@dataclass(order=True, slots=True)
class _Timer:
    due_s: float
    order: int
    callback: Callback = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


def await_works_at_exit() -> None:
    """Make the end of the process wait for work, before the exit handlers registered so far.

    Those close clients of stores and sources, which the work may still use.
    """
    atexit.unregister(WORK_IN_PROGRESS.end)
    atexit.register(WORK_IN_PROGRESS.end)


class Workers:
    """Daemon threads that wait for work. A pool of the standard library would join them at exit."""

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
            del work  # so that its objects are freed before the next work comes
            with self._lock:
                if self._closed:
                    return
                self._idle.append(inbox)


class RepeatingTimer:
    """A daemon thread that makes a short call at an interval."""

    def __init__(self, interval_s: float, call: Callable[[], None]) -> None:
        self._interval_s = interval_s
        self._call = call
        self._over = threading.Event()
        threading.Thread(target=self._go, name="txtopo-repeating-timer", daemon=True).start()

    def close(self) -> None:
        """Make no further calls."""
        self._over.set()

    def _go(self) -> None:
        while not self._over.wait(self._interval_s):
            self._call()


def this_thread() -> int:
    """Return a number that no other living thread has."""
    return threading.get_ident()


class ThreadExecutor:
    """A daemon thread with a queue of work."""

    def __init__(
        self, name: str, prepare: Callable[[Callable[[], Any], Done], Callback], own: set[int]
    ) -> None:
        self._prepare = prepare
        self._own = own
        self._queue: queue.SimpleQueue[Callback | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def submit(self, work: Callable[[], Any], done: Done) -> None:
        """Run *work* after all that was submitted before."""
        self._queue.put(self._prepare(work, done))

    def close(self) -> None:
        """Let the thread end after the works that were submitted."""
        self._queue.put(None)

    def _serve(self) -> None:
        self._own.add(threading.get_ident())
        while (call := self._queue.get()) is not None:
            call()
            del call  # so that its objects are freed before the next one comes
        self._own.discard(threading.get_ident())


class WorkInProgress:
    """Counts the work that threads of this process do, abandoned work included.

    If Python ends while a thread is inside a C library, the process may crash. So the end of the
    process waits for a while for work that is under way, and lets no new work begin.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset the count. A forked child does, because it has none of the threads."""
        self._changed = threading.Condition()
        self._works = 0
        self._ended = False

    def begin(self) -> bool:
        """Count work that begins; return False if the process ends already."""
        with self._changed:
            self._works += not self._ended
            return not self._ended

    def done(self) -> None:
        """Count work that has ended."""
        with self._changed:
            self._works -= 1
            self._changed.notify_all()

    def end(self) -> None:
        """Let no new work begin, and wait for the rest."""
        with self._changed:
            self._ended = True
            if not self._changed.wait_for(lambda: not self._works, EXIT_TIMEOUT_S):
                _logger.warning("the process ends while %d calls hang", self._works)


WORK_IN_PROGRESS = WorkInProgress()

os.register_at_fork(after_in_child=WORK_IN_PROGRESS.forget)
