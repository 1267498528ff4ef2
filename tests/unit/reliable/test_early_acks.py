"""What bolts say leaves while they work: acks, fails, more time, and what they emit."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.harness.chance import times
from tests.unit.reliable.bolts import WORD, ByHand, Forward, Seen, rows
from tests.unit.reliable.losing import all_at_once, run
from tests.unit.reliable.slow import Always, BetweenTuples, Slow, SlowBasic, World
from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    Bolt,
    OutputCollector,
    TaskContext,
    TopologyBuilder,
    Tuple,
)
from txtopo.collector import BatchOutputCollector
from txtopo.reliable import carrier
from txtopo.reliable.acking import Acker, RootXors, joined
from txtopo.reliable.anchoring.answers import TreeAnswers, is_of_trees, open_told
from txtopo.reliable.anchoring.slot import Outcome, Slot
from txtopo.reliable.anchoring.spout_task import EndedMessages, ReliableSpoutTask, TurnLimits
from txtopo.reliable.collector import FlushTimer
from txtopo.spouts import MemorySpout
from txtopo.stages.compiled_topology import CompiledTopology, compile_topology

CONFIG = AtLeastOnceConfig(message_timeout_s=10, slots=1)


@pytest.mark.rule("txtopo.reliable.carrier", "Rules", 2)
@pytest.mark.parametrize("kind", ["by hand", "basic"])
def test_acks_leave_while_the_bolt_works(kind: str) -> None:
    world = World()
    bolt = Slow(world, 0.06) if kind == "by hand" else SlowBasic(world, 0.06)
    world.start({"slow": (bolt, 1)}, CONFIG)
    world.feed(40)

    world.cluster.process_all_available()

    assert world.feeder.acked == list(range(40))
    # Each was known before the next but one began.
    assert all(known >= number - 2 for number, known in enumerate(world.acked_before))


def test_a_tuple_that_takes_long_and_asks_for_more_time_is_not_failed() -> None:
    world = World()
    world.start(
        {"slow": (Slow(world, 5.0, resets=True), 1)},
        AtLeastOnceConfig(message_timeout_s=1, slots=1),
    )
    world.feed(1)

    world.cluster.process_all_available()

    assert (world.feeder.acked, world.feeder.failed, world.seen) == ([0], [], ["word 0"])


def test_without_asking_for_more_time_it_is_failed() -> None:
    world = World()
    world.start({"slow": (Slow(world, 5.0), 1)}, AtLeastOnceConfig(message_timeout_s=1, slots=1))
    world.feed(1)

    world.cluster.process_all_available()

    assert (world.feeder.acked, world.feeder.failed) == ([], [0])


class Pours(Bolt):
    """Emits ten tuples, one every tenth of a second, and then acks."""

    output_fields = WORD

    def __init__(self, world: World) -> None:
        self._world = world

    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        for number in range(10):
            self._collector.emit([f"drop {number}"], tuple)
            self._world.cluster.advance(0.1)
            self._world.begin(f"poured {number}")
        self._collector.ack(tuple)


class Notes(Bolt):
    """Notes what it is given."""

    def __init__(self, world: World) -> None:
        self._world = world

    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        self._world.begin(tuple["word"])
        self._collector.ack(tuple)


def test_what_is_emitted_leaves_in_the_middle_of_a_tuple_and_the_tree_waits_for_its_end() -> None:
    world = World()
    # Its tasks are given every other drop; one of them is in the other slot.
    config = AtLeastOnceConfig(message_timeout_s=10, slots=2)
    world.start({"pours": (Pours(world), 1), "notes": (Notes(world), 2)}, config)
    world.feed(1)

    world.cluster.process_all_available()

    drops = [word for word in world.seen if word.startswith("drop")]
    early = world.seen[: world.seen.index("poured 9")]
    assert len(drops) == 10
    assert len([word for word in early if word.startswith("drop")]) >= 3
    assert set(world.acked_before) == {0}
    assert (world.feeder.acked, world.feeder.failed) == ([0], [])


class Dies(Bolt):
    """Its slot is killed in the middle of a work, once; what it says then is not heard."""

    def __init__(self, world: World, at: int) -> None:
        self._world, self._at = world, at
        self._dead = False

    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        world = self._world
        world.begin(tuple["word"])
        world.cluster.advance(0.06)
        if len(world.seen) == self._at:
            world.cluster.kill_slot(0)
            self._dead = True
        self._collector.ack(tuple)
        if self._dead:
            world.dead.append(tuple["word"])


@pytest.mark.parametrize("seed", range(5))
def test_a_slot_that_dies_after_its_first_acks_loses_nothing(seed: int) -> None:
    world = World(seed)
    # It gets 1, 3 and 9 tuples; the tenth is in the middle of the last.
    world.start({"dies": (Dies(world, 10), 1)}, AtLeastOnceConfig(message_timeout_s=30, slots=2))
    world.feed(20)
    world.cluster.run_until(lambda: bool(world.dead))
    assert len(world.feeder.acked) >= 7
    world.cluster.run_until(lambda: bool(world.feeder.failed))

    # What had left before the death counts, and nothing of what the dead slot said then.
    assert len(world.dead) > 1
    assert {f"word {id}" for id in world.feeder.failed} >= set(world.dead)
    failed = list(world.feeder.failed)
    for id in failed:
        world.feeder.feed([f"word {id}"], id)
    world.cluster.process_all_available()

    assert sorted(world.feeder.acked) == list(range(20))
    assert len(world.seen) <= 20 + len(failed)


class Twice(BasicBolt):
    """Emits each word twice, so that something is due in the middle of a tuple."""

    output_fields = WORD

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        for _ in range(2):
            collector.emit([tuple["word"]])


def split_slot(
    flush_timer: FlushTimer, parts: list[Outcome], words: int
) -> tuple[Acker, list[bytes], Slot]:
    """Return an acker that knows some trees, their envelopes, and a slot that has not worked yet:
    its first bolt sends two copies of each word to the other slot and two to itself."""
    builder = TopologyBuilder()
    builder.set_spout("words", MemorySpout(rows(*map(str, range(words))), WORD))
    builder.set_bolt("split", Twice()).shuffle_grouping("words")
    builder.set_bolt("count", Forward(), 2).all_grouping("split")
    compiled = compile_topology(builder.build_topology().graph, AtLeastOnceConfig(), 2)
    acker = Acker()
    records = spout_records(compiled, acker)
    slot = Slot(compiled, 0, 3, flush_timer, parts.append, thread=lambda: 0)
    slot.prepare()
    return acker, records, slot


def spout_records(compiled: CompiledTopology, acker: Acker) -> list[bytes]:
    spout = ReliableSpoutTask(compiled, compiled.components["words"], 0, 0, 1, now=lambda: 0.0)
    spout.open()
    turn = spout.turn(EndedMessages(), active=True, limits=TurnLimits())
    assert not len(acker.init(turn.begun).completed)
    return [each.record for each in turn.sealed]


def worked(
    words: int, flush_timer: type[FlushTimer] = Always
) -> tuple[Acker, list[Outcome], list[Outcome]]:
    """Return an acker, the parts of a slot's work, and those of what it sent to the other slot."""
    parts: list[Outcome] = []
    acker, records, slot = split_slot(flush_timer(), parts, words)
    parts.append(slot.work(records))
    others: list[Outcome] = []
    compiled = slot._compiled
    other = Slot(compiled, 1, 4, flush_timer(), others.append, thread=lambda: 0)
    other.prepare()
    others.append(other.work(envelopes(parts)))
    return acker, parts, others


def envelopes(parts: list[Outcome]) -> list[bytes]:
    sealed = [each for part in parts for each in part.sealed]
    return [each.record for each in sealed if not is_of_trees(each.record)]


def acks(part: Outcome) -> RootXors:
    """Return the acks of a part; all trees are those of slot 0."""
    found = [each for each in part.sealed if is_of_trees(each.record)]
    assert {each.to_slot for each in found} <= {0}
    told = [open_told(each.record) for each in found]
    return joined([each.acked for each in told if isinstance(each, TreeAnswers)])


@pytest.mark.integration
@pytest.mark.rule("txtopo.reliable.anchoring.slot", "Rules", 2, 3)
def test_every_tuple_is_in_one_part() -> None:
    _, parts, others = worked(50)

    assert len(parts) > 50
    assert sum(part.report.consumed for part in parts) == 50
    assert sum(part.report.consumed for part in others) == 100
    assert parts[-1].report.consumed > 0
    assert sum(part.report.sent[1] for part in parts) == 100
    counts = sum((part.report.counts for part in parts), start=parts[0].report.counts.__class__())
    assert counts["executed", "split"] == counts["acked", "split"] == 50
    assert counts["executed", "count"] == counts["acked", "count"] == 100


@pytest.mark.integration
@pytest.mark.rule("txtopo.reliable.anchoring.slot", "Rules", 1)
@pytest.mark.parametrize("flush_timer", [Always, BetweenTuples])
@pytest.mark.parametrize("seed", range(10))
def test_parts_in_any_order_complete_each_tree_with_the_last_edge(
    seed: int, flush_timer: type[FlushTimer]
) -> None:
    """An ack holds what was emitted before it left: so no tree is complete while an edge is out."""
    acker, parts, others = worked(20, flush_timer)
    told = [acks(part) for part in parts + others]
    random.Random(seed).shuffle(told)
    missing: dict[int, int] = {}

    for each in told:
        completed = set(acker.ack(each).completed.tolist())
        for root in each.roots.tolist():
            missing[root] = missing.get(root, count(told, root)) - 1
            assert (root in completed) == (not missing[root])
    assert len(acker) == 0


def count(told: list[RootXors], root: int) -> int:
    return sum(root in each.roots for each in told)


def test_a_part_that_is_lost_leaves_its_trees_open() -> None:
    acker, parts, others = worked(20)
    lost = next(part for part in parts if len(acks(part).roots))
    rest = [part for part in parts + others if part is not lost]

    completed = sum(len(acker.ack(acks(part)).completed) for part in rest)

    assert completed == 20 - len(acks(lost).roots)


def test_nothing_leaves_from_another_thread() -> None:
    """It would use the sockets of the bolt's thread."""
    threads = iter([0, *([1] * 1000)])
    parts: list[Outcome] = []
    builder = TopologyBuilder()
    builder.set_spout("words", MemorySpout(rows("a", "b"), WORD))
    builder.set_bolt("split", Forward()).shuffle_grouping("words")
    compiled = compile_topology(builder.build_topology().graph, AtLeastOnceConfig(), 1)
    slot = Slot(compiled, 0, 3, Always(), parts.append, thread=lambda: next(threads))
    slot.prepare()

    last = slot.work(spout_records(compiled, Acker()))

    assert (parts, last.report.consumed) == ([], 2)


class Greets(Bolt):
    """Emits before it was given anything."""

    output_fields = WORD

    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
        collector.emit(["hello"])

    def execute(self, tuple: Tuple) -> None:
        """Do nothing."""


@pytest.mark.parametrize("flush_timer", [FlushTimer, Always])
def test_what_prepare_emits_leaves_also_if_prepare_takes_long(
    flush_timer: type[FlushTimer],
) -> None:
    """It is sealed then, because a part is due, but nothing leaves before the first work."""
    parts: list[Outcome] = []
    builder = TopologyBuilder()
    builder.set_spout("words", MemorySpout([], WORD))
    builder.set_bolt("greets", Greets()).shuffle_grouping("words")
    builder.set_bolt("end", Forward(), 2).all_grouping("greets")
    compiled = compile_topology(builder.build_topology().graph, AtLeastOnceConfig(), 2)
    slot = Slot(compiled, 0, 3, flush_timer(), parts.append, thread=lambda: 0)

    slot.prepare()
    assert (slot.emitted, parts) == (True, [])
    parts.append(slot.work([]))

    assert sum(part.report.sent[1] for part in parts) == 1
    assert not slot.emitted


def test_bad_values_of_another_task_end_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found when a part is sealed, in a call of a task that did nothing wrong."""
    monkeypatch.setattr(carrier, "FlushTimer", Always)
    world = World()

    def execute(collector: OutputCollector, tuple: Tuple) -> None:
        collector.emit([object()], tuple)

    world.start({"bad": (ByHand(execute), 1), "notes": (Notes(world), 1)}, CONFIG)
    world.feed(3)

    with pytest.raises(Exception, match="bad"):
        world.cluster.process_all_available()


def test_a_tick_of_a_bolt_that_is_always_due_is_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "FlushTimer", Always)
    seen = Seen()
    world = World()

    class Ticked(Forward):
        tick_interval_s = 0.1

        def execute(self, tuple: Tuple, collector: Any) -> None:
            seen.notes.append(tuple[0])

    world.start({"ticked": (Ticked(), 1)}, CONFIG)
    world.cluster.advance(1.05)

    progress = world.cluster.progress
    assert (len(seen.notes), progress.executed) == (10, {})


@pytest.mark.integration
def test_nothing_is_lost_when_something_leaves_at_every_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(carrier, "FlushTimer", Always)
    for seed in range(times(15)):
        result = run(seed, all_at_once, 0.1)
        assert (result.lost, result.unacked) == ([], [])
    clean = run(1, None)
    assert (clean.lost, clean.doubled, clean.unacked, clean.failed) == ([], 0, [], 0)
