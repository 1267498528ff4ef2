"""StageSlots: gives orders to resident slots and takes their answers. See ``stages.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from txtopo.config import Config
from txtopo.errors import RunLostError
from txtopo.runtime.resident import messages
from txtopo.runtime.resident.jobs import Jobs
from txtopo.runtime.resident.lives import Lives, Place
from txtopo.runtime.resident.sockets import Keys
from txtopo.runtime.resident.stages import Record, StageOrder, unpack_answer
from txtopo.runtime.scheduler import ThreadScheduler, Timer
from txtopo.stages.pickling import pack
from txtopo.stages.program import Chain, Program, Run

# What is not done by then is more than a slot's next life costs, about 0.5 s after Spark has given
# the worker 2 s to end.
CANCEL_S = 2.0
# Spark tells of a dead worker within milliseconds, of a dead executor within a second, and of both
# within some seconds on a machine that has too much to do. Waiting costs nothing: as long as Spark
# says nothing there is no next life before the task has noticed, which is SILENCE_S.
REASON_S = 8.0
# Cancelled tags are remembered for levels that were about to be ordered; an abandoned run is never
# started again, so old ones can go.
_CANCELLED_MAX = 1000


@dataclass(slots=True)
class Level:
    """One level of a chain, in all slots.

    Attributes:
        tag: Tag of its chain.
        chain: The chain.
        run: The run.
        number: The level.
        done: Takes what the slots yielded, by slot, or why it is lost.
        answers: What they have yielded so far.
    """

    tag: str
    chain: Chain
    run: Run
    number: int
    done: Future[list[list[Record]]]
    answers: dict[int, list[Record]] = field(default_factory=dict)

    @property
    def urgency(self) -> tuple[bool, int, int]:
        """What comes first: commits, since all wait behind them, then lower txids."""
        return self.chain != "commit", self.run.attempts[0].txid, self.number


@dataclass(slots=True)
class _Order:
    """A slot's part of a level.

    Attributes:
        level: The level.
        number: Its number once it was given to a slot.
        records: What was sent to the slot.
    """

    level: Level
    records: Sequence[bytes]
    number: int = 0


@dataclass(slots=True)
class _Desk:
    """What a slot has to do.

    Attributes:
        waiting: Orders that it has not been given.
        current: The one that it is doing.
        lost: One whose slot was lost, perhaps for another reason than is known yet.
        reason: The reason that is known.
        timer: When another one is not waited for any longer.
    """

    waiting: list[_Order] = field(default_factory=list)
    current: _Order | None = None
    lost: _Order | None = None
    reason: RunLostError | None = None
    timer: Timer | None = None


class StageSlots:
    """The slots of a transactional topology, from the driver. Used on the loop."""

    def __init__(self, jobs: Jobs, keys: Keys, config: Config, scheduler: ThreadScheduler) -> None:
        self.lives = Lives(jobs, keys, config, scheduler)
        self._scheduler = scheduler
        self._numbers = count(1)
        self._desks: list[_Desk] = []
        self._levels: list[Level] = []
        self._cancelled: dict[str, None] = {}
        self._broken: BaseException | None = None

    def start(self, program: Program) -> None:
        """Bring all slots to life."""
        self._desks = [_Desk() for _ in range(program.slots)]
        self.lives.start(program, self)

    def compute(self, level: Level, records: Mapping[int, Sequence[bytes]]) -> None:
        """Have all slots compute a level; *records* are what was sent to each."""
        if self._broken is not None:
            level.done.set_exception(self._broken)
        elif level.tag in self._cancelled:
            level.done.set_exception(_cancelled(level.tag))
        else:
            self._levels.append(level)
            for slot, desk in enumerate(self._desks):
                desk.waiting.append(_Order(level, records.get(slot, ())))
                self._go_on(slot)

    def cancel(self, tag: str) -> None:
        """Cancel the levels of a chain, also those that are still to come."""
        self._cancelled[tag] = None
        while len(self._cancelled) > _CANCELLED_MAX:
            del self._cancelled[next(iter(self._cancelled))]
        for level in [each for each in self._levels if each.tag == tag]:
            self._fail(level, _cancelled(tag))

    def fail_all(self, error: BaseException) -> None:
        """Fail everything, now and from now on."""
        self._broken = self._broken or error
        for level in list(self._levels):
            self._fail(level, error)

    def stop(self, done: Callable[[], None]) -> None:
        """Cancel everything and end the tasks, then call *done*."""
        self.fail_all(RunLostError("the topology has ended", counted=False, cancelled=True))
        for place, desk in zip(self.lives.places, self._desks, strict=True):
            if desk.current is not None:
                self.lives.restart(place)  # it would not hear that it is to end
        self.lives.stop(done)

    # ------------------------------------------------------------ what slots say

    def slot_ready(self, place: Place) -> None:
        """Give it something to do."""
        self._give_up(self._desks[place.slot])
        self._go_on(place.slot)

    def slot_said(self, place: Place, frames: list[bytes]) -> None:
        """Take an answer, if it is waited for."""
        desk = self._desks[place.slot]
        number, records = unpack_answer(frames)
        order, desk.current = desk.current, None
        assert order is not None
        assert order.number == number, "a slot has one order at a time"
        level = order.level
        if level in self._levels:
            level.answers[place.slot] = records
            if len(level.answers) == len(self._desks):
                self._levels.remove(level)
                level.done.set_result([level.answers[slot] for slot in range(len(self._desks))])
        self._go_on(place.slot)

    def slot_lost(self, place: Place, ended: int, error: RunLostError) -> None:
        """Fail what it was doing, as soon as it is known why."""
        desk = self._desks[place.slot]
        if desk.current is not None:
            desk.lost, desk.current = desk.current, None
        desk.reason = error
        if place.running and desk.lost is not None:
            self._wait_for_reason(desk)
        else:
            self._give_up(desk)
        if place.failures and not place.running:
            # The job before did not get ready either: there is no telling when one will. While this
            # one is running, the reason may yet come.
            for waiting in list(desk.waiting):
                self._fail(waiting.level, _uncounted(error))

    def slot_failed(self, place: Place, error: Exception) -> None:
        """Fail everything: another job would end in the same way."""
        self.fail_all(error)

    def slots_moved(self) -> None:
        """Do nothing: slots do not know each other here."""

    def _wait_for_reason(self, desk: _Desk) -> None:
        if desk.timer is None:
            desk.timer = self._scheduler.call_later(REASON_S, partial(self._give_up, desk))

    def _give_up(self, desk: _Desk) -> None:
        """Fail the order that was lost, for the reason that is known by now."""
        order, timer, desk.lost, desk.timer = desk.lost, desk.timer, None, None
        if timer is not None:
            timer.cancel()
        if order is not None and desk.reason is not None:
            self._fail(order.level, desk.reason)

    # ------------------------------------------------------------ what slots are told

    def _go_on(self, slot: int) -> None:
        desk, place = self._desks[slot], self.lives.places[slot]
        if desk.current is not None or not desk.waiting or not place.ready:
            return
        order = min(desk.waiting, key=lambda each: each.level.urgency)
        desk.waiting.remove(order)
        desk.current = order
        order.number = next(self._numbers)
        level = order.level
        told = StageOrder(order.number, level.chain, level.run, level.number)
        self.lives.send(place, messages.STAGE, pack(told), *order.records)

    def _fail(self, level: Level, error: BaseException) -> None:
        """Give a level up; a slot that goes on with it for long is started again."""
        if level not in self._levels:
            return
        self._levels.remove(level)
        level.done.set_exception(error)
        for slot, desk in enumerate(self._desks):
            desk.waiting = [each for each in desk.waiting if each.level is not level]
            if desk.current is not None and desk.current.level is level:
                self._scheduler.call_later(
                    CANCEL_S, partial(self._restart_if_at, slot, desk.current)
                )

    def _restart_if_at(self, slot: int, order: _Order) -> None:
        if self._desks[slot].current is order:
            self.lives.restart(self.lives.places[slot])


def _cancelled(tag: str) -> RunLostError:
    return RunLostError(f"the job {tag} was cancelled", tag=tag, counted=False, cancelled=True)


def _uncounted(error: RunLostError) -> RunLostError:
    return RunLostError(str(error), **{**error.facts, "counted": False})
