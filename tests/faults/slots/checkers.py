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
    from tests.faults.slots.cluster import Entry

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
        history: What happened, in order.
        slots: How many slots there are.
        pause_s: The pause after this many fruitless jobs in a row, from 1.
        limits: How long is waited for slots.
        missing_s: How long a slot may be missing.
        leftovers: What was wrong at the end.
    """

    history: Sequence[Entry]
    slots: int
    pause_s: Callable[[int], float]
    limits: SlotLimits
    missing_s: float
    leftovers: Sequence[str]

    @property
    def stopped_s(self) -> float:
        """When the end began."""
        return next((entry.at_s for entry in self.history if entry.what == "stop"), float("inf"))

    @property
    def last_s(self) -> float:
        """When the last thing happened."""
        return self.history[-1].at_s if self.history else 0.0


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
        given: dict[int, Entry] = {}
        ends: defaultdict[Named, int] = defaultdict(int)
        ordered: set[Named] = set()
        for entry in evidence.history:
            level = entry.tag, entry.level
            if entry.what == "ordered":
                ordered.add(level)
            elif entry.what == "given":
                if entry.order in given:
                    yield Violation(self.name, f"order {entry.order} was given twice")
                given[entry.order] = entry
            elif entry.what in ("level done", "level failed"):
                ends[level] += 1
                if entry.what == "level done":
                    yield from self._judge(entry, given, evidence.slots)
        for level in sorted(ordered):
            if ends[level] != 1:
                yield Violation(self.name, f"level {level} has {ends[level]} ends, not one")

    def _judge(self, done: Entry, given: dict[int, Entry], slots: int) -> Iterator[Violation]:
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
        for entry in evidence.history:
            level = entry.tag, entry.level
            if entry.what == "ordered":
                waiting[level] = entry.note, set(range(evidence.slots))
            elif entry.what in ("level done", "level failed"):
                waiting.pop(level, None)
            elif entry.what == "slot lost":
                doing.pop(entry.slot, None)
            elif entry.what == "slot said" and doing.get(entry.slot) == _order_of(entry):
                del doing[entry.slot]
            elif entry.what == "given":
                if entry.slot in doing:
                    yield Violation(self.name, f"{entry.line()} while it does {doing[entry.slot]}")
                doing[entry.slot] = entry.order
                urgency, slots = waiting.get(level, (None, set()))
                slots.discard(entry.slot)
                others = [each for each, left in waiting.values() if entry.slot in left]
                if any(each < urgency for each in others):  # type: ignore[operator]
                    yield Violation(self.name, f"{entry.line()} before a more urgent one")


class Owners:
    """S3: the newest task of a slot's last job has the slot; it alone is given orders and heard;
    no life comes twice."""

    name = "S3"

    def check(self, evidence: SlotEvidence) -> Iterator[Violation]:
        """Yield lives that are not new, and tasks that are taken for the owner."""
        owner: dict[int, Entry] = {}
        last_job: dict[int, int] = {}
        lives: dict[int, int] = {}
        for entry in evidence.history:
            if entry.what == "submitted":
                last_job[entry.slot] = entry.submission
            elif entry.what == "slot lost":
                owner.pop(entry.slot, None)
            elif entry.what == "welcomed":
                if entry.life in lives.values() or entry.life <= lives.get(entry.slot, 0):
                    yield Violation(self.name, f"{entry.line()}, which is not a new life")
                if entry.submission != last_job[entry.slot]:
                    yield Violation(self.name, f"{entry.line()} of an earlier job")
                owner[entry.slot], lives[entry.slot] = entry, entry.life
            elif entry.what == "given":
                has = owner.get(entry.slot)
                if has is None or has.task != entry.task:
                    yield Violation(self.name, f"{entry.line()}, which does not have the slot")
            elif entry.what == "slot said":
                has = owner.get(entry.slot)
                _, _, _, _, life, task = _answer(entry.note[0])  # type: ignore[index]
                if has is None or (task, life) != (has.task, entry.life):
                    yield Violation(self.name, f"{entry.line()} was said in life {life}")


class Dormant:
    """S4: a task is not sent home while another task of its job has the slot: Spark would stop
    that."""

    name = "S4"

    def check(self, evidence: SlotEvidence) -> Iterator[Violation]:
        """Yield tasks that were sent home and took the slot with them."""
        owner: dict[int, Entry] = {}
        home: set[bytes] = set()
        for entry in evidence.history:
            if entry.at_s >= evidence.stopped_s:
                return
            has = owner.get(entry.slot)
            other = has is not None and has.task != entry.task
            if entry.what == "welcomed":
                owner[entry.slot] = entry
            elif entry.what == "slot lost":
                owner.pop(entry.slot, None)
            elif entry.what == "cut off" and not entry.note:
                home.add(entry.task)
                if has is not None and other and has.submission == entry.submission:
                    yield Violation(self.name, f"{entry.line()} was sent home")
            elif entry.what == "returned" and entry.task in home:
                if has is not None and other and has.submission == entry.submission:
                    yield Violation(self.name, f"{entry.line()} and stopped who has the slot")
            elif entry.what == "cut off" and (has is None or has.submission != entry.submission):
                yield Violation(self.name, f"{entry.line()} keeps a core for nothing")


class JobsInTurn:
    """S5: a slot has one job at a time; the next one follows when its pause is over, and each that
    is lost is told."""

    name = "S5"

    def check(self, evidence: SlotEvidence) -> Iterator[Violation]:
        """Yield jobs that come too early, too late or without a word."""
        runs: set[int] = set()
        due_s: dict[int, float] = {}
        fruitless: defaultdict[int, int] = defaultdict(int)
        warned = {entry.at_s for entry in evidence.history if entry.what == "warned"}
        for entry in evidence.history:
            if entry.what == "slot said":
                fruitless[entry.slot] = 0
            elif entry.what == "submitted":
                if entry.slot in runs:
                    yield Violation(self.name, f"{entry.line()} beside another job of it")
                due = due_s.get(entry.slot, 0.0)
                if not due - AT_ONCE_S <= entry.at_s <= due + SOON_S:
                    yield Violation(self.name, f"{entry.line()}; its pause was over at {due:.4f}")
                runs.add(entry.slot)
            elif entry.what == "job ended":
                runs.discard(entry.slot)
                if entry.at_s >= evidence.stopped_s or not _is_lost(entry.error):
                    continue
                count = fruitless[entry.slot]
                due_s[entry.slot] = entry.at_s + (evidence.pause_s(count) if count else 0.0)
                fruitless[entry.slot] += 1
                if entry.at_s not in warned:
                    yield Violation(self.name, f"{entry.line()} without a word")


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
        for entry in evidence.history:
            for level in [each for each, at_s in due_s.items() if at_s < entry.at_s]:
                yield Violation(self.name, f"{level} did not fail at {due_s.pop(level):.4f}")
            if entry.what == "given":
                doing[entry.slot] = entry.tag, entry.level
            elif entry.what == "slot said" and entry.slot in doing:
                tag, number, *_ = _answer(entry.note[0])  # type: ignore[index]
                if doing[entry.slot] == (tag, number):
                    del doing[entry.slot]
            elif entry.what == "slot lost" and entry.slot in doing:
                limit_s = evidence.limits.reason_s + AT_ONCE_S
                due_s.setdefault(doing.pop(entry.slot), entry.at_s + limit_s)
            elif entry.what in ("level done", "level failed"):
                due_s.pop((entry.tag, entry.level), None)
                doing = {s: each for s, each in doing.items() if each != (entry.tag, entry.level)}

    def _blamed(self, evidence: SlotEvidence) -> Iterator[Violation]:
        died: dict[Named, list[Entry]] = defaultdict(list)
        given: dict[Named, set[tuple[int, int]]] = defaultdict(set)
        deadly: set[tuple[int, int]] = set()
        for entry in evidence.history:
            level = entry.tag, entry.level
            if entry.what == "given":
                given[level].add((entry.slot, entry.submission))
            elif entry.what == "worker died":
                # A job that had several tasks ends for the last of them.
                deadly.add((entry.slot, entry.submission))
                if entry.order:
                    died[level].append(entry)
            elif entry.what == "level failed" and isinstance(entry.error, RunLostError):
                history = entry.error.facts
                if history["counted"] and not deadly & given[level]:
                    yield Violation(self.name, f"{entry.line()} counts, and no worker died of it")
                elif not history["counted"] and not history["cancelled"]:
                    yield from self._spared(evidence, entry, died[level])

    def _spared(
        self, evidence: SlotEvidence, failed: Entry, died: Sequence[Entry]
    ) -> Iterator[Violation]:
        """Yield the death that would have been known if its reason had been waited for."""
        since_s = next(
            entry.at_s
            for entry in evidence.history
            if entry.what == "ordered" and (entry.tag, entry.level) == (failed.tag, failed.level)
        )
        between = [entry for entry in evidence.history if since_s <= entry.at_s <= failed.at_s]
        lost = [entry for entry in between if entry.what == "slot lost"]
        for death in died:
            own = [entry for entry in lost if entry.slot == death.slot and entry.at_s >= death.at_s]
            back = any(entry.what == "slot ready" and entry.slot == death.slot for entry in between)
            if len(own) != len(lost) or not own or back:
                continue  # it may be lost for another reason
            for ended in evidence.history:
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
        for entry in evidence.history:
            if entry.what == "cancelled":
                cancelled[entry.tag] = entry.at_s
            elif entry.what == "ordered":
                ordered[entry.tag, entry.level] = entry.at_s
            elif entry.tag in cancelled and entry.what == "given":
                yield Violation(self.name, f"{entry.line()}, which was cancelled")
            elif entry.tag in cancelled and entry.what in ("level done", "level failed"):
                due_s = max(cancelled[entry.tag], ordered[entry.tag, entry.level])
                if entry.what == "level done" or entry.at_s > due_s + AT_ONCE_S:
                    yield Violation(
                        self.name, f"{entry.line()}, which was cancelled at {due_s:.4f}"
                    )
        yield from self._hanging(evidence)
        yield from self._silent(evidence)

    def _silent(self, evidence: SlotEvidence) -> Iterator[Violation]:
        due_s: dict[int, float] = {}
        for entry in evidence.history:
            if entry.at_s >= evidence.stopped_s:
                return
            for slot in [slot for slot, at_s in due_s.items() if at_s < entry.at_s]:
                yield Violation(
                    self.name, f"the job of slot {slot} is silent until {due_s.pop(slot):.4f}"
                )
            if entry.what == "slot lost" and not entry.note and "connection" in str(entry.error):
                due_s[entry.slot] = entry.at_s + evidence.limits.silent_s + SOON_S
            elif entry.what in ("welcomed", "job ended", "cancelled job"):
                due_s.pop(entry.slot, None)

    def _hanging(self, evidence: SlotEvidence) -> Iterator[Violation]:
        doing: dict[int, Entry] = {}
        given_up: dict[int, float] = {}
        for entry in evidence.history:
            if entry.at_s >= evidence.stopped_s:
                return
            for slot, since_s in list(given_up.items()):
                if entry.at_s > since_s + evidence.limits.cancel_s + SOON_S:
                    yield Violation(
                        self.name, f"slot {slot} does {doing[slot].line()}, given up at {since_s}"
                    )
                    del given_up[slot]
            if entry.what == "given":
                doing[entry.slot] = entry
            elif entry.what == "level failed":
                for slot, order in doing.items():
                    if (order.tag, order.level) == (entry.tag, entry.level):
                        given_up.setdefault(slot, entry.at_s)
            elif entry.what in ("slot lost", "cancelled job") or (
                entry.what == "slot said"
                and entry.slot in doing
                and doing[entry.slot].order == _order_of(entry)
            ):
                given_up.pop(entry.slot, None)
                if entry.what != "cancelled job":
                    doing.pop(entry.slot, None)


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
            for entry in evidence.history:
                if entry.what == "warned of missing" and entry.slot == slot:
                    missing = any(since_s <= entry.at_s <= until_s for since_s, until_s in absences)
                    if not missing and entry.at_s < evidence.stopped_s:
                        yield Violation(self.name, f"{entry.line()}, which is there")

    def _absences(self, evidence: SlotEvidence, slot: int) -> Iterator[tuple[float, float]]:
        since_s: float | None = 0.0
        for entry in evidence.history:
            if entry.at_s >= evidence.stopped_s:
                break
            if entry.slot == slot and entry.what == "slot ready" and since_s is not None:
                yield since_s, entry.at_s
                since_s = None
            elif entry.slot == slot and entry.what == "slot lost" and since_s is None:
                since_s = entry.at_s
        if since_s is not None:
            yield since_s, min(evidence.stopped_s, evidence.last_s)

    def _judge(
        self, evidence: SlotEvidence, slot: int, since_s: float, until_s: float
    ) -> Iterator[Violation]:
        half_s, due_s = since_s + evidence.missing_s / 2, since_s + evidence.missing_s
        told = [
            entry.at_s
            for entry in evidence.history
            if entry.slot == slot
            and entry.what == "warned of missing"
            and half_s - AT_ONCE_S <= entry.at_s <= half_s + ANSWERED_S
        ]
        name = f"slot {slot}, which is missing since {since_s:.4f},"
        if until_s > half_s + ANSWERED_S and not told:
            yield Violation(self.name, f"{name} is not told at {half_s:.4f}")
        overdue = [
            entry.at_s
            for entry in evidence.history
            if entry.slot == slot
            and entry.what == "slot overdue"
            and since_s <= entry.at_s <= until_s
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
        for entry in evidence.history:
            if entry.at_s > until_s - AT_ONCE_S:
                return
            if waiting and entry.at_s > due_s + AT_ONCE_S:
                yield Violation(
                    self.name, f"{sorted(waiting)} wait for slot {slot}, overdue since {due_s:.4f}"
                )
                return
            if entry.what == "ordered":
                waiting.add((entry.tag, entry.level))
                due_s = max(due_s, entry.at_s)
            elif entry.what in ("level done", "level failed") or (
                entry.what == "given" and entry.slot == slot
            ):
                waiting.discard((entry.tag, entry.level))


class EndsInTime:
    """S9: when the faults have stopped everything is done in bounded time, and the end leaves no
    task and no job behind."""

    name = "S9"

    def check(self, evidence: SlotEvidence) -> Iterator[Violation]:
        """Yield what is stuck, what is left, and an end that takes too long."""
        for what in evidence.leftovers:
            yield Violation(self.name, what)
        closed = [entry.at_s for entry in evidence.history if entry.what == "closed"]
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


def _order_of(said: Entry) -> int:
    return _answer(said.note[0])[3]  # type: ignore[index]


def _is_lost(error: BaseException | None) -> bool:
    return error is None or isinstance(error, RunLostError)
