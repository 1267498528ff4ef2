"""Contexts: the tasks of other components, which ``emit_direct`` takes, in both APIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.harness.runs import LOCAL, Storage, run_to_end
from txtopo import (
    BasicBolt,
    BatchBolt,
    BatchOutputCollector,
    Committer,
    Config,
    Fields,
    PersistentAggregate,
    Stream,
    TaskContext,
    TopologyBuilder,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    Tuple,
)
from txtopo.builders.transactional import Topology
from txtopo.config import AnyConfig
from txtopo.errors import TopologyError
from txtopo.spouts import MemorySpout, MemoryTransactionalSpout
from txtopo.state import Count
from txtopo.testing import complete_topology

WORD = Fields("word string")
WORDS = ["a", "bb", "ccc", "dddd", "eeeee"]
ROWS = [[word] for word in WORDS]
# The last task gets the words of one letter, the one before it those of two …
BY_HAND = {"a": 2, "bb": 1, "ccc": 0, "dddd": 2, "eeeee": 1}


class ByLength(BasicBolt):
    """Sends words of one length to one task, counted from the last one."""

    output_streams: Mapping[str, Stream | Fields] = {"picked": Stream(WORD, direct=True)}

    def __init__(self, to: str = "told") -> None:
        self._to = to

    def prepare(self, config: AnyConfig, context: TaskContext) -> None:
        self._tasks = context.component_tasks(self._to)

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        task = self._tasks[-len(tuple["word"]) % len(self._tasks)]
        collector.emit_direct(task, tuple.values, "picked")


class Told(BasicBolt):
    """Emits each word with the task that got it."""

    output_fields = Fields("word string, task long")

    def prepare(self, config: AnyConfig, context: TaskContext) -> None:
        self._task = context.task_index

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        collector.emit([tuple["word"], self._task])


class Keep(BatchBolt, Committer):
    """Keeps the task of each word."""

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self._state, self._attempt = context.state("tasks"), attempt
        self._found: dict[str, int] = {}
        assert context.component_tasks("keep") == [0]

    def execute(self, tuple: Tuple) -> None:
        self._found[tuple["word"]] = tuple["task"]

    def finish_batch(self) -> None:
        with self._state.transaction(self._attempt) as state:
            for word, task in self._found.items():
                state.put(word, task)


def transactional(storage: Storage, to: str = "told") -> Topology:
    spout = MemoryTransactionalSpout({0: ROWS}, WORD, 2)
    builder = TransactionalTopologyBuilder("by-length", "words", spout, 2)
    builder.set_bolt("split", ByLength(to), 2).shuffle_grouping("words")
    builder.set_bolt("told", Told(), 3).direct_grouping("split", stream="picked")
    builder.set_bolt("keep", Keep()).global_grouping("told").with_state(
        "tasks", storage.state("tasks")
    )
    count = PersistentAggregate(storage.state("count"), "word", Count())
    builder.set_bolt("count", count, 4).fields_grouping("told", "word")
    return builder.build_topology()


def at_least_once(to: str = "told") -> Any:
    builder = TopologyBuilder("by-length")
    builder.set_spout("words", MemorySpout(ROWS, WORD))
    builder.set_bolt("split", ByLength(to), 2).shuffle_grouping("words")
    builder.set_bolt("told", Told(), 3).direct_grouping("split", stream="picked")
    return builder.build_topology()


def test_a_bolt_of_batches_routes_by_hand_to_the_tasks_that_it_asked_for() -> None:
    storage = Storage.in_memory()
    run_to_end(transactional(storage), storage)

    assert storage.read("tasks") == BY_HAND


def test_a_bolt_of_tuples_routes_by_hand_to_the_tasks_that_it_asked_for() -> None:
    done = complete_topology(at_least_once(), {"words": ROWS})

    assert dict(done["told"]) == BY_HAND


def test_an_unknown_component_is_answered_with_the_nearest() -> None:
    storage = Storage.in_memory()
    message = r"'split' asks for the tasks of unknown component 'tld'; did you mean 'told'\?"

    with pytest.raises(TopologyError, match=message) as caught:
        complete_topology(at_least_once("tld"), {"words": ROWS})
    assert caught.value.component == "tld"
    with pytest.raises(TopologyError, match=message):
        run_to_end(transactional(storage, "tld"), storage)


def test_what_has_no_tasks_has_none_to_ask_for() -> None:
    graph = transactional(Storage.in_memory()).graph
    context = TaskContext("t", "split", 0, 2, parallelism=graph.parallelism)

    assert context.component_tasks("count") == []
    assert context.component_tasks("words") == [0, 1]


class Asking(MemoryTransactionalSpout):
    """A spout whose parts ask for the tasks of a bolt, in the driver and in its own tasks."""

    def coordinator(self, config: Config, context: TaskContext) -> Any:
        assert context.component_tasks("told") == [0, 1, 2]
        return super().coordinator(config, context)

    def emitter(self, config: Config, context: TaskContext) -> Any:
        assert context.component_tasks("told") == [0, 1, 2]
        return super().emitter(config, context)


def test_both_parts_of_a_spout_know_the_tasks_of_the_bolts() -> None:
    storage = Storage.in_memory()
    builder = TransactionalTopologyBuilder("by-length", "words", Asking({0: ROWS}, WORD, 2))
    builder.set_bolt("told", Told(), 3).shuffle_grouping("words")
    builder.set_bolt("keep", Keep()).global_grouping("told").with_state(
        "tasks", storage.state("tasks")
    )

    run_to_end(builder.build_topology(), storage, LOCAL)

    assert storage.read("tasks").keys() == set(WORDS)
