"""The checkers of resident slots, S1 to S9, one for each promise.

S0 is an assertion, or anything else, that failed on the loop of the slots. S10, the sums of tuples
between bolts, is judged by :mod:`tests.faults.slots.bolts` while it runs.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from txtopo.errors import RunLostError
from txtopo.resident.slot_runner import SlotLimits
from txtopo.testing.checkers.evidence import Violation

if TYPE_CHECKING:
    from tests.faults.slots.cluster import SlotFact

AT_ONCE_S = 1e-6
SOON_S = 1.0
"""Longer than any latency that is not a fault."""
ANSWERED_S = 7.0
"""Longer than Spark takes to answer, also when it is slow."""
Named = tuple[str, int]
"""(tag, level): each level of a simulation has a tag of its own chain and attempt."""


@dataclass(frozen=True, slots=True)
class SlotEvidence:
    """The history of one simulation of slots, and what was promised.

    Attributes:
        facts: What happened, in order.
        slots: How many slots there are.
        pause_s: The pause after so many fruitless jobs in a row, from 1.
        limits: How long is waited for slots.
        missing_s: How long a slot may be missing.
        leftovers: What was wrong at the end.
    """

    facts: Sequence[SlotFact]
    slots: int
    pause_s: Callable[[int], float]
    limits: SlotLimits
    missing_s: float
    leftovers: Sequence[str]

    @property
    def stopped_s(self) -> float:
        """When the end began."""
        return next((fact.at_s for fact in self.facts if fact.what == "stop"), float("inf"))

    @property
    def last_s(self) -> float:
        """When the last thing happened."""
        return self.facts[-1].at_s if self.facts else 0.0


class SlotChecker(Protocol):
    """Judges a history."""

    name: str

    def check(self, evidence: SlotEvidence) -> Iterator[Violation]:
        """Yield what is wrong."""
        ...


class Answers:
    """S1: a level has one answer of each slot, to the order that the slot was given for it; each
    level ends once."""

    name = "S1"

    def check(self, evidence: SlotEvidence) -> Iterator[Violation]:
        """Yield answers that stand for something else, and levels with two ends or none."""
        given: dict[int, SlotFact] = {}
        ends: defaultdict[Named, int] = defaultdict(int)
        ordered: set[Named] = set()
        for fact in evidence.facts:
            level = fact.tag, fact.level
            if fact.what == "ordered":
                ordered.add(level)
            elif fact.what == "given":
                if fact.order in given:
                    yield Violation(self.name, f"order {fact.order} was given twice")
                given[fact.order] = fact
            elif fact.what in ("level done", "level failed"):
                ends[level] += 1
                if fact.what == "level done":
                    yield from self._judge(fact, given, evidence.slots)
        for level in sorted(ordered):
            if ends[level] != 1:
                yield Violation(self.name, f"level {level} has {ends[level]} ends, not one")

    def _judge(self, done: SlotFact, given: dict[int, SlotFact], slots: int) -> Iterator[Violation]:
        answers = done.note
        assert isinstance(answers, list)
        if len(answers) != slots:
            yield Violation(self.name, f"{done.line()} has {len(answers)} answers of {slots} slots")
        for slot, payloads in enumerate(answers):
            for tag, level, of, order, _, task in map(_answer, payloads):
                told = given.get(order)
                meant = (tag, level, of) == (done.tag, done.level, slot)
                if not meant or told is None or (told.slot, told.task) != (slot, task):
                    what = f"({tag}, {level}) of slot {of}, order {order}"
                    yield Violation(self.name, f"{what} stands for slot {slot} in {done.line()}")


class Turns:
    """S2: a slot is given an order only when it has answered the last one of this life, and then
    the most urgent one that waits for it."""

    name = "S2"

    def check(self, evidence: SlotEvidence) -> Iterator[Violation]:
        """Yield orders that came too early, or before a more urgent one."""
        doing: dict[int, int] = {}
        waiting: dict[Named, tuple[object, set[int]]] = {}
        for fact in evidence.facts:
            level = fact.tag, fact.level
            if fact.what == "ordered":
                waiting[level] = fact.note, set(range(evidence.slots))
            elif fact.what in ("level done", "level failed"):
                waiting.pop(level, None)
            elif fact.what == "slot lost":
                doing.pop(fact.slot, None)
            elif fact.what == "slot said" and doing.get(fact.slot) == _order_of(fact):
                del doing[fact.slot]
            elif fact.what == "given":
                if fact.slot in doing:
                    yield Violation(self.name, f"{fact.line()} while it does {doing[fact.slot]}")
                doing[fact.slot] = fact.order
                urgency, slots = waiting.get(level, (None, set()))
                slots.discard(fact.slot)
                others = [each for each, left in waiting.values() if fact.slot in left]
                if any(each < urgency for each in others):  # type: ignore[operator]
                    yield Violation(self.name, f"{fact.line()} before a more urgent one")


class Owners:
    """S3: the newest task of a slot's last job has the slot; it alone is given orders and heard;
    no life comes twice."""

    name = "S3"

    def check(self, evidence: SlotEvidence) -> Iterator[Violation]:
        """Yield lives that are not new, and tasks that are taken for the owner."""
        owner: dict[int, SlotFact] = {}
        last_job: dict[int, int] = {}
        lives: dict[int, int] = {}
        for fact in evidence.facts:
            if fact.what == "submitted":
                last_job[fact.slot] = fact.submission
            elif fact.what == "slot lost":
                owner.pop(fact.slot, None)
            elif fact.what == "welcomed":
                if fact.life in lives.values() or fact.life <= lives.get(fact.slot, 0):
                    yield Violation(self.name, f"{fact.line()}, which is not a new life")
                if fact.submission != last_job[fact.slot]:
                    yield Violation(self.name, f"{fact.line()} of an earlier job")
                owner[fact.slot], lives[fact.slot] = fact, fact.life
            elif fact.what == "given":
                has = owner.get(fact.slot)
                if has is None or has.task != fact.task:
                    yield Violation(self.name, f"{fact.line()}, which does not have the slot")
            elif fact.what == "slot said":
                has = owner.get(fact.slot)
                _, _, _, _, life, task = _answer(fact.note[0])  # type: ignore[index]
                if has is None or (task, life) != (has.task, fact.life):
                    yield Violation(self.name, f"{fact.line()} was said in life {life}")


class Dormant:
    """S4: a task is not sent home while another task of its job has the slot: Spark would stop
    that."""

    name = "S4"

    def check(self, evidence: SlotEvidence) -> Iterator[Violation]:
        """Yield tasks that were sent home and took the slot with them."""
        owner: dict[int, SlotFact] = {}
        home: set[bytes] = set()
        for fact in evidence.facts:
            if fact.at_s >= evidence.stopped_s:
                return
            has = owner.get(fact.slot)
            other = has is not None and has.task != fact.task
            if fact.what == "welcomed":
                owner[fact.slot] = fact
            elif fact.what == "slot lost":
                owner.pop(fact.slot, None)
            elif fact.what == "cut off" and not fact.note:
                home.add(fact.task)
                if has is not None and other and has.submission == fact.submission:
                    yield Violation(self.name, f"{fact.line()} was sent home")
            elif fact.what == "returned" and fact.task in home:
                if has is not None and other and has.submission == fact.submission:
                    yield Violation(self.name, f"{fact.line()} and stopped who has the slot")
            elif fact.what == "cut off" and (has is None or has.submission != fact.submission):
                yield Violation(self.name, f"{fact.line()} keeps a core for nothing")


class JobsInTurn:
    """S5: a slot has one job at a time; the next one follows when its pause is over, and each that
    is lost is told."""

    name = "S5"

    def check(self, evidence: SlotEvidence) -> Iterator[Violation]:
        """Yield jobs that come too early, too late or without a word."""
        runs: set[int] = set()
        due_s: dict[int, float] = {}
        fruitless: defaultdict[int, int] = defaultdict(int)
        warned = {fact.at_s for fact in evidence.facts if fact.what == "warned"}
        for fact in evidence.facts:
            if fact.what == "slot said":
                fruitless[fact.slot] = 0
            elif fact.what == "submitted":
                if fact.slot in runs:
                    yield Violation(self.name, f"{fact.line()} beside another job of it")
                due = due_s.get(fact.slot, 0.0)
                if not due - AT_ONCE_S <= fact.at_s <= due + SOON_S:
                    yield Violation(self.name, f"{fact.line()}; its pause was over at {due:.4f}")
                runs.add(fact.slot)
            elif fact.what == "job ended":
                runs.discard(fact.slot)
                if fact.at_s >= evidence.stopped_s or not _is_lost(fact.error):
                    continue
                count = fruitless[fact.slot]
                due_s[fact.slot] = fact.at_s + (evidence.pause_s(count) if count else 0.0)
                fruitless[fact.slot] += 1
                if fact.at_s not in warned:
                    yield Violation(self.name, f"{fact.line()} without a word")


class Reasons:
    """S6: a death of a worker counts against the level that it worked on, and against no other; a
    level that was lost with a slot fails when the reason is known, or was waited for."""

    name = "S6"

    def check(self, evidence: SlotEvidence) -> Iterator[Violation]:
        """Yield levels that are blamed for nothing, deaths and losses that were not waited for."""
        yield from self._blamed(evidence)
        yield from self._late(evidence)

    def _late(self, evidence: SlotEvidence) -> Iterator[Violation]:
        doing: dict[int, Named] = {}
        due_s: dict[Named, float] = {}
        for fact in evidence.facts:
            for level in [each for each, at_s in due_s.items() if at_s < fact.at_s]:
                yield Violation(self.name, f"{level} did not fail at {due_s.pop(level):.4f}")
            if fact.what == "given":
                doing[fact.slot] = fact.tag, fact.level
            elif fact.what == "slot said" and fact.slot in doing:
                tag, number, *_ = _answer(fact.note[0])  # type: ignore[index]
                if doing[fact.slot] == (tag, number):
                    del doing[fact.slot]
            elif fact.what == "slot lost" and fact.slot in doing:
                limit_s = evidence.limits.reason_s + AT_ONCE_S
                due_s.setdefault(doing.pop(fact.slot), fact.at_s + limit_s)
            elif fact.what in ("level done", "level failed"):
                due_s.pop((fact.tag, fact.level), None)
                doing = {s: each for s, each in doing.items() if each != (fact.tag, fact.level)}

    def _blamed(self, evidence: SlotEvidence) -> Iterator[Violation]:
        died: dict[Named, list[SlotFact]] = defaultdict(list)
        given: dict[Named, set[tuple[int, int]]] = defaultdict(set)
        deadly: set[tuple[int, int]] = set()
        for fact in evidence.facts:
            level = fact.tag, fact.level
            if fact.what == "given":
                given[level].add((fact.slot, fact.submission))
            elif fact.what == "worker died":
                # A job that had several tasks ends for the last of them.
                deadly.add((fact.slot, fact.submission))
                if fact.order:
                    died[level].append(fact)
            elif fact.what == "level failed" and isinstance(fact.error, RunLostError):
                facts = fact.error.facts
                if facts["counted"] and not deadly & given[level]:
                    yield Violation(self.name, f"{fact.line()} counts, and no worker died of it")
                elif not facts["counted"] and not facts["cancelled"]:
                    yield from self._spared(evidence, fact, died[level])

    def _spared(
        self, evidence: SlotEvidence, failed: SlotFact, died: Sequence[SlotFact]
    ) -> Iterator[Violation]:
        """Yield the death that would have been known if its reason had been waited for."""
        since_s = next(
            fact.at_s
            for fact in evidence.facts
            if fact.what == "ordered" and (fact.tag, fact.level) == (failed.tag, failed.level)
        )
        between = [fact for fact in evidence.facts if since_s <= fact.at_s <= failed.at_s]
        lost = [fact for fact in between if fact.what == "slot lost"]
        for death in died:
            own = [fact for fact in lost if fact.slot == death.slot and fact.at_s >= death.at_s]
            back = any(fact.what == "slot ready" and fact.slot == death.slot for fact in between)
            if len(own) != len(lost) or not own or back:
                continue  # it may be lost for another reason
            for ended in evidence.facts:
                job = (ended.slot, ended.submission) == (death.slot, death.submission)
                counts = isinstance(ended.error, RunLostError) and ended.error.facts["counted"]
                in_time = ended.at_s < own[0].at_s + evidence.limits.reason_s
                if ended.what == "job ended" and job and counts and in_time:
                    yield Violation(self.name, f"{failed.line()}, though {death.line()}")


class Cancelled:
    """S7: a cancelled chain ends at once and is not given to a slot again; a slot that continues
    with what was given up, or whose task stays silent, is started again in time."""

    name = "S7"

    def check(self, evidence: SlotEvidence) -> Iterator[Violation]:
        """Yield chains that continue, and slots that are left hanging."""
        cancelled: dict[str, float] = {}
        ordered: dict[Named, float] = {}
        for fact in evidence.facts:
            if fact.what == "cancelled":
                cancelled[fact.tag] = fact.at_s
            elif fact.what == "ordered":
                ordered[fact.tag, fact.level] = fact.at_s
            elif fact.tag in cancelled and fact.what == "given":
                yield Violation(self.name, f"{fact.line()}, which was cancelled")
            elif fact.tag in cancelled and fact.what in ("level done", "level failed"):
                due_s = max(cancelled[fact.tag], ordered[fact.tag, fact.level])
                if fact.what == "level done" or fact.at_s > due_s + AT_ONCE_S:
                    yield Violation(self.name, f"{fact.line()}, which was cancelled at {due_s:.4f}")
        yield from self._hanging(evidence)
        yield from self._silent(evidence)

    def _silent(self, evidence: SlotEvidence) -> Iterator[Violation]:
        due_s: dict[int, float] = {}
        for fact in evidence.facts:
            if fact.at_s >= evidence.stopped_s:
                return
            for slot in [slot for slot, at_s in due_s.items() if at_s < fact.at_s]:
                yield Violation(
                    self.name, f"the job of slot {slot} is silent until {due_s.pop(slot):.4f}"
                )
            if fact.what == "slot lost" and not fact.note and "connection" in str(fact.error):
                due_s[fact.slot] = fact.at_s + evidence.limits.silent_s + SOON_S
            elif fact.what in ("welcomed", "job ended", "cancelled job"):
                due_s.pop(fact.slot, None)

    def _hanging(self, evidence: SlotEvidence) -> Iterator[Violation]:
        doing: dict[int, SlotFact] = {}
        given_up: dict[int, float] = {}
        for fact in evidence.facts:
            if fact.at_s >= evidence.stopped_s:
                return
            for slot, since_s in list(given_up.items()):
                if fact.at_s > since_s + evidence.limits.cancel_s + SOON_S:
                    yield Violation(
                        self.name, f"slot {slot} does {doing[slot].line()}, given up at {since_s}"
                    )
                    del given_up[slot]
            if fact.what == "given":
                doing[fact.slot] = fact
            elif fact.what == "level failed":
                for slot, order in doing.items():
                    if (order.tag, order.level) == (fact.tag, fact.level):
                        given_up.setdefault(slot, fact.at_s)
            elif fact.what in ("slot lost", "cancelled job") or (
                fact.what == "slot said"
                and fact.slot in doing
                and doing[fact.slot].order == _order_of(fact)
            ):
                given_up.pop(fact.slot, None)
                if fact.what != "cancelled job":
                    doing.pop(fact.slot, None)


class Missing:
    """S8: a slot that is missing is told after half of the time, and after all of it nothing waits
    for it any more."""

    name = "S8"

    def check(self, evidence: SlotEvidence) -> Iterator[Violation]:
        """Yield slots that are missing without a word, and levels that wait for them."""
        for slot in range(evidence.slots):
            absences = list(self._absences(evidence, slot))
            for since_s, until_s in absences:
                yield from self._judge(evidence, slot, since_s, until_s)
            for fact in evidence.facts:
                if fact.what == "warned of missing" and fact.slot == slot:
                    missing = any(since_s <= fact.at_s <= until_s for since_s, until_s in absences)
                    if not missing and fact.at_s < evidence.stopped_s:
                        yield Violation(self.name, f"{fact.line()}, which is there")

    def _absences(self, evidence: SlotEvidence, slot: int) -> Iterator[tuple[float, float]]:
        since_s: float | None = 0.0
        for fact in evidence.facts:
            if fact.at_s >= evidence.stopped_s:
                break
            if fact.slot == slot and fact.what == "slot ready" and since_s is not None:
                yield since_s, fact.at_s
                since_s = None
            elif fact.slot == slot and fact.what == "slot lost" and since_s is None:
                since_s = fact.at_s
        if since_s is not None:
            yield since_s, min(evidence.stopped_s, evidence.last_s)

    def _judge(
        self, evidence: SlotEvidence, slot: int, since_s: float, until_s: float
    ) -> Iterator[Violation]:
        half_s, due_s = since_s + evidence.missing_s / 2, since_s + evidence.missing_s
        told = [
            fact.at_s
            for fact in evidence.facts
            if fact.slot == slot
            and fact.what == "warned of missing"
            and half_s - AT_ONCE_S <= fact.at_s <= half_s + ANSWERED_S
        ]
        name = f"slot {slot}, which is missing since {since_s:.4f},"
        if until_s > half_s + ANSWERED_S and not told:
            yield Violation(self.name, f"{name} is not told at {half_s:.4f}")
        overdue = [
            fact.at_s
            for fact in evidence.facts
            if fact.slot == slot and fact.what == "slot overdue" and since_s <= fact.at_s <= until_s
        ]
        if any(at_s < due_s - AT_ONCE_S for at_s in overdue):
            yield Violation(self.name, f"{name} is overdue before {due_s:.4f}")
        if until_s > due_s + AT_ONCE_S:
            if not overdue:
                yield Violation(self.name, f"{name} is not overdue at {due_s:.4f}")
            yield from self._waiting(evidence, slot, due_s, until_s)

    def _waiting(
        self, evidence: SlotEvidence, slot: int, due_s: float, until_s: float
    ) -> Iterator[Violation]:
        """Yield levels that wait for a slot that is overdue."""
        waiting: set[Named] = set()
        for fact in evidence.facts:
            if fact.at_s > until_s - AT_ONCE_S:
                return
            if waiting and fact.at_s > due_s + AT_ONCE_S:
                yield Violation(
                    self.name, f"{sorted(waiting)} wait for slot {slot}, overdue since {due_s:.4f}"
                )
                return
            if fact.what == "ordered":
                waiting.add((fact.tag, fact.level))
                due_s = max(due_s, fact.at_s)
            elif fact.what in ("level done", "level failed") or (
                fact.what == "given" and fact.slot == slot
            ):
                waiting.discard((fact.tag, fact.level))


class EndsInTime:
    """S9: when the faults have stopped everything is done in bounded time, and the end leaves no
    task and no job behind."""

    name = "S9"

    def check(self, evidence: SlotEvidence) -> Iterator[Violation]:
        """Yield what is stuck, what is left, and an end that takes too long."""
        for what in evidence.leftovers:
            yield Violation(self.name, what)
        closed = [fact.at_s for fact in evidence.facts if fact.what == "closed"]
        limit_s = evidence.stopped_s + 2 * evidence.limits.stop_s + SOON_S
        if closed and closed[0] > limit_s:
            yield Violation(self.name, f"the end took until {closed[0]:.4f}")
        if len(closed) > 1:
            yield Violation(self.name, "the slots have ended twice")


SLOT_CHECKERS: tuple[SlotChecker, ...] = (
    Answers(),
    Turns(),
    Owners(),
    Dormant(),
    JobsInTurn(),
    Reasons(),
    Cancelled(),
    Missing(),
    EndsInTime(),
)


def _answer(payload: bytes) -> tuple[str, int, int, int, int, bytes]:
    """Read what a simulated task yields: tag, level, slot, order, life, task."""
    answer: tuple[str, int, int, int, int, bytes] = ast.literal_eval(payload.decode())
    return answer


def _order_of(said: SlotFact) -> int:
    return _answer(said.note[0])[3]  # type: ignore[index]


def _is_lost(error: BaseException | None) -> bool:
    return error is None or isinstance(error, RunLostError)
