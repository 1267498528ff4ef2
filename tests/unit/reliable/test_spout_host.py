"""The spouts of a slot: what they do under a grant and without one, and what of it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.reliable.bolts import WORD, Forward, Seen, rows
from txtopo import AtLeastOnceConfig, Spout, TopologyBuilder
from txtopo.reliable.acking import RootXors
from txtopo.reliable.anchoring.answers import (
    BegunTrees,
    TreeAnswers,
    TreeEnds,
    is_of_trees,
    open_told,
)
from txtopo.reliable.anchoring.envelope import SlotReport, SpoutGrant, open_envelope
from txtopo.reliable.anchoring.sending import Sealed
from txtopo.reliable.anchoring.spout_task import ackers_of
from txtopo.reliable.spout_host import SpoutHost
from txtopo.spouts import MemorySpout
from txtopo.stages.compiled_topology import compile_topology
from txtopo.testing import FeederSpout, spouts
from txtopo.testing.cluster import VirtualTime

CONFIG = AtLeastOnceConfig(message_timeout_s=10, poll_interval_s=1)
WORDS = [f"word {number}" for number in range(10)]


class Hosted:
    """A host in virtual time, with what it has sent and told."""

    def __init__(
        self, *sources: Spout, config: AtLeastOnceConfig = CONFIG, slot: int = 0, slots: int = 1
    ):
        builder = TopologyBuilder()
        for number, spout in enumerate(sources):
            builder.set_spout(f"spout-{number}", spout)
            builder.set_bolt(f"bolt-{number}", Forward()).shuffle_grouping(f"spout-{number}")
        self.compiled = compile_topology(builder.build_topology().graph, config, slots)
        self.time = VirtualTime()
        self.time.start(lambda: None, self._crashed)
        self.sealed: list[Sealed] = []
        self.told: list[SlotReport] = []
        self.host = SpoutHost(self.compiled, slot, self.time, self.sealed.extend, self._changed)
        self.host.open()
        self.pass_time()

    @property
    def emitted(self) -> list[int]:
        """How many tuples each report says were emitted, where it says some."""
        numbers = [each.spouts.emitted for each in self.told if each.spouts is not None]
        return [number for number in numbers if number]

    @property
    def last(self) -> Any:
        """What the spouts said last."""
        return self.told[-1].spouts

    def grant(self, number: int, tuples: int, *, active: bool = True) -> None:
        """Send a grant, and let all happen that follows at once."""
        self.host.grant(SpoutGrant(number, tuples, active))
        self.pass_time()

    def pass_time(self, seconds: float = 0.02) -> None:
        """Let time pass; a turn takes some milliseconds at most."""
        self.time.timeline.run(lambda: False, until_s=self.time.now() + seconds)

    def answer(self, count: int, *, acked: bool = True) -> None:
        """Ack or fail the first tuples that were sent and not answered yet."""
        envelopes = [each.record for each in self.sealed if not is_of_trees(each.record)]
        links = [open_envelope(each).links for each in envelopes]
        roots, ids = (np.concatenate(column) for column in list(zip(*links, strict=True))[:2])
        self.sealed.clear()
        answers = TreeAnswers(failed=roots[:count])
        if acked:
            answers = TreeAnswers(answers.acked._replace(roots=roots[:count], values=ids[:count]))
        for sealed in answers.seal(ackers_of(self.compiled)):
            self.host.hear(sealed.record)
        self.host.go_on()

    def _changed(self) -> None:
        taken = self.host.take()
        assert taken is not None
        self.told.append(taken)

    def _crashed(self, error: BaseException) -> None:
        raise error


@pytest.mark.rule("txtopo.reliable.spout_host", "Rules", 2)
def test_nothing_is_emitted_without_a_grant() -> None:
    hosted = Hosted(MemorySpout(rows(*WORDS), WORD))
    hosted.pass_time(5)

    assert (hosted.told, hosted.sealed) == ([], [])


@pytest.mark.rule("txtopo.reliable.spout_host", "Rules", 2)
def test_a_grant_is_for_one_turn_and_no_more_tuples_than_it_says() -> None:
    hosted = Hosted(MemorySpout(rows(*WORDS), WORD))
    hosted.grant(1, tuples=3)
    hosted.pass_time(5)
    assert (hosted.emitted, hosted.last.used, hosted.last.dry) == ([3], 1, 0)

    hosted.grant(2, tuples=4)
    hosted.pass_time(5)

    assert (hosted.emitted, hosted.last.used, hosted.last.pending) == ([3, 4], 2, 7)
    assert hosted.last.sent == {0: 4}


def test_each_task_has_a_turn_under_a_grant() -> None:
    hosted = Hosted(*(MemorySpout(rows(*WORDS), WORD) for _ in range(3)))

    hosted.grant(1, tuples=2)

    assert sum(hosted.emitted) == 6


@pytest.mark.parametrize(("slot", "opened"), [(0, [1, 0, 1]), (1, [0, 1, 0])])
def test_a_slot_has_the_tasks_whose_number_is_its_own_modulo_the_slots(
    slot: int, opened: Sequence[int]
) -> None:
    feeders = [FeederSpout(WORD) for _ in range(3)]

    Hosted(*feeders, slot=slot, slots=2)

    assert [each.opened for each in feeders] == opened


@pytest.mark.rule("txtopo.reliable.spout_host", "Rules", 3)
def test_a_grant_holds_while_a_spout_has_nothing_and_nothing_is_told_meanwhile() -> None:
    feeder = FeederSpout(WORD)
    hosted = Hosted(feeder)
    hosted.grant(1, tuples=5)
    hosted.pass_time(5)
    (told,) = hosted.told
    assert told.spouts is not None
    assert (told.spouts.used, told.spouts.dry) == (0, 1)
    feeder.feed(["a"], 1)

    hosted.pass_time(2)

    assert (hosted.emitted, hosted.last.used) == ([1], 1)


@pytest.mark.rule("txtopo.reliable.spout_host", "Rules", 5)
def test_a_spout_is_told_of_ends_without_a_grant_and_then_is_not_dry() -> None:
    """It may have something to emit again, as after a tree that failed."""
    hosted = Hosted(MemorySpout(rows("a", "b"), WORD))
    hosted.grant(1, tuples=5)
    assert (hosted.emitted, hosted.last.pending, hosted.last.dry) == ([2], 2, 1)

    hosted.answer(1, acked=False)
    assert hosted.host.take() is None
    hosted.pass_time()

    assert (hosted.last.pending, hosted.last.dry, hosted.last.used) == (1, 0, 1)
    (failed,) = hosted.last.failed
    assert (failed.component, failed.task, failed.timed_out) == ("spout-0", 0, False)
    hosted.grant(2, tuples=5)
    assert (hosted.last.emitted, hosted.last.replays, hosted.last.dry) == (1, 1, 2)


class Tended(FeederSpout):
    """Notes each call of ``tend``."""

    def __init__(self, seen: Seen) -> None:
        super().__init__(WORD)
        self.seen = seen

    def tend(self) -> None:
        self.seen.notes.append("tended")


def test_a_spout_that_may_not_emit_more_is_tended_about_once_a_second() -> None:
    """Else its source would take it for dead while its tuples take long."""
    seen = Seen()
    feeder = Tended(seen)
    feeder.feed(["a"], 1)
    hosted = Hosted(feeder, config=replace(CONFIG, max_spout_pending=1))
    hosted.grant(1, tuples=5)
    assert (hosted.emitted, seen.notes) == ([1], [])

    hosted.pass_time(5)

    assert 3 <= len(seen.notes) <= 5
    assert hosted.last.emitted == 1


class Unsure(FeederSpout):
    """A spout that may have more when it is asked for the first three times."""

    def __init__(self, seen: Seen) -> None:
        super().__init__(WORD)
        self.seen = seen

    def may_have_more(self) -> bool:
        self.seen.notes.append("asked")
        return len(self.seen.notes) <= 3


@pytest.mark.rule("txtopo.reliable.spout_host", "Rules", 5)
def test_a_spout_that_may_have_more_is_not_dry_and_is_asked_once_a_grant_when_it_has_none() -> None:
    seen = Seen()
    hosted = Hosted(Unsure(seen))
    hosted.grant(1, tuples=5)
    hosted.pass_time(5)
    assert (hosted.last.dry, len(seen.notes)) == (1, 4)

    hosted.grant(2, tuples=5)
    hosted.pass_time(5)

    assert (hosted.last.dry, len(seen.notes)) == (2, 5)


@pytest.mark.rule("txtopo.reliable.spout_host", "Rules", 4)
def test_a_tree_is_pending_until_its_spout_has_been_told() -> None:
    hosted = Hosted(MemorySpout(rows("a", "b"), WORD))
    hosted.grant(1, tuples=5)

    hosted.answer(2)
    hosted.host._tell()
    told = len(hosted.told)
    hosted.pass_time()

    first, *_, last = [each.spouts for each in hosted.told[told - 1 :] if each.spouts is not None]
    assert len(hosted.host.trees) == 0
    assert (first.pending, last.pending) == (2, 0)


def test_no_more_trees_are_pending_than_may_be() -> None:
    hosted = Hosted(MemorySpout(rows(*WORDS), WORD), config=AtLeastOnceConfig(max_spout_pending=3))
    hosted.grant(1, tuples=100)
    hosted.grant(2, tuples=100)
    hosted.pass_time(5)
    assert (hosted.emitted, hosted.last.pending) == ([3], 3)

    hosted.answer(2)
    hosted.pass_time()

    assert (sum(hosted.emitted), hosted.last.pending, hosted.last.used) == (5, 3, 2)


@pytest.mark.rule("txtopo.reliable.spout_host", "Rules", 6)
def test_trees_time_out_by_the_clock_of_the_slot() -> None:
    hosted = Hosted(MemorySpout(rows("a"), WORD))
    hosted.grant(1, tuples=5)

    hosted.pass_time(21)

    failed = [each for told in hosted.told if told.spouts for each in told.spouts.failed]
    assert [(each.messages, each.timed_out) for each in failed] == [([0], True)]
    assert hosted.last.pending == 0


def test_a_deactivation_is_told_also_by_a_slot_that_was_never_activated() -> None:
    feeder = FeederSpout(WORD)
    hosted = Hosted(feeder)
    hosted.grant(1, 0, active=False)
    assert (hosted.last.granted, hosted.last.active) == (1, False)

    hosted.grant(2, 5)
    assert (hosted.last.granted, hosted.last.active) == (2, True)
    hosted.grant(3, 0, active=False)
    assert (hosted.last.granted, hosted.last.active) == (3, False)
    feeder.feed(["a"], 1)
    hosted.pass_time(5)
    assert hosted.emitted == []


class Breaks(MemorySpout):
    """Raises in its first turn."""

    def next_tuple(self) -> None:
        raise ZeroDivisionError("broken")


def test_a_spout_that_raised_is_not_called_again() -> None:
    hosted = Hosted(Breaks([], WORD))
    hosted.grant(1, tuples=5)
    hosted.grant(2, tuples=5)
    hosted.pass_time(5)

    crashes = [each.crash for each in hosted.told if each.crash is not None]
    assert [(each.component, each.task, str(each.error)) for each in crashes] == [
        ("spout-0", 0, "broken")
    ]


class Forgetful:
    """What another process knows of the objects of this one."""

    def get(self, number: int) -> None:
        return None


def test_a_spout_that_is_shared_with_a_test_says_so_in_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosted = Hosted(FeederSpout(WORD))
    monkeypatch.setattr(spouts, "_objects", Forgetful())
    told: list[None] = []

    elsewhere = SpoutHost(
        hosted.compiled, 0, hosted.time, lambda _: None, lambda: told.append(None)
    )
    elsewhere.open()

    assert told
    report = elsewhere.take()
    assert report is not None
    crash = report.crash
    assert crash is not None
    assert crash.component == "spout-0"
    assert "use AtLeastOnceConfig(carrier='local')" in str(crash.error)


class Apart:
    """A spout in slot 0 whose acker is in slot 1: two hosts, and what one sent to the other."""

    def __init__(self) -> None:
        config = replace(CONFIG, ackers=2)
        source = MemorySpout(rows(*WORDS), WORD)
        silent = FeederSpout(WORD)
        self.spout = Hosted(source, silent, config=config, slots=2)
        self.acker = Hosted(source, silent, config=config, slot=1, slots=2)
        self.spout.grant(1, tuples=len(WORDS))

    def begun(self) -> list[bytes]:
        """Return what the acker in the other slot is told of trees that have begun."""
        sealed = [each for each in self.spout.sealed if is_of_trees(each.record)]
        there = [each.record for each in sealed if each.to_slot == 1]
        assert all(isinstance(open_told(each), BegunTrees) for each in there)
        return there

    def roots(self) -> Any:
        """Return the roots that the acker in the other slot follows, and the edge of each."""
        (told,) = map(open_told, self.begun())
        assert isinstance(told, BegunTrees)
        return told.begun

    def hear(self, told: BegunTrees | TreeAnswers) -> None:
        """Have the other slot hear of trees."""
        for each in told.seal(ackers_of(self.acker.compiled)):
            self.acker.host.hear(each.record)

    def tell_spout(self) -> list[TreeEnds]:
        """Carry to the spout what the acker has sent, and return it."""
        sealed = list(self.acker.sealed)
        self.acker.sealed.clear()
        assert {each.to_slot for each in sealed} <= {0}
        for each in sealed:
            self.spout.host.hear(each.record)
        self.spout.host.go_on()
        self.spout.pass_time()
        ends = [open_told(each.record) for each in sealed]
        return [each for each in ends if isinstance(each, TreeEnds)]


@pytest.mark.rule("txtopo.reliable.spout_host", "Rules", 7)
def test_an_acker_in_another_slot_tells_the_spout_how_its_trees_ended() -> None:
    apart = Apart()
    edges = apart.roots()
    count = len(edges.roots)
    assert 0 < count < len(WORDS)  # the others are followed in the slot of the spout

    apart.hear(BegunTrees(edges))
    apart.hear(TreeAnswers(RootXors(edges.roots[1:], edges.values[1:]), failed=edges.roots[:1]))
    ended = apart.tell_spout()

    assert sorted(root for each in ended for root in each.completed) == sorted(edges.roots[1:])
    assert apart.spout.last.pending == len(WORDS) - count
    assert apart.spout.last.pending_by == {0: len(WORDS) - count}
    apart.spout.host.hear(
        next(TreeEnds(completed=edges.roots).seal(ackers_of(apart.spout.compiled))).record
    )
    assert len(apart.spout.host.trees) == len(WORDS) - count


def test_a_tree_of_an_acker_in_another_slot_gets_more_time_in_both() -> None:
    apart = Apart()
    edges = apart.roots()
    apart.hear(BegunTrees(edges))
    for _ in range(2):
        apart.hear(TreeAnswers(renewed=edges.roots))
        apart.tell_spout()
        for hosted in (apart.spout, apart.acker):
            hosted.pass_time(CONFIG.message_timeout_s)

    apart.hear(TreeAnswers(edges))
    (ended,) = apart.tell_spout()

    assert sorted(ended.completed) == sorted(edges.roots)
    told = [each.spouts for each in apart.spout.told if each.spouts is not None]
    assert sum(each.ends["completed", 1] for each in told) == len(edges.roots)
    assert sum(each.ends["timed out", 0] for each in told) > 0
