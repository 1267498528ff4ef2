"""Hosts: what runs in the Spark task of a slot, a loop until the driver ends it.

:class:`StageHost` computes the stages of a transactional topology. :class:`BoltHost` hosts the
bolts of an at-least-once topology; the rest is about that.

One thread does everything: it reads all messages that have come, has the slot process them, sends
the results, and waits. ZeroMQ's own threads receive, encrypt and send meanwhile.

The results of a work leave in parts, see :mod:`txtopo.stages.anchoring.slot`. The thread that
works owns the sockets, so it sends a part by itself, in the middle of the work: that puts the part
into the socket's queue and returns, and ZeroMQ's thread sends it, whatever ``execute`` does next. A
second thread only beats the pulse. Before a part is sent, the driver's messages are read: other
slots may have begun new lives since the work began, and what is sent to an earlier life is lost.
Whether this slot was cut off meanwhile does not matter until the work has ended, since the driver
drops its reports anyway.
"""

from __future__ import annotations

import os
from collections import Counter, deque

import zmq

from txtopo.collector import BEAT_S, Pulse
from txtopo.runtime.resident import wire
from txtopo.runtime.resident.in_flight import DRIVER
from txtopo.runtime.resident.sockets import listening
from txtopo.runtime.resident.transport import Peers, TaskSocket
from txtopo.runtime.resident.wire import Said, StageOrder, pack_answer, unpack_order
from txtopo.runtime.scheduler import Beat, this_thread
from txtopo.stages.anchoring.envelope import SlotReport, tuples_in
from txtopo.stages.anchoring.slot import Outcome, Slot
from txtopo.stages.pickling import loads
from txtopo.stages.program import Program
from txtopo.stages.stage import run_stage
from txtopo.stages.stage_context import Record

# A bound on one work, so that reports and acks do not wait for the end of a long backlog.
WORK_TUPLES_MAX = 20_000


class BoltHost:
    """Hosts the bolts of one slot for as long as its task runs.

    Args:
        program: The topology.
        link: The connection to the driver; closed when :meth:`run` ends.
    """

    def __init__(self, program: Program, link: TaskSocket) -> None:
        self._program = program
        self.link = link
        self._now = link.now
        self._life = 0
        self._slot: Slot | None = None
        self._intervals: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._pulse = Pulse()
        self._dormant = False
        self._working = self._cut_off = False
        self._records: list[bytes] = []
        # (life of the sender, tuples) of each record, in order: of the next work, and of this one.
        self._senders: list[tuple[int, int]] = []
        self._consuming: deque[tuple[int, int]] = deque()
        self._tuples = 0
        self._inbox, port = listening(link.context, zmq.PULL, link.keys, link.address)
        self._peers = Peers(link.context, link.keys)
        self._poller = zmq.Poller()
        self._poller.register(link.socket, zmq.POLLIN)
        self._poller.register(self._inbox, zmq.POLLIN)
        link.say(wire.HELLO, f"tcp://{link.address}:{port}".encode())

    def run(self) -> None:
        """Host the slot until the driver ends it, or is gone."""
        beat = Beat(BEAT_S, self._pulse.beat)
        try:
            while not self.link.over:
                self._poller.poll(self._wait_ms())
                self._listen()
                if self.link.gone:
                    break
                self._work()
        finally:
            beat.close()
            try:
                if self._slot is not None:
                    self._say_goodbye(self._slot.cleanup())
            finally:
                self.link.close()

    def _wait_ms(self) -> int:
        if self._tuples or (self._slot is not None and self._slot.emitted):
            return 0
        until_s = min([*self._due.values(), self.link.gone_s])
        return int(max(0.0, until_s - self._now()) * 1000) + 1

    def _listen(self) -> None:
        self._hear()
        # The driver's envelopes must not wait for those of other slots, nor the other way round, so
        # each gets a share.
        while self._tuples < 2 * WORK_TUPLES_MAX:
            try:
                lives, record = self._inbox.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            receiver, sender = wire.lives_of(lives)
            # It may be meant for the slot that listened at this port before.
            if receiver == self._life:
                self._take(sender, record)

    def _hear(self) -> None:
        while self._tuples < WORK_TUPLES_MAX:
            heard = self.link.hear()
            if heard is None:
                break
            self._obey(*heard)

    def _obey(self, kind: bytes, payload: list[bytes]) -> None:
        if kind == wire.ENVELOPES:
            for record in payload:
                self._take(DRIVER, record)
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
        if not self._dormant:
            tuples = tuples_in(record)
            self._records.append(record)
            self._senders.append((sender, tuples))
            self._tuples += tuples

    def _prepare(self, life: int) -> None:
        self._life = life
        seed = int.from_bytes(os.urandom(8), "little")
        slot = self._slot = Slot(
            self._program, self.link.slot, seed, self._pulse, self._leave, this_thread
        )
        report = slot.prepare()
        self._intervals = slot.ticks()
        self._due = {bolt: self._now() + each for bolt, each in self._intervals.items()}
        if report.crash is not None:
            self._tell(report, {})
        else:
            self.link.say(wire.READY)

    def _work(self) -> None:
        if self._slot is None:
            return
        now_s = self._now()
        ticks = [bolt for bolt, due_s in self._due.items() if due_s <= now_s]
        for bolt in ticks:
            # A slot that is late is not given two ticks for one.
            self._due[bolt] = now_s + self._intervals[bolt]
        if not self._records and not ticks and not self._slot.emitted:
            return
        records, self._records = self._records, []
        self._consuming, self._senders, self._tuples = deque(self._senders), [], 0
        self._working = True
        last = self._slot.work(records, ticks)
        self._working = False
        self._send(last)
        if self._cut_off:
            self._cut_off = False
            self._sleep()

    def _leave(self, part: Outcome) -> None:
        """Send a part of a work; called by the slot in the middle of it."""
        self._hear()
        self._send(part)

    def _send(self, part: Outcome) -> None:
        self._tell(part.report, self._peers.send(part.sealed))

    def _tell(self, report: SlotReport, sent: wire.Sent) -> None:
        said = Said(report, sent, self._consumed(report.consumed))
        self.link.say(wire.REPORT, wire.pack_said(said))

    def _consumed(self, tuples: int) -> dict[int, int]:
        """Return so many tuples of what the slot works on, by the life of their sender."""
        consumed: Counter[int] = Counter()
        while tuples:
            sender, rest = self._consuming.popleft()
            now = min(tuples, rest)
            consumed[sender] += now
            tuples -= now
            if now < rest:
                self._consuming.appendleft((sender, rest - now))
        return dict(consumed)

    def _say_goodbye(self, report: SlotReport) -> None:
        if self.link.over:
            self.link.say_goodbye(wire.pack_said(Said(report, {}, {})))

    def _sleep(self) -> None:
        """Clean the bolts up and wait to be stopped; see ``DORMANT``."""
        if self._slot is not None:
            self._slot.cleanup()
        self._slot, self._dormant = None, True
        self._records, self._senders, self._tuples, self._due = [], [], 0, {}


class StageHost:
    """Computes the stages of one order after the other, until the driver ends it.

    Args:
        program: The topology.
        link: The connection to the driver; closed when :meth:`run` ends.
    """

    def __init__(self, program: Program, link: TaskSocket) -> None:
        self._program = program
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
        # A task that is cut off and must not return gets nothing to do, and waits to be stopped.
        if kind == wire.WELCOME:
            self.link.say(wire.READY)
        elif kind == wire.STAGE:
            order, records = unpack_order(frames)
            sent = self._computed(order, records)
            self.link.say(wire.ANSWER, *pack_answer(order.number, sent))

    def _computed(self, order: StageOrder, received: list[bytes]) -> list[Record]:
        """Compute the levels of an order. Between them all records are for this slot."""
        sent: list[Record] = []
        for level in order.levels:
            stage = level.in_slot(self._program, self.link.slot, order.number)
            sent = list(run_stage(stage, received))
            received = [record for _, record in sent]
        return sent
