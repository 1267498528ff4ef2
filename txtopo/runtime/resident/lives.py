"""Lives: the driver's end of all slots, whatever they work on. See the package's text.

Submits the job of each slot, and again when it has died; gives a slot to the newest task that says
hello, cuts the earlier one off, and hears nobody else. What a slot is sent and what it says is the
affair of its :class:`SlotUser`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Protocol

from txtopo.config import Config
from txtopo.errors import InfrastructureError, RunLostError
from txtopo.retries import warn_of_retry
from txtopo.runtime.resident import messages
from txtopo.runtime.resident.jobs import Jobs
from txtopo.runtime.resident.post_office import Letter, PostOffice
from txtopo.runtime.resident.slot_task import SILENCE_S
from txtopo.runtime.resident.sockets import Keys
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.stages.pickling import pack
from txtopo.stages.program import Program

# Slots have this long to end by themselves before their tasks are cancelled, and Spark as long to
# do that.
STOP_S = 10.0
# By then a task that has lost its connection has ended by itself, unless it hangs.
SILENT_S = SILENCE_S + 2.0


@dataclass(slots=True)
class Place:
    """A slot, as the driver sees it.

    Attributes:
        slot: Its number.
        life: The life that it is in, or will be in next.
        submission: Number of its last job.
        running: Whether that job has not ended.
        owner: Identity of the task that has the slot.
        endpoint: Where that listens to other slots; empty if it does not.
        ready: Whether it can be given work.
        dormant: Tasks of the last job that do not have the slot any more.
        failures: Jobs in a row that did not get ready.
        fruitless: Jobs in a row that ended without a word of their work.
    """

    slot: int
    life: int
    submission: int = 0
    running: bool = False
    owner: bytes | None = None
    endpoint: str | None = None
    ready: bool = False
    dormant: set[bytes] = field(default_factory=set)
    failures: int = 0
    fruitless: int = 0


class SlotUser(Protocol):
    """Who has the slots work. All calls are made on the loop, and after ``stop`` only those of what
    lives had still to say."""

    def slot_ready(self, place: Place) -> None:
        """Take note that a life has begun to take work."""
        ...

    def slot_said(self, place: Place, frames: list[bytes]) -> None:
        """Take in what the life that has the slot says of its work."""
        ...

    def slot_lost(self, place: Place, ended: int, error: RunLostError) -> None:
        """Take note that life *ended* is over, or that the next one could not begin.

        A connection may be lost some moments before it is known why: then it is told again, with
        the reason, when the job has ended.
        """
        ...

    def slot_failed(self, place: Place, error: Exception) -> None:
        """Take note that a slot will not live again."""
        ...

    def slots_moved(self) -> None:
        """Take note that a life has begun or ended somewhere."""
        ...


class Lives:
    """All slots of one run. Used on the loop."""

    def __init__(self, jobs: Jobs, keys: Keys, config: Config, scheduler: ThreadScheduler) -> None:
        self._jobs = jobs
        self._keys = keys
        self._config = config
        self._scheduler = scheduler
        self._numbers = count(1)
        self.places: list[Place] = []
        """The slots, by number."""
        self._stopped: Callable[[], None] | None = None

    def start(self, program: Program, user: SlotUser) -> None:
        """Listen, and submit a job for each slot."""
        self._user = user
        self._topology_id = program.topology_id
        self._jobs.start(program)
        self._office = PostOffice(
            self._keys, self._jobs.bind_host, self._scheduler, self._heard, self._unreachable
        )
        self._office.open()
        self.places = [Place(slot, next(self._numbers)) for slot in range(program.slots)]
        for place in self.places:
            self._submit(place)

    def send(self, place: Place, kind: bytes, *frames: bytes) -> None:
        """Send to the task that has a slot."""
        if place.owner is not None:
            self._office.send(place.owner, kind, *frames)

    def restart(self, place: Place) -> None:
        """Cancel the job of a slot that works on what nobody wants; another one follows, unless the
        run ends."""
        cancel = partial(self._jobs.cancel, place.slot, place.submission)
        # A cancellation shows in the end of the job.
        self._scheduler.submit(cancel, lambda _: None)

    def stop(self, done: Callable[[], None]) -> None:
        """Tell the tasks to end; cancel the jobs of those that do not."""
        self._stopped = done
        for place in self.places:
            for identity in place.dormant:
                self._office.send(identity, messages.END)
            if place.owner is not None:
                self._office.send(place.owner, messages.END)
            else:
                self.restart(place)
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
        self._scheduler.submit_lasting(run, partial(self._job_ended, place))

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
            self._user.slot_failed(place, error)
            return
        lost = error if isinstance(error, RunLostError) else _lost("its task ended")
        self._lose(place, lost)
        # At once, the first time: most likely a worker has died. One that gets ready and dies of
        # what it is given, each time, is worth a pause as well.
        pause_s = self._config.pause_s(place.fruitless) if place.fruitless else 0.0
        place.failures += 1
        place.fruitless += 1
        warn_of_retry(
            f"slot {place.slot}",
            lost,
            topology=self._topology_id,
            failures=place.fruitless,
            pause_s=pause_s,
        )
        self._scheduler.call_later(pause_s, partial(self._submit, place))

    def _heard(self, letters: list[Letter]) -> None:
        for identity, kind, slot, *frames in letters:
            place = self.places[messages.slot_of(slot)]
            if kind == messages.HELLO:
                self._greet(place, identity, frames[0].decode())
            elif identity != place.owner:
                self._cut_off(place, identity)
            elif kind == messages.READY:
                self._ready(place)
            else:
                if kind == messages.BYE:
                    self._office.send(identity, messages.END)
                place.fruitless = 0
                self._user.slot_said(place, frames)

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
            self._lose(place, _lost("another copy of its task took its place"))
        place.owner, place.endpoint = identity, endpoint
        self._office.send(identity, messages.WELCOME, pack(place.life))
        self._moved()

    def _cut_off(self, place: Place, identity: bytes) -> None:
        if self._stopped is not None:
            self._office.send(identity, messages.END)
        elif place.owner and messages.submission_of(identity) == place.submission:
            place.dormant.add(identity)
            self._office.send(identity, messages.CUT_OFF, messages.DORMANT)
        else:
            self._office.send(identity, messages.CUT_OFF, messages.RETURN)

    def _ready(self, place: Place) -> None:
        if self._stopped is not None:
            return
        place.ready, place.failures = True, 0
        self._user.slot_ready(place)
        self._moved()

    def _unreachable(self, identity: bytes) -> None:
        for place in self.places:
            place.dormant.discard(identity)
            if identity == place.owner:
                self._lose(place, _lost("the connection to its task was lost"))
                left = partial(self._let_go, place, place.submission)
                self._scheduler.call_later(SILENT_S, left)
        self._watch()

    def _let_go(self, place: Place, submission: int) -> None:
        """Cancel a job that should have ended by itself: its task is in user code that hangs."""
        if place.running and place.owner is None and place.submission == submission:
            self.restart(place)

    def _lose(self, place: Place, error: RunLostError) -> None:
        """End a life. Its job may go on: a task that is there after all is told to return."""
        if self._stopped is not None:
            return
        ended, place.life = place.life, next(self._numbers)
        place.owner, place.endpoint, place.ready = None, None, False
        self._user.slot_lost(place, ended, error)
        self._moved()

    def _moved(self) -> None:
        self._user.slots_moved()
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
                self.restart(place)

    def _finish(self) -> None:
        done, self._stopped = self._stopped, _ended
        if done is not None and done is not _ended:
            self._office.close(done)
            self._jobs.close()  # may fail, where Spark is gone


def _lost(reason: str) -> RunLostError:
    return RunLostError(reason, counted=False, cancelled=False)


def _ended() -> None:
    """The run is over."""
