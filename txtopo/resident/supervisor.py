"""SlotSupervisor: decides which task owns a slot, and when to submit another job for a slot.

Rules
-----
1. Only this file changes the record of a slot, as the table :data:`AFTER` allows. The runtime
   around it never edits it.
2. No I/O, clock, thread or random number is used here. Events go in with the time, actions come
   out, and equal events at equal times give equal actions. So a simulator can replay a failure from
   its seed.
3. Some events change no slot: events of a task that does not own the slot, events of another job
   than the last one, and events that the table does not have for the status of the slot. They only
   determine the reply to that task. Compare first, then mutate.
4. Each event is handled to the end: afterwards there is nothing to do before
   :attr:`SlotSupervisor.due_s`. A deadline belongs to a status and ends with it, so no timer has to
   be cancelled.

Theory of operation
-------------------
A slot is one Spark job with one task. Over time a slot has many tasks: a job dies and is submitted
again, Spark repeats the task of a job after an executor was lost, or it runs a second copy of the
task at the same time. Each task sends a hello when it starts. The newest task of the last job owns
the slot. It receives the number of its *life*, prepares, and gets work from then on.

The table, as a diagram. A test compares the two. ::

    PAUSED                                        --SubmitJob--> STARTING
    STARTING, PREPARING, READY, SILENT, CANCELLED --TaskGreeted--> PREPARING
    PREPARING                                     --TaskReady--> READY
    PREPARING, READY                              --ConnectionLost--> SILENT
    SILENT                                        --CancelJob--> CANCELLED
    ENDING                                        --JobLost, JobFailed--> ENDED
    PAUSED, FAILED                                --EndRequested--> ENDED
    STARTING, PREPARING, READY, SILENT, CANCELLED --JobLost--> PAUSED
    STARTING, PREPARING, READY, SILENT, CANCELLED --JobFailed--> FAILED
    STARTING, PREPARING, READY, SILENT, CANCELLED --EndRequested--> ENDING

Two statuses end by themselves, with an action: a pause with ``SubmitJob``, and a silence, after
``silent_s``, with ``CancelJob``. ``JobFailed`` is the end of a job after which another one would
end in the same way. The other events are about a task that says hello, is ready or loses its
connection, about a job that ends, and about the end of the run.

* **Lives.** Their numbers increase over all slots. A life ends when its task loses the slot, for
  whatever reason. Messages of a task count only while it owns the slot, so the user of the slots
  never gets anything from an earlier life.
* **Cut off.** A task that does not own the slot is told so. If another task of the same job owns
  it, this one goes *dormant*: if it returned, Spark would consider the job done and stop the other
  task. Any other task returns.
* **A lost connection** ends a life, since it is unknown what was lost with it. It may be the first
  sign of a dead worker, so the loss is reported again, with the reason, when the job ends. The task
  notices within ``silent_s`` and ends by itself. If user code hangs there, the job is cancelled.
* **Pauses.** A job that ends is submitted again: at once the first time, then after pauses that
  grow until a task reports something about its work. So there are also pauses if a slot becomes
  ready each time and then dies of its work.
* **Missing slots.** A slot that cannot get work for long is reported as missing: after half of
  ``missing_s``, after all of it, and then once every ``missing_s``. There is no other sign of a job
  that waits for a core which does not come back: it neither ends nor fails.
* **The end.** Every task is told to end, and the jobs of slots without a task are cancelled. Jobs
  that still run after ``stop_s`` are cancelled. After twice that time the supervisor stops waiting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from txtopo.errors import RunLostError

# A task ends by itself after ten seconds without a message from the driver. So after this time it
# has ended, unless user code hangs in it.
SILENT_S = 12.0
# Slots have this long to end by themselves before their jobs are cancelled. Spark then has the same
# time to cancel them.
STOP_S = 10.0
NEVER_S = math.inf


class SlotStatus(Enum):
    """The status of a slot."""

    PAUSED = "paused"
    """It has no job; the next one is submitted when the pause is over."""
    STARTING = "starting"
    """Its job runs, or waits for a core; no task has said hello."""
    PREPARING = "preparing"
    """A task owns the slot and prepares."""
    READY = "ready"
    """A task owns the slot and can get work."""
    SILENT = "silent"
    """The connection to its task was lost; its job has not ended."""
    CANCELLED = "cancelled"
    """It was silent for too long, so its job was cancelled."""
    FAILED = "failed"
    """It gets no other job, since that would end in the same way."""
    ENDING = "ending"
    """The run is ending; its job still runs."""
    ENDED = "ended"
    """The run is ending; it has no job any more."""


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class TaskGreeted:
    """A task of a slot's job has started; *endpoint* is where it listens for other slots."""

    slot: int
    identity: bytes
    submission: int
    endpoint: str


@dataclass(frozen=True, slots=True)
class TaskReady:
    """A task is ready to be given work."""

    slot: int
    identity: bytes
    submission: int


@dataclass(frozen=True, slots=True)
class TaskSaid:
    """A task sent a message about its work.

    Attributes:
        slot: Its slot.
        identity: The task.
        submission: The job that it belongs to.
        frames: The message.
        leaves: Whether it is a goodbye; the task waits for an acknowledgement.
        works: Whether it is about work that was done. Otherwise it is only news of spouts, which
            does not show whether the task survives its work.
    """

    slot: int
    identity: bytes
    submission: int
    frames: tuple[bytes, ...]
    leaves: bool = False
    works: bool = True


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The connection to a task was lost."""

    identity: bytes


@dataclass(frozen=True, slots=True)
class JobLost:
    """The job of a slot has ended; another one may succeed."""

    slot: int
    submission: int
    error: RunLostError


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The job of a slot has ended; another one would end in the same way."""

    slot: int
    submission: int
    error: Exception


@dataclass(frozen=True, slots=True)
class RestartRequested:
    """The user of the slot wants its job cancelled, since it still works on cancelled work."""

    slot: int


@dataclass(frozen=True, slots=True)
class EndRequested:
    """The run is to end."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Some time has passed."""


Event = (
    TaskGreeted
    | TaskReady
    | TaskSaid
    | ConnectionLost
    | JobLost
    | JobFailed
    | RestartRequested
    | EndRequested
    | TimePassed
)


# ---------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class SubmitJob:
    """Submit a job for a slot. Answered by ``JobLost`` or ``JobFailed`` when it ends."""

    slot: int
    submission: int


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Cancel the job of a slot. Its end is reported like the end of any job."""

    slot: int
    submission: int


@dataclass(frozen=True, slots=True)
class WelcomeTask:
    """Tell a task that it owns the slot, and the number of its life."""

    identity: bytes
    life: int


@dataclass(frozen=True, slots=True)
class CutOffTask:
    """Tell a task that it does not own the slot.

    Attributes:
        identity: The task.
        dormant: Whether it must not return, since another task of its job owns the slot.
    """

    identity: bytes
    dormant: bool


@dataclass(frozen=True, slots=True)
class EndTask:
    """Tell a task to end."""

    identity: bytes


@dataclass(frozen=True, slots=True)
class PingTasks:
    """Ping these tasks from now on, and no others. A failed ping reveals a lost connection."""

    identities: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class SlotReady:
    """Tell the user of the slots that a life can take work."""

    slot: int


@dataclass(frozen=True, slots=True)
class SlotSaid:
    """Pass a message about work, from the life that owns the slot, to the user of the slots."""

    slot: int
    life: int
    frames: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class LifeLost:
    """Tell the user of the slots that a life has ended, or that the next one could not begin.

    Attributes:
        slot: The slot.
        ended: The life that has ended.
        error: The reason, as far as it is known.
        job_ended: Whether the job has ended. If not, the loss is reported again, with the reason,
            when it does.
        unready_jobs: How many jobs in a row, before this one, ended before they became ready.
    """

    slot: int
    ended: int
    error: RunLostError
    job_ended: bool
    unready_jobs: int


@dataclass(frozen=True, slots=True)
class SlotFailed:
    """Tell the user of the slots that a slot is lost for good."""

    slot: int
    error: Exception


@dataclass(frozen=True, slots=True)
class SlotMissing:
    """Report that a slot has been unable to take work for long.

    Attributes:
        slot: The slot.
        submission: Its last job.
        missing_s: For how long.
        overdue: Whether the limit has been reached.
    """

    slot: int
    submission: int
    missing_s: float
    overdue: bool


@dataclass(frozen=True, slots=True)
class SlotsMoved:
    """Tell the user of the slots that a life has begun or ended in some slot."""


@dataclass(frozen=True, slots=True)
class JobRetried:
    """Report that the job of a slot has ended and is submitted again.

    Attributes:
        slot: The slot.
        error: Why it ended.
        failures: How many jobs in a row ended without a report about their work.
        pause_s: After how many seconds the next one is submitted.
    """

    slot: int
    error: RunLostError
    failures: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class Close:
    """The run has ended: close the connection. Nothing follows."""


Action = (
    SubmitJob
    | CancelJob
    | WelcomeTask
    | CutOffTask
    | EndTask
    | PingTasks
    | SlotReady
    | SlotSaid
    | LifeLost
    | SlotFailed
    | SlotMissing
    | SlotsMoved
    | JobRetried
    | Close
)


# ---------------------------------------------------------------- the table

# Statuses in which a job runs, or waits for a core.
WITH_JOB = frozenset(
    {
        SlotStatus.STARTING,
        SlotStatus.PREPARING,
        SlotStatus.READY,
        SlotStatus.SILENT,
        SlotStatus.CANCELLED,
        SlotStatus.ENDING,
    }
)
# Statuses in which a task owns the slot. When the run ends, the task keeps the slot.
WITH_TASK = frozenset({SlotStatus.PREPARING, SlotStatus.READY})
# Statuses with a deadline.
WITH_DEADLINE = frozenset({SlotStatus.PAUSED, SlotStatus.SILENT})

# The status that each event or action leads to, by the status before it. A missing pair is illegal:
# such an event changes nothing, and such an action is never requested.
AFTER: dict[tuple[SlotStatus, type], SlotStatus] = {
    (SlotStatus.PAUSED, SubmitJob): SlotStatus.STARTING,
    (SlotStatus.STARTING, TaskGreeted): SlotStatus.PREPARING,
    (SlotStatus.PREPARING, TaskGreeted): SlotStatus.PREPARING,
    (SlotStatus.READY, TaskGreeted): SlotStatus.PREPARING,
    (SlotStatus.SILENT, TaskGreeted): SlotStatus.PREPARING,
    (SlotStatus.CANCELLED, TaskGreeted): SlotStatus.PREPARING,
    (SlotStatus.PREPARING, TaskReady): SlotStatus.READY,
    (SlotStatus.PREPARING, ConnectionLost): SlotStatus.SILENT,
    (SlotStatus.READY, ConnectionLost): SlotStatus.SILENT,
    (SlotStatus.SILENT, CancelJob): SlotStatus.CANCELLED,
    (SlotStatus.ENDING, JobLost): SlotStatus.ENDED,
    (SlotStatus.ENDING, JobFailed): SlotStatus.ENDED,
    (SlotStatus.PAUSED, EndRequested): SlotStatus.ENDED,
    (SlotStatus.FAILED, EndRequested): SlotStatus.ENDED,
    **{(status, JobLost): SlotStatus.PAUSED for status in WITH_JOB - {SlotStatus.ENDING}},
    **{(status, JobFailed): SlotStatus.FAILED for status in WITH_JOB - {SlotStatus.ENDING}},
    **{(status, EndRequested): SlotStatus.ENDING for status in WITH_JOB - {SlotStatus.ENDING}},
}


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """What is known of one slot. It is a value: the supervisor replaces it.

    Attributes:
        slot: Its number.
        life: The number of its present life, or of the next one.
        status: Its status.
        due_s: When the status ends by itself.
        submission: Number of its last job; 0 before the first.
        owner: Identity of the task that owns the slot.
        endpoint: Where the owner listens for other slots; empty if it does not listen.
        dormant: Tasks of the last job that do not own the slot any more.
        unready_jobs: How many jobs in a row ended before they became ready.
        fruitless_jobs: How many jobs in a row ended without a report about their work.
        missing_since_s: Since when it cannot take work; None while it can.
        missing_told: How often that was reported.
    """

    slot: int
    life: int
    status: SlotStatus = SlotStatus.PAUSED
    due_s: float = NEVER_S
    submission: int = 0
    owner: bytes | None = None
    endpoint: str | None = None
    dormant: frozenset[bytes] = frozenset()
    unready_jobs: int = 0
    fruitless_jobs: int = 0
    missing_since_s: float | None = None
    missing_told: int = 0

    @property
    def ready(self) -> bool:
        """Whether the slot can be given work."""
        return self.status is SlotStatus.READY

    def expects(self, cause: type) -> bool:
        """Return whether the table has an entry for the slot's status and *cause*, a class."""
        return (self.status, cause) in AFTER

    def moved(self, cause: type, due_s: float = NEVER_S) -> SlotRecord:
        """Return the record in the status that *cause*, an event or action class, leads to."""
        return replace(self, status=AFTER[self.status, cause], due_s=due_s)

    def missing_due_s(self, missing_s: float) -> float:
        """Return when the slot is next reported as missing."""
        if self.missing_since_s is None:
            return NEVER_S
        return self.missing_since_s + missing_s * (self.missing_told or 0.5)


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """The settings of the protocol.

    Attributes:
        slots: Number of slots.
        pause_s: Returns the pause after this number of fruitless jobs in a row, from 1.
        missing_s: How long a slot may be missing.
        silent_s: How long after it lost its connection a task has certainly ended by itself.
        stop_s: How long tasks have to end by themselves.
    """

    slots: int
    pause_s: Callable[[int], float]
    missing_s: float
    silent_s: float = SILENT_S
    stop_s: float = STOP_S


class SlotSupervisor:
    """The state machine of all slots of a run.

    Who calls it: one loop of the runtime. It calls :meth:`start` once, and then :meth:`handle` for
    one event after the other, each after the previous actions are done. When :attr:`due_s` has
    come, it calls :meth:`handle` with a :class:`TimePassed`.
    """

    def __init__(self, settings: SupervisorSettings) -> None:
        self._settings = settings
        self._last_life = settings.slots
        self._slots = [SlotRecord(slot, slot + 1) for slot in range(settings.slots)]
        self._pinged: frozenset[bytes] = frozenset()
        self._due_s = self._stop_due_s = NEVER_S
        self._changed = self._stop_cancelled = False
        self._over = self._stopping = False

    @property
    def slots(self) -> Sequence[SlotRecord]:
        """All slots, by number."""
        return self._slots

    @property
    def stopping(self) -> bool:
        """Whether the run ends, or has ended."""
        return self._stopping

    @property
    def due_s(self) -> float:
        """When the next action is due without another event."""
        return self._due_s

    def start(self, now_s: float) -> list[Action]:
        """Return the first actions: a job for each slot."""
        for each in self._slots:
            self._put(replace(each, due_s=now_s, missing_since_s=now_s))
        return self._settled([], now_s)

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Process an event and return the actions to do, in order."""
        if self._over:
            return []
        return self._settled(self._changed_by(event, now_s), now_s)

    def _changed_by(self, event: Event, now_s: float) -> list[Action]:
        match event:
            case TaskGreeted():
                return self._greeted(event, now_s)
            case TaskReady():
                return self._ready(event)
            case TaskSaid():
                return self._said(event)
            case ConnectionLost():
                return self._unreachable(event, now_s)
            case JobLost():
                return self._job_lost(event, now_s)
            case JobFailed():
                return self._job_failed(event)
            case RestartRequested():
                record = self._slots[event.slot]
                if record.status in WITH_JOB:
                    return [CancelJob(record.slot, record.submission)]
            case EndRequested():
                return self._stop(now_s)
            case TimePassed():
                pass
        return []

    # ------------------------------------------------------------ what tasks say

    def _greeted(self, event: TaskGreeted, now_s: float) -> list[Action]:
        """Give a slot to a task: the newest task of the last job owns it."""
        record = self._slots[event.slot]
        if event.identity == record.owner:
            return []
        known = event.submission == record.submission and event.identity not in record.dormant
        if not known or not record.expects(TaskGreeted):
            return self._cut_off(event)
        actions: list[Action] = []
        if record.owner is not None:
            earlier, record = record.owner, replace(record, dormant=record.dormant | {record.owner})
            actions += [CutOffTask(earlier, dormant=True)]
            lost = _lost("another copy of its task took its place")
            record, told = self._ended(record, lost, now_s, job_ended=False)
            actions += [told]
        self._put(replace(record.moved(TaskGreeted), owner=event.identity, endpoint=event.endpoint))
        return [*actions, WelcomeTask(event.identity, record.life), SlotsMoved()]

    def _ready(self, event: TaskReady) -> list[Action]:
        record = self._slots[event.slot]
        if event.identity != record.owner:
            return self._cut_off(event)
        if not record.expects(TaskReady):
            return []
        self._put(
            replace(record.moved(TaskReady), unready_jobs=0, missing_since_s=None, missing_told=0)
        )
        return [SlotReady(record.slot), SlotsMoved()]

    def _said(self, event: TaskSaid) -> list[Action]:
        record = self._slots[event.slot]
        if event.identity != record.owner:
            return self._cut_off(event)
        if record.fruitless_jobs and event.works:
            self._put(replace(record, fruitless_jobs=0))
        said = SlotSaid(record.slot, record.life, event.frames)
        return [EndTask(event.identity), said] if event.leaves else [said]

    def _cut_off(self, event: TaskGreeted | TaskReady | TaskSaid) -> list[Action]:
        record = self._slots[event.slot]
        if self._stopping:
            return [EndTask(event.identity)]
        dormant = record.owner is not None and event.submission == record.submission
        if dormant:
            self._put(replace(record, dormant=record.dormant | {event.identity}))
        return [CutOffTask(event.identity, dormant)]

    # ------------------------------------------------------------ what is lost

    def _unreachable(self, event: ConnectionLost, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for record in self._slots:
            if event.identity in record.dormant:
                self._put(replace(record, dormant=record.dormant - {event.identity}))
            elif event.identity == record.owner and record.expects(ConnectionLost):
                lost = _lost("the connection to its task was lost")
                ended, told = self._ended(record, lost, now_s, job_ended=False)
                self._put(ended.moved(ConnectionLost, now_s + self._settings.silent_s))
                actions += [told, SlotsMoved()]
        return actions

    def _job_lost(self, event: JobLost, now_s: float) -> list[Action]:
        record = self._slots[event.slot]
        if event.submission != record.submission or not record.expects(JobLost):
            return []
        if self._stopping:
            self._put(record.moved(JobLost))
            return []
        fruitless = record.fruitless_jobs
        # The first time there is no pause: most likely a worker has died.
        pause_s = self._settings.pause_s(fruitless) if fruitless else 0.0
        ended, told = self._ended(record, event.error, now_s, job_ended=True)
        self._put(
            replace(
                ended.moved(JobLost, now_s + pause_s),
                dormant=frozenset(),
                unready_jobs=record.unready_jobs + 1,
                fruitless_jobs=fruitless + 1,
            )
        )
        return [told, SlotsMoved(), JobRetried(record.slot, event.error, fruitless + 1, pause_s)]

    def _job_failed(self, event: JobFailed) -> list[Action]:
        record = self._slots[event.slot]
        if event.submission != record.submission or not record.expects(JobFailed):
            return []
        self._put(
            replace(
                record.moved(JobFailed),
                owner=None,
                endpoint=None,
                dormant=frozenset(),
                missing_since_s=None,
            )
        )
        return [] if self._stopping else [SlotFailed(record.slot, event.error)]

    def _ended(
        self, record: SlotRecord, error: RunLostError, now_s: float, *, job_ended: bool
    ) -> tuple[SlotRecord, LifeLost]:
        """Return the record after the end of a life, with its status unchanged, and the report."""
        self._last_life += 1
        since_s = record.missing_since_s
        after = replace(
            record,
            life=self._last_life,
            owner=None,
            endpoint=None,
            missing_since_s=now_s if since_s is None else since_s,
        )
        return after, LifeLost(record.slot, record.life, error, job_ended, record.unready_jobs)

    # ------------------------------------------------------------ the end

    def _stop(self, now_s: float) -> list[Action]:
        if self._stopping:
            return []
        self._stopping = self._changed = True
        self._stop_due_s = now_s + self._settings.stop_s
        actions: list[Action] = []
        for record in self._slots:
            actions += [EndTask(identity) for identity in sorted(record.dormant)]
            if record.owner is not None:
                actions += [EndTask(record.owner)]
            elif record.status in WITH_JOB:
                actions += [CancelJob(record.slot, record.submission)]
            if record.expects(EndRequested):
                record = replace(record.moved(EndRequested), missing_since_s=None)
            self._put(record)
        return actions

    # ------------------------------------------------------------ what follows without an event

    def _settled(self, actions: list[Action], now_s: float) -> list[Action]:
        """Append all actions that are due, and check the invariants."""
        if not self._changed and now_s < self._due_s:
            return actions  # as after each report of a slot
        for slot in range(len(self._slots)):
            actions += self._due(slot, now_s)
        pinged = frozenset(self._connected())
        if pinged != self._pinged:
            self._pinged = pinged
            actions += [PingTasks(pinged)]
        if self._stopping:
            actions += self._ending(now_s)
        check_invariants(self._slots, self._last_life)
        self._changed, self._due_s = False, self._next_due_s()
        return actions

    def _next_due_s(self) -> float:
        if self._over:
            return NEVER_S
        deadlines = [each.due_s for each in self._slots]
        deadlines += [each.missing_due_s(self._settings.missing_s) for each in self._slots]
        return min([self._stop_due_s, *deadlines])

    def _due(self, slot: int, now_s: float) -> list[Action]:
        record = self._slots[slot]
        actions: list[Action] = []
        if record.due_s <= now_s and record.expects(SubmitJob):
            record = replace(record.moved(SubmitJob), submission=record.submission + 1)
            actions += [SubmitJob(slot, record.submission)]
        elif record.due_s <= now_s and record.expects(CancelJob):
            record = record.moved(CancelJob)
            actions += [CancelJob(slot, record.submission)]
        if record.missing_due_s(self._settings.missing_s) <= now_s:
            record, missing = self._missing(record, now_s)
            actions += [missing]
        self._put(record)
        return actions

    def _missing(self, record: SlotRecord, now_s: float) -> tuple[SlotRecord, SlotMissing]:
        since_s, limit_s = record.missing_since_s, self._settings.missing_s
        assert since_s is not None
        overdue = since_s + limit_s <= now_s
        # Reports that were missed are made up for by one.
        told = max(1, record.missing_told)
        while since_s + limit_s * told <= now_s:
            told += 1
        missing = SlotMissing(record.slot, record.submission, now_s - since_s, overdue)
        return replace(record, missing_told=told), missing

    def _ending(self, now_s: float) -> list[Action]:
        late = now_s >= self._stop_due_s
        if late and not self._stop_cancelled:
            self._stop_cancelled, late = True, False
            self._stop_due_s = now_s + self._settings.stop_s
            left = [each for each in self._slots if each.status in WITH_JOB]
            if left:
                return [CancelJob(each.slot, each.submission) for each in left]
        if late or all(each.status not in WITH_JOB for each in self._slots):
            self._over = True
            return [Close()]
        return []

    def _connected(self) -> Iterator[bytes]:
        for record in self._slots:
            if record.owner is not None:
                yield record.owner
            yield from record.dormant

    def _put(self, record: SlotRecord) -> None:
        self._changed = True
        self._slots[record.slot] = record


def check_invariants(slots: Sequence[SlotRecord], last_life: int) -> None:
    """Check what holds after every event. A breach is a bug of ours, so these are assertions."""
    lives = [each.life for each in slots]
    assert len(set(lives)) == len(lives), "no two slots are in one life"
    assert max(lives) <= last_life, "a life has been numbered"
    owners = [each.owner for each in slots if each.owner is not None]
    assert len(set(owners)) == len(owners), "no task has two slots"
    for each in slots:
        ends = each.status in (SlotStatus.ENDING, SlotStatus.ENDED)
        assert ends or (each.owner is not None) == (each.status in WITH_TASK), "who has the slot"
        assert each.owner not in each.dormant, "who has the slot is not dormant"
        assert (each.due_s < NEVER_S) == (each.status in WITH_DEADLINE), "a status's deadline"
        assert not (each.ready and each.missing_since_s is not None), "what is ready is not missing"


def _lost(reason: str) -> RunLostError:
    return RunLostError(reason, counted=False, cancelled=False)
