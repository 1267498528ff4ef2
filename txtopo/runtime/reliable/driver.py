"""ReliableDriver: the loop of an at-least-once topology.

Everything happens in callbacks on the scheduler's loop: a spout has had a turn, a slot has
reported, or a timeout has passed. Each callback updates the pending trees, the backlog of the slots
and the acks and fails that spouts have not been told yet. Then every spout that has something to do
gets its next turn.

Nothing here survives the process. Messages that were not acked are still at their sources.

:class:`SpoutRunner` runs one spout task on its own thread, and decides when it has its next turn.
:class:`Meter` counts tuples and measures latencies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from txtopo.acking import EndedTrees, PendingTrees
from txtopo.config import Config
from txtopo.metadata import Json
from txtopo.runtime.figures import BUCKETS_S, Histogram
from txtopo.runtime.handle import IdleWaiters
from txtopo.runtime.listeners import Listeners
from txtopo.runtime.progress import (
    ErrorReported,
    Progressed,
    ReliableProgress,
    SlotLost,
    Started,
    Stopped,
    TopologyListener,
    TreesFailed,
)
from txtopo.runtime.reliable.carrier import SlotCarrier
from txtopo.runtime.reliable.credit import Credit
from txtopo.runtime.scheduler import ExecutorScheduler, SerialExecutor, Timer
from txtopo.stages.anchoring.envelope import Complaint, Count, SlotReport
from txtopo.stages.anchoring.sending import sent
from txtopo.stages.anchoring.spout_task import Ends, ReliableSpoutTask, Room, Turn
from txtopo.stages.program import Program

# Spouts wait while a slot has so many tuples to consume, which takes some tenths of a second. The
# limit for slow bolts is lower, see Credit.
BACKLOG_TUPLES_MAX = 50_000

PROGRESS_S = 1.0

# A spout task that a simulation has lost is opened again after this time.
REOPEN_S = 0.5


@dataclass(frozen=True, slots=True)
class ReliableContext:
    """An at-least-once topology and what it runs on."""

    program: Program
    config: Config
    carrier: SlotCarrier
    scheduler: ExecutorScheduler


class ReliableDriver:
    """Runs the spouts and ackers of an at-least-once topology.

    All methods are called on the loop, except ``start``, ``post`` and ``on_loop``.
    """

    def __init__(
        self,
        context: ReliableContext,
        listeners: Sequence[TopologyListener],
        *,
        active: bool,
        meter: Meter | None = None,
    ) -> None:
        self._program, self._config = context.program, context.config
        self._carrier, self._scheduler = context.carrier, context.scheduler
        self._listeners = Listeners(self._program.topology_id, listeners)
        spouts = [c for c in self._program.components.values() if c.role.spout]
        self._owners = [(spout, task) for spout in spouts for task in range(spout.tasks)]
        self.spouts = len(self._owners)
        self.slots = self._program.slots
        self.ackers = 1 if self._config.ackers is None else self._config.ackers
        self.trees = PendingTrees(self.spouts, self.ackers, self._ended)
        # That of the driver before, if the run was started again.
        self.meter = meter or Meter(self._scheduler.now, self._scheduler.wall_clock)
        self._backlog = [0] * self.slots
        self._credit = Credit(self.slots, self._config.message_timeout_s, BACKLOG_TUPLES_MAX)
        self._awaited = set(range(self.slots))
        self._runners: list[SpoutRunner] = []
        self._waiters = IdleWaiters()
        self._active = active
        self._opened = False
        self._stopping = False
        self._error: Exception | None = None
        self.asks = 0
        """The number of the last turn."""
        self.ended: Future[Exception | None] = Future()
        self.pace: dict[str, Json] | None = None
        """It has no batches."""

    @property
    def status(self) -> str:
        """One of starting, running, deactivated, stopping, stopped, failed."""
        if self.ended.done():
            return "failed" if self.ended.result() else "stopped"
        if self._stopping:
            return "stopping"
        if not self._active:
            return "deactivated"
        return "starting" if self._awaited else "running"

    @property
    def backlog(self) -> int:
        """The number of tuples that slots still have to consume."""
        return sum(self._backlog)

    @property
    def at_rest(self) -> bool:
        """Whether no tuple is in flight and every spout has been told of all ended trees."""
        quiet = all(not runner.busy and not runner.ends for runner in self._runners)
        return quiet and not self.backlog and not len(self.trees)

    @property
    def dry_ask(self) -> int:
        """The number of the turn since which each spout has had a turn without a tuple."""
        return min((runner.dry_turn for runner in self._runners), default=0)

    def start(self) -> None:
        """Start the loop. This, ``post`` and ``on_loop`` may be called on any thread."""
        self._scheduler.start(self._begin, self._crashed)

    def post(self, callback: Callable[[], None]) -> None:
        """Call *callback* on the loop soon."""
        self._scheduler.post(callback)

    def on_loop(self) -> bool:
        """Return whether the caller is the loop."""
        return self._scheduler.on_loop()

    def set_active(self, active: bool) -> None:
        """Activate or deactivate all spouts."""
        self._active = active
        if active and not self._opened and not self._stopping:
            self._open()
        self._go_on()

    def wait_for_rest(self, future: Future[None]) -> None:
        """Resolve *future* when no tuple is in flight and no spout has anything to emit."""
        if self._stopping:
            self._waiters.add(future, None)
            return
        self._waiters.add(future, self)
        self._go_on()

    def stop(self, error: Exception | None = None) -> None:
        """Stop the topology: close the spouts, clean up the bolts, drop tuples in flight."""
        if self._stopping:
            return
        self._stopping, self._error = True, error
        waiting = 1 + len(self._runners)

        def closed() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                self._finish()

        for runner in self._runners:
            runner.close(closed, self._complain)
        if self._opened:
            self._carrier.stop(closed)
        else:
            closed()

    def lose_spout(self, owner: int) -> None:
        """Lose a spout task and its memory, and open a new one. For simulations."""
        self._runners[owner].die()
        self.trees.forget(owner)
        fresh = self._runner(owner)
        self._runners[owner] = fresh
        self._scheduler.call_later(REOPEN_S, lambda: fresh.open(self._go_on))

    def slot_ready(self, slot: int) -> None:
        """Handle the start of a slot's life."""
        self._awaited.discard(slot)
        self._go_on()

    def slot_reported(self, slot: int, report: SlotReport) -> None:
        """Handle a report of a slot. While the topology stops, only its complaints count."""
        if self._stopping:
            self._complain(report.complaints)
            return
        self._add(report.sent)
        if report.consumed:
            self._credit.consumed(slot, report.consumed, self._scheduler.now())
            self._backlog[slot] = max(0, self._backlog[slot] - report.consumed)
        self.meter.count(report.counts)
        self._complain(report.complaints)
        if report.crash is not None:
            self.stop(report.crash.error)
            return
        if self.ackers:
            self.trees.ack(report.acked)
            self.trees.fail(report.failed)
            self.trees.renew(report.renewed)
        self._go_on()

    def slot_lost(self, slot: int, reason: str) -> None:
        """Forget the backlog and the credit of a lost slot, and tell the listeners."""
        self._backlog[slot] = 0
        self._credit.lost(slot)
        self.meter.slots_lost += 1
        self._listeners.tell(SlotLost(slot, reason))

    def tell_progress(self) -> None:
        """Tell the listeners the progress."""
        self._listeners.tell(Progressed(self.meter.progress(len(self.trees), self.backlog)))
        self.meter.begin_window()

    def _begin(self) -> None:
        self._listeners.tell(Started(self._program.topology_id))
        if self._active:
            self._open()

    def _open(self) -> None:
        self._opened = True
        self._carrier.start(self._program, self)
        self._runners = [self._runner(owner) for owner in range(self.spouts)]
        for runner in self._runners:
            runner.open(self._go_on)
        self._scheduler.call_later(self._config.message_timeout_s, self._rotate)
        self._scheduler.call_later(PROGRESS_S, self._show)

    def _runner(self, owner: int) -> SpoutRunner:
        component, task = self._owners[owner]
        scheduler = self._scheduler
        made = ReliableSpoutTask(
            self._program,
            component,
            task,
            scheduler.seed(),
            tracked=self.ackers > 0,
            now=scheduler.now,
        )
        pause_max_s = self._config.poll_interval_s
        return SpoutRunner(owner, made, scheduler, pause_max_s, self._turned, self._crashed)

    def _turned(self, runner: SpoutRunner, turn: Turn) -> None:
        if self._stopping:
            return
        self.meter.count(turn.counts)
        self.meter.emitted += turn.emitted
        self._complain(turn.complaints)
        if turn.emitted:
            tuples = sent(turn.sealed)
            self._add(tuples)
            self._credit.emitted(turn.emitted, tuples)
        if turn.messages:
            self.meter.begun(runner.owner, turn.messages)
            self.trees.begin(runner.owner, turn.begun, turn.messages, self._scheduler.now())
        self._carrier.send(turn.sealed)
        self._go_on()

    def _add(self, tuples: Counter[int]) -> None:
        """Add tuples to the backlog of slots."""
        for slot, more in tuples.items():
            if more and not self._backlog[slot]:
                self._credit.began(slot, self._scheduler.now())
            self._backlog[slot] += more

    def _go_on(self) -> None:
        """Give each spout that has something to do its next turn."""
        if self._stopping:
            return
        tuples = 0 if self._awaited else self._credit.room(self._backlog)
        # All spouts may emit at the same time, so they share the room.
        tuples = min(tuples, max(1, tuples // self.spouts))
        for runner in self._runners:
            room: int | None = 0
            if tuples:
                limit = self._config.max_spout_pending
                pending = int(self.trees.by_owner[runner.owner])
                room = None if limit is None else max(0, limit - pending)
            given = Room(trees=room, tuples=tuples)
            if runner.wake(self.asks + 1, active=self._active, room=given, ring=self._go_on):
                self.asks += 1
        if self._waiters.waiting and self.at_rest:
            self.tell_progress()
            self._waiters.resolve(self, active=self._active)

    def _ended(self, completed: EndedTrees, failed: EndedTrees) -> None:
        self.meter.complete(completed)
        for owner, message in zip(completed.owners.tolist(), completed.messages, strict=True):
            self._runners[owner].ends.acked.append(message)
        self._failed(failed, timed_out=False)

    def _failed(self, trees: EndedTrees, *, timed_out: bool) -> None:
        if not len(trees):
            return
        self.meter.fail(trees, timed_out=timed_out)
        by_owner: dict[int, list[object]] = {}
        for owner, message in zip(trees.owners.tolist(), trees.messages, strict=True):
            by_owner.setdefault(owner, []).append(message)
        reason = "timed out" if timed_out else "failed"
        for owner, messages in by_owner.items():
            runner = self._runners[owner]
            runner.ends.failed += messages
            self._listeners.tell(TreesFailed(*runner.name, tuple(messages), reason))

    def _rotate(self) -> None:
        if not self._stopping:
            self._failed(self.trees.rotate(), timed_out=True)
            self._scheduler.call_later(self._config.message_timeout_s, self._rotate)
            self._go_on()

    def _show(self) -> None:
        if not self._stopping:
            self.tell_progress()
            self._scheduler.call_later(PROGRESS_S, self._show)

    def _complain(self, complaints: Sequence[Complaint]) -> None:
        for each in complaints:
            self._listeners.tell(ErrorReported(each.component, each.task, each.error))

    def _crashed(self, error: BaseException) -> None:
        self.stop(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def _finish(self) -> None:
        self.tell_progress()
        self._listeners.tell(Stopped(self._program.topology_id, self._error))
        self._waiters.end(self._error)
        self._scheduler.stop()
        self.ended.set_result(self._error)


# A spout that emitted nothing has its next turn after this pause, which is Storm's. The pause then
# doubles each time, up to Config.poll_interval_s, so that an idle topology costs next to nothing.
PAUSE_S = 0.001

Made = Callable[["SpoutRunner", Turn], None]

Failed = Callable[[BaseException], None]


class SpoutRunner:
    """Gives one spout task its turns, one at a time, all on one thread. Used on the loop.

    Args:
        owner: Number of the task among all spout tasks.
        task: The task.
        scheduler: Provides time and threads.
        pause_max_s: Longest pause after a turn in which the spout emitted nothing.
        made: Called with the result of each turn.
        failed: Called with an exception that the spout raised.
    """

    def __init__(
        self,
        owner: int,
        task: ReliableSpoutTask,
        scheduler: ExecutorScheduler,
        pause_max_s: float,
        made: Made,
        failed: Failed,
    ) -> None:
        self.owner = owner
        self.name = task.name
        self.ends = Ends()
        """Acks and fails that the spout has not been told yet."""
        self.dry_turn = 0
        """Number of the last turn in which the spout had nothing to emit."""
        self.busy = True
        self._task = task
        self._scheduler = scheduler
        self._executor: SerialExecutor = scheduler.serial_executor("-".join(map(str, task.name)))
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

        self._executor.submit(self._task.open, done)

    def wake(self, number: int, *, active: bool, room: Room, ring: Callable[[], None]) -> bool:
        """Start a turn if there is something to do, and return whether one was started.

        Args:
            number: Number of the turn.
            active: Whether the topology is activated.
            room: How much the spout may emit; falsy if it must wait.
            ring: Called when a pause has ended.
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
        self._executor.submit(work, partial(self._turned, number, ring))
        return True

    def die(self) -> None:
        """Drop the task. Results of a turn that still runs are ignored."""
        self._dead = True
        if self._timer is not None:
            self._timer.cancel()
        self._executor.close()

    def close(
        self, closed: Callable[[], None], complain: Callable[[Sequence[Complaint]], None]
    ) -> None:
        """Close the spout when its current turn has ended, then call *closed*.

        Args:
            closed: Called in any case.
            complain: Called first if ``close`` raised an exception.
        """

        def done(future: Future[None]) -> None:
            error = future.exception()
            if error is not None:
                wrapped = error if isinstance(error, Exception) else RuntimeError(repr(error))
                complain([Complaint(*self.name, wrapped)])
            closed()

        self._executor.submit(self._task.close, done)
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


# The limit keeps a spout that never replays from filling the memory.
_FAILED_IDS_MAX = 100_000


class Meter:
    """Counts tuples and trees, and measures the latency of acked trees. Used on the loop.

    Args:
        now: Returns the seconds of a clock that only goes forward.
        wall_clock: Returns the seconds since 1970.
    """

    def __init__(self, now: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        self._now = now
        self._wall_clock = wall_clock
        self._counts: Counter[Count] = Counter()
        self._latencies: list[npt.NDArray[np.float64]] = []
        self._took = np.zeros(len(BUCKETS_S) + 1, np.int64)
        self._took_s = 0.0
        self._failed_ids: dict[tuple[int, Any], None] = {}
        self._since_s = now()
        self.acked = self.failed = self.timed_out = self.replays = 0
        self.emitted = self.slots_lost = 0

    def count(self, counts: Counter[Count]) -> None:
        """Add the counts of tasks."""
        self._counts.update(counts)

    def begun(self, owner: int, messages: Sequence[Any]) -> None:
        """Count trees that have begun. One whose message id had failed is a replay."""
        if not self._failed_ids:
            return
        for message in messages:
            if _hashable(message) and (owner, message) in self._failed_ids:
                del self._failed_ids[owner, message]
                self.replays += 1

    def complete(self, trees: EndedTrees) -> None:
        """Count trees that were fully processed."""
        if len(trees):
            self.acked += len(trees)
            latencies = self._now() - trees.started_s
            self._latencies.append(latencies)
            found = np.searchsorted(BUCKETS_S, latencies)
            self._took += np.bincount(found, minlength=len(self._took))
            self._took_s += float(latencies.sum())

    def fail(self, trees: EndedTrees, *, timed_out: bool) -> None:
        """Count trees that failed or timed out."""
        if timed_out:
            self.timed_out += len(trees)
        else:
            self.failed += len(trees)
        for owner, message in zip(trees.owners.tolist(), trees.messages, strict=True):
            if _hashable(message) and len(self._failed_ids) < _FAILED_IDS_MAX:
                self._failed_ids[owner, message] = None

    def progress(self, pending: int, backlog: int) -> ReliableProgress:
        """Return the progress. Rates and latencies cover the time since ``begin_window``."""
        now_s = self._now()
        latencies = np.concatenate(self._latencies) if self._latencies else np.empty(0)
        elapsed_s = now_s - self._since_s
        p50, p99 = np.percentile(latencies, (50, 99)).tolist() if len(latencies) else (None, None)
        return ReliableProgress(
            timestamp_s=self._wall_clock(),
            emitted=self.emitted,
            acked=self.acked,
            failed=self.failed,
            timed_out=self.timed_out,
            replays=self.replays,
            pending=pending,
            backlog=backlog,
            slots_lost=self.slots_lost,
            acked_per_second=len(latencies) / elapsed_s if elapsed_s > 0 else 0.0,
            latency_p50_s=p50,
            latency_p99_s=p99,
            executed=self._by("executed"),
            emitted_by=self._by("emitted"),
            acked_by=self._by("acked"),
            failed_by=self._by("failed"),
            latencies=Histogram(BUCKETS_S, self._took.tolist(), self._took_s),
        )

    def begin_window(self) -> None:
        """Begin a new window for rates and latencies."""
        self._since_s, self._latencies = self._now(), []

    def _by(self, what: str) -> dict[str, int]:
        return {id: count for (kind, id), count in self._counts.items() if kind == what}


def _hashable(message: Any) -> bool:
    try:
        hash(message)
    except TypeError:
        return False
    return True
