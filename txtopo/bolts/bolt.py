"""The bolts that users subclass: who calls each method, where and how often, what they promise.

* :class:`BasicBolt`: one tuple in, tuples out. At-least-once topologies take it as well.
* :class:`BatchBolt`: sees a whole batch; :class:`ArrowBolt`: the same, in columns.
* :class:`DataFrameBolt`: a plan of Spark's.
* :class:`Committer`: marks a bolt that runs in the commit phase.

Prove a topology with :func:`txtopo.testing.simulate`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.collector import ArrowOutputCollector, BatchOutputCollector
from txtopo.config import AnyConfig, Config
from txtopo.context import FrameContext, TaskContext
from txtopo.traits import HasTraits
from txtopo.tuples import Fields, Stream, Tuple

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class BasicBolt(HasTraits, ABC):
    """A bolt that turns each tuple into tuples and keeps nothing (Storm ``IBasicBolt``).

    Delivery: its output counts in exactly one committed txid, but it may process a tuple several
    times. In a topology of ``TopologyBuilder``: at least once; the tuples that it emits are
    anchored to its input, which is acked after ``execute`` and failed by ``FailedException``.

    Who calls it: the framework, in a Spark task (or in the driver, below a committer), on one
    thread: ``prepare`` once, ``execute`` for each tuple, ``cleanup`` once. Each task of each
    attempt has a fresh copy of the prototype; in a topology of ``TopologyBuilder``, each task. The
    prototype must be picklable; open clients in ``prepare``.

    Not guaranteed: that ``cleanup`` is called when the task is lost.

    Attributes:
        output_fields: The fields of the default stream.
        output_streams: The other streams, by name.
        tick_interval_s: In a topology of ``TopologyBuilder`` the bolt gets a tick
            (:func:`txtopo.is_tick`) at this interval in seconds; None for no ticks.
        needs_planned_time: Whether each batch keeps the time at which it was planned, for
            ``context.planned_time``.
        writes_nowhere_else: Whether it declares that it writes to its states and to nothing else;
            see :class:`Committer`. It counts in the commit phase only.
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}
    tick_interval_s: float | None = None
    writes_nowhere_else: bool = False

    def prepare(self, config: AnyConfig, context: TaskContext) -> None:
        """Get ready; called once for each copy."""

    @abstractmethod
    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        """Process one tuple.

        Raises:
            FailedException: To fail the batch, which is replayed. Any other exception ends the
                run.
        """

    def cleanup(self) -> None:
        """Release what ``prepare`` opened."""


class BatchBolt(HasTraits, ABC):
    """A bolt that sees a whole batch (Storm ``IBatchBolt``).

    Delivery: its output counts in exactly one committed txid, but it may process a batch several
    times. Effects outside of its output and its states are not undone.

    Who calls it: the framework, in a Spark task (in the driver, if it is a committer of parallelism
    1 or below one), on one thread: ``prepare`` once, ``execute`` for each tuple, ``finish_batch``
    once, also when there was no tuple. Each task of each attempt has a fresh copy of the prototype,
    which must be picklable. Attributes that it sets on itself are gone after the batch.

    Not guaranteed: the order of tuples from different tasks; that ``finish_batch`` is called when
    the attempt fails.

    Attributes:
        output_fields: The fields of the default stream.
        output_streams: The other streams, by name.
        needs_planned_time: Whether each batch keeps the time at which it was planned, for
            ``context.planned_time``.
        writes_nowhere_else: Whether it declares that it writes to its states and to nothing else;
            see :class:`Committer`. It counts in the commit phase only.
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}
    writes_nowhere_else: bool = False

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
        """Finish the batch: all of its tuples have come; this is the last chance to emit."""


class ArrowBolt(HasTraits, ABC):
    """A :class:`~txtopo.bolts.bolt.BatchBolt` whose tuples come and go as record batches.

    Delivery and calls: as ``BatchBolt``. Not guaranteed: how the tuples are divided into record
    batches; for an empty batch there is none. It is ten to a hundred times faster than tuples where
    pyarrow has a function for the work.

    Attributes:
        output_fields: The fields of the default stream.
        output_streams: The other streams, by name.
        needs_planned_time: Whether each batch keeps the time at which it was planned, for
            ``context.planned_time``.
        writes_nowhere_else: Whether it declares that it writes to its states and to nothing else;
            see :class:`Committer`. It counts in the commit phase only.
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}
    writes_nowhere_else: bool = False

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

    def execute_from(self, component: str, stream: str, batch: pa.RecordBatch) -> None:
        """Process some tuples of this stream of this component; calls :meth:`execute` by default.

        Override it if the bolt must know which of its inputs the tuples are from.
        """
        self.execute(batch)

    @abstractmethod
    def finish_batch(self) -> None:
        """Finish the batch: all of its tuples have come; this is the last chance to emit."""


class Committer:
    """Marks a batch bolt that runs in the commit phase (Storm ``ICommitter``).

    The commit phase of a txid begins when every earlier txid is committed. All methods of a
    committer run in it, and so does every bolt below it, so heavy work belongs above. A committer
    gets its states with ``context.state(name)``, and writes in
    ``state.transaction(attempt)``: a txid that is committed twice then counts once.

    It may also write to a database of its own, and skip a txid that this holds already, as Storm's
    documentation shows. So a topology with a bolt of yours in the commit phase commits one txid at
    a time: once ``execute`` is called for a txid, none before it comes again. Right before
    ``prepare`` and ``finish_batch``, and between tuples when that was a while ago, the leader asks
    ZooKeeper whether it still leads. ``docs/how-to/own-database.md`` has the condition that your
    transaction needs.

    A bolt that writes to its states and nowhere else says so, ``writes_nowhere_else = True`` in its
    class or on the object. Txids that wait are then committed in groups, which is faster. So must
    every other bolt of yours in the commit phase, whether it is a committer or below one.
    """


class DataFrameBolt(HasTraits):
    """A bolt that transforms the rows of a batch with a plan of Spark's; no row leaves the JVM.

    Delivery: its output counts in exactly one committed txid, but it may be computed several times
    for a batch. All bolts that subscribe to it see the same rows, even if the plan depends on
    chance. Not guaranteed: the same after the loss of an executor. Spark then computes lost
    partitions again, and a plan that gives other rows (a UDF that reads the clock, ``limit``
    without an order) is not repaired. Write deterministic plans.

    It goes below a ``DataFrameTransactionalSpout`` or another DataFrame bolt, with
    ``shuffle_grouping`` or ``none_grouping``. It has no parallelism, since the plan divides the
    rows. The frames of several inputs with the same fields are united by column name.

    Who calls it: the framework, in the driver, on any thread, perhaps for several batches at a
    time; each attempt has a fresh copy of the prototype. The prototype must be picklable, so keep
    no session or DataFrame in it; a frame has its ``sparkSession``.

    A committer, ``class X(DataFrameBolt, Committer)``, has a method ``commit(frame, attempt)``. It
    is called in the commit phase, in txid order, with the frame that ``transform`` made in the
    processing phase. It emits nothing. Its states must take frames (see
    :class:`~txtopo.plugins.stores.FrameBackend`).

    Attributes:
        writes_nowhere_else: Whether a committer declares that it writes to its states and to
            nothing else. Otherwise the leader asks ZooKeeper whether it still leads, right before
            ``commit``.

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
    writes_nowhere_else: bool = False

    def prepare(self, config: Config, context: FrameContext) -> None:
        """Get ready for one attempt; called before ``transform``, and again before ``commit``.

        A committer can use its states, ``context.state(name)``, in the commit phase only.
        """

    def transform(self, frame: DataFrame, attempt: TransactionAttempt) -> DataFrame:
        """Return the frame that this bolt emits, with the declared fields, by name.

        A committer may leave it out; it then commits its input.

        Raises:
            FailedException: To fail the batch; it is replayed.
        """
        return frame
