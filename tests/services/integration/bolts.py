"""Bolts of the integration tests, in a module that Spark's workers can import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txtopo import (
    ArrowBolt,
    BasicBolt,
    BatchBolt,
    Committer,
    Config,
    CustomStreamGrouping,
    Fields,
    Stream,
    TransactionAttempt,
    Tuple,
)
from txtopo.collector import ArrowOutputCollector, BatchOutputCollector
from txtopo.config import AnyConfig
from txtopo.context import TaskContext

WORDS = Fields("word string, amount long")
STREAMS: dict[str, Stream | Fields] = {"odd": WORDS, "picked": Stream(WORDS, direct=True)}


def plus(added: int) -> Callable[[int | None], int]:
    """Return what adds to a number of a state."""
    return lambda before: (before or 0) + added


class Gathering(BatchBolt):
    """A batch bolt that keeps what it is given and gathers its tuples."""

    writes_nowhere_else = True

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.context, self.collector, self.attempt = context, collector, attempt
        self.tuples: list[Tuple] = []

    def execute(self, tuple: Tuple) -> None:
        self.tuples.append(tuple)


class BatchCount(Gathering):
    """Emits how many tuples its task got."""

    output_fields = Fields("count long")

    def finish_batch(self) -> None:
        self.collector.emit([len(self.tuples)])


class AddUp(Gathering, Committer):
    """Adds the first value of each tuple to one number, and emits the new total."""

    output_fields = Fields("total long")

    def finish_batch(self) -> None:
        added = sum(tuple[0] for tuple in self.tuples)
        with self.context.state("totals").transaction(self.attempt) as state:
            total = state.update("global", plus(added))
        self.collector.emit([total])


class SumByKey(Gathering, Committer):
    """Adds the last value of each tuple to the number of its key, which is the first one."""

    def finish_batch(self) -> None:
        sums: Counter[str] = Counter()
        for each in self.tuples:
            sums[each[0]] += each[len(each) - 1]
        with self.context.state("sums").transaction(self.attempt) as state:
            for key, added in sums.items():
                state.update(key, plus(added))


class Multiply(BasicBolt):
    """Passes words on with their amounts times a number."""

    output_fields = WORDS

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        collector.emit([tuple["word"], tuple["amount"] * self.factor])


class CountUnder(Gathering):
    """Emits how many tuples its task got, or how many words, under a name of its own."""

    output_fields = Fields("name string, count long")

    def __init__(self, name: str, *, words: bool = False) -> None:
        self.name, self.words = name, words

    def finish_batch(self) -> None:
        self.collector.emit([self.name, len(self.tuples)])
        if self.words:
            words = len({tuple["word"] for tuple in self.tuples})
            self.collector.emit([f"words of {self.name}", words])


class OddToBothEnds(CustomStreamGrouping):
    """Odd amounts go to the first task and to the last one, even ones nowhere."""

    def prepare(self, fields: Fields, tasks: int) -> None:
        self.amount, self.tasks = fields.index["amount"], tasks

    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        return sorted({0, self.tasks - 1}) if values[self.amount] % 2 else []


class Router(BasicBolt):
    """Sorts words by their amounts into streams, and sends each to a task that it picks."""

    output_fields = WORDS
    output_streams: Mapping[str, Stream | Fields] = STREAMS

    def prepare(self, config: AnyConfig, context: TaskContext) -> None:
        self._tasks = context.component_tasks("tell")

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        if tuple["amount"] % 2:
            collector.emit(tuple.values, "odd")
        else:
            collector.emit(tuple.values)
        task = self._tasks[tuple["amount"] % len(self._tasks)]
        collector.emit_direct(task, tuple.values, "picked")


class Tell(Gathering):
    """Emits (stream, amount) of what it gets, and whether a picked task was the right one."""

    output_fields = Fields("name string, amount long")

    def finish_batch(self) -> None:
        for each in self.tuples:
            self.collector.emit([each.source_stream, each["amount"]])
            if each.source_stream == "picked":
                right = each["amount"] % self.context.tasks == self.context.task_index
                self.collector.emit(["right" if right else "wrong", 1])


class ArrowMultiply(ArrowBolt):
    """As :class:`Multiply`, by columns."""

    output_fields = WORDS

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.collector = collector

    def execute(self, batch: pa.RecordBatch) -> None:
        amounts = pc.multiply(batch["amount"], self.factor)
        self.collector.emit(pa.RecordBatch.from_pydict({"word": batch["word"], "amount": amounts}))

    def finish_batch(self) -> None:
        pass


class ArrowSumByKey(ArrowBolt, Committer):
    """As :class:`SumByKey`, by columns."""

    writes_nowhere_else = True

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.context, self.attempt = context, attempt
        self.batches: list[pa.RecordBatch] = []

    def execute(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def finish_batch(self) -> None:
        with self.context.state("sums").transaction(self.attempt) as state:
            for batch in self.batches:
                sums = pa.table(batch).group_by("word").aggregate([("amount", "sum")])
                for row in sums.to_pylist():
                    added = row["amount_sum"]
                    state.update(row["word"], plus(added))


class PageBolt(Gathering):
    """Bolt A or C of Storm's page: each task emits how many rows its tuples stand for."""

    output_fields = Fields("source string, rows long")

    def finish_batch(self) -> None:
        self.collector.emit([self.context.component_id, sum(self.rows().values())])

    def rows(self) -> Counter[str]:
        """Return the rows by the component that told of them."""
        counts: Counter[str] = Counter()
        for each in self.tuples:
            counts[each.source_component] += each["rows"] if "rows" in each.fields.index else 1
        return counts


class PageCommitter(PageBolt, Committer):
    """Bolt B or D of Storm's page: keeps the rows by source, and how often it was finished."""

    writes_nowhere_else = True

    def finish_batch(self) -> None:
        with self.context.state("seen").transaction(self.attempt) as state:
            for source, rows in [*self.rows().items(), ("finished", 1)]:
                state.update(source, plus(rows))
        super().finish_batch()
