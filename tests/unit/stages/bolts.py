"""Bolts of tests. They live in a module of their own, so that their copies share its globals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tests.unit.stages.running import record
from txtopo.bolts.bolt import ArrowBolt, BasicBolt, BatchBolt
from txtopo.errors import FailedException
from txtopo.tuples import Fields, Stream, Tuple

Error = BaseException | Callable[[], BaseException]
"""An exception, or what makes one when it is raised."""


class Recorder(BatchBolt):
    """Records (component, task, txid, values) of what it gets, and passes it on."""

    def __init__(self, fields: str | None = None) -> None:
        self.output_fields = Fields(fields) if fields else None

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.context, self.collector, self.attempt = context, collector, attempt

    def execute(self, tuple: Tuple) -> None:
        where = (self.context.component_id, self.context.task_index, self.attempt.txid)
        assert tuple.attempt == self.attempt
        record(*where, tuple.source_component, tuple.source_task, *tuple.values)
        if self.output_fields:
            self.collector.emit(tuple.values)

    def finish_batch(self) -> None:
        pass


class Counter(BatchBolt):
    """Emits how many tuples it got."""

    output_fields = Fields("count long")

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.count = collector, 0

    def execute(self, tuple: Tuple) -> None:
        self.count += 1

    def finish_batch(self) -> None:
        self.collector.emit([self.count])


class Pass(BasicBolt):
    """Passes on what it gets."""

    def __init__(self, fields: str) -> None:
        self.output_fields = Fields(fields)

    def execute(self, tuple: Tuple, collector: Any) -> None:
        collector.emit(tuple.values)


class ArrowPass(ArrowBolt):
    """Passes on what it gets, as record batches."""

    def __init__(self, fields: str) -> None:
        self.output_fields = Fields(fields)

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector = collector

    def execute(self, batch: pa.RecordBatch) -> None:
        assert 0 < batch.num_rows <= 10_000
        self.collector.emit(batch)

    def finish_batch(self) -> None:
        pass


class Raiser(BatchBolt):
    """Passes on numbers; raises *error* in one place of one txid, in one task."""

    output_fields = Fields("n long")

    def __init__(self, place: str, txid: int, error: Error, task: int = 0) -> None:
        self.where, self.error = (place, txid, task), error

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.task, self.txid = collector, context.task_index, attempt.txid
        self.reach("prepare")

    def execute(self, tuple: Tuple) -> None:
        self.reach("execute")
        self.collector.emit(tuple.values)

    def finish_batch(self) -> None:
        self.reach("finish_batch")

    def reach(self, place: str) -> None:
        if (place, self.txid, self.task) == self.where:
            raise self.error if isinstance(self.error, BaseException) else self.error()


class Misbehaving(BatchBolt):
    """Emits something that it has not declared."""

    output_fields = Fields("n long, word string")
    output_streams = {"direct": Stream(Fields("n long"), direct=True)}  # noqa: RUF012

    def __init__(self, values: Any, stream: str = "default", task: int | None = None) -> None:
        self.values, self.stream, self.to_task = values, stream, task

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector = collector

    def execute(self, tuple: Tuple) -> None:
        pass

    def finish_batch(self) -> None:
        if self.to_task is not None:
            self.collector.emit_direct(self.to_task, self.values, stream=self.stream)
        else:
            self.collector.emit(self.values, stream=self.stream)


class Failing(FailedException):
    """A failure that cannot be pickled; its class can."""

    def __init__(self) -> None:
        super().__init__("no disk")

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle it")
