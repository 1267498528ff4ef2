"""Spouts and bolts of these tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from txtopo import (
    BasicBolt,
    Bolt,
    Config,
    FailedException,
    Fields,
    OutputCollector,
    Stream,
    TaskContext,
    Tuple,
    is_tick,
)
from txtopo.collector import BatchOutputCollector
from txtopo.testing import Shared

WORD = Fields("word string")
Execute = Callable[[OutputCollector, Tuple], None]


class Seen(Shared):
    """What tasks wrote down for the test."""

    def __init__(self) -> None:
        self.notes: list[Any] = []


class ByHand(Bolt):
    """Runs a function on each tuple, and keeps what was kept on the bolt."""

    def __init__(self, execute: Execute, fields: Fields | None = WORD) -> None:
        self.output_fields = fields
        self._execute = execute

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        self.collector = collector

    def execute(self, tuple: Tuple) -> None:
        self._execute(self.collector, tuple)


class AckEveryOther(Bolt):
    """Acks the first tuple of two (Storm's ``AckEveryOtherBolt``)."""

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        self._collector, self._count = collector, 0

    def execute(self, tuple: Tuple) -> None:
        self._count += 1
        if self._count % 2:
            self._collector.ack(tuple)


class Forward(BasicBolt):
    """Emits what it gets; fails the words it is told to."""

    output_fields = WORD

    def __init__(self, *refused: str) -> None:
        self._refused = refused

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        if tuple["word"] in self._refused:
            raise FailedException(f"{tuple['word']} is refused")
        collector.emit([tuple["word"]])


class Count(BasicBolt):
    """Emits each word with how often its task has seen it."""

    output_fields = Fields("word string, count long")

    def prepare(self, config: Config, context: TaskContext) -> None:
        self._counts: dict[str, int] = {}

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        word = tuple["word"]
        self._counts[word] = self._counts.get(word, 0) + 1
        collector.emit([word, self._counts[word]])


class GlobalCount(BasicBolt):
    """Emits how many tuples its task has seen."""

    output_fields = Fields("count long")

    def prepare(self, config: Config, context: TaskContext) -> None:
        self._count = 0

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        self._count += 1
        collector.emit([self._count])


class WhichTask(BasicBolt):
    """Emits its task index for each tuple."""

    output_fields = Fields("task long")

    def prepare(self, config: Config, context: TaskContext) -> None:
        self._task = context.task_index

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        collector.emit([self._task])


class Batcher(Bolt):
    """Holds tuples until a tick, emits them joined and anchored to all of them, then acks them."""

    output_fields = WORD
    tick_interval_s = 3.0

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        self._collector = collector
        self._held: list[Tuple] = []

    def execute(self, tuple: Tuple) -> None:
        if not is_tick(tuple):
            self._held.append(tuple)
            return
        if self._held:
            words = sorted(each["word"] for each in self._held)
            self._collector.emit(["+".join(words)], self._held)
        for each in self._held:
            self._collector.ack(each)
        self._held = []


class Director(BasicBolt):
    """Sends each word to the task of its length, and its length to another stream."""

    output_streams: Mapping[str, Stream | Fields] = {
        "words": Stream(WORD, direct=True),
        "lengths": Fields("length long"),
    }

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        word: str = tuple["word"]
        collector.emit_direct(len(word) - 1, [word], stream="words")
        collector.emit([len(word)], stream="lengths")


def rows(*words: str) -> Sequence[Sequence[Any]]:
    return [[word] for word in words]
