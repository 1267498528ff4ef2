"""VirtualScheduler: the runtime's scheduler in virtual time, with one thread running at a time.

The runtime does its blocking work on threads: a store's driver and a ZooKeeper client wait inside
their calls. In a simulation each blocking work still has its own thread, but :class:`ThreadHandoff`
lets only one of them run. A work stops at each place where its outcome may depend on other works,
and the simulator decides which one continues. So a run depends only on its seed, and not on the
machine. A switch there and back takes about 10 µs.

:class:`Timeline` is virtual time: events happen in the order in which they are due, and take no
time.
"""

from __future__ import annotations

import heapq
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from txtopo.runtime.scheduler import Callback, Done, Timer, settled

if TYPE_CHECKING:
    from txtopo.testing.simulation.world import SimulatedProcess

# A work that takes longer waits for something that the simulator does not control.
STUCK_S = 120.0


class Crashed(BaseException):
    """Raised in a work whose process was killed, to unwind it. Only the simulator catches it."""


class BlockingWork:
    """Blocking work, which has its own thread while it lasts."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.ended = False
        self._run = run
        self._thread: _Thread | None = None
        self._crash = False


class ThreadHandoff:
    """Lets one thread run at a time: the simulator, or one blocking work. Used by one simulator.

    Args:
        stuck_s: Real time after which a work that does not come back is an error.
    """

    def __init__(self, stuck_s: float = STUCK_S) -> None:
        self._stuck_s = stuck_s
        self.running: BlockingWork | None = None
        """The work that runs; None while the simulator itself does."""
        self._back = _taken()
        self._idle: list[_Thread] = []

    def hand_to(self, work: BlockingWork) -> None:
        """Let a work run until it parks or ends. The simulator calls it."""
        assert self.running is None, "a work cannot start another"
        self._resume(work)

    def crash(self, work: BlockingWork) -> None:
        """Make a parked work unwind to its end. The simulator calls it."""
        work._crash = True
        while not work.ended:
            self._resume(work)

    def park(self) -> None:
        """Let the simulator run until it resumes this work. The running work calls it.

        Raises:
            Crashed: The process of the work was killed meanwhile.
        """
        work = self.running
        assert work is not None, "only a work parks"
        assert work._thread is not None, "a work that runs has a thread"
        self._back.release()
        work._thread.turn.acquire()
        if work._crash:
            raise Crashed

    def close(self) -> None:
        """End the idle threads."""
        for thread in self._idle:
            thread.work = None
            thread.turn.release()
        self._idle.clear()

    def _resume(self, work: BlockingWork) -> None:
        thread = work._thread
        if thread is None:
            thread = self._idle.pop() if self._idle else _Thread(self._back)
            work._thread = thread
            thread.work = work
        self.running = work
        thread.turn.release()
        if not self._back.acquire(timeout=self._stuck_s):
            raise AssertionError(
                f"a simulated thread did not come back in {self._stuck_s:g} s; it blocks on "
                "something that the simulator does not know, perhaps on a lock that another thread "
                f"holds across a point; it is at\n{thread.stack()}"
            )
        self.running = None
        if work.ended:
            work._thread = None
            self._idle.append(thread)


class _Thread:
    """A daemon thread that does one work after the other."""

    def __init__(self, back: threading.Lock) -> None:
        self.turn = _taken()
        self.work: BlockingWork | None = None
        self._back = back
        self._thread = threading.Thread(target=self._serve, name="txtopo-simulated", daemon=True)
        self._thread.start()

    def stack(self) -> str:
        """Return where the thread is, innermost call last."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame is not None else "its end"

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
    """Return an acquired lock. It costs a third of what a semaphore does."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class EventOwner(Protocol):
    """What an event belongs to: a process."""

    def takes(self, event: Event) -> bool:
        """Return whether the event may happen now. If the owner is frozen, keep it for later."""
        ...


@dataclass(eq=False, slots=True)
class Event:
    """A call at a moment of virtual time."""

    due_s: float
    callback: Callable[[], None]
    owner: EventOwner | None = None
    cancelled: bool = False

    def cancel(self) -> None:
        """Do not make the call."""
        self.cancelled = True


class Timeline:
    """The future events, in order of time. Events that are due together keep their order."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.events = 0
        self._done: Callable[[], bool] | None = None
        self._until_s = 0.0
        self._heap: list[tuple[float, int, Event]] = []
        self._order = 0

    def after(
        self, delay_s: float, callback: Callable[[], None], owner: EventOwner | None = None
    ) -> Event:
        """Call *callback* after a delay."""
        self._order += 1
        event = Event(self.now_s + delay_s, callback, owner)
        heapq.heappush(self._heap, (event.due_s, self._order, event))
        return event

    def put_back(self, event: Event) -> None:
        """Schedule an event for now that its owner had kept for later."""
        if not event.cancelled:
            self.after(0.0, event.callback, event.owner)

    def begins_with(self, event: Event) -> bool:
        """Let time pass to an event if it is the next one, without calling it; return whether.

        A work that waits for it continues, without a switch to another thread and back.
        """
        if self._done is None or self._done():
            return False
        due_s, _, first = self._heap[0]
        if first is not event or due_s > self._until_s:
            return False
        heapq.heappop(self._heap)
        self.now_s = max(self.now_s, due_s)
        self.events += 1
        return True

    def run(self, done: Callable[[], bool], *, until_s: float) -> bool:
        """Let time pass until *done* is true; return whether it was by *until_s*."""
        heap = self._heap
        self._done, self._until_s = done, until_s
        while not done():
            if not heap or heap[0][0] > until_s:
                self.now_s = max(self.now_s, until_s)
                return False
            due_s, _, event = heapq.heappop(heap)
            if event.cancelled:
                continue
            if due_s > self.now_s:
                self.now_s = due_s
            if event.owner is None or event.owner.takes(event):
                self.events += 1
                event.callback()
        return True


T = TypeVar("T")


class VirtualScheduler:
    """The scheduler of a simulated process; see :mod:`txtopo.runtime.scheduler`."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self._crashed: Callable[[BaseException], None] = _not_started
        self._running = True

    def now(self) -> float:
        """Return the virtual time in seconds."""
        return self._process.world.timeline.now_s

    def steady(self) -> float:
        """Return the virtual time in seconds."""
        return self.now()

    def wall_clock(self) -> float:
        """Return the time on the clock of the process, which may jump."""
        return 1.6e9 + self._process.clock_error_s + self.now()

    def post(self, callback: Callback) -> None:
        """Call *callback* on the loop, after everything posted before."""
        self._process.after(0.0, lambda: self._call(callback))

    def on_loop(self) -> bool:
        """Return whether the caller is the loop, and not a blocking work."""
        return self._process.world.handoff.running is None

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        """Call *callback* on the loop after a delay, unless the loop has ended."""

        def ring() -> None:
            if self._running:
                self._call(callback)

        return self._process.after(delay_s, ring)

    def submit(self, work: Callable[[], T], done: Done) -> None:
        """Do blocking *work* after a random delay, then call *done* on the loop."""

        def run() -> None:
            future: Future[T] = Future()
            try:
                future.set_result(work())
            except Crashed:
                return
            except BaseException as error:  # noqa: BLE001 - every outcome goes back to the loop
                future.set_exception(error)
            if self._process.alive:
                delay_s = self._process.world.chaos.latency_s()
                self._process.after(delay_s, lambda: self._call(lambda: done(future)))

        self._process.begin(run)

    def beside(self, work: Callable[[], T]) -> Future[T]:
        """Do blocking *work* at once, before the caller continues."""
        return settled(work)

    def seed(self) -> int:
        """Return 64 random bits, which the seed decides."""
        return self._process.world.tokens.getrandbits(64)

    def point(self, name: str) -> None:
        """Mark a durable step, where the process may crash, freeze or be overtaken."""
        self._process.checkpoint(name)

    def start(self, first: Callback, crashed: Callable[[BaseException], None]) -> None:
        """Start the loop."""
        self._crashed = crashed
        self.post(first)

    def stop(self) -> None:
        """End the loop: timers no longer fire."""
        self._running = False

    def _call(self, callback: Callback) -> None:
        try:
            callback()
        except Crashed:
            pass
        except BaseException as error:  # noqa: BLE001 - as the real loop does
            self._crashed(error)


def _not_started(error: BaseException) -> None:
    raise AssertionError("the loop has not been started") from error
