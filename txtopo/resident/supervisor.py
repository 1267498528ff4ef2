"""SlotSupervisor: decides which task owns a slot, and when to submit another job for a slot.

Rules
-----
1. Only this file changes the state of a slot, as the table :data:`AFTER` allows. The runtime
   around it never edits it.
2. No I/O, clock, thread or random number is used here. Events go in with the time, actions come
   out, and equal events at equal times give equal actions. So a simulator can replay a failure from
   its seed.
3. Some events change no slot: events of a task that does not own the slot, events of another job
   than the last one, and events that the phase does not expect. They only determine the reply to
   that task. Compare first, then mutate.
4. Each event is handled to the end: afterwards there is nothing to do before
   :attr:`SlotSupervisor.due_s`. A deadline belongs to a phase and ends with it, so no timer has to
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

Two phases end by themselves, with an action: a pause with ``SubmitJob``, and a silence, after
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


class SlotPhase(Enum):
    """The phase of a slot."""

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

# Phases in which a job runs, or waits for a core.
WITH_JOB = frozenset(
    {
        SlotPhase.STARTING,
        SlotPhase.PREPARING,
        SlotPhase.READY,
        SlotPhase.SILENT,
        SlotPhase.CANCELLED,
        SlotPhase.ENDING,
    }
)
# Phases in which a task owns the slot. When the run ends, the task keeps the slot.
WITH_TASK = frozenset({SlotPhase.PREPARING, SlotPhase.READY})
# Phases with a deadline.
WITH_DEADLINE = frozenset({SlotPhase.PAUSED, SlotPhase.SILENT})

# The phase that each event or action leads to, by the phase before it. A missing pair is illegal:
# such an event changes nothing, and such an action is never requested.
AFTER: dict[tuple[SlotPhase, type], SlotPhase] = {
    (SlotPhase.PAUSED, SubmitJob): SlotPhase.STARTING,
    (SlotPhase.STARTING, TaskGreeted): SlotPhase.PREPARING,
    (SlotPhase.PREPARING, TaskGreeted): SlotPhase.PREPARING,
    (SlotPhase.READY, TaskGreeted): SlotPhase.PREPARING,
    (SlotPhase.SILENT, TaskGreeted): SlotPhase.PREPARING,
    (SlotPhase.CANCELLED, TaskGreeted): SlotPhase.PREPARING,
    (SlotPhase.PREPARING, TaskReady): SlotPhase.READY,
    (SlotPhase.PREPARING, ConnectionLost): SlotPhase.SILENT,
    (SlotPhase.READY, ConnectionLost): SlotPhase.SILENT,
    (SlotPhase.SILENT, CancelJob): SlotPhase.CANCELLED,
    (SlotPhase.ENDING, JobLost): SlotPhase.ENDED,
    (SlotPhase.ENDING, JobFailed): SlotPhase.ENDED,
    (SlotPhase.PAUSED, EndRequested): SlotPhase.ENDED,
    (SlotPhase.FAILED, EndRequested): SlotPhase.ENDED,
    **{(phase, JobLost): SlotPhase.PAUSED for phase in WITH_JOB - {SlotPhase.ENDING}},
    **{(phase, JobFailed): SlotPhase.FAILED for phase in WITH_JOB - {SlotPhase.ENDING}},
    **{(phase, EndRequested): SlotPhase.ENDING for phase in WITH_JOB - {SlotPhase.ENDING}},
}


@dataclass(frozen=True, slots=True)
class SlotState:
    """The state of one slot. It is a value: the supervisor replaces it.

    Attributes:
        slot: Its number.
        life: The number of its present life, or of the next one.
        phase: Its phase.
        due_s: When the phase ends by itself.
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
    phase: SlotPhase = SlotPhase.PAUSED
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
        """Whether it can take work."""
        return self.phase is SlotPhase.READY

    def expects(self, cause: type) -> bool:
        """Return whether *cause*, an event or action class, leads anywhere from its phase."""
        return (self.phase, cause) in AFTER

    def moved(self, cause: type, due_s: float = NEVER_S) -> SlotState:
        """Return it in the phase that *cause*, an event or action class, leads to."""
        return replace(self, phase=AFTER[self.phase, cause], due_s=due_s)

    def missing_due_s(self, missing_s: float) -> float:
        """Return when it is next reported as missing."""
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
        self._slots = [SlotState(slot, slot + 1) for slot in range(settings.slots)]
        self._pinged: frozenset[bytes] = frozenset()
        self._due_s = self._stop_due_s = NEVER_S
        self._changed = self._stop_cancelled = False
        self._over = self._stopping = False

    @property
    def slots(self) -> Sequence[SlotState]:
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
                state = self._slots[event.slot]
                if state.phase in WITH_JOB:
                    return [CancelJob(state.slot, state.submission)]
            case EndRequested():
                return self._stop(now_s)
            case TimePassed():
                pass
        return []

    # ------------------------------------------------------------ what tasks say

    def _greeted(self, event: TaskGreeted, now_s: float) -> list[Action]:
        """Give a slot to a task: the newest task of the last job owns it."""
        state = self._slots[event.slot]
        if event.identity == state.owner:
            return []
        known = event.submission == state.submission and event.identity not in state.dormant
        if not known or not state.expects(TaskGreeted):
            return self._cut_off(event)
        actions: list[Action] = []
        if state.owner is not None:
            earlier, state = state.owner, replace(state, dormant=state.dormant | {state.owner})
            actions += [CutOffTask(earlier, dormant=True)]
            lost = _lost("another copy of its task took its place")
            state, told = self._ended(state, lost, now_s, job_ended=False)
            actions += [told]
        self._put(replace(state.moved(TaskGreeted), owner=event.identity, endpoint=event.endpoint))
        return [*actions, WelcomeTask(event.identity, state.life), SlotsMoved()]

    def _ready(self, event: TaskReady) -> list[Action]:
        state = self._slots[event.slot]
        if event.identity != state.owner:
            return self._cut_off(event)
        if not state.expects(TaskReady):
            return []
        self._put(
            replace(state.moved(TaskReady), unready_jobs=0, missing_since_s=None, missing_told=0)
        )
        return [SlotReady(state.slot), SlotsMoved()]

    def _said(self, event: TaskSaid) -> list[Action]:
        state = self._slots[event.slot]
        if event.identity != state.owner:
            return self._cut_off(event)
        if state.fruitless_jobs and event.works:
            self._put(replace(state, fruitless_jobs=0))
        said = SlotSaid(state.slot, state.life, event.frames)
        return [EndTask(event.identity), said] if event.leaves else [said]

    def _cut_off(self, event: TaskGreeted | TaskReady | TaskSaid) -> list[Action]:
        state = self._slots[event.slot]
        if self._stopping:
            return [EndTask(event.identity)]
        dormant = state.owner is not None and event.submission == state.submission
        if dormant:
            self._put(replace(state, dormant=state.dormant | {event.identity}))
        return [CutOffTask(event.identity, dormant)]

    # ------------------------------------------------------------ what is lost

    def _unreachable(self, event: ConnectionLost, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for state in self._slots:
            if event.identity in state.dormant:
                self._put(replace(state, dormant=state.dormant - {event.identity}))
            elif event.identity == state.owner and state.expects(ConnectionLost):
                lost = _lost("the connection to its task was lost")
                ended, told = self._ended(state, lost, now_s, job_ended=False)
                self._put(ended.moved(ConnectionLost, now_s + self._settings.silent_s))
                actions += [told, SlotsMoved()]
        return actions

    def _job_lost(self, event: JobLost, now_s: float) -> list[Action]:
        state = self._slots[event.slot]
        if event.submission != state.submission or not state.expects(JobLost):
            return []
        if self._stopping:
            self._put(state.moved(JobLost))
            return []
        fruitless = state.fruitless_jobs
        # The first time there is no pause: most likely a worker has died.
        pause_s = self._settings.pause_s(fruitless) if fruitless else 0.0
        ended, told = self._ended(state, event.error, now_s, job_ended=True)
        self._put(
            replace(
                ended.moved(JobLost, now_s + pause_s),
                dormant=frozenset(),
                unready_jobs=state.unready_jobs + 1,
                fruitless_jobs=fruitless + 1,
            )
        )
        return [told, SlotsMoved(), JobRetried(state.slot, event.error, fruitless + 1, pause_s)]

    def _job_failed(self, event: JobFailed) -> list[Action]:
        state = self._slots[event.slot]
        if event.submission != state.submission or not state.expects(JobFailed):
            return []
        self._put(
            replace(
                state.moved(JobFailed),
                owner=None,
                endpoint=None,
                dormant=frozenset(),
                missing_since_s=None,
            )
        )
        return [] if self._stopping else [SlotFailed(state.slot, event.error)]

    def _ended(
        self, state: SlotState, error: RunLostError, now_s: float, *, job_ended: bool
    ) -> tuple[SlotState, LifeLost]:
        """Return a slot after the end of a life, still in the same phase, and the report of it."""
        self._last_life += 1
        since_s = state.missing_since_s
        after = replace(
            state,
            life=self._last_life,
            owner=None,
            endpoint=None,
            missing_since_s=now_s if since_s is None else since_s,
        )
        return after, LifeLost(state.slot, state.life, error, job_ended, state.unready_jobs)

    # ------------------------------------------------------------ the end

    def _stop(self, now_s: float) -> list[Action]:
        if self._stopping:
            return []
        self._stopping = self._changed = True
        self._stop_due_s = now_s + self._settings.stop_s
        actions: list[Action] = []
        for state in self._slots:
            actions += [EndTask(identity) for identity in sorted(state.dormant)]
            if state.owner is not None:
                actions += [EndTask(state.owner)]
            elif state.phase in WITH_JOB:
                actions += [CancelJob(state.slot, state.submission)]
            if state.expects(EndRequested):
                state = replace(state.moved(EndRequested), missing_since_s=None)
            self._put(state)
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
        state = self._slots[slot]
        actions: list[Action] = []
        if state.due_s <= now_s and state.expects(SubmitJob):
            state = replace(state.moved(SubmitJob), submission=state.submission + 1)
            actions += [SubmitJob(slot, state.submission)]
        elif state.due_s <= now_s and state.expects(CancelJob):
            state = state.moved(CancelJob)
            actions += [CancelJob(slot, state.submission)]
        if state.missing_due_s(self._settings.missing_s) <= now_s:
            state, missing = self._missing(state, now_s)
            actions += [missing]
        self._put(state)
        return actions

    def _missing(self, state: SlotState, now_s: float) -> tuple[SlotState, SlotMissing]:
        since_s, limit_s = state.missing_since_s, self._settings.missing_s
        assert since_s is not None
        overdue = since_s + limit_s <= now_s
        # Reports that were missed are made up for by one.
        told = max(1, state.missing_told)
        while since_s + limit_s * told <= now_s:
            told += 1
        missing = SlotMissing(state.slot, state.submission, now_s - since_s, overdue)
        return replace(state, missing_told=told), missing

    def _ending(self, now_s: float) -> list[Action]:
        late = now_s >= self._stop_due_s
        if late and not self._stop_cancelled:
            self._stop_cancelled, late = True, False
            self._stop_due_s = now_s + self._settings.stop_s
            left = [each for each in self._slots if each.phase in WITH_JOB]
            if left:
                return [CancelJob(each.slot, each.submission) for each in left]
        if late or all(each.phase not in WITH_JOB for each in self._slots):
            self._over = True
            return [Close()]
        return []

    def _connected(self) -> Iterator[bytes]:
        for state in self._slots:
            if state.owner is not None:
                yield state.owner
            yield from state.dormant

    def _put(self, state: SlotState) -> None:
        self._changed = True
        self._slots[state.slot] = state


def check_invariants(slots: Sequence[SlotState], last_life: int) -> None:
    """Check what holds after every event. A breach is a bug of ours, so these are assertions."""
    lives = [each.life for each in slots]
    assert len(set(lives)) == len(lives), "no two slots are in one life"
    assert max(lives) <= last_life, "a life has been numbered"
    owners = [each.owner for each in slots if each.owner is not None]
    assert len(set(owners)) == len(owners), "no task has two slots"
    for each in slots:
        ends = each.phase in (SlotPhase.ENDING, SlotPhase.ENDED)
        assert ends or (each.owner is not None) == (each.phase in WITH_TASK), "who has the slot"
        assert each.owner not in each.dormant, "who has the slot is not dormant"
        assert (each.due_s < NEVER_S) == (each.phase in WITH_DEADLINE), "a phase's deadline"
        assert not (each.ready and each.missing_since_s is not None), "what is ready is not missing"


def _lost(reason: str) -> RunLostError:
    return RunLostError(reason, counted=False, cancelled=False)
