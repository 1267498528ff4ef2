"""Threads of the real scheduler: workers, lanes, and the end of the process."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txtopo.runtime.scheduler import Callback, Done

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
