"""ResidentSlots: the carrier ``resident``, the driver's end of it. See the package's text."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Protocol

from txtopo.config import Config
from txtopo.errors import InfrastructureError, RunLostError
from txtopo.planning.anchoring.report import Complaint, Report
from txtopo.planning.anchoring.sending import Sealed
from txtopo.planning.pickling import pack
from txtopo.planning.program import Program
from txtopo.runtime.reliable.carrier import SlotListener
from txtopo.runtime.resident import messages
from txtopo.runtime.resident.accounts import Accounts
from txtopo.runtime.resident.post_office import Letter, PostOffice
from txtopo.runtime.resident.sockets import Keys
from txtopo.runtime.scheduler import LaneScheduler

# Bolts have this long to clean up before their tasks are cancelled, and Spark as long to do that.
STOP_S = 10.0


class Jobs(Protocol):
    """What runs the tasks of slots: :class:`~txtopo.runtime.resident.slot_jobs.SlotJobs`."""

    @property
    def stopped(self) -> bool:
        """Whether no task can be run any more."""
        ...

    @property
    def host(self) -> str:
        """The driver's host as tasks know it."""
        ...

    @property
    def bind_host(self) -> str:
        """The address that the driver listens at."""
        ...

    def start(self, program: Program) -> None:
        """Take the program."""
        ...

    def run(self, slot: int, submission: int, keys: Keys, driver: str) -> None:
        """Run the task of a slot and wait for its end; on a thread of its own.

        Raises:
            RunLostError: The task was lost; run it again.
            TxtopoError: It cannot be run.
        """
        ...

    def cancel(self, slot: int, submission: int) -> None:
        """Cancel the task of a slot, also one that is about to start."""
        ...

    def close(self) -> None:
        """Release what was taken."""
        ...


@dataclass(slots=True)
class Place:
    """A slot, as the driver sees it.

    Attributes:
        slot: Its number.
        life: The life that it is in, or will be in next.
        submission: Number of its last job.
        running: Whether that job has not ended.
        owner: Identity of the task that has the slot.
        endpoint: Where that listens to other slots.
        ready: Whether its bolts are prepared.
        kept: Envelopes for a life that is not ready yet.
        dormant: Tasks of the last job that do not have the slot any more.
        failures: Jobs in a row that did not get ready.
    """

    slot: int
    life: int
    submission: int = 0
    running: bool = False
    owner: bytes | None = None
    endpoint: str | None = None
    ready: bool = False
    kept: list[bytes] = field(default_factory=list)
    dormant: set[bytes] = field(default_factory=set)
    failures: int = 0


class ResidentSlots:
    """Hosts slots in Spark tasks. Used on the loop."""

    def __init__(self, jobs: Jobs, keys: Keys, config: Config, scheduler: LaneScheduler) -> None:
        self._jobs = jobs
        self._keys = keys
        self._config = config
        self._scheduler = scheduler
        self._accounts = Accounts()
        self._lives = count(1)
        self.places: list[Place] = []
        """The slots, by number."""
        self._stopped: Callable[[], None] | None = None

    def start(self, program: Program, listener: SlotListener) -> None:
        """Listen, and submit a job for each slot."""
        self._listener = listener
        self._office = PostOffice(
            self._keys, self._jobs.bind_host, self._scheduler, self._heard, self._unreachable
        )
        self._office.open()
        self._jobs.start(program)
        self.places = [Place(slot, next(self._lives)) for slot in range(program.slots)]
        for place in self.places:
            self._accounts.begin(place.life)
            self._submit(place)

    def send(self, sealed: list[Sealed]) -> None:
        """Send envelopes to tasks that are ready; the others will get theirs."""
        by_slot: dict[int, list[bytes]] = {}
        for each in sealed:
            by_slot.setdefault(each.to_slot, []).append(each.record)
        for slot, records in by_slot.items():
            place = self.places[slot]
            if place.ready and place.owner is not None:
                self._office.send(place.owner, messages.ENVELOPES, *records)
            else:
                place.kept += records

    def stop(self, done: Callable[[], None]) -> None:
        """Tell the tasks to end; cancel the jobs of those that do not."""
        self._stopped = done
        for place in self.places:
            for identity in place.dormant:
                self._office.send(identity, messages.END)
            if place.owner is not None:
                self._office.send(place.owner, messages.END)
            else:
                self._jobs.cancel(place.slot, place.submission)
        self._scheduler.call_later(STOP_S, self._cancel)
        self._scheduler.call_later(2 * STOP_S, self._finish)
        self._look_for_end()

    def _submit(self, place: Place) -> None:
        if self._stopped is not None:
            return
        place.submission += 1
        place.running = True
        place.dormant.clear()
        driver = f"tcp://{self._jobs.host}:{self._office.port}"
        run = partial(self._jobs.run, place.slot, place.submission, self._keys, driver)
        self._scheduler.submit(run, partial(self._job_ended, place))

    def _job_ended(self, place: Place, future: Future[None]) -> None:
        place.running = False
        if self._stopped is not None:
            self._look_for_end()
            return
        error = future.exception()
        if self._jobs.stopped:
            error = InfrastructureError(
                f"the Spark session was stopped under the topology; slot {place.slot} is lost for "
                "good; stop the run before the session"
            )
        if isinstance(error, Exception) and not isinstance(error, RunLostError):
            # Another one would end in the same way.
            self._listener.slot_reported(
                place.slot, Report(crash=Complaint("slot", place.slot, error))
            )
            return
        self._lose(place, "its task ended" if error is None else str(error))
        # At once, the first time: most likely a worker has died.
        pause_s = self._config.pause_s(place.failures) if place.failures else 0.0
        place.failures += 1
        self._scheduler.call_later(pause_s, partial(self._submit, place))

    def _heard(self, letters: list[Letter]) -> None:
        for identity, kind, slot, payload in letters:
            place = self.places[messages.slot_of(slot)]
            if kind == messages.HELLO:
                self._greet(place, identity, payload.decode())
            elif identity != place.owner:
                self._cut_off(place, identity)
            elif kind == messages.READY:
                self._ready(place, messages.unpack_said(payload).report)
            else:
                self._report(place, messages.unpack_said(payload))

    def _greet(self, place: Place, identity: bytes, endpoint: str) -> None:
        """Give a slot to a task: the newest one has it."""
        if self._stopped is not None:
            self._office.send(identity, messages.END)
            return
        if messages.submission_of(identity) != place.submission:
            self._cut_off(place, identity)
            return
        earlier = place.owner
        if earlier is not None:
            place.owner = identity
            self._cut_off(place, earlier)
            self._lose(place, "another copy of its task took its place")
        place.owner, place.endpoint = identity, endpoint
        self._office.send(identity, messages.WELCOME, pack(place.life))
        self._spread()

    def _cut_off(self, place: Place, identity: bytes) -> None:
        if self._stopped is not None:
            self._office.send(identity, messages.END)
        elif place.owner and messages.submission_of(identity) == place.submission:
            place.dormant.add(identity)
            self._office.send(identity, messages.CUT_OFF, messages.DORMANT)
        else:
            self._office.send(identity, messages.CUT_OFF, messages.RETURN)

    def _ready(self, place: Place, report: Report) -> None:
        if report.crash is not None:
            self._listener.slot_reported(place.slot, report)
            return
        place.ready, place.failures = True, 0
        kept, place.kept = place.kept, []
        if kept and place.owner is not None:
            self._office.send(place.owner, messages.ENVELOPES, *kept)
        self._spread()
        if self._stopped is None:
            self._listener.slot_ready(place.slot)

    def _report(self, place: Place, said: messages.Said) -> None:
        if self._stopped is not None:
            return
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

    def _unreachable(self, identity: bytes) -> None:
        for place in self.places:
            place.dormant.discard(identity)
            if identity == place.owner:
                self._lose(place, "the connection to its task was lost")
        self._watch()

    def _lose(self, place: Place, reason: str) -> None:
        """End a life. Its job may go on: a task that is there after all is told to return."""
        if self._stopped is not None:
            return
        lost = self._accounts.end(place.life)
        place.owner, place.endpoint, place.ready = None, None, False
        place.kept.clear()
        place.life = next(self._lives)
        self._accounts.begin(place.life)
        self._listener.slot_lost(place.slot, reason)
        for each in self.places:
            if lost[each.life]:
                self._listener.slot_reported(each.slot, Report(consumed=lost[each.life]))
        self._spread()

    def _spread(self) -> None:
        """Tell all tasks where the others are."""
        neighbours = [(each.life, each.endpoint if each.ready else None) for each in self.places]
        for place in self.places:
            if place.owner is not None:
                self._office.send(place.owner, messages.DIRECTORY, pack(neighbours))
        self._watch()

    def _watch(self) -> None:
        owners = {place.owner for place in self.places if place.owner is not None}
        self._office.pinged = frozenset(owners.union(*(each.dormant for each in self.places)))

    def _look_for_end(self) -> None:
        if not any(place.running for place in self.places):
            self._finish()

    def _cancel(self) -> None:
        for place in self.places:
            if place.running:
                self._jobs.cancel(place.slot, place.submission)

    def _finish(self) -> None:
        done, self._stopped = self._stopped, _ended
        if done is not None and done is not _ended:
            self._jobs.close()
            self._office.close(done)


def _ended() -> None:
    """The run is over."""
