"""Baton: threads of which one runs at a time, so that blocking code can be simulated.

The runtime does its blocking work on threads: a store's driver and a ZooKeeper client wait inside
their calls. Here each such work keeps a thread of its own, but only who holds the baton runs. A
work gives it back at each place where its outcome may depend on others, and the simulator decides
who gets it next. So a run depends on its seed alone, whatever the machine does. A switch there and
back takes about 10 µs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

# A work that does not come back blocks on something that the simulator does not know.
STUCK_S = 120.0


class Crashed(BaseException):
    """The process that a work belonged to is dead; unwinds the work, nobody sees it."""


class Work:
    """Blocking work with a thread of its own while it lasts."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.ended = False
        self._run = run
        self._thread: _Thread | None = None
        self._crash = False


class Baton:
    """Hands the baton from the simulator to one work and back. Used by one simulator."""

    def __init__(self) -> None:
        self.holder: Work | None = None
        """The work that runs; None while the simulator itself does."""
        self._back = _taken()
        self._idle: list[_Thread] = []

    def hand_to(self, work: Work) -> None:
        """Let a work run until it parks or ends; called by the simulator."""
        assert self.holder is None, "a work cannot start another"
        self._resume(work)

    def crash(self, work: Work) -> None:
        """Make a parked work unwind, up to its end; called by the simulator."""
        work._crash = True
        while not work.ended:
            self._resume(work)

    def park(self) -> None:
        """Give the baton back and wait to be handed it again; called by the holder.

        Raises:
            Crashed: The work's process died meanwhile.
        """
        work = self.holder
        assert work is not None, "only a work parks"
        assert work._thread is not None, "a work that runs has a thread"
        self._back.release()
        work._thread.turn.acquire()
        if work._crash:
            raise Crashed

    def close(self) -> None:
        """Let the idle threads end."""
        for thread in self._idle:
            thread.work = None
            thread.turn.release()
        self._idle.clear()

    def _resume(self, work: Work) -> None:
        thread = work._thread
        if thread is None:
            thread = self._idle.pop() if self._idle else _Thread(self._back)
            work._thread = thread
            thread.work = work
        self.holder = work
        thread.turn.release()
        if not self._back.acquire(timeout=STUCK_S):
            raise AssertionError(
                f"a work did not come back in {STUCK_S:g} s; it blocks on something that the "
                "simulator does not know; look at the stacks of all threads"
            )
        self.holder = None
        if work.ended:
            work._thread = None
            self._idle.append(thread)


class _Thread:
    """A daemon thread that does one work after the other."""

    def __init__(self, back: threading.Lock) -> None:
        self.turn = _taken()
        self.work: Work | None = None
        self._back = back
        threading.Thread(target=self._serve, name="txtopo-simulated", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self.turn.acquire()
            work = self.work
            if work is None:
                return
            try:
                if not work._crash:
                    work._run()
            finally:
                work.ended = True
                self._back.release()


def _taken() -> threading.Lock:
    """Return a lock that is taken: a plain lock costs a third of what a semaphore does."""
    lock = threading.Lock()
    lock.acquire()
    return lock
