"""Hosts: the loop in the Spark task of a slot, until the driver ends it.

:class:`StageHost` computes the stages of a transactional topology. :class:`BoltHost` hosts the
bolts and spouts of an at-least-once topology; the rest of this text is about it.

One thread does everything except call the spouts: it reads all messages that have arrived, takes
the results of spouts, lets the bolts work, sends the results, and waits. Spouts have their own
threads (:mod:`txtopo.reliable.spout_host`), and their results arrive through a queue.
Meanwhile ZeroMQ's own threads receive, encrypt and send.

The results of a work leave in parts; see :mod:`txtopo.reliable.anchoring.slot`. The working thread
owns the sockets, so it sends a part itself, in the middle of the work. It puts the part into the
socket's queue and returns, and ZeroMQ's thread sends it, whatever ``execute`` does next. A second
thread only drives the flush timer. Before a part is sent, all messages are read: other slots may
have begun new lives since the work began, and records sent to an earlier life are lost. The acks
that have arrived are processed at that point too, and the results of spouts leave with the part. So
a bolt that does not call the collector for a long time delays the acks and the tuples of its slot's
spouts. It also delays timeouts: they count only after all acks that have arrived were read.

A slot that was cut off sends nothing more once it has read that message. The driver drops its
reports anyway.
"""

from __future__ import annotations

from collections import Counter, deque

import zmq

from txtopo.reliable.anchoring.answers import is_of_trees
from txtopo.reliable.anchoring.envelope import SlotReport, tuples_in
from txtopo.reliable.anchoring.sending import Sealed
from txtopo.reliable.anchoring.slot import Outcome, Slot
from txtopo.reliable.collector import FLUSH_INTERVAL_S, FlushTimer
from txtopo.reliable.spout_host import SpoutHost
from txtopo.resident import wire
from txtopo.resident.sockets import listening
from txtopo.resident.task_loop import TaskLoop
from txtopo.resident.transport import Peers, TaskSocket
from txtopo.resident.wire import StageOrder, WireReport, pack_answer, unpack_order
from txtopo.runtime.scheduler import RepeatingTimer, this_thread
from txtopo.stages.compiled_topology import CompiledTopology
from txtopo.stages.pickling import loads
from txtopo.stages.stage import run_stage
from txtopo.stages.stage_context import Record

# Limits one work, so that reports and acks do not wait for the end of a long backlog.
WORK_TUPLES_MAX = 20_000


class BoltHost:
    """Hosts the bolts and spouts of one slot for as long as its task runs.

    Args:
        compiled: The topology.
        link: The connection to the driver; closed when :meth:`run` ends.
    """

    def __init__(self, compiled: CompiledTopology, link: TaskSocket) -> None:
        self._compiled = compiled
        self.link = link
        self._now = link.now
        self.loop = TaskLoop()
        """The loop of the task."""
        self.spouts: SpoutHost | None = None
        """Its spouts; None while it has no life."""
        self._life = 0
        self._slot: Slot | None = None
        self._intervals: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._flush_timer = FlushTimer()
        self._dormant = False
        self._working = self._cut_off = self._changed = False
        # Received envelopes: (life of the sender, tuples, envelope).
        self._waiting: deque[tuple[int, int, bytes]] = deque()
        # (life of the sender, tuples) of each envelope of this work, in order.
        self._consuming: deque[tuple[int, int]] = deque()
        self._sent: Counter[tuple[int, int]] = Counter()
        self._inbox, port = listening(link.context, zmq.PULL, link.keys, link.address)
        self._peers = Peers(link.context, link.keys)
        self._poller = zmq.Poller()
        for socket in (link.socket, self._inbox, self.loop):
            self._poller.register(socket, zmq.POLLIN)
        link.say(wire.HELLO, f"tcp://{link.address}:{port}".encode())

    def run(self) -> None:
        """Host the slot until the driver ends it, or is gone."""
        timer = RepeatingTimer(FLUSH_INTERVAL_S, self._flush_timer.interval_over)
        try:
            while not self.link.over:
                self._poller.poll(self._wait_ms())
                self._take_in()
                if self.link.gone:
                    break
                self._work()
                self._tell_changes()
        finally:
            timer.close()
            try:
                self._end()
            finally:
                self.link.close()
                self.loop.close()

    def _wait_ms(self) -> int:
        if self._waiting or (self._slot is not None and self._slot.emitted):
            return 0
        until_s = min([*self._due.values(), self.link.gone_s])
        wait_s = min(until_s - self._now(), self.loop.wait_s)
        return int(max(0.0, wait_s) * 1000) + 1

    def _take_in(self) -> None:
        """Process all messages first, and then timers: a tree that was acked has not timed out."""
        while (heard := self.link.hear()) is not None:
            self._obey(*heard)
        while True:
            try:
                lives, record = self._inbox.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            receiver, sender = wire.lives_of(lives)
            # It may be meant for a slot that listened on this port earlier.
            if receiver == self._life:
                self._take(sender, record)
        if self.spouts is not None:
            self.spouts.go_on()
        self.loop.run()

    def _obey(self, kind: bytes, payload: list[bytes]) -> None:
        if kind == wire.GRANT:
            if self.spouts is not None:
                self.spouts.grant(loads(payload[0]))
        elif kind == wire.DIRECTORY:
            self._peers.learn(self._life, loads(payload[0]))
        elif kind == wire.WELCOME:
            self._prepare(loads(payload[0]))
        elif kind == wire.CUT_OFF and not self.link.over:
            if self._working:
                self._cut_off = True
            else:
                self._sleep()

    def _take(self, sender: int, record: bytes) -> None:
        if self.spouts is None:
            return
        if is_of_trees(record):
            self.spouts.hear(record)
        else:
            self._waiting.append((sender, tuples_in(record), record))

    def _prepare(self, life: int) -> None:
        self._life = life
        seed = self.loop.seed()
        slot = self._slot = Slot(
            self._compiled, self.link.slot, seed, self._flush_timer, self._leave, this_thread
        )
        self.spouts = SpoutHost(
            self._compiled, self.link.slot, self.loop, self._dispatch, self._change
        )
        self.spouts.open()
        report = slot.prepare()
        self._intervals = slot.ticks()
        self._due = {bolt: self._now() + each for bolt, each in self._intervals.items()}
        if report.crash is not None:
            self._tell(report)
        else:
            self.link.say(wire.READY)

    def _work(self) -> None:
        if self._slot is None:
            return
        now_s = self._now()
        ticks = [bolt for bolt, due_s in self._due.items() if due_s <= now_s]
        for bolt in ticks:
            # If a slot is late, it gets one tick, not several.
            self._due[bolt] = now_s + self._intervals[bolt]
        if not self._waiting and not ticks and not self._slot.emitted:
            return
        records, tuples = [], 0
        while self._waiting and tuples < WORK_TUPLES_MAX:
            sender, more, record = self._waiting.popleft()
            records.append(record)
            self._consuming.append((sender, more))
            tuples += more
        self._working = True
        self._leave(self._slot.work(records, ticks))
        self._working = False
        if self._cut_off:
            self._cut_off = False
            self._sleep()

    def _leave(self, part: Outcome) -> None:
        """Send a part of a work; the slot calls this in the middle of it."""
        self._take_in()
        if self._cut_off:
            return
        self._dispatch(part.sealed)
        if self.spouts is not None:
            self.spouts.go_on()
        self._tell(part.report)

    def _dispatch(self, sealed: list[Sealed]) -> None:
        """Send records to their slots, and keep the records for this slot."""
        own = self.link.slot
        self._sent.update(self._peers.send([each for each in sealed if each.to_slot != own]))
        for each in sealed:
            if each.to_slot == own:
                if each.tuples:
                    self._sent[own, self._life] += each.tuples
                self._take(self._life, each.record)

    def _change(self) -> None:
        """Record that the spouts have something to report, which the next report contains."""
        self._changed = True

    def _tell_changes(self) -> None:
        if self._changed:
            self._tell(SlotReport(), wire.NEWS)

    def _tell(self, report: SlotReport, kind: bytes = wire.REPORT) -> None:
        self._changed = False
        taken = None if self.spouts is None else self.spouts.take()
        if taken is not None:
            report.spouts = taken.spouts
            report.counts.update(taken.counts)
            report.complaints += taken.complaints
            report.crash = report.crash or taken.crash
        sent, self._sent = dict(self._sent), Counter()
        report_on_wire = WireReport(report, sent, self._consumed(report.consumed))
        self.link.say(kind, wire.pack_report(report_on_wire))

    def _consumed(self, tuples: int) -> dict[int, int]:
        """Remove *tuples* tuples from the current work; return them by the life of their sender."""
        consumed: Counter[int] = Counter()
        while tuples:
            sender, rest = self._consuming.popleft()
            now = min(tuples, rest)
            consumed[sender] += now
            tuples -= now
            if now < rest:
                self._consuming.appendleft((sender, rest - now))
        return dict(consumed)

    def _end(self) -> None:
        """Close the spouts, clean up the bolts, and report their exceptions."""
        slot, spouts = self._slot, self.spouts
        if slot is None or spouts is None:
            return
        self._close(spouts)
        report = slot.cleanup()
        if self.link.over:
            taken = spouts.take()
            report.complaints += taken.complaints if taken is not None else []
            self.link.say_goodbye(wire.pack_report(WireReport(report, {}, {})))

    def _close(self, spouts: SpoutHost) -> None:
        """Wait until the spouts are closed, but not forever: one may hang.

        They are closed even if the driver is gone: a client that stayed open in this process would
        withhold messages from others.
        """
        closed: list[bool] = []
        spouts.close(lambda: closed.append(True))
        until_s = self._now() + self.link.silence_s
        while not closed and self._now() < until_s:
            self._poller.poll(100)
            while self.link.hear() is not None:
                pass
            self.loop.run()

    def _sleep(self) -> None:
        """Drop the spouts, clean up the bolts and wait to be stopped; see ``DORMANT``."""
        if self.spouts is not None:
            self.spouts.close(_nothing)
        if self._slot is not None:
            self._slot.cleanup()
        self._slot = self.spouts = None
        self._waiting.clear()
        self._due = {}


def _nothing() -> None:
    """Do nothing: nothing waits for the spouts of a slot that was cut off to close."""


class StageHost:
    """Computes the stages of one order after the other, until the driver ends it.

    Args:
        compiled: The topology.
        link: The connection to the driver; closed when :meth:`run` ends.
    """

    def __init__(self, compiled: CompiledTopology, link: TaskSocket) -> None:
        self._compiled = compiled
        self.link = link
        link.say(wire.HELLO, b"")

    def run(self) -> None:
        """Host the slot until the driver ends it, or is gone."""
        try:
            while not self.link.over:
                left_s = max(0.0, self.link.gone_s - self.link.now())
                self.link.socket.poll(int(left_s * 1000) + 1)
                while (heard := self.link.hear()) is not None:
                    self._obey(*heard)
                if self.link.gone:
                    break
        finally:
            self.link.close()

    def _obey(self, kind: bytes, frames: list[bytes]) -> None:
        # A task that was cut off and must not return gets no work, and waits to be stopped.
        if kind == wire.WELCOME:
            self.link.say(wire.READY)
        elif kind == wire.STAGE:
            order, records = unpack_order(frames)
            sent = self._computed(order, records)
            self.link.say(wire.ANSWER, *pack_answer(order.number, sent))

    def _computed(self, order: StageOrder, received: list[bytes]) -> list[Record]:
        """Compute the levels of an order. All records between two levels are for this slot."""
        sent: list[Record] = []
        for level in order.levels:
            stage = level.in_slot(self._compiled, self.link.slot, order.number)
            sent = list(run_stage(stage, received))
            received = [record for _, record in sent]
        return sent
