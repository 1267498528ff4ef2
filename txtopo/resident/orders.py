"""LevelOrders: decides which slot computes which level, and what a lost slot fails.

No I/O, clock, thread or random number is used here; see
:mod:`txtopo.resident.supervisor`, some of whose actions are events here.

Rules
-----
1. Only this file changes what a slot has to do, as the table :data:`AFTER` allows.
2. An answer to any order but the current order of a slot changes nothing.
3. Each level is reported exactly once: as done, with one answer of each slot, or as failed. Nothing
   is reported about a level afterwards.

Theory of operation
-------------------
The driver takes a run through the levels of its chain. At each *level* every slot gets one *order*:
the run, the level, and the envelopes that the previous level sent to this slot. The slot runs the
usual stage function and *answers* with the resulting records. When all slots have answered, the
driver passes the envelopes, unread, to the next level. It keeps the result of the last level,
including the handover for a commit in tasks. Consecutive levels whose tuples stay in their slot
(``CompiledTopology.staying``) are one level here: one order, which a slot computes without the
others.

The table, as a diagram. A test compares the two. ::

    AWAY                  --SlotReady--> IDLE
    AWAY, IDLE, ABANDONED --LifeLost--> AWAY
    IDLE                  --GiveOrder--> BUSY
    BUSY, ABANDONED       --SlotAnswered--> IDLE
    BUSY, LOST            --LifeLost--> LOST
    BUSY                  --LevelFailed--> ABANDONED
    LOST                  --LevelFailed--> AWAY

``LevelFailed`` gives a level up: because its chain was cancelled, because another slot failed it,
or because the reason for the loss of this slot is known or was waited for long enough.

* **Through the driver, not from slot to slot**: an envelope needs one more hop, half a millisecond,
  and passes through the driver's memory. But then nothing is on its way between slots when one of
  them dies, an abandoned run leaves no late envelopes, and the handover outlives the slots. For
  topologies that shuffle much more than they send to the driver, the carrier ``rdd`` is better.
* **A slot does one order at a time** and does not know the others: they wait in the driver, commits
  first, then lower txids. So a lost slot loses at most one order, and a cancelled run has at most
  one order in each slot. If that order is not done within ``cancel_s``, the slot's job is
  cancelled, which kills its worker together with user code that hangs.
* **Bounds.** Two runs process at once and one batch commits. The envelopes of one
  level of each are in the memory of driver and slots; what waits for its commit afterwards counts
  towards ``Config.driver_bytes_max``.
* **A lost slot** fails the chain of its order, as a lost Spark job does. This counts towards
  ``attempts_max`` if the slot's job ended because a Python worker died, but not if the connection
  or an executor was lost. On a cluster Spark itself retries a task, up to
  ``spark.task.maxFailures`` times per job, and only the last failure ends the job. A lost
  connection may be only the first sign of a dead worker, so the reason is awaited for
  ``reason_s``. The next life does the orders that were waiting, unless two jobs in a row produce no
  life.
* **A missing slot** that is overdue ends everything as soon as an order waits for it: with an error
  that is not retried, or with a change to another carrier, if ``"auto"`` chose this one.
* **Nothing can be duplicated.** Each order has its own number, which marks everything that it
  produces. One answer is accepted for it, from the life that got it, while its level is awaited.
  Anything else that a slot computed is ignored, and has written nothing: only the driver writes
  states, in one store transaction per attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from txtopo.errors import RunLostError, SlotUnavailable
from txtopo.resident.supervisor import NEVER_S, LifeLost, SlotReady, TimePassed

# An order that takes longer than this costs more than a new life of the slot, which takes about
# 0.5 s after Spark has given the worker 2 s to end.
CANCEL_S = 2.0
# Spark reports a dead worker within milliseconds, a dead executor within a second, and both within
# some seconds on an overloaded machine. Waiting costs nothing: until Spark reports it, the slot
# gets no next life before the task has noticed.
REASON_S = 8.0
# Cancelled tags are remembered for levels that are ordered later. An abandoned run is never started
# again, so old tags can be dropped.
_CANCELLED_MAX = 1000


class QueueStatus(Enum):
    """What a slot is doing, from the view of its orders."""

    AWAY = "away"
    """It cannot take an order."""
    IDLE = "idle"
    """It has no order."""
    BUSY = "busy"
    """It does an order whose answer is needed."""
    ABANDONED = "abandoned"
    """It does an order whose level was given up."""
    LOST = "lost"
    """It was lost with an order; the real reason may not be known yet."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a chain, in all slots, or several whose tuples stay in their slot.

    Attributes:
        number: Its number, which is unique in the run.
        tag: Tag of its chain.
        urgency: Orders the levels; a lower one comes first.
    """

    number: int
    tag: str
    urgency: tuple[int, ...] = ()


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class LevelOrdered:
    """All slots are to compute a level."""

    level: Level


@dataclass(frozen=True, slots=True)
class ChainCancelled:
    """Levels with this tag are cancelled, including those that are not ordered yet."""

    tag: str


@dataclass(frozen=True, slots=True)
class SlotAnswered:
    """The life that owns a slot has answered an order."""

    slot: int
    order: int
    answer: object = field(repr=False)


@dataclass(frozen=True, slots=True)
class SlotOverdue:
    """A slot has been missing for the maximum time; *error* describes it."""

    slot: int
    error: SlotUnavailable


@dataclass(frozen=True, slots=True)
class AllFailed:
    """No order can be done any more."""

    error: BaseException


Event = (
    LevelOrdered
    | ChainCancelled
    | SlotReady
    | SlotAnswered
    | LifeLost
    | SlotOverdue
    | AllFailed
    | TimePassed
)


# ---------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class GiveOrder:
    """Let a slot compute its part of a level. Answered by ``SlotAnswered`` or ``LifeLost``."""

    slot: int
    order: int
    level: Level


@dataclass(frozen=True, slots=True)
class LevelDone:
    """All slots have computed a level; their answers are in the order of the slots."""

    level: Level
    answers: tuple[object, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class LevelFailed:
    """A level will not be done."""

    level: Level
    error: BaseException


@dataclass(frozen=True, slots=True)
class RestartSlot:
    """Cancel the job of a slot: it works on a cancelled order, and does not end."""

    slot: int


@dataclass(frozen=True, slots=True)
class ChangeCarrier:
    """Continue without the slots. Every level that is ordered from now on fails."""

    error: SlotUnavailable


Action = GiveOrder | LevelDone | LevelFailed | RestartSlot | ChangeCarrier


# ---------------------------------------------------------------- the table

# The status that each event or action leads to, by the status before it. A missing pair is illegal:
# such an event changes nothing, and such an action is never requested. A slot that was lost with an
# order is LOST only while the reason may still arrive.
AFTER: dict[tuple[QueueStatus, type], QueueStatus] = {
    (QueueStatus.AWAY, SlotReady): QueueStatus.IDLE,
    (QueueStatus.AWAY, LifeLost): QueueStatus.AWAY,
    (QueueStatus.IDLE, GiveOrder): QueueStatus.BUSY,
    (QueueStatus.IDLE, LifeLost): QueueStatus.AWAY,
    (QueueStatus.BUSY, SlotAnswered): QueueStatus.IDLE,
    (QueueStatus.BUSY, LifeLost): QueueStatus.LOST,
    (QueueStatus.BUSY, LevelFailed): QueueStatus.ABANDONED,
    (QueueStatus.ABANDONED, SlotAnswered): QueueStatus.IDLE,
    (QueueStatus.ABANDONED, LifeLost): QueueStatus.AWAY,
    (QueueStatus.LOST, LifeLost): QueueStatus.LOST,
    (QueueStatus.LOST, LevelFailed): QueueStatus.AWAY,
}

# Statuses with an order that has not been answered.
WITH_ORDER = frozenset({QueueStatus.BUSY, QueueStatus.ABANDONED, QueueStatus.LOST})


@dataclass(frozen=True, slots=True)
class SlotQueue:
    """What one slot has to do. It is a value: :class:`LevelOrders` replaces it.

    Attributes:
        slot: The slot.
        status: Its status.
        due_s: When it needs an action without another event.
        waiting: Levels whose order it has not got yet.
        order: Number of the order that it does, or was lost with.
        level: The level of that order.
        reason: Why it was lost with that order, as far as it is known.
        overdue: The error that says why nothing may wait for it any longer.
    """

    slot: int
    status: QueueStatus = QueueStatus.AWAY
    due_s: float = NEVER_S
    waiting: tuple[Level, ...] = ()
    order: int = 0
    level: Level | None = None
    reason: RunLostError | None = None
    overdue: SlotUnavailable | None = None

    def expects(self, cause: type) -> bool:
        """Return whether the table has an entry for the queue's status and *cause*, a class."""
        return (self.status, cause) in AFTER

    def moved(self, cause: type, due_s: float = NEVER_S) -> SlotQueue:
        """Return the queue in the status that *cause*, an event or action class, leads to."""
        status = AFTER[self.status, cause]
        if status in WITH_ORDER:
            return replace(self, status=status, due_s=due_s)
        return replace(self, status=status, due_s=due_s, order=0, level=None, reason=None)


@dataclass(frozen=True, slots=True)
class OrderSettings:
    """The settings of the protocol.

    Attributes:
        slots: Number of slots.
        changes_carrier: Whether to continue with another carrier when a slot is overdue.
        cancel_s: How long a slot may continue with a cancelled order.
        reason_s: How long to wait for the reason of a loss.
    """

    slots: int
    changes_carrier: bool = False
    cancel_s: float = CANCEL_S
    reason_s: float = REASON_S


class LevelOrders:
    """The state machine of the orders of all slots of a run.

    Who calls it: one loop of the runtime. It calls :meth:`handle` for one event after the other,
    each after the previous actions are done, and with a :class:`TimePassed` when :attr:`due_s` has
    come.
    """

    def __init__(self, settings: OrderSettings) -> None:
        self._settings = settings
        self._queues = [SlotQueue(slot) for slot in range(settings.slots)]
        self._answers: dict[Level, dict[int, object]] = {}
        self._cancelled: dict[str, None] = {}
        self._broken: BaseException | None = None
        self._changed: set[int] = set()
        self._last_order = 0

    @property
    def queues(self) -> Sequence[SlotQueue]:
        """The queue of each slot."""
        return self._queues

    @property
    def levels(self) -> Mapping[Level, Mapping[int, object]]:
        """The levels that are neither done nor failed, with the answers so far, by slot."""
        return self._answers

    @property
    def due_s(self) -> float:
        """When the next action is due without another event."""
        return min(each.due_s for each in self._queues)

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Process an event and return the actions to do, in order."""
        return self._settled(self._changed_by(event, now_s), now_s)

    def _changed_by(self, event: Event, now_s: float) -> list[Action]:
        match event:
            case LevelOrdered():
                return self._order(event.level)
            case ChainCancelled():
                return self._cancel(event.tag, now_s)
            case SlotReady():
                return self._ready(self._queues[event.slot], now_s)
            case SlotAnswered():
                return self._answered(event)
            case LifeLost():
                return self._lost(event, now_s)
            case SlotOverdue():
                self._put(replace(self._queues[event.slot], overdue=event.error))
            case AllFailed():
                return self._fail_all(event.error, now_s)
            case TimePassed():
                return self._due(now_s)
        return []

    def _order(self, level: Level) -> list[Action]:
        if self._broken is not None:
            return [LevelFailed(level, self._broken)]
        if level.tag in self._cancelled:
            return [LevelFailed(level, _cancelled(level.tag))]
        self._answers[level] = {}
        for queue in self._queues:
            self._put(replace(queue, waiting=(*queue.waiting, level)))
        return []

    def _cancel(self, tag: str, now_s: float) -> list[Action]:
        self._cancelled[tag] = None
        while len(self._cancelled) > _CANCELLED_MAX:
            del self._cancelled[next(iter(self._cancelled))]
        levels = [each for each in self._answers if each.tag == tag]
        return [a for level in levels for a in self._fail(level, _cancelled(tag), now_s)]

    def _ready(self, queue: SlotQueue, now_s: float) -> list[Action]:
        actions = self._give_up(queue, now_s)
        queue = self._queues[queue.slot]
        if queue.expects(SlotReady):
            self._put(replace(queue.moved(SlotReady), overdue=None))
        return actions

    def _answered(self, event: SlotAnswered) -> list[Action]:
        queue = self._queues[event.slot]
        if event.order != queue.order or not queue.expects(SlotAnswered):
            return []
        level = queue.level
        assert level is not None
        self._put(queue.moved(SlotAnswered))
        answers = self._answers.get(level)
        if answers is None:
            return []
        answers[event.slot] = event.answer
        if len(answers) < len(self._queues):
            return []
        del self._answers[level]
        return [LevelDone(level, tuple(answers[slot] for slot in range(len(self._queues))))]

    def _lost(self, event: LifeLost, now_s: float) -> list[Action]:
        """Fail the order of a slot, as soon as the reason for the loss is known."""
        queue = self._queues[event.slot]
        since = queue.due_s if queue.status is QueueStatus.LOST else NEVER_S
        queue = queue.moved(LifeLost)
        if queue.status is QueueStatus.LOST:
            due_s = min(since, now_s + self._settings.reason_s)
            queue = replace(queue, reason=event.error, due_s=due_s)
        self._put(queue)
        if not event.job_ended:
            return []
        actions = self._give_up(queue, now_s)
        if event.unready_jobs:
            # The previous job did not become ready either, so the next one may not either.
            for level in self._queues[event.slot].waiting:
                actions += self._fail(level, _uncounted(event.error), now_s)
        return actions

    def _due(self, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for queue in list(self._queues):
            if queue.due_s > now_s:
                continue
            if queue.status is QueueStatus.LOST:
                actions += self._give_up(queue, now_s)
            else:
                self._put(replace(queue, due_s=NEVER_S))
                actions += [RestartSlot(queue.slot)]
        return actions

    def _give_up(self, queue: SlotQueue, now_s: float) -> list[Action]:
        """Fail the order that a slot was lost with, with the reason that is known by now."""
        if queue.status is not QueueStatus.LOST:
            return []
        assert queue.level is not None
        assert queue.reason is not None
        return self._fail(queue.level, queue.reason, now_s)

    def _fail_all(self, error: BaseException, now_s: float) -> list[Action]:
        self._broken = self._broken or error
        return [a for level in list(self._answers) for a in self._fail(level, error, now_s)]

    def _fail(self, level: Level, error: BaseException, now_s: float) -> list[Action]:
        """Give up a level. A slot that still works on it after ``cancel_s`` is started again."""
        if level not in self._answers:
            return []
        del self._answers[level]
        for queue in self._queues:
            waiting = tuple(each for each in queue.waiting if each is not level)
            queue = replace(queue, waiting=waiting)
            if queue.level is level and queue.expects(LevelFailed):
                busy = queue.status is QueueStatus.BUSY
                due_s = now_s + self._settings.cancel_s if busy else NEVER_S
                queue = queue.moved(LevelFailed, due_s)
            self._put(queue)
        return [LevelFailed(level, error)]

    # ------------------------------------------------------------ what follows without an event

    def _settled(self, actions: list[Action], now_s: float) -> list[Action]:
        """Append all actions that need no other event, and check the invariants."""
        actions += self._given()
        for queue in self._queues:
            if queue.overdue is not None and queue.waiting:
                actions += self._without_slots(queue.overdue, now_s)
        check_invariants([self._queues[slot] for slot in self._changed], self._answers)
        self._changed.clear()
        return actions

    def _given(self) -> Iterator[Action]:
        for queue in self._queues:
            if not queue.waiting or not queue.expects(GiveOrder):
                continue
            level = min(queue.waiting, key=lambda each: each.urgency)
            self._last_order += 1
            waiting = tuple(each for each in queue.waiting if each is not level)
            busy = queue.moved(GiveOrder)
            self._put(replace(busy, waiting=waiting, order=self._last_order, level=level))
            yield GiveOrder(queue.slot, self._last_order, level)

    def _without_slots(self, error: SlotUnavailable, now_s: float) -> list[Action]:
        if not self._settings.changes_carrier:
            return self._fail_all(error, now_s)
        lost = RunLostError(
            f"{error}; the run continues with the carrier 'rdd'", counted=False, cancelled=False
        )
        return [ChangeCarrier(error), *self._fail_all(lost, now_s)]

    def _put(self, queue: SlotQueue) -> None:
        self._changed.add(queue.slot)
        self._queues[queue.slot] = queue


def check_invariants(
    queues: Sequence[SlotQueue], answers: Mapping[Level, Mapping[int, object]]
) -> None:
    """Check the invariants of the queues that an event has changed.

    A violation is a bug in txtopo, so these are assertions.
    """
    orders = [each.order for each in queues if each.order]
    assert len(set(orders)) == len(orders), "an order is given to one slot"
    for queue in queues:
        assert (queue.level is not None) == (queue.status in WITH_ORDER), "who has an order"
        assert (queue.order > 0) == (queue.status in WITH_ORDER), "which order it is"
        assert (queue.reason is not None) == (queue.status is QueueStatus.LOST), "why it was lost"
        wanted = queue.status in (QueueStatus.BUSY, QueueStatus.LOST)
        assert not wanted or queue.level in answers, "what is given up is abandoned"
        assert not (queue.status is QueueStatus.IDLE and queue.waiting), "who is idle has no work"
        for level, known in answers.items():
            places = [level in queue.waiting, wanted and queue.level is level, queue.slot in known]
            assert sum(places) == 1, "a level waits, is worked on, or is answered, in each slot"
        assert all(level in answers for level in queue.waiting), "what waits is wanted"


def _cancelled(tag: str) -> RunLostError:
    return RunLostError(f"the job {tag} was cancelled", tag=tag, counted=False, cancelled=True)


def _uncounted(error: RunLostError) -> RunLostError:
    return RunLostError(str(error), **{**error.facts, "counted": False})
