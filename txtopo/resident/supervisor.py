"""SlotSupervisor: decides which task has a slot, and when a slot is given another job.

Rules
-----
1. Only this file changes the standing of a slot, as the table :data:`AFTER` allows. The runtime
   around it never edits it.
2. No I/O, clock, thread or random number is used here. Events go in with the time, actions come
   out, and equal events at equal times give equal actions. That is what lets a simulator replay a
   failure from its seed.
3. An event of a task that does not have the slot, or of another job than the last one, or one that
   the phase does not expect, changes nothing but what that task is told. Compare first, then
   mutate.
4. Each event is handled to the end: afterwards nothing is left that could be done before
   :attr:`SlotSupervisor.due_s`. A deadline belongs to a phase: whoever leaves the phase leaves the
   deadline behind, so no timer has to be taken back.

Theory of operation
-------------------
A slot is one Spark job with one task, and there are many tasks in the life of a slot: a job dies
and is submitted again, Spark repeats the task of a job after an executor was lost, or runs a second
copy of it beside the first. Each task says hello when it comes. The newest one of the last job has
the slot. It is told the number of its *life*, gets ready, and is given work from then on. ::

    PAUSED             --the pause is over-->           STARTING
    STARTING           --hello-->                       PREPARING
    PREPARING          --ready-->                       READY
    PREPARING, READY   --hello of another copy-->       PREPARING
    PREPARING, READY   --the connection is lost-->      SILENT
    SILENT             --silent_s-->                    CANCELLED
    SILENT, CANCELLED  --hello-->                       PREPARING
    any with a job     --the job ends-->                PAUSED, or FAILED if no other job would do
    any with a job     --the run ends-->                ENDING --the job ends--> ENDED
    PAUSED, FAILED     --the run ends-->                ENDED

* **Lives.** Their numbers grow, over all slots. A life ends when its task loses the slot, for
  whatever reason. What a task says is heard only while it has the slot, so nothing of an earlier
  life is ever told to the user of the slots.
* **Cut off.** A task that does not have the slot is told so. If another task of the same job has
  it, this one goes *dormant*: were it to return, Spark would take the job for done and stop the
  other. Any other task returns.
* **A lost connection** is the end of a life, since nobody could tell what was lost with it. It may
  be the first sign of a dead worker, so the loss is told again with the reason when the job ends.
  The task notices within ``silent_s`` and ends by itself, unless user code hangs; then the job is
  cancelled.
* **Pauses.** A job that ends is submitted again: at once the first time, then after pauses that
  grow until a task says something of its work. A slot that gets ready and dies of what it is given,
  each time, is worth a pause as well.
* **Missing slots.** A slot that cannot be given work for long is told as missing: after half of
  ``missing_s``, after all of it, and then once every ``missing_s``. A job that waits for a core
  which does not come back shows in no other way: it neither ends nor fails.
* **The end.** Every task is told to end, and the job of a slot without one is cancelled. What is
  still there after ``stop_s`` is cancelled. After twice that time nothing is waited for any more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from txtopo.errors import RunLostError

# A task ends by itself when it has heard nothing of the driver for ten seconds; by then it has,
# unless user code hangs in it.
SILENT_S = 12.0
# Slots have this long to end by themselves before their jobs are cancelled, and Spark as long to do
# that.
STOP_S = 10.0
NEVER_S = math.inf


class SlotPhase(Enum):
    """What a slot is in."""

    PAUSED = "paused"
    """It has no job; the next one is submitted when the pause is over."""
    STARTING = "starting"
    """Its job runs, or waits for a core; no task has said hello."""
    PREPARING = "preparing"
    """A task has the slot and gets ready."""
    READY = "ready"
    """A task has the slot and can be given work."""
    SILENT = "silent"
    """The connection to its task was lost; its job has not ended."""
    CANCELLED = "cancelled"
    """It was silent for too long, so its job was cancelled."""
    FAILED = "failed"
    """Another job would end in the same way, so there is none."""
    ENDING = "ending"
    """The run ends; its job has not."""
    ENDED = "ended"
    """The run ends; no job is left."""


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class TaskGreeted:
    """A task of a slot's job has come, and says where it listens to other slots."""

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
    """A task said something of its work.

    Attributes:
        slot: Its slot.
        identity: The task.
        submission: The job that it belongs to.
        frames: What it said.
        leaves: Whether it said goodbye, and waits to be told that it was heard.
        works: Whether it has done something of its work; otherwise it has only news of its spouts,
            which says nothing about whether it will die of what it is given.
    """

    slot: int
    identity: bytes
    submission: int
    frames: tuple[bytes, ...]
    leaves: bool = False
    works: bool = True


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """A task is connected no more."""

    identity: bytes


@dataclass(frozen=True, slots=True)
class JobLost:
    """The job of a slot has ended; another one may do better."""

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
    """Whoever uses the slot wants its job cancelled: it works on what nobody waits for."""

    slot: int


@dataclass(frozen=True, slots=True)
class EndRequested:
    """The run ends."""


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
    """Cancel the job of a slot. It ends then, as any job."""

    slot: int
    submission: int


@dataclass(frozen=True, slots=True)
class WelcomeTask:
    """Tell a task that it has the slot, and the number of its life."""

    identity: bytes
    life: int


@dataclass(frozen=True, slots=True)
class CutOffTask:
    """Tell a task that it does not have the slot.

    Attributes:
        identity: The task.
        dormant: Whether it must not return, since another task of its job has the slot.
    """

    identity: bytes
    dormant: bool


@dataclass(frozen=True, slots=True)
class EndTask:
    """Tell a task to end."""

    identity: bytes


@dataclass(frozen=True, slots=True)
class PingTasks:
    """Ping these tasks from now on, and no others: that is how a lost connection shows."""

    identities: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class SlotReady:
    """Tell the user of the slots: a life has begun to take work."""

    slot: int


@dataclass(frozen=True, slots=True)
class SlotSaid:
    """Tell the user of the slots what the life that has a slot said of its work."""

    slot: int
    life: int
    frames: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class LifeLost:
    """Tell the user of the slots: a life is over, or the next one could not begin.

    Attributes:
        slot: The slot.
        ended: The life that is over.
        error: Why, as far as it is known.
        job_ended: Whether the job has ended; if not, the loss is told again with the reason when it
            does.
        unready_jobs: Jobs in a row, before this one, that ended before they got ready.
    """

    slot: int
    ended: int
    error: RunLostError
    job_ended: bool
    unready_jobs: int


@dataclass(frozen=True, slots=True)
class SlotFailed:
    """Tell the user of the slots: a slot will not live again."""

    slot: int
    error: Exception


@dataclass(frozen=True, slots=True)
class SlotMissing:
    """Say that a slot cannot be given work for long.

    Attributes:
        slot: The slot.
        submission: Its last job.
        missing_s: For how long.
        overdue: Whether that is as long as it may be.
    """

    slot: int
    submission: int
    missing_s: float
    overdue: bool


@dataclass(frozen=True, slots=True)
class SlotsMoved:
    """Tell the user of the slots: a life has begun or ended somewhere."""


@dataclass(frozen=True, slots=True)
class JobRetried:
    """Say that the job of a slot failed and is submitted again.

    Attributes:
        slot: The slot.
        error: Why it ended.
        failures: Jobs in a row that ended without a word of their work.
        pause_s: When the next one is submitted.
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
# Phases in which a task has the slot. A run that ends leaves it to the task that has it.
WITH_TASK = frozenset({SlotPhase.PREPARING, SlotPhase.READY})
# Phases with a deadline.
WITH_DEADLINE = frozenset({SlotPhase.PAUSED, SlotPhase.SILENT})

# Which event or action leads from which phase to which. A pair that is missing is illegal: such an
# event changes nothing, such an action is never asked for.
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
    """Where one slot stands. A value: the supervisor replaces it.

    Attributes:
        slot: Its number.
        life: The life that it is in, or will be in next.
        phase: Its phase.
        due_s: When the phase ends by itself.
        submission: Number of its last job; 0 before the first.
        owner: Identity of the task that has the slot.
        endpoint: Where that listens to other slots; empty if it does not.
        dormant: Tasks of the last job that do not have the slot any more.
        unready_jobs: Jobs in a row that ended before they got ready.
        fruitless_jobs: Jobs in a row that ended without a word of their work.
        missing_since_s: Since when it cannot be given work; None while it can.
        missing_told: How often that was told.
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
        """Whether it can be given work."""
        return self.phase is SlotPhase.READY

    def expects(self, cause: type) -> bool:
        """Return whether *cause*, an event or action class, leads anywhere from its phase."""
        return (self.phase, cause) in AFTER

    def moved(self, cause: type, due_s: float = NEVER_S) -> SlotState:
        """Return it in the phase that *cause*, an event or action class, leads to."""
        return replace(self, phase=AFTER[self.phase, cause], due_s=due_s)

    def missing_due_s(self, missing_s: float) -> float:
        """Return when it is told next as missing."""
        if self.missing_since_s is None:
            return NEVER_S
        return self.missing_since_s + missing_s * (self.missing_told or 0.5)


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """What the protocol has to know.

    Attributes:
        slots: How many there are.
        pause_s: The pause after so many fruitless jobs in a row, from 1.
        missing_s: How long a slot may be missing.
        silent_s: After so long a task that has lost its connection has ended by itself.
        stop_s: How long tasks have to end by themselves.
    """

    slots: int
    pause_s: Callable[[int], float]
    missing_s: float
    silent_s: float = SILENT_S
    stop_s: float = STOP_S


class SlotSupervisor:
    """The state machine of all slots of a run.

    Who calls it: one loop of the runtime: :meth:`start` once, then :meth:`handle` for one event
    after the other, each when the actions before it are done, and for a :class:`TimePassed` when
    :attr:`due_s` has come.
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
        """When something is to be done without another event."""
        return self._due_s

    def start(self, now_s: float) -> list[Action]:
        """Return the first actions: a job for each slot."""
        for each in self._slots:
            self._put(replace(each, due_s=now_s, missing_since_s=now_s))
        return self._settled([], now_s)

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Take note of an event and return what to do, in order."""
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
        """Give a slot to a task: the newest one of the last job has it."""
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
        # At once, the first time: most likely a worker has died.
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
        """Return a slot after the end of a life, still in its phase, and what is told of it."""
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
        """Append all that is due, and check the invariants."""
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
        # What was not told in time is told once.
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
