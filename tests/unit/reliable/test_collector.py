"""Anchors, acks and fails mean what they mean in Storm."""

from __future__ import annotations

import pytest

from tests.unit.reliable.bolts import (
    WORD,
    Batcher,
    ByHand,
    Count,
    Director,
    Forward,
    WhichTask,
    rows,
)
from tests.unit.reliable.lines import CONFIG, Hold, started
from txtopo import (
    Bolt,
    Config,
    OutputCollector,
    TaskContext,
    TopologyBuilder,
    Tuple,
)
from txtopo.testing import FeederSpout, SimulatedCluster, complete_topology


def emitting(*, anchored: bool) -> ByHand:
    def execute(collector: OutputCollector, tuple: Tuple) -> None:
        collector.emit([tuple["word"]], tuple if anchored else None)
        collector.ack(tuple)

    return ByHand(execute)


def test_an_anchored_tuple_that_is_not_acked_fails_the_tree() -> None:
    feeder, cluster = started(emitting(anchored=True), Hold())
    feeder.feed(["a"], 1)

    cluster.advance(25)

    assert (feeder.acked, feeder.failed) == ([], [1])


def test_an_unanchored_tuple_is_outside_the_tree() -> None:
    feeder, cluster = started(emitting(anchored=False), Hold())
    feeder.feed(["a"], 1)

    cluster.advance(25)

    assert (feeder.acked, feeder.failed) == ([1], [])


def test_a_failed_tuple_fails_its_tree_at_once() -> None:
    feeder, cluster = started(Forward(), Forward("b"))
    for id, word in enumerate(("a", "b", "c")):
        feeder.feed([word], id)

    cluster.advance(1)

    assert (sorted(feeder.acked), feeder.failed) == ([0, 2], [1])


def test_a_tuple_that_is_acked_and_failed_twice_ends_once() -> None:
    def execute(collector: OutputCollector, tuple: Tuple) -> None:
        collector.ack(tuple)
        collector.ack(tuple)
        collector.fail(tuple)

    feeder, cluster = started(ByHand(execute, None))
    feeder.feed(["a"], 1)

    cluster.advance(25)

    assert (feeder.acked, feeder.failed) == ([1], [])


def test_doubled_anchors_change_nothing() -> None:
    def execute(collector: OutputCollector, tuple: Tuple) -> None:
        collector.emit(["x"], [tuple, tuple])
        collector.emit(["y"], [tuple])
        collector.ack(tuple)

    feeder, cluster = started(ByHand(execute), Forward(), parallelism=3)
    feeder.feed(["a"], 1)

    cluster.advance(1)

    assert feeder.acked == [1]


def test_held_tuples_are_joined_and_each_of_their_trees_waits_for_the_join() -> None:
    feeder, cluster = started(Batcher(), Forward("a+b"), Forward())
    feeder.feed(["a"], 1)
    feeder.feed(["b"], 2)
    cluster.advance(2)
    assert feeder.acked == []
    cluster.advance(2)
    assert (feeder.acked, sorted(feeder.failed)) == ([], [1, 2])

    feeder.feed(["c"], 3)
    feeder.feed(["d"], 4)
    cluster.advance(4)

    assert sorted(feeder.acked) == [3, 4]


class Pairs(Bolt):
    """Holds two tuples, then emits each anchored to itself, one of them doubly."""

    output_fields = WORD

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        self._collector = collector
        self._held: list[Tuple] = []

    def execute(self, tuple: Tuple) -> None:
        self._held.append(tuple)
        if len(self._held) == 2:
            for times, each in enumerate(self._held, 1):
                self._collector.emit([each["word"]], [each] * times)
                self._collector.ack(each)


@pytest.mark.parametrize("refused", ["a", "b"])
def test_a_tuple_hangs_on_its_own_anchors_only(refused: str) -> None:
    feeder, cluster = started(Pairs(), Forward(refused))
    feeder.feed(["a"], "a")
    feeder.feed(["b"], "b")

    cluster.advance(1)

    assert feeder.failed == [refused]
    assert feeder.acked == [{"a": "b", "b": "a"}[refused]]


def test_trees_that_meet_again_and_again_are_complete() -> None:
    """A diamond of joins: each tuple hangs in all trees, by several inputs."""

    feeder = FeederSpout(WORD)
    builder = TopologyBuilder()
    builder.set_spout("words", feeder)
    builder.set_bolt("a", Forward(), 2).all_grouping("words")
    builder.set_bolt("join", _Joining()).global_grouping("a")
    builder.set_bolt("again", _Joining()).global_grouping("join").global_grouping("a")
    builder.set_bolt("end", Forward(), 3).shuffle_grouping("again")
    cluster = SimulatedCluster()
    cluster.start(builder.build_topology(), CONFIG)

    for id in range(8):
        feeder.feed(["a"], id)

    feeder.wait_until_acked(*range(8))
    assert feeder.failed == []


class _Joining(Bolt):
    """Emits two tuples for each four, anchored to all of them and to two of them."""

    output_fields = WORD

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        self._collector = collector
        self._held: list[Tuple] = []

    def execute(self, tuple: Tuple) -> None:
        self._held.append(tuple)
        if len(self._held) == 4:
            self._collector.emit(["x"], self._held)
            self._collector.emit(["y"], self._held[::2])
            for each in self._held:
                self._collector.ack(each)
            self._held = []


def test_a_spout_tuple_that_reaches_no_task_is_acked() -> None:
    feeder, cluster = started()
    feeder.feed(["a"], 1)

    cluster.advance(1)

    assert feeder.acked == [1]


def test_a_tuple_without_message_id_is_not_tracked() -> None:
    feeder, cluster = started(Hold())
    feeder.feed(["a"])
    feeder.feed(["a"], 1)

    cluster.advance(1)

    progress = cluster.progress
    assert (progress.emitted, progress.pending) == (2, 1)


def test_without_ackers_a_tuple_is_acked_when_it_is_emitted() -> None:
    feeder, cluster = started(Forward("a"), config=Config(ackers=0))
    feeder.feed(["a"], 1)

    cluster.advance(100)

    assert (feeder.acked, feeder.failed) == ([1], [])
    assert cluster.progress.executed == {"bolt-0": 1}


@pytest.mark.parametrize("slots", [1, 3])
def test_the_ackers_of_the_slots_share_the_trees(slots: int) -> None:
    config = Config(slots=slots, max_spout_pending=2)
    feeder, cluster = started(Forward(), Hold(), config=config, parallelism=2, spouts=4)
    for id in range(30):
        feeder.feed(["a"], id)
    cluster.advance(5)

    lives = cluster._live().slots._lives
    pending = {slot: len(life.spouts.trees) for slot, life in lives.items()}
    assert pending == ({0: 8} if slots == 1 else {0: 4, 1: 2, 2: 2})
    assert cluster.progress.pending == 8
    for slot, life in lives.items():
        assert {root % slots for root in life.spouts.ackers[slot].roots()} == {slot}


def as_told(collector: OutputCollector, tuple: Tuple) -> None:
    if tuple["word"] == "ack":
        collector.ack(tuple)
    elif tuple["word"] == "fail":
        collector.fail(tuple)


@pytest.mark.parametrize("ackers", [None, 1, 2, 7])
def test_each_acker_tells_what_became_of_its_trees(ackers: int | None) -> None:
    config = Config(slots=3, ackers=ackers, message_timeout_s=10)
    feeder, cluster = started(ByHand(as_told), config=config, parallelism=2, spouts=2)
    for id in range(90):
        feeder.feed(["ack" if id % 3 else "fail"], id)
    for id in range(90, 100):
        feeder.feed(["hold"], id)
    cluster.advance(5)

    found = cluster.progress.ackers
    assert [each.number for each in found] == list(range(ackers or 2))
    assert [each.slot for each in found] == [number % 2 for number in range(ackers or 2)]
    assert sum(each.trees for each in found) == 10
    assert sum(each.completed for each in found) == len(feeder.acked) == 60
    assert sum(each.failed for each in found) == len(feeder.failed) == 30
    assert all(each.completed for each in found)

    cluster.advance(20)

    found = cluster.progress.ackers
    assert sum(each.timed_out for each in found) == cluster.progress.timed_out == 10
    assert sum(each.trees for each in found) == 0


def test_the_loss_of_a_slot_with_an_acker_leaves_its_trees_of_other_slots_to_the_timeout() -> None:
    config = Config(slots=2, ackers=1, message_timeout_s=10)
    feeder, cluster = started(Hold(), config=config, parallelism=1, spouts=2)
    for id in range(10):
        feeder.feed(["hold"], id)
    cluster.advance(1)
    theirs = cluster._live().slots._lives[1].spouts
    assert (len(theirs.trees), theirs.ackers) == (5, {})

    cluster.kill_slot(0)
    cluster.advance(30)

    assert cluster.progress.timed_out == len(feeder.failed) == 5
    assert cluster.progress.trees_lost == 5


def test_max_spout_pending_holds_the_spout_back() -> None:
    feeder, cluster = started(Hold(), config=Config(max_spout_pending=3, message_timeout_s=10))
    for id in range(5):
        feeder.feed(["a"], id)
    cluster.advance(5)
    assert (cluster.progress.emitted, cluster.progress.pending) == (3, 3)

    cluster.advance(20)

    assert (cluster.progress.emitted, sorted(feeder.failed)) == (5, [0, 1, 2])


def test_an_all_grouping_gives_each_task_each_tuple() -> None:
    builder = TopologyBuilder()
    builder.set_spout("words", FeederSpout(WORD))
    builder.set_bolt("count", Count(), 3).all_grouping("words")

    done = complete_topology(builder.build_topology(), {"words": rows("a", "b", "c")})

    assert sorted(done["count"]) == [("a", 1)] * 3 + [("b", 1)] * 3 + [("c", 1)] * 3


def test_direct_and_named_streams() -> None:
    builder = TopologyBuilder()
    builder.set_spout("words", FeederSpout(WORD))
    builder.set_bolt("director", Director(), 2).shuffle_grouping("words")
    builder.set_bolt("task", WhichTask(), 3).direct_grouping("director", stream="words")
    builder.set_bolt("task too", WhichTask(), 2).local_or_shuffle_grouping(
        "director", stream="lengths"
    )

    done = complete_topology(builder.build_topology(), {"words": rows("a", "bb", "ccc")})

    assert sorted(done["task"]) == [(0,), (1,), (2,)]
    assert sorted(done["director/lengths"]) == [(1,), (2,), (3,)]
    assert sorted(done["director/words"]) == [("a",), ("bb",), ("ccc",)]
    assert len(done["task too"]) == 3
