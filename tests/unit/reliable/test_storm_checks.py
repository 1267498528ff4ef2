"""Storm's checks of its core, by their numbers in the specification (69 and 71: tests/unit/acking).

There are no checks 63 to 65. Storm's task hooks (70) are progress and listeners here.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.reliable.bolts import (
    WORD,
    AckEveryOther,
    ByHand,
    Count,
    Forward,
    GlobalCount,
    Seen,
    WhichTask,
    rows,
)
from txtopo import Bolt, Config, OutputCollector, TaskContext, TopologyBuilder, Tuple
from txtopo.errors import TopologyError
from txtopo.testing import FeederSpout, SimulatedCluster, complete_topology


def test_check_59_a_word_count_by_word_and_over_all() -> None:
    builder = TopologyBuilder()
    builder.set_spout("words", FeederSpout(WORD))
    builder.set_bolt("count", Count(), 4).fields_grouping("words", "word")
    builder.set_bolt("global", GlobalCount()).global_grouping("words")

    inputs = rows("nathan", "bob", "joey", "nathan")
    done = complete_topology(builder.build_topology(), {"words": inputs})

    assert done["words"] == [("nathan",), ("bob",), ("joey",), ("nathan",)]
    assert sorted(done["count"]) == [("bob", 1), ("joey", 1), ("nathan", 1), ("nathan", 2)]
    assert done["global"] == [(1,), (2,), (3,), (4,)]


def test_check_60_an_all_grouping_gives_each_task_the_tuple_once() -> None:
    builder = TopologyBuilder()
    builder.set_spout("words", FeederSpout(WORD))
    builder.set_bolt("task", WhichTask(), 6).all_grouping("words")

    done = complete_topology(builder.build_topology(), {"words": rows("a")})

    assert sorted(done["task"]) == [(0,), (1,), (2,), (3,), (4,), (5,)]


@pytest.mark.row(56)
def test_check_61_a_tree_that_is_not_acked_times_out_and_the_others_do_not() -> None:
    feeder = FeederSpout(WORD)
    builder = TopologyBuilder()
    builder.set_spout("words", feeder)
    builder.set_bolt("half", AckEveryOther()).shuffle_grouping("words")
    cluster = SimulatedCluster()
    cluster.start(builder.build_topology(), Config(message_timeout_s=10))

    for id in (1, 2, 3):
        feeder.feed(["a"], id)
    cluster.advance(9)
    assert (feeder.acked, feeder.failed) == ([1, 3], [])
    cluster.advance(12)
    assert (feeder.acked, feeder.failed) == ([1, 3], [2])


class ResetFirst(Bolt):
    """Keeps two tuples and asks for more time for the first one (Storm's ``ResetTimeoutBolt``)."""

    tick_interval_s = 5.0

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        self._collector = collector
        self._held: list[Tuple] = []
        self._ticks = 0

    def execute(self, tuple: Tuple) -> None:
        if tuple.source_component != "__system":
            self._held.append(tuple)
            return
        self._ticks += 1
        if self._ticks == 8:
            self._collector.ack(self._held[0])
        elif self._held:
            self._collector.reset_timeout(self._held[0])


def test_check_62_a_reset_timeout_keeps_a_tree_alive() -> None:
    feeder = FeederSpout(WORD)
    builder = TopologyBuilder()
    builder.set_spout("words", feeder)
    builder.set_bolt("reset", ResetFirst()).shuffle_grouping("words")
    cluster = SimulatedCluster()
    cluster.start(builder.build_topology(), Config(message_timeout_s=10))

    feeder.feed(["a"], 1)
    feeder.feed(["b"], 2)
    cluster.advance(35)
    assert (feeder.acked, feeder.failed) == ([], [2])
    cluster.advance(10)
    assert (feeder.acked, feeder.failed) == ([1], [2])


@pytest.mark.parametrize("wrong", ["component", "stream", "field"])
def test_check_66_an_unknown_name_is_refused(wrong: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("words", FeederSpout(WORD))
    bolt = builder.set_bolt("bolt", Forward())
    if wrong == "component":
        bolt.shuffle_grouping("wrods")
    elif wrong == "stream":
        bolt.shuffle_grouping("words", stream="more")
    else:
        bolt.fields_grouping("words", "wrod")

    with pytest.raises(TopologyError, match=f"(unknown|undeclared) {wrong}"):
        builder.build_topology()


class Noted(Bolt):
    """Writes down that it was prepared."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        self._collector = collector
        self._seen.notes.append("prepared")

    def execute(self, tuple: Tuple) -> None:
        self._collector.ack(tuple)


def test_check_67_a_run_that_starts_inactive_prepares_nothing_until_it_is_activated() -> None:
    feeder, seen = FeederSpout(WORD), Seen()
    builder = TopologyBuilder()
    builder.set_spout("words", feeder)
    builder.set_bolt("noted", Noted(seen)).shuffle_grouping("words")
    cluster = SimulatedCluster()
    feeder.feed(["a"], 1)

    run = cluster.start(builder.build_topology(), active=False)
    cluster.advance(60)
    assert (run.status, seen.notes, feeder.opened, feeder.acked) == ("deactivated", [], 0, [])
    run.activate()
    feeder.wait_until_acked(1)
    assert (run.status, seen.notes, feeder.opened) == ("running", ["prepared"], 1)


def shared(grouping: str, words: list[str]) -> Counter[tuple[str, int]]:
    """Return how often each task got each word."""
    seen = Seen()
    tasks = ByHand(lambda collector, tuple: collector.ack(tuple))

    class Note(ByHand):
        def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
            self.collector, self.task = collector, context.task_index

        def execute(self, tuple: Tuple) -> None:
            seen.notes.append((tuple["word"], self.task))
            self.collector.ack(tuple)

    builder = TopologyBuilder()
    builder.set_spout("words", FeederSpout(WORD))
    bolt = builder.set_bolt("note", Note(tasks._execute), 4 if grouping != "shuffle" else 2)
    if grouping == "shuffle":
        bolt.shuffle_grouping("words")
    elif grouping == "fields":
        bolt.fields_grouping("words", "word")
    else:
        bolt.partial_key_grouping("words", "word")
    complete_topology(builder.build_topology(), {"words": rows(*words)})
    return Counter(seen.notes)


def test_check_68_shuffle_is_even_within_one_percent() -> None:
    counts = shared("shuffle", ["a"] * 20_000)

    assert counts["a", 0] + counts["a", 1] == 20_000
    assert abs(counts["a", 0] - counts["a", 1]) <= 200


@pytest.mark.parametrize(("grouping", "most"), [("fields", 1), ("partial key", 2)])
def test_check_68_a_key_goes_to_one_task_or_two(grouping: str, most: int) -> None:
    counts = shared(grouping, [f"word {i % 50}" for i in range(1000)])

    tasks = Counter(word for word, _ in counts)
    assert max(tasks.values()) == most
    assert len({task for _, task in counts}) == 4


class AckAndFail(ByHand):
    """Emits one for each tuple; acks the first, fails the next (Storm's hooked bolt)."""

    def __init__(self) -> None:
        super().__init__(lambda _, __: None)

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(config, context, collector)
        self._acked = self._failed = 0

    def execute(self, tuple: Tuple) -> None:
        self.collector.emit([tuple["word"]])
        if self._acked == self._failed:
            self._acked += 1
            self.collector.ack(tuple)
        else:
            self._failed += 1
            self.collector.fail(tuple)


def test_check_70_what_each_component_has_done_is_counted() -> None:
    """Storm's hook also counts the message to the acker as emitted; here a tuple is a tuple."""
    feeder = FeederSpout(WORD)
    builder = TopologyBuilder()
    builder.set_spout("words", feeder)
    builder.set_bolt("hooked", AckAndFail()).shuffle_grouping("words")
    cluster = SimulatedCluster()
    cluster.start(builder.build_topology())
    counts = []

    for id in range(4):
        now = cluster.progress
        by = (now.emitted_by, now.acked_by, now.failed_by, now.executed)
        counts.append([each.get("hooked", 0) for each in by])
        feeder.feed(["a"], id)
        cluster.process_all_available()

    assert counts == [[0, 0, 0, 0], [1, 1, 0, 1], [2, 1, 1, 2], [3, 2, 1, 3]]
    assert (feeder.acked, feeder.failed) == ([0, 2], [1, 3])
    latency_s = cluster.progress.latency_p50_s
    assert latency_s is not None
    assert latency_s > 0
