"""SpoutLane: one spout task with its thread, and when it has its next turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from txtopo.runtime.scheduler import Lane, LaneScheduler, Timer
from txtopo.stages.anchoring.envelope import Complaint
from txtopo.stages.anchoring.spout_task import Ends, Room, SpoutTask, Turn

# A spout that has nothing is asked again after this pause (Storm's), which doubles each time up to
# Config.poll_interval_s, so that an idle run costs next to nothing.
PAUSE_S = 0.001

Made = Callable[["SpoutLane", Turn], None]
Failed = Callable[[BaseException], None]


class SpoutLane:
    """Gives one spout task its turns, one at a time, all on one thread. Used on the loop.

    Args:
        owner: Its number among all spout tasks.
        task: The task.
        scheduler: Time and threads.
        pause_max_s: Longest pause of a spout that has nothing.
        made: Called with what came of a turn.
        failed: Called with what the spout raised.
    """

    def __init__(
        self,
        owner: int,
        task: SpoutTask,
        scheduler: LaneScheduler,
        pause_max_s: float,
        made: Made,
        failed: Failed,
    ) -> None:
        self.owner = owner
        self.name = task.name
        self.ends = Ends()
        """What it has not been told yet."""
        self.dry_turn = 0
        """Number of the last turn in which it had nothing."""
        self.busy = True
        self._task = task
        self._scheduler = scheduler
        self._lane: Lane = scheduler.lane("-".join(map(str, task.name)))
        self._pause_max_s = pause_max_s
        self._made = made
        self._failed = failed
        self._pause_s = PAUSE_S
        self._timer: Timer | None = None
        self._active = False
        self._dead = False

    def open(self, opened: Callable[[], None]) -> None:
        """Open the spout, then call *opened*."""

        def done(future: Future[None]) -> None:
            self.busy = False
            if self._heard(future):
                opened()

        self._lane.submit(self._task.open, done)

    def wake(self, number: int, *, active: bool, room: Room, ring: Callable[[], None]) -> bool:
        """Start a turn if there is something to do; return whether it was.

        Args:
            number: Number of the turn.
            active: Whether the run is activated.
            room: What it may emit; none if it must wait.
            ring: Called when a pause is over.
        """
        if self.busy or self._dead:
            return False
        wants = active and bool(room) and self._timer is None
        if not self.ends and not wants and active == self._active:
            return False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.busy, self._active = True, active
        ends, self.ends = self.ends, Ends()
        work = partial(self._task.turn, ends, active=active, room=room)
        self._lane.submit(work, partial(self._turned, number, ring))
        return True

    def die(self) -> None:
        """Forget the task; what it does now is not heard."""
        self._dead = True
        if self._timer is not None:
            self._timer.cancel()
        self._lane.close()

    def close(
        self, closed: Callable[[], None], complain: Callable[[Sequence[Complaint]], None]
    ) -> None:
        """Close the spout after the turn that runs, then call *closed*.

        Args:
            closed: Called in any case.
            complain: Called before with what ``close`` raised.
        """

        def done(future: Future[None]) -> None:
            error = future.exception()
            if error is not None:
                wrapped = error if isinstance(error, Exception) else RuntimeError(repr(error))
                complain([Complaint(*self.name, wrapped)])
            closed()

        self._lane.submit(self._task.close, done)
        self.die()

    def _turned(self, number: int, ring: Callable[[], None], future: Future[Turn]) -> None:
        self.busy = False
        if not self._heard(future):
            return
        turn = future.result()
        if turn.dry:
            self.dry_turn = number
        if turn.emitted:
            self._pause_s = PAUSE_S
        elif turn.dry:
            self._timer = self._scheduler.call_later(self._pause_s, partial(self._rung, ring))
            self._pause_s = min(2 * self._pause_s, self._pause_max_s)
        self._made(self, turn)

    def _rung(self, ring: Callable[[], None]) -> None:
        self._timer = None
        ring()

    def _heard(self, future: Future[None] | Future[Turn]) -> bool:
        if self._dead:
            return False
        error = future.exception()
        if error is not None:
            self._failed(error)
        return error is None
