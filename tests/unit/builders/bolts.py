"""Bolts and a spout that do nothing, and the check that a definition of them is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from txtopo import (
    ArrowBolt,
    BasicBolt,
    BatchBolt,
    Committer,
    CustomStreamGrouping,
    Fields,
    Stream,
    Topology,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    Tuple,
)
from txtopo.collector import ArrowOutputCollector, BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import TopologyError
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout

WORD = Fields("word string")
Definition = Callable[[TransactionalTopologyBuilder], object]


class Words(BatchBolt):
    output_fields = WORD

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None: ...

    def execute(self, tuple: Tuple) -> None: ...

    def finish_batch(self) -> None: ...


class Save(Words, Committer):
    pass


class Streams(Words):
    output_streams: Mapping[str, Stream | Fields] = {
        "errors": Fields("line string"),
        "picked": Stream(WORD, direct=True),
    }


class Split(BasicBolt):
    output_fields = WORD

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None: ...


class Columns(ArrowBolt):
    output_fields = WORD

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None: ...

    def execute(self, batch: pa.RecordBatch) -> None: ...

    def finish_batch(self) -> None: ...


class Holding(Words):
    """A bolt with whatever it is given, to be pickled or not."""

    def __init__(self, held: object) -> None:
        self.held = held


class ToFirst(CustomStreamGrouping):
    def __init__(self, held: object = None) -> None:
        self.held = held

    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        return [0]


def builder(*, opaque: bool = False) -> TransactionalTopologyBuilder:
    kind = OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout
    return TransactionalTopologyBuilder("words", "spout", kind({0: [["a"]]}, WORD, 1))


def refused(define: Definition, message: str, **options: Any) -> TopologyError:
    made = builder(**options)
    with pytest.raises(TopologyError, match=message) as caught:
        build(made, define)
    return caught.value


def build(made: TransactionalTopologyBuilder, define: Definition) -> Topology:
    define(made)
    return made.build_topology()
