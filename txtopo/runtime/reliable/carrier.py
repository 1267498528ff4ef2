"""SlotCarrier: what hosts slots that live long and moves envelopes to them. The border to build on.

The driver knows slots by number. The carrier brings each to life, moves envelopes to it, from the
driver and from other slots, and tells the driver of everything that happens. Promises:

1. All calls come from the driver's loop and return at once; all calls of the listener are made on
   the loop.
2. A work takes as long as its bolts do, and what comes of it leaves in parts while it goes on: the
   carrier beats the slot's pulse, and hands on each part, envelopes first, whatever ``execute``
   does next. A slot's reports come in the order in which it made them, those of its current *life*
   only. A life begins with ``ready`` and ends with ``lost``; the number of a life grows. A slot
   that comes to life again anywhere, because it died or seemed dead, cuts its earlier lives off: a
   report of an earlier life is never told. (An envelope of an earlier life may still arrive: that
   is harmless.)
3. An envelope arrives once or not at all, in a life of its slot. What was sent to a slot before
   ``lost`` was told may be dropped; what is sent later arrives in the next life. A lost envelope is
   not missed by anyone here: its trees time out.
4. What is sent is never refused and nobody waits: the driver looks after the backlog, see
   :mod:`txtopo.stages.anchoring`. It adds up what reports say was consumed and sent to whom,
   starts from zero when a slot is lost, and takes what gets below zero for zero. So a carrier
   leaves out of a report's *sent* what it knows to be lost: tuples for an earlier life of their
   receiver; they would keep spouts waiting for ever.
5. User code that raises is a *crash* in a report, and ends the run. A slot that cannot be brought
   to life is told as ``lost`` again and again.
6. A slot runs on one thread from ``prepare`` to ``cleanup``, and gives its bolts their ticks from a
   clock of its own.

LocalSlots: the carrier ``local``. Slots live in this process, a lane each.

What comes for a slot while it works waits, and is its next work, all of it at once: the more there
is to do, the larger the works and the cheaper each tuple. Envelopes from slot to slot pass through
the loop, and so do the parts of a work that leave before its end, in order. A timer beats the pulse
of a slot while it works. ``kill`` is for tests and simulations: it does to a slot what a crash of
its worker does.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from txtopo.collector import BEAT_S, Pulse
from txtopo.runtime.scheduler import LaneScheduler, SerialExecutor, Timer, this_thread
from txtopo.stages.anchoring.envelope import SlotReport
from txtopo.stages.anchoring.sending import Sealed
from txtopo.stages.anchoring.slot import Outcome, Slot
from txtopo.stages.program import Program


class SlotListener(Protocol):
    """Who is told of slots: the driver."""

    def slot_ready(self, slot: int) -> None:
        """Take note that a slot has come to life; its bolts are prepared."""
        ...

    def slot_reported(self, slot: int, report: SlotReport) -> None:
        """Take in a report."""
        ...

    def slot_lost(self, slot: int, reason: str) -> None:
        """Take note that a slot is gone, with its bolts' memory; another life will follow."""
        ...


class SlotCarrier(Protocol):
    """Hosts the slots of one run."""

    def start(self, program: Program, listener: SlotListener) -> None:
        """Bring all slots to life."""
        ...

    def send(self, sealed: list[Sealed]) -> None:
        """Send envelopes of the driver to their slots."""
        ...

    def stop(self, done: Callable[[], None]) -> None:
        """Let the bolts clean up and the slots end, then call *done*.

        Nothing is told any more but the report of each ``cleanup``, with its complaints.
        """
        ...


# How long it takes until a slot that was killed is back, about that of a Python worker of Spark.
REVIVE_S = 0.5


@dataclass(slots=True)
class _Life:
    """One life of a slot.

    Attributes:
        slot: What lives, on its lane.
        lane: Its thread.
        number: Which life of the slot it is.
        ready: Whether its bolts are prepared.
        working: Whether it works now.
        pulse: Says when a part of its work is due to leave.
        worked_s: When its last work ended.
        beating: Whether a timer beats the pulse.
        timers: Its ticks.
        ticks: Bolts whose tick is due.
    """

    slot: Slot
    lane: SerialExecutor
    number: int
    pulse: Pulse
    worked_s: float = 0.0
    beating: bool = False
    ready: bool = False
    working: bool = False
    timers: dict[str, Timer] = field(default_factory=dict)
    ticks: list[str] = field(default_factory=list)


class LocalSlots:
    """Hosts slots in this process. Used on the loop."""

    def __init__(self, scheduler: LaneScheduler) -> None:
        self._scheduler = scheduler
        self._lives: dict[int, _Life] = {}
        self._inboxes: list[list[bytes]] = []
        self._stopping = False

    def start(self, program: Program, listener: SlotListener) -> None:
        """Bring all slots to life."""
        self._program, self._listener = program, listener
        self._inboxes = [[] for _ in range(program.slots)]
        for slot in range(program.slots):
            self._revive(slot, 1)

    def send(self, sealed: list[Sealed]) -> None:
        """Put envelopes into the inboxes of their slots."""
        for each in sealed:
            self._inboxes[each.to_slot].append(each.record)
        for slot in {each.to_slot for each in sealed}:
            self._work(slot)

    def kill(self, slot: int) -> None:
        """Lose a slot with its bolts' memory and what is on its way to it."""
        life = self._lives.pop(slot, None)
        if life is None or self._stopping:
            return
        self._end(life)
        self._inboxes[slot].clear()
        self._listener.slot_lost(slot, "it was killed")
        self._scheduler.call_later(REVIVE_S, partial(self._revive, slot, life.number + 1))

    def stop(self, done: Callable[[], None]) -> None:
        """Let the bolts clean up, each on its lane."""
        self._stopping = True
        waiting = set(self._lives)

        def cleaned(slot: int, future: Future[SlotReport]) -> None:
            waiting.discard(slot)
            if future.exception() is None:
                self._listener.slot_reported(slot, future.result())
            if not waiting:
                done()

        if not waiting:
            done()
        for slot, life in self._lives.items():
            life.lane.submit(life.slot.cleanup, partial(cleaned, slot))
            self._end(life)

    def _revive(self, slot: int, number: int) -> None:
        if self._stopping:
            return
        pulse = Pulse()

        def leave(part: Outcome) -> None:
            self._scheduler.post(partial(self._left, slot, life, part))

        made = Slot(self._program, slot, self._scheduler.seed(), pulse, leave, thread=this_thread)
        life = _Life(made, self._scheduler.lane(f"slot-{slot}"), number, pulse)
        self._lives[slot] = life
        life.lane.submit(made.prepare, partial(self._prepared, slot, life))

    def _prepared(self, slot: int, life: _Life, future: Future[SlotReport]) -> None:
        if self._gone(slot, life):
            return
        report = future.result()
        if report.crash is not None:
            self._listener.slot_reported(slot, report)
            return
        life.ready = True
        for bolt, interval_s in life.slot.ticks().items():
            self._wind(slot, life, bolt, interval_s)
        self._listener.slot_ready(slot)
        self._work(slot, due=life.slot.emitted)

    def _wind(self, slot: int, life: _Life, bolt: str, interval_s: float) -> None:
        def tick() -> None:
            # A slot that is late is not given two ticks for one.
            if bolt not in life.ticks:
                life.ticks.append(bolt)
            self._wind(slot, life, bolt, interval_s)
            self._work(slot)

        life.timers[bolt] = self._scheduler.call_later(interval_s, tick)

    def _work(self, slot: int, *, due: bool = False) -> None:
        life = self._lives.get(slot)
        if life is None or not life.ready or life.working:
            return
        records, self._inboxes[slot] = self._inboxes[slot], []
        ticks, life.ticks = life.ticks, []
        if records or ticks or due:
            life.working = True
            self._beat(life)
            work = partial(life.slot.work, records, ticks)
            life.lane.submit(work, partial(self._worked, slot, life))

    def _beat(self, life: _Life) -> None:
        if not life.beating:
            # The first tuples after a rest need not wait for others.
            if self._scheduler.now() - life.worked_s >= BEAT_S:
                life.pulse.beat()
            life.beating = True
            self._scheduler.call_later(BEAT_S, partial(self._beaten, life))

    def _beaten(self, life: _Life) -> None:
        life.beating = False
        if life.working:
            life.pulse.beat()
            life.beating = True
            self._scheduler.call_later(BEAT_S, partial(self._beaten, life))

    def _left(self, slot: int, life: _Life, part: Outcome) -> None:
        if not self._gone(slot, life):
            self.send(part.sealed)
            self._listener.slot_reported(slot, part.report)

    def _worked(self, slot: int, life: _Life, future: Future[Outcome]) -> None:
        if self._gone(slot, life):
            return
        life.working, life.worked_s = False, self._scheduler.now()
        outcome = future.result()
        self.send(outcome.sealed)
        self._listener.slot_reported(slot, outcome.report)
        self._work(slot)

    def _gone(self, slot: int, life: _Life) -> bool:
        return self._stopping or self._lives.get(slot) is not life

    def _end(self, life: _Life) -> None:
        for timer in life.timers.values():
            timer.cancel()
        life.lane.close()
