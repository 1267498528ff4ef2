"""ResidentSlots: the carrier ``resident`` of at-least-once topologies, the driver's end of it."""

from __future__ import annotations

from collections.abc import Callable

from txtopo.config import Config
from txtopo.errors import RunLostError
from txtopo.runtime.reliable.carrier import SlotListener
from txtopo.runtime.resident import messages
from txtopo.runtime.resident.accounts import Accounts
from txtopo.runtime.resident.jobs import Jobs
from txtopo.runtime.resident.lives import Lives, Place
from txtopo.runtime.resident.sockets import Keys
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.stages.anchoring.envelope import Complaint, SlotReport
from txtopo.stages.anchoring.sending import Sealed
from txtopo.stages.pickling import pack
from txtopo.stages.program import Program


class ResidentSlots:
    """Hosts slots in Spark tasks. Used on the loop."""

    def __init__(self, jobs: Jobs, keys: Keys, config: Config, scheduler: ThreadScheduler) -> None:
        self._lives = Lives(jobs, keys, config, scheduler)
        self._accounts = Accounts()
        # Envelopes for lives that are not ready yet.
        self._kept: list[list[bytes]] = []

    @property
    def places(self) -> list[Place]:
        """The slots, by number."""
        return self._lives.places

    def start(self, program: Program, listener: SlotListener) -> None:
        """Listen, and submit a job for each slot."""
        self._listener = listener
        self._kept = [[] for _ in range(program.slots)]
        self._lives.start(program, self)
        for place in self.places:
            self._accounts.begin(place.life)

    def send(self, sealed: list[Sealed]) -> None:
        """Send envelopes to tasks that are ready; the others will get theirs."""
        by_slot: dict[int, list[bytes]] = {}
        for each in sealed:
            by_slot.setdefault(each.to_slot, []).append(each.record)
        for slot, records in by_slot.items():
            place = self.places[slot]
            if place.ready:
                self._lives.send(place, messages.ENVELOPES, *records)
            else:
                self._kept[slot] += records

    def stop(self, done: Callable[[], None]) -> None:
        """Let the bolts clean up and the tasks end; cancel the jobs of those that do not."""
        self._lives.stop(done)

    def slot_ready(self, place: Place) -> None:
        """Send what waited for it."""
        kept, self._kept[place.slot] = self._kept[place.slot], []
        if kept:
            self._lives.send(place, messages.ENVELOPES, *kept)
        self._listener.slot_ready(place.slot)

    def slot_said(self, place: Place, frames: list[bytes]) -> None:
        """Tell the driver of a report, with exact sums."""
        said = messages.unpack_said(frames[0])
        report, accounts = said.report, self._accounts
        report.sent.clear()
        for (receiver, life), tuples in said.sent.items():
            if life == self.places[receiver].life:
                report.sent[receiver] += accounts.sent(place.life, life, tuples)
        report.consumed = sum(
            accounts.consumed(sender, place.life, tuples)
            for sender, tuples in said.consumed.items()
        )
        self._listener.slot_reported(place.slot, report)

    def slot_lost(self, place: Place, ended: int, error: RunLostError) -> None:
        """Forget what was on its way to and from it."""
        lost = self._accounts.end(ended)
        self._kept[place.slot].clear()
        self._accounts.begin(place.life)
        self._listener.slot_lost(place.slot, str(error))
        for each in self.places:
            if lost[each.life]:
                self._listener.slot_reported(each.slot, SlotReport(consumed=lost[each.life]))

    def slot_failed(self, place: Place, error: Exception) -> None:
        """End the run."""
        complaint = Complaint("slot", place.slot, error)
        self._listener.slot_reported(place.slot, SlotReport(crash=complaint))

    def slots_moved(self) -> None:
        """Tell all tasks where the others are."""
        neighbours = [(each.life, each.endpoint if each.ready else None) for each in self.places]
        directory = pack(neighbours)
        for place in self.places:
            self._lives.send(place, messages.DIRECTORY, directory)
