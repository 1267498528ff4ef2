"""Resident slots with bolts in virtual time, from one seed: who is heard, and what is under way.

As :mod:`tests.faults.slots.simulation`, with the slots of at-least-once topologies as the user of
the supervisor. The driver grants slots turns, in which their spouts send tuples to any slot, also
their own. Tasks send tuples on to each other, and the driver adds up what reports say. The sum of
a slot must never get below zero, and must be zero when nothing is under way. Messages arrive once,
as ZeroMQ has it: a report that came twice would be counted twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import cast

from tests.faults.slots.cluster import (
    FROZEN_S,
    WORK_S,
    Link,
    SlotCluster,
    SlotJob,
    SlotTaskRun,
)
from tests.faults.slots.simulation import (
    CALM_S,
    KEYS,
    SlotScenario,
    SlotWorld,
    TopologyShape,
    heard_warnings,
)
from txtopo.config import AtLeastOnceConfig
from txtopo.reliable.anchoring.envelope import SlotReport, SpoutGrant
from txtopo.resident import wire
from txtopo.resident.bolt_slots import BoltSlots
from txtopo.resident.slot_runner import LIMITS
from txtopo.stages.compiled_topology import CompiledTopology
from txtopo.stages.pickling import loads
from txtopo.testing.checkers.evidence import Violation

TURN_S = 0.2
TUPLES_MAX = 20
SENT_ON = 3
"""One of this many tuples is sent on to another slot."""


def simulate_bolt_slots(scenario: SlotScenario) -> list[Violation]:
    """Run a scenario and judge it."""
    world = BoltWorld(scenario)
    with heard_warnings(world):
        try:
            world.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the real loop would fail too
            return [Violation("S0", f"the loop failed: {error!r}")]
    return world.violations


class BoltWorld(SlotWorld):
    """One simulation of slots with bolts. It is the driver that is told of them."""

    def __init__(self, scenario: SlotScenario) -> None:
        super().__init__(scenario.without(["message_doubled", "broken"]))
        self.cluster.make_task = BoltTaskRun
        config = AtLeastOnceConfig(
            carrier="resident",
            slots=scenario.slots,
            slot_timeout_s=scenario.batch_timeout_s,
            backoff_s=0.1,
        )
        self.bolts = BoltSlots(
            self.cluster, KEYS, config, self.loop, LIMITS, self.cluster.open_socket
        )
        self.violations: list[Violation] = []
        self._backlog = [0] * scenario.slots
        self._numbers = 0

    def run(self) -> None:
        """Have tuples sent until the faults have stopped, and wait until all are consumed."""
        compiled = TopologyShape("simulated", self.scenario.slots)
        self.bolts.start(cast("CompiledTopology", compiled), self)
        self.timeline.after(TURN_S, self._turn)
        self.timeline.after(1.0, self._second)
        self.timeline.after(self.scenario.chaos_s, self._heal)
        self.timeline.run(lambda: self._closed, until_s=self.scenario.chaos_s + CALM_S / 2)
        if all(state.ready for state in self.bolts.slots):
            if any(self._backlog):
                self._object(f"there is a backlog of {self._backlog} when nothing is under way")
        elif None in self.cluster.cores_there:  # else some are gone, or a dormant copy keeps one
            self._object("a slot is not ready, and there is a core for it")

    def _turn(self) -> None:
        """Grant a turn to the spouts of a slot, if it is ready."""
        if self.chaos.healed:
            return
        slot = self.chaos.below(self.scenario.slots)
        tuples = 1 + self.chaos.below(TUPLES_MAX)
        if self.bolts.slots[slot].ready:
            self._numbers += 1
            self.bolts.grant(slot, SpoutGrant(self._numbers, tuples, active=True))
        self.timeline.after(TURN_S, self._turn)

    def _stop(self, why: str) -> None:
        """Continue: what is judged here is what happens before the end."""

    def slot_ready(self, slot: int) -> None:
        """Take note that a slot has come to life."""

    def slot_reported(self, slot: int, report: SlotReport) -> None:
        """Add what a report says was sent and consumed to each slot's backlog."""
        for receiver, tuples in report.sent.items():
            self._backlog[receiver] += tuples
        self._backlog[slot] -= report.consumed
        if self._backlog[slot] < 0:
            self._object(f"slot {slot} has consumed {-self._backlog[slot]} more than it was sent")
            self._backlog[slot] = 0

    def slot_lost(self, slot: int, reason: str) -> None:
        """Forget what a slot had to consume."""
        self._backlog[slot] = 0

    def _object(self, what: str) -> None:
        self.violations.append(Violation("S10", f"{what}, at {self.timeline.now_s:.4f}"))


class BoltTaskRun(SlotTaskRun):
    """A task with bolts: consumes tuples, sends some of them on, and reports both."""

    def __init__(self, cluster: SlotCluster, job: SlotJob, identity: bytes, core: int) -> None:
        super().__init__(cluster, job, identity, core)
        self._neighbours: list[wire.Neighbour] = []
        self._tuples: Counter[int] = Counter()
        # Tuples for a life that does not listen yet, by (slot, life).
        self._kept: Counter[tuple[int, int]] = Counter()
        self._links: dict[bytes, Link] = {}

    @property
    def endpoint(self) -> bytes:
        """Where other slots send to it."""
        return self.identity.hex().encode()

    def obey(self, kind: bytes, frames: list[bytes]) -> None:
        """Do what a message of the driver says."""
        if kind == wire.GRANT:
            self._emit(loads(frames[0]))
        elif kind == wire.DIRECTORY:
            self._neighbours = loads(frames[0])
            self._send_kept()
        else:
            super().obey(kind, frames)

    def arrive(self, receiver: int, sender: int, tuples: int) -> None:
        """Take tuples of another slot; they may be for the life that was here before."""
        if self.alive and receiver == self.life:
            self._take(sender, tuples)

    def _emit(self, grant: SpoutGrant) -> None:
        """Have a turn: send this many tuples to one slot."""
        slot = self.chaos.below(len(self._neighbours))
        sent = self._send(slot, grant.tuples)
        self.say(wire.NEWS, wire.pack_report(wire.WireReport(SlotReport(), sent, {})))

    def _send(self, slot: int, tuples: int) -> wire.Sent:
        life = self._neighbours[slot][0]
        if slot == self.job.slot:
            self._take(life, tuples)
        else:
            self._kept[slot, life] += tuples
            self._send_kept()
        return {(slot, life): tuples}

    def _take(self, sender: int, tuples: int) -> None:
        self._tuples[sender] += tuples
        if not self.busy:
            self._begin_work()

    def _begin_work(self) -> None:
        chaos = self.chaos
        work, self._tuples = self._tuples, Counter()
        self.busy = True
        if chaos.happens("disconnect"):
            self.connected = False
        if chaos.happens("worker_dies"):
            self.later(chaos.between(*WORK_S), partial(self.cluster.worker_died, self))
        elif chaos.happens("executor_lost"):
            self.later(chaos.between(*WORK_S), partial(self.cluster.executor_lost, self))
        else:
            frozen = chaos.happens("freeze")
            work_s = chaos.between(*(FROZEN_S if frozen else WORK_S))
            self.later(work_s, partial(self._report, work))

    def _report(self, work: Counter[int]) -> None:
        self.busy = False
        tuples = sum(work.values()) // SENT_ON
        others = [each for each in enumerate(self._neighbours) if each[0] != self.job.slot]
        sent: wire.Sent = {}
        if tuples and others:
            sent = self._send(others[self.chaos.below(len(others))][0], tuples)
        report_on_wire = wire.WireReport(SlotReport(consumed=sum(work.values())), sent, dict(work))
        self.say(wire.REPORT, wire.pack_report(report_on_wire))
        self.turn()
        if self.alive and self._tuples and not self.busy:
            self._begin_work()

    def _send_kept(self) -> None:
        for (slot, life), tuples in list(self._kept.items()):
            now, endpoint = self._neighbours[slot]
            if now != life:
                del self._kept[slot, life]  # lost with that life
            elif endpoint is not None:
                del self._kept[slot, life]
                other = cast("BoltTaskRun", self.cluster.tasks[bytes.fromhex(endpoint)])
                link = self._links.setdefault(other.identity, Link(self.cluster))
                arrive: Callable[[], None] = partial(other.arrive, life, self.life, tuples)
                link.carry(arrive)
