"""Committers and their states: what they write comes back as write sets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.stages.running import (
    Ran,
    RowsSpout,
    Topology,
    bolt,
    grouped,
    record,
    recording,
    run_of,
    spout,
)
from txtopo.bolts.bolt import BatchBolt
from txtopo.errors import ConflictingWritesError
from txtopo.groupings import FieldsGrouping, Grouping, ShuffleGrouping
from txtopo.state.backend import Puts
from txtopo.state.registry import State
from txtopo.state.transaction import StateHandle
from txtopo.testing.conformance.driver import claim_of
from txtopo.tuples import Fields, Tuple

BATCHES = [[["a"], ["b"], ["a"], ["c"], ["d"]], [], [["a"]]]


class CountWords(BatchBolt):
    """A committer that keeps a count of each word, in as many tasks as you like."""

    output_fields = Fields("word string, count long")

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.attempt = collector, attempt
        self.words: dict[str, int] = {}
        self.counts = context.state("counts")
        assert context.state("counts") is self.counts

    def execute(self, tuple: Tuple) -> None:
        self.words[tuple["word"]] = self.words.get(tuple["word"], 0) + 1

    def finish_batch(self) -> None:
        if not self.words:
            return
        with self.counts.transaction(self.attempt) as state:
            for word, count in self.words.items():
                total = state.update(word, lambda stored, count=count: (stored or 0) + count)
                self.collector.emit([word, total])


class Totals(BatchBolt):
    """Records the totals that the committer above it emits."""

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.txid = attempt.txid

    def execute(self, tuple: Tuple) -> None:
        record(self.txid, *tuple.values)

    def finish_batch(self) -> None:
        pass


def committed(state: State, tasks: int, grouping: Grouping) -> tuple[Ran, list[Any]]:
    topology = Topology(
        spout(RowsSpout(BATCHES, "word string"), 2),
        bolt(
            "count",
            CountWords(),
            grouped(grouping),
            parallelism=tasks,
            committer=True,
            states={"counts": state},
        ),
        bolt("totals", Totals(), grouped(ShuffleGrouping(), "count"), parallelism=tasks),
        slots=2,
    )
    backend = state.open()
    backend.create()
    backend.claim(claim_of("test", 1))

    def opener(component: str, name: str) -> StateHandle:
        assert (component, name) == ("count", "counts")
        return StateHandle(name, state.layout(), backend)

    def write(ran: Ran, at: int) -> None:
        puts = ran.commits[at].writes.get(("count", "counts"), Puts({}))
        backend.commit(ran.outcome.processed[at].attempt, puts)

    with recording() as recorded:
        return topology.run(run_of(3), opener, write), sorted(recorded)


@pytest.fixture
def state() -> State:
    from txtopo.state import open_state

    return open_state("memory:", table="counts")


@pytest.mark.parametrize("tasks", [1, 3], ids=["in driver", "in tasks"])
def test_what_committers_write_comes_back_and_is_read_by_the_next_txid(
    state: State, tasks: int
) -> None:
    ran, totals = committed(state, tasks, FieldsGrouping(("word",)))

    assert all(commit.failure is None for commit in ran.commits)
    assert ("count", "counts") not in ran.commits[1].writes
    assert totals == [(1, "a", 2), (1, "b", 1), (1, "c", 1), (1, "d", 1), (3, "a", 3)]
    with state.reader() as reader:
        assert dict(reader.items()) == {"a": 3, "b": 1, "c": 1, "d": 1}


def test_two_tasks_that_write_one_key_are_named(state: State) -> None:
    with pytest.raises(ConflictingWritesError, match=r"two tasks of bolt 'count' wrote key \('a'"):
        committed(state, 3, ShuffleGrouping())
