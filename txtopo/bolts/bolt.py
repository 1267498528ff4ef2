"""Bolt: lives long, holds tuples as long as it likes, and answers for each of them.

BasicBolt: one tuple in, tuples out.

BatchBolt: a fresh bolt for each batch, told when the batch is complete.

ArrowBolt: a batch bolt that works on columns.

Committer: the marker of bolts that run in the commit phase.

DataFrameBolt: a bolt that is a Spark plan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.collector import ArrowOutputCollector, BatchOutputCollector, OutputCollector
from txtopo.config import Config
from txtopo.context import FrameContext, TaskContext
from txtopo.tuples import Fields, Stream, Tuple

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class Bolt(ABC):
    """A bolt of an at-least-once topology (Storm ``IRichBolt``).

    Delivery: at least once. A tuple is processed again when its tree failed or timed out, also when
    this bolt had processed it; what it does with a tuple should not mind being done twice.

    Who calls it: the framework, in the slot of the task, on one thread that never changes:
    ``prepare`` once in a slot's life, then ``execute`` for each tuple, ``cleanup`` when the run
    stops. Each task has a copy of the prototype, which must be picklable; open clients in
    ``prepare``. What it keeps on itself stays from call to call, and is lost with its slot: the
    trees of the tuples that it held time out, and their spout brings them again. Not guaranteed:
    that ``cleanup`` runs when a slot is lost; what it raises is told to listeners
    (``ErrorReported``). The collector is for that thread only: let threads of your own put what
    they have done into a queue, and ack what is in it in ``execute``, on a tick at the latest.

    Attributes:
        tick_interval_s: Every so many seconds the bolt is given a tick (:func:`txtopo.is_tick`).
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}
    tick_interval_s: float | None = None

    @abstractmethod
    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        """Get ready; keep the collector."""

    @abstractmethod
    def execute(self, tuple: Tuple) -> None:
        """Process one tuple: emit what follows from it, then ack it; or keep it and ack it later.

        Raises:
            FailedException: To fail this tuple. Any other exception ends the run.
        """

    def cleanup(self) -> None:  # noqa: B027 - optional hook
        """Release what ``prepare`` opened."""


class BasicBolt(ABC):
    """A bolt that turns each tuple into tuples and keeps nothing (Storm ``IBasicBolt``).

    Delivery: its output counts in exactly one committed txid; it may run several times on a tuple.
    In a topology of ``TopologyBuilder``: at least once. What it emits is anchored to its input,
    which is acked after ``execute``; ``FailedException`` fails the input.

    Who calls it: the framework, in a Spark task (or in the driver, below a committer), one thread;
    a fresh copy of the prototype for each task of each attempt (for each task, in a topology of
    ``TopologyBuilder``): ``prepare`` once, ``execute`` for each tuple, ``cleanup`` once. The
    prototype must be picklable; open clients in ``prepare``.
    Not guaranteed: that ``cleanup`` runs when the task dies.

    Attributes:
        tick_interval_s: In a topology of ``TopologyBuilder``: every so many seconds the bolt is
            given a tick (:func:`txtopo.is_tick`).
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}
    tick_interval_s: float | None = None

    def prepare(self, config: Config, context: TaskContext) -> None:  # noqa: B027 - optional hook
        """Get ready for one attempt."""

    @abstractmethod
    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        """Process one tuple.

        Raises:
            FailedException: To fail the batch; it is replayed.
        """

    def cleanup(self) -> None:  # noqa: B027 - optional hook
        """Release what ``prepare`` opened."""


class BatchBolt(ABC):
    """A bolt that sees a whole batch (Storm ``IBatchBolt``).

    Delivery: its output counts in exactly one committed txid; it may run several times on a batch.

    Who calls it: the framework, in a Spark task (or in the driver, as a committer of parallelism 1
    and below one), one thread; a fresh copy of the prototype for each task of each attempt:
    ``prepare`` once, ``execute`` for each tuple, ``finish_batch`` once, also when there was no
    tuple. The prototype must be picklable; what it sets on itself is gone after the batch.
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}

    @abstractmethod
    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""

    @abstractmethod
    def execute(self, tuple: Tuple) -> None:
        """Process one tuple.

        Raises:
            FailedException: To fail the batch; it is replayed.
        """

    @abstractmethod
    def finish_batch(self) -> None:
        """Take note that all tuples of the batch have come; the last chance to emit."""


class ArrowBolt(ABC):
    """A :class:`~txtopo.bolts.bolt.BatchBolt` whose tuples come and go as record batches.

    Delivery and calls: as ``BatchBolt``. How tuples are divided into record batches is not
    promised; an empty batch brings none. Ten to a hundred times faster than tuples where pyarrow
    has a function for the work.
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}

    @abstractmethod
    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""

    @abstractmethod
    def execute(self, batch: pa.RecordBatch) -> None:
        """Process some tuples of one stream; the columns are its declared fields.

        Raises:
            FailedException: To fail the batch; it is replayed.
        """

    @abstractmethod
    def finish_batch(self) -> None:
        """Take note that all tuples of the batch have come; the last chance to emit."""


class Committer:
    """Marks a batch bolt that runs in the commit phase (Storm ``ICommitter``).

    The commit phase of a txid begins when every earlier txid is committed. ``prepare``,
    ``execute`` and ``finish_batch`` of a committer all run in it, as does every bolt below it, so
    heavy work belongs upstream. A committer reaches its states with ``context.state(name)``.
    """


class DataFrameBolt:
    """A bolt that turns the rows of a batch into others by a Spark plan; no row leaves the JVM.

    Delivery: its output counts in exactly one committed txid; it may be computed several times for
    a batch. All who subscribe to it see the same rows, also where the plan depends on chance. Not
    guaranteed is that after the loss of an executor: Spark computes lost partitions again, and a
    plan that gives other rows then (a UDF that depends on the clock, ``limit`` without an order) is
    not repaired. Write deterministic plans.

    It stands below a ``DataFrameTransactionalSpout`` or other DataFrame bolts, with
    ``shuffle_grouping`` or ``none_grouping``: how rows are spread is the plan's affair, and it has
    no parallelism. The frames of several inputs with the same fields are united by column name.

    Who calls it: the framework, in the driver, on any thread, a fresh copy of the prototype for
    each attempt; several batches may be in the making at a time. The prototype must be picklable:
    sessions and DataFrames do not belong into it, a frame knows its ``sparkSession``.

    A committer, ``class X(DataFrameBolt, Committer)``, has a method ``commit(frame, attempt)``: it
    is called in txid order, in the commit phase, with what ``transform`` made in the processing
    phase. It emits nothing. Its states are such that take frames (see
    :class:`~txtopo.state.frames.FrameBackend`).

    Example:
        >>> class Totals(DataFrameBolt, Committer):
        ...     def prepare(self, config, context):
        ...         self.totals = context.state("totals")
        ...     def transform(self, frame, attempt):
        ...         return frame.groupBy("word").agg({"amount": "sum"}).toDF("word", "total")
        ...     def commit(self, frame, attempt):
        ...         with self.totals.transaction(attempt) as state:
        ...             state.merge(frame, {"total": "add"})
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}

    def prepare(self, config: Config, context: FrameContext) -> None:
        """Get ready for one attempt; called before ``transform``, and again before ``commit``.

        A committer reaches its states with ``context.state(name)``, in the commit phase alone.
        """

    def transform(self, frame: DataFrame, attempt: TransactionAttempt) -> DataFrame:
        """Return the plan of what this bolt emits: the declared fields, by name.

        A committer need not have it; it then commits what it gets.

        Raises:
            FailedException: To fail the batch; it is replayed.
        """
        return frame
