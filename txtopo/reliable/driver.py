"""ReliableDriver: the loop of an at-least-once topology.

Spouts, ackers and bolts live in slots. The driver receives the reports of the slots, and sends
their spouts grants, which limit how many tuples they may emit.

Rules
-----
1. A slot with spouts has one *grant*: the last one that was sent to it. The driver sends the next
   grant when a report shows that a spout has emitted under the last one, when the topology is
   activated or deactivated, and when a caller begins to wait for rest.
2. Spouts must not emit before all slots have become ready for the first time, nor while the slots
   have no room.
3. The topology is *at rest* when the backlog is 0, and each slot with spouts has reported that no
   tree is pending. That report must be newer than the last activation or deactivation, and show
   that the spouts have carried it out.
4. A caller that waits for rest waits until each spout has had a turn without a tuple, under a grant
   that was sent after the wait began.
5. When a slot is lost, its spouts and their pending trees are lost too. The slot counts as not at
   rest until its next life has reported.

A grant limits how many tuples each spout may emit: the room of the slots, computed from their
backlog and :mod:`~txtopo.reliable.credit`, divided by the number of spouts. Reports arrive in
order, and a tuple is reported no later than its tree and the turn that emitted it. So a report
covers all tuples that the slot had emitted by then.

The driver works per report, not per tuple. It stores nothing outside the process. Messages that
were not acked are still at their sources.

:class:`Meter` adds up counts and latencies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from txtopo.config import AtLeastOnceConfig
from txtopo.metadata import Json
from txtopo.reliable.anchoring.envelope import Complaint, Count, SlotReport, SpoutGrant, SpoutReport
from txtopo.reliable.anchoring.spout_task import ackers_of, spout_tasks
from txtopo.reliable.carrier import SlotCarrier
from txtopo.reliable.credit import Credit
from txtopo.runtime.handle import IdleWaiters
from txtopo.runtime.histogram import BUCKETS_S, Histogram
from txtopo.runtime.listeners import Listeners
from txtopo.runtime.progress import (
    AckerProgress,
    ErrorReported,
    Progressed,
    ReliableProgress,
    SlotLost,
    Started,
    Stopped,
    TopologyListener,
    TreesFailed,
)
from txtopo.runtime.scheduler import ExecutorScheduler
from txtopo.runtime.succession import as_exception
from txtopo.stages.compiled_topology import CompiledTopology

# Spouts wait while a slot has this many tuples to consume, which is a few tenths of a second of
# work. The limit for slow bolts is lower; see Credit.
BACKLOG_TUPLES_MAX = 50_000

PROGRESS_S = 1.0


@dataclass(frozen=True, slots=True)
class ReliableContext:
    """An at-least-once topology and what it runs on."""

    compiled: CompiledTopology
    config: AtLeastOnceConfig
    carrier: SlotCarrier
    scheduler: ExecutorScheduler


@dataclass(slots=True)
class _SpoutSlot:
    """What the driver knows about the spouts of a slot.

    Attributes:
        ready: Whether the slot has a life that accepts grants.
        granted: The last grant of this life, if any.
        stale: Whether a caller has begun to wait for rest since the last grant.
        since: Number of the grant that last activated or deactivated the topology.
        said: The last report of this life, if any.
    """

    ready: bool = False
    granted: SpoutGrant | None = None
    stale: bool = False
    since: int = 0
    said: SpoutReport | None = None

    @property
    def needs_grant(self) -> bool:
        """Whether the slot's last grant is missing, used up or out of date."""
        last, used = self.granted, self.said.used if self.said else 0
        return self.stale or last is None or not last.tuples or used >= last.number

    def rests(self, *, active: bool) -> bool:
        """Whether the slot has no pending tree, and its spouts obey *active*."""
        said = self.said
        if said is None or said.granted < self.since:
            return False
        return not said.pending and said.active == active


class ReliableDriver:
    """Runs an at-least-once topology.

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
        self._compiled, self._config = context.compiled, context.config
        self._carrier, self._scheduler = context.carrier, context.scheduler
        self._listeners = Listeners(self._compiled.topology_id, listeners)
        self.slots = self._compiled.slots
        self._spouts = len(spout_tasks(self._compiled))
        self._ackers = ackers_of(self._compiled)
        self.spout_slots = self._ackers.spout_slots
        self._spout_slots = [_SpoutSlot() for _ in range(self.spout_slots)]
        # After a restart, the meter of the previous driver.
        self.meter = meter or Meter(self._scheduler.now, self._scheduler.wall_clock)
        self._backlog = [0] * self.slots
        self._credit = Credit(self.slots, self._config.message_timeout_s, BACKLOG_TUPLES_MAX)
        self._awaited = set(range(self.slots))
        self._waiters = IdleWaiters()
        self._active = active
        self._opened = False
        self._stopping = False
        self._error: Exception | None = None
        self.asks = 0
        """The number of the last grant."""
        self.ended: Future[Exception | None] = Future()
        self.pace: dict[str, Json] | None = None
        """Always None: an at-least-once topology has no batches."""

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
    def pending(self) -> int:
        """The number of trees for which the spout's ``ack`` or ``fail`` was not called yet."""
        return sum(each.said.pending for each in self._spout_slots if each.said is not None)

    @property
    def progress(self) -> ReliableProgress:
        """The progress until now."""
        return self.meter.progress(self.pending, self.backlog, self._followed())

    @property
    def at_rest(self) -> bool:
        """Whether no tuple is in flight, and all ``ack`` and ``fail`` calls have been made."""
        if not self._opened:
            return True
        rest = all(each.rests(active=self._active) for each in self._spout_slots)
        return rest and not self.backlog

    @property
    def dry_ask(self) -> int:
        """The number of the grant since which no spout has had anything to emit; 0 if one may."""
        return min((each.said.dry if each.said else 0 for each in self._spout_slots), default=0)

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
        self.ask_all()

    def ask_all(self) -> None:
        """Grant each spout another turn, as soon as there is room."""
        for spouts in self._spout_slots:
            spouts.stale = True
        self._go_on()

    def stop(self, error: Exception | None = None) -> None:
        """Stop the topology: close the spouts, clean up the bolts, drop tuples in flight."""
        if self._stopping:
            return
        self._stopping, self._error = True, error
        if self._opened:
            self._carrier.stop(self._finish)
        else:
            self._finish()

    def slot_ready(self, slot: int) -> None:
        """Handle the start of a slot's life."""
        self._awaited.discard(slot)
        if slot < self.spout_slots:
            self._spout_slots[slot] = _SpoutSlot(ready=True)
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
        if report.spouts is not None:
            self._spouts_reported(slot, report.spouts)
        self._go_on()

    def slot_lost(self, slot: int, reason: str) -> None:
        """Forget what was known about a slot, and notify the listeners that it is lost."""
        self._backlog[slot] = 0
        if slot < self.spout_slots:
            said = self._spout_slots[slot].said
            self.meter.trees_lost += said.pending if said else 0
            self._spout_slots[slot] = _SpoutSlot()
        self._credit.lost(slot)
        self.meter.slots_lost += 1
        self._listeners.tell(SlotLost(slot, reason))

    def tell_progress(self) -> None:
        """Report the progress to the listeners."""
        self._listeners.tell(Progressed(self.progress))
        self.meter.begin_window()

    def _followed(self) -> list[AckerProgress]:
        """Return how many trees each acker follows now."""
        trees = Counter[int]()
        for each in self._spout_slots:
            trees.update(each.said.pending_by if each.said is not None else {})
        ackers = self._ackers
        return [
            AckerProgress(each, ackers.slot_of(each), trees[each]) for each in range(ackers.count)
        ]

    def _begin(self) -> None:
        self._listeners.tell(Started(self._compiled.topology_id))
        if self._active:
            self._open()

    def _open(self) -> None:
        self._opened = True
        self._carrier.start(self._compiled, self)
        self._scheduler.call_later(PROGRESS_S, self._show)

    def _spouts_reported(self, slot: int, said: SpoutReport) -> None:
        self._spout_slots[slot].said = said
        self.meter.add(said)
        if said.emitted:
            self._credit.emitted(said.emitted, said.sent)
        for trees in said.failed:
            reason = "timed out" if trees.timed_out else "failed"
            failed = TreesFailed(trees.component, trees.task, tuple(trees.messages), reason)
            self._listeners.tell(failed)

    def _add(self, tuples: Counter[int]) -> None:
        """Add tuples to the backlog of slots."""
        for slot, more in tuples.items():
            if more and not self._backlog[slot]:
                self._credit.began(slot, self._scheduler.now())
            self._backlog[slot] += more

    def _go_on(self) -> None:
        """Send a grant to each slot whose spouts need one.

        Waiters are resolved first, since they do not depend on the grants that follow.
        """
        if self._stopping:
            return
        if self._waiters.waiting and self.at_rest:
            self.tell_progress()
            self._waiters.resolve(self, active=self._active)
        tuples = 0 if self._awaited or not self._active else self._credit.room(self._backlog)
        # All spouts may emit at the same time, so they share the room.
        tuples = min(tuples, max(1, tuples // self._spouts))
        for slot, spouts in enumerate(self._spout_slots):
            if not spouts.ready:
                continue
            changes = spouts.granted is None or spouts.granted.active != self._active
            if changes or (tuples and spouts.needs_grant):
                self.asks += 1
                spouts.stale = False
                spouts.granted = SpoutGrant(self.asks, tuples, self._active)
                spouts.since = self.asks if changes else spouts.since
                self._carrier.grant(slot, spouts.granted)

    def _show(self) -> None:
        if not self._stopping:
            self.tell_progress()
            self._scheduler.call_later(PROGRESS_S, self._show)

    def _complain(self, complaints: Sequence[Complaint]) -> None:
        for each in complaints:
            self._listeners.tell(ErrorReported(each.component, each.task, each.error))

    def _crashed(self, error: BaseException) -> None:
        self.stop(as_exception(error))

    def _finish(self) -> None:
        self.tell_progress()
        self._listeners.tell(Stopped(self._compiled.topology_id, self._error))
        self._waiters.end(self._error)
        self._scheduler.stop()
        self.ended.set_result(self._error)


_BUCKETS_S = np.array(BUCKETS_S)


class Meter:
    """Adds up the tuples, the trees and the latencies that slots report. Used on the loop.

    Args:
        now: Returns the seconds of a monotonic clock.
        wall_clock: Returns the seconds since 1970.
    """

    def __init__(self, now: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        self._now = now
        self._wall_clock = wall_clock
        self._counts: Counter[Count] = Counter()
        self._ends: Counter[tuple[str, int]] = Counter()
        self._latencies: list[npt.NDArray[np.float32]] = []
        self._took = np.zeros(len(BUCKETS_S) + 1, np.int64)
        self._took_s = 0.0
        self._since_s = now()
        self.acked = self.failed = self.timed_out = self.replays = 0
        self.emitted = self.slots_lost = self.trees_lost = 0

    def count(self, counts: Counter[Count]) -> None:
        """Add the counts of tasks."""
        self._counts.update(counts)

    def add(self, said: SpoutReport) -> None:
        """Add the figures in a report of a slot's spouts."""
        self.emitted += said.emitted
        self.replays += said.replays
        self._ends.update(said.ends)
        for trees in said.failed:
            if trees.timed_out:
                self.timed_out += len(trees.messages)
            else:
                self.failed += len(trees.messages)
        latencies = said.latencies_s
        if len(latencies):
            self.acked += len(latencies)
            self._latencies.append(latencies)
            found = np.searchsorted(_BUCKETS_S, latencies)
            self._took += np.bincount(found, minlength=len(self._took))
            self._took_s += float(latencies.sum(dtype=np.float64))

    def progress(
        self, pending: int, backlog: int, followed: Sequence[AckerProgress] = ()
    ) -> ReliableProgress:
        """Return the progress. Rates and latencies cover the time since ``begin_window``.

        Args:
            pending: The number of pending trees.
            backlog: The number of tuples that wait in slots.
            followed: The ackers, with the trees that they follow now.
        """
        now_s = self._now()
        latencies = np.concatenate(self._latencies or [np.empty(0, np.float32)])
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
            trees_lost=self.trees_lost,
            ackers=[self._ended(each) for each in followed],
        )

    def begin_window(self) -> None:
        """Begin a new window for rates and latencies."""
        self._since_s, self._latencies = self._now(), []

    def _ended(self, acker: AckerProgress) -> AckerProgress:
        completed, failed, timed_out = (
            self._ends[how, acker.number] for how in ("completed", "failed", "timed out")
        )
        return replace(acker, completed=completed, failed=failed, timed_out=timed_out)

    def _by(self, what: str) -> dict[str, int]:
        return {id: count for (kind, id), count in self._counts.items() if kind == what}
