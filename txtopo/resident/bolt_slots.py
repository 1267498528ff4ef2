"""BoltSlots: the driver's end of the carrier ``resident`` for at-least-once topologies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txtopo.config import AtLeastOnceConfig
from txtopo.errors import SlotUnavailable
from txtopo.reliable.anchoring.envelope import Complaint, SlotReport, SpoutGrant
from txtopo.reliable.carrier import SlotListener
from txtopo.resident import wire
from txtopo.resident.in_flight import InFlightCounts
from txtopo.resident.slot_jobs import SlotJobRunner
from txtopo.resident.slot_runner import LIMITS, OpenSocket, SlotLimits, SlotRunner
from txtopo.resident.sockets import Keys
from txtopo.resident.supervisor import LifeLost, SlotFailed, SlotReady, SlotRecord, SlotSaid
from txtopo.resident.transport import DriverSocket, SlotLoop
from txtopo.stages.compiled_topology import CompiledTopology
from txtopo.stages.pickling import pack


class BoltSlots:
    """Hosts slots in Spark tasks. Used on the loop."""

    def __init__(
        self,
        jobs: SlotJobRunner,
        keys: Keys,
        config: AtLeastOnceConfig,
        loop: SlotLoop,
        limits: SlotLimits = LIMITS,
        open_socket: OpenSocket = DriverSocket,
    ) -> None:
        self._runner = SlotRunner(
            jobs, keys, config.pause_s, config.slot_timeout_s, loop, limits, open_socket
        )
        self._in_flight = InFlightCounts()

    @property
    def slots(self) -> Sequence[SlotRecord]:
        """The slots, by number."""
        return self._runner.slots

    def start(self, compiled: CompiledTopology, listener: SlotListener) -> None:
        """Listen, and submit a job for each slot."""
        self._listener = listener
        self._runner.start(compiled, self)
        for state in self.slots:
            self._in_flight.begin(state.life)

    def grant(self, slot: int, grant: SpoutGrant) -> None:
        """Send a grant to the task that owns a slot."""
        self._runner.send(slot, wire.GRANT, pack(grant))

    def stop(self, done: Callable[[], None]) -> None:
        """Let the tasks close their spouts and end; cancel the jobs of tasks that do not end."""
        self._runner.stop(done)

    def slot_ready(self, ready: SlotReady) -> None:
        """Tell the driver that a slot accepts grants."""
        self._listener.slot_ready(ready.slot)

    def slot_said(self, said: SlotSaid) -> None:
        """Pass a report on to the driver, with exact counts of the tuples in flight."""
        told = wire.unpack_report(said.frames[0])
        report, in_flight = told.report, self._in_flight
        report.sent.clear()
        for (receiver, life), tuples in told.sent.items():
            if life == self.slots[receiver].life:
                report.sent[receiver] += in_flight.sent(said.life, life, tuples)
        report.consumed = sum(
            in_flight.consumed(sender, said.life, tuples)
            for sender, tuples in told.consumed.items()
        )
        self._listener.slot_reported(said.slot, report)

    def slot_lost(self, lost: LifeLost) -> None:
        """Forget the tuples that were on their way to or from the slot."""
        in_vain = self._in_flight.end(lost.ended)
        self._in_flight.begin(self.slots[lost.slot].life)
        self._listener.slot_lost(lost.slot, str(lost.error))
        for state in self.slots:
            if in_vain[state.life]:
                self._listener.slot_reported(state.slot, SlotReport(consumed=in_vain[state.life]))

    def slot_failed(self, failed: SlotFailed) -> None:
        """End the run with the error of the slot."""
        complaint = Complaint("slot", failed.slot, failed.error)
        self._listener.slot_reported(failed.slot, SlotReport(crash=complaint))

    def slot_overdue(self, slot: int, error: SlotUnavailable) -> None:
        """Continue to wait. The trees of lost tuples time out, and the spouts emit them again. The
        log already shows that the slot is missing."""

    def slots_moved(self) -> None:
        """Send the directory to all tasks."""
        neighbours = [(each.life, each.endpoint if each.ready else None) for each in self.slots]
        directory = pack(neighbours)
        for state in self.slots:
            self._runner.send(state.slot, wire.DIRECTORY, directory)
