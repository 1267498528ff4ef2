"""SlotCarrier: hosts the slots of an at-least-once topology, and moves records between them.

The driver identifies slots by number. The carrier starts each slot, with its bolts and its spouts.
It moves envelopes and answers from slot to slot, grants from the driver to slots, and reports from
slots to the driver. A *life* of a slot begins with ``slot_ready`` and ends with ``slot_lost``; each
life has a higher number than the last.

Rules
-----
1. The driver gets no report from an earlier life of a slot.
2. A part of a work leaves while the bolts continue.
3. A record that is sent to a slot after ``slot_lost`` was called arrives in its next life.
4. Tuples that were on their way to a slot when it was lost are not reported as sent afterwards:
   spouts would wait for them forever.
5. An exception of user code becomes a *crash* in a report, and ends the topology.
6. The bolts of a slot run on one thread from ``prepare`` to ``cleanup``, and each spout task runs
   on one thread from ``open`` to ``close``.

Theory of operation
-------------------
The driver makes all calls on its loop, and they return at once. The listener is also called on that
loop. Grants that are sent to a slot between ``slot_ready`` and ``slot_lost`` arrive, in order.

A call of ``Slot.work`` takes as long as its bolts need. Meanwhile the carrier drives the slot's
flush timer, so that parts leave, each with its records first and then its report. The report of the
slot's spouts leaves with the parts, or at once if no bolt is working. The driver gets the reports
of a slot in the order in which they were made.

A record arrives once or not at all. A record that was sent to a slot before ``slot_lost`` was
called may be dropped. Nothing here detects that; its trees time out. A record from an earlier life
may still arrive, which is harmless.

Slots never wait for each other. The driver limits the backlog; see
:mod:`txtopo.reliable.anchoring`. It computes the backlog of a slot from the consumed and sent
tuples in reports. When a slot is lost, its backlog becomes zero. It never becomes negative.

While a slot cannot be started, ``slot_lost`` is called repeatedly. Ticks and timeouts follow the
slot's own clock.

:class:`LocalSlots` is the carrier ``local``. Its slots live in this process: the bolts of each slot
have a thread, and their spouts are hosted on the loop. All envelopes that arrive for a slot while
it works go to its next call of ``work``. So the more there is to do, the cheaper each tuple
becomes. Records between slots pass through the loop in order, and so do the parts of a work. A
timer drives the flush timer of a slot while it works.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from txtopo.reliable.anchoring.answers import is_of_trees
from txtopo.reliable.anchoring.envelope import SlotReport, SpoutGrant
from txtopo.reliable.anchoring.sending import Sealed
from txtopo.reliable.anchoring.slot import Outcome, Slot
from txtopo.reliable.collector import FLUSH_INTERVAL_S, FlushTimer
from txtopo.reliable.spout_host import SpoutHost
from txtopo.runtime.scheduler import ExecutorScheduler, SerialExecutor, Timer, this_thread
from txtopo.stages.compiled_topology import CompiledTopology


class SlotListener(Protocol):
    """Receives the events of slots. The driver implements it."""

    def slot_ready(self, slot: int) -> None:
        """Handle the start of a slot's life: bolts are prepared, and spouts are being opened."""
        ...

    def slot_reported(self, slot: int, report: SlotReport) -> None:
        """Handle a report of a slot."""
        ...

    def slot_lost(self, slot: int, reason: str) -> None:
        """Handle the loss of a slot with everything in it. The slot will be started again."""
        ...


class SlotCarrier(Protocol):
    """Hosts the slots of one topology; see the module's text."""

    def start(self, compiled: CompiledTopology, listener: SlotListener) -> None:
        """Start all slots."""
        ...

    def grant(self, slot: int, grant: SpoutGrant) -> None:
        """Send a grant to the spouts of a slot that is ready."""
        ...

    def stop(self, done: Callable[[], None]) -> None:
        """Close the spouts, clean up the bolts and end the slots, then call *done*.

        The listener is not called any more, except with exceptions of ``close`` and ``cleanup``.
        """
        ...


# A killed slot is started again after this time, about as long as a Python worker of Spark takes.
REVIVE_S = 0.5


@dataclass(slots=True)
class _Life:
    """One life of a slot.

    Attributes:
        slot: The slot, which is used on its own thread.
        spouts: The slot's spouts, which are used on the loop.
        executor: Runs calls on that thread.
        number: Number of the life.
        flush_timer: Determines when a part of a work is due to leave.
        worked_s: Time at which its last work ended.
        timed: Whether a timer of the scheduler drives the flush timer.
        ready: Whether its bolts are prepared.
        working: Whether it works now.
        timers: The timers of its ticks, by bolt.
        ticks: Bolts whose tick is due.
    """

    slot: Slot
    spouts: SpoutHost
    executor: SerialExecutor
    number: int
    flush_timer: FlushTimer
    worked_s: float = 0.0
    timed: bool = False
    ready: bool = False
    working: bool = False
    timers: dict[str, Timer] = field(default_factory=dict)
    ticks: list[str] = field(default_factory=list)


class LocalSlots:
    """Hosts slots in this process. Used on the loop."""

    def __init__(self, scheduler: ExecutorScheduler) -> None:
        self._scheduler = scheduler
        self._lives: dict[int, _Life] = {}
        self._inboxes: list[list[bytes]] = []
        self._stopping = False

    def start(self, compiled: CompiledTopology, listener: SlotListener) -> None:
        """Start all slots."""
        self._compiled, self._listener = compiled, listener
        self._inboxes = [[] for _ in range(compiled.slots)]
        for slot in range(compiled.slots):
            self._revive(slot, 1)

    def grant(self, slot: int, grant: SpoutGrant) -> None:
        """Pass a grant to the spouts of a slot."""
        life = self._lives[slot]

        def take() -> None:
            if not self._gone(slot, life):
                life.spouts.grant(grant)

        self._scheduler.post(take)

    def lose_acker(self, slot: int) -> None:
        """Erase the memory of a slot's ackers, for tests and simulations."""
        life = self._lives.get(slot)
        if life is not None:
            life.spouts.lose_ackers()

    def kill(self, slot: int) -> None:
        """Simulate the crash of a slot's worker, for tests and simulations.

        The memory of its bolts and spouts, their pending trees and all records on their way to the
        slot are lost. The slot is started again after ``REVIVE_S``.
        """
        life = self._lives.pop(slot, None)
        if life is None or self._stopping:
            return
        self._end(life)
        life.spouts.die()
        self._inboxes[slot].clear()
        self._listener.slot_lost(slot, "it was killed")
        self._scheduler.call_later(REVIVE_S, partial(self._revive, slot, life.number + 1))

    def stop(self, done: Callable[[], None]) -> None:
        """Close the spouts and clean up the bolts, each on its own thread, then call *done*."""
        self._stopping = True
        waiting = 1 + 2 * len(self._lives)

        def ended(slot: int, report: SlotReport | None) -> None:
            nonlocal waiting
            waiting -= 1
            if report is not None:
                self._listener.slot_reported(slot, report)
            if not waiting:
                done()

        def cleaned(slot: int, future: Future[SlotReport]) -> None:
            ended(slot, None if future.exception() else future.result())

        def closed(slot: int, spouts: SpoutHost) -> None:
            ended(slot, spouts.take())

        for slot, life in self._lives.items():
            life.executor.submit(life.slot.cleanup, partial(cleaned, slot))
            life.spouts.close(partial(closed, slot, life.spouts))
            self._end(life)
        ended(0, None)

    def _revive(self, slot: int, number: int) -> None:
        if self._stopping:
            return
        flush_timer = FlushTimer()

        def leave(part: Outcome) -> None:
            self._scheduler.post(partial(self._left, slot, life, part))

        def changed() -> None:
            report = None if self._gone(slot, life) else life.spouts.take()
            if report is not None:
                self._listener.slot_reported(slot, report)

        made = Slot(
            self._compiled, slot, self._scheduler.seed(), flush_timer, leave, thread=this_thread
        )
        spouts = SpoutHost(self._compiled, slot, self._scheduler, self._send, changed)
        executor = self._scheduler.serial_executor(f"slot-{slot}")
        self._lives[slot] = life = _Life(made, spouts, executor, number, flush_timer)
        life.executor.submit(made.prepare, partial(self._prepared, slot, life))
        spouts.open()

    def _send(self, sealed: list[Sealed]) -> None:
        """Put envelopes into the inboxes of their slots, and give the rest to their hosts."""
        for each in sealed:
            if not is_of_trees(each.record):
                self._inboxes[each.to_slot].append(each.record)
            elif (life := self._lives.get(each.to_slot)) is not None:
                life.spouts.hear(each.record)
        for slot in dict.fromkeys(each.to_slot for each in sealed):
            self._work(slot)
            if (life := self._lives.get(slot)) is not None:
                life.spouts.go_on()

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
            # If a slot is late, it gets one tick, not several.
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
            self._time_flushes(life)
            work = partial(life.slot.work, records, ticks)
            life.executor.submit(work, partial(self._worked, slot, life))

    def _time_flushes(self, life: _Life) -> None:
        if not life.timed:
            # The first tuples after a pause leave at once.
            if self._scheduler.now() - life.worked_s >= FLUSH_INTERVAL_S:
                life.flush_timer.interval_over()
            life.timed = True
            self._scheduler.call_later(FLUSH_INTERVAL_S, partial(self._flush_interval_over, life))

    def _flush_interval_over(self, life: _Life) -> None:
        life.timed = False
        if life.working:
            life.flush_timer.interval_over()
            life.timed = True
            self._scheduler.call_later(FLUSH_INTERVAL_S, partial(self._flush_interval_over, life))

    def _left(self, slot: int, life: _Life, part: Outcome) -> None:
        if not self._gone(slot, life):
            self._send(part.sealed)
            self._listener.slot_reported(slot, part.report)

    def _worked(self, slot: int, life: _Life, future: Future[Outcome]) -> None:
        if self._gone(slot, life):
            return
        life.working, life.worked_s = False, self._scheduler.now()
        outcome = future.result()
        self._send(outcome.sealed)
        self._listener.slot_reported(slot, outcome.report)
        self._work(slot)

    def _gone(self, slot: int, life: _Life) -> bool:
        return self._stopping or self._lives.get(slot) is not life

    def _end(self, life: _Life) -> None:
        for timer in life.timers.values():
            timer.cancel()
        life.executor.close()
