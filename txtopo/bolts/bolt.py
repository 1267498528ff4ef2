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

    Delivery: its output counts in exactly one committed txid, but a tuple may be processed several
    times. In a topology of ``TopologyBuilder``: at least once; emitted tuples are anchored to the
    input, which is acked after ``execute`` and failed by ``FailedException``.

    Who calls it: the framework, in a Spark task (or in the driver, downstream of a committer), on
    one thread: ``prepare`` once, ``execute`` for each tuple, ``cleanup`` once. Each task of each
    attempt has a fresh copy of the prototype; in a topology of ``TopologyBuilder``, each task has
    one. The prototype must be picklable; open clients in ``prepare``.

    Not guaranteed: that ``cleanup`` is called when the task is lost.

    Attributes:
        output_fields: The fields of the default stream.
        output_streams: The other streams, by name.
        tick_interval_s: In a topology of ``TopologyBuilder``, the bolt receives a tick
            (:func:`txtopo.is_tick`) at this interval in seconds; None for no ticks.
        needs_planned_time: Whether each batch stores the time at which it was planned, for
            ``context.planned_time``.
        writes_nowhere_else: Whether the bolt declares that it writes only to its states; see
            :class:`Committer`. It matters only in the commit phase.
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

    Delivery: its output counts in exactly one committed txid, but a batch may be processed several
    times. Effects other than its output and its states are not undone.

    Who calls it: the framework, in a Spark task (in the driver, if it is a committer of parallelism
    1, or downstream of one), on one thread: ``prepare`` once, ``execute`` for each tuple,
    ``finish_batch`` once, even if there was no tuple. Each task of each attempt has a fresh copy of
    the prototype, which must be picklable. Attributes that it sets on itself are lost after the
    batch.

    Not guaranteed: the order of tuples from different tasks; that ``finish_batch`` is called when
    the attempt fails.

    Attributes:
        output_fields: The fields of the default stream.
        output_streams: The other streams, by name.
        needs_planned_time: Whether each batch stores the time at which it was planned, for
            ``context.planned_time``.
        writes_nowhere_else: Whether the bolt declares that it writes only to its states; see
            :class:`Committer`. It matters only in the commit phase.
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
        """Finish the batch: all of its tuples have arrived, and this is the last chance to emit."""


class ArrowBolt(HasTraits, ABC):
    """A :class:`~txtopo.bolts.bolt.BatchBolt` whose input and output are record batches.

    Delivery and calls: as for ``BatchBolt``. Not guaranteed: how the tuples are divided into record
    batches; an empty batch has none. If pyarrow has a function for the work, it is ten to a hundred
    times faster than tuple by tuple.

    Attributes:
        output_fields: The fields of the default stream.
        output_streams: The other streams, by name.
        needs_planned_time: Whether each batch stores the time at which it was planned, for
            ``context.planned_time``.
        writes_nowhere_else: Whether the bolt declares that it writes only to its states; see
            :class:`Committer`. It matters only in the commit phase.
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

        Override it if the bolt must know which input the tuples are from.
        """
        self.execute(batch)

    @abstractmethod
    def finish_batch(self) -> None:
        """Finish the batch: all of its tuples have arrived, and this is the last chance to emit."""


class Committer:
    """Marks a batch bolt that runs in the commit phase (Storm ``ICommitter``).

    The commit phase of a txid begins when every earlier txid is committed. All methods of a
    committer run in it, and so do all bolts downstream, so do heavy work upstream. A committer gets
    its states with ``context.state(name)``, and writes in ``state.transaction(attempt)``: then a
    txid that is committed twice counts once.

    A committer may also write to its own database, and skip a txid that is already there, as
    Storm's documentation shows. So a topology with your own bolts in the commit phase commits one
    txid at a time: once ``execute`` is called for a txid, no earlier one is repeated. Right before
    ``prepare`` and ``finish_batch``, and from time to time between tuples, the leader asks
    ZooKeeper whether it still leads. ``docs/how-to/own-database.md`` describes the condition that
    your transaction needs.

    If your bolt writes only to its states, set ``writes_nowhere_else = True`` in its class or on
    the object. Once all of your bolts in the commit phase (committers, and bolts downstream of one)
    have it, waiting txids are committed in groups, which is faster.
    """


class DataFrameBolt(HasTraits):
    """A bolt that transforms the rows of a batch with a Spark plan; no row leaves the JVM.

    Delivery: its output counts in exactly one committed txid, but it may be computed several times
    for a batch. All bolts that subscribe to it see the same rows, even if the plan is not
    deterministic, unless an executor is lost. Spark then recomputes lost partitions, and may return
    other rows if the plan uses, for example, a UDF that reads the clock, or ``limit`` without an
    order. So write deterministic plans.

    It subscribes to a ``DataFrameTransactionalSpout`` or another DataFrame bolt, with
    ``shuffle_grouping`` or ``none_grouping``. It has no parallelism, because the plan divides the
    rows. Several inputs must have the same fields; their frames are united by column name.

    Who calls it: the framework, in the driver, on any thread, possibly for several batches at a
    time; each attempt has a fresh copy of the prototype. The prototype must be picklable, so keep
    no session or DataFrame in it; a frame has its ``sparkSession``.

    A committer, ``class X(DataFrameBolt, Committer)``, has a method ``commit(frame, attempt)``. It
    is called in the commit phase, in txid order, with the frame that ``transform`` returned in the
    processing phase. It emits nothing. Its states must accept frames (see
    :class:`~txtopo.plugins.stores.FrameBackend`).

    Attributes:
        writes_nowhere_else: Whether a committer declares that it writes only to its states.
            Otherwise, the leader asks ZooKeeper right before ``commit`` whether it still leads.

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

        A committer can use its states, ``context.state(name)``, only in the commit phase.
        """

    def transform(self, frame: DataFrame, attempt: TransactionAttempt) -> DataFrame:
        """Return the frame that this bolt emits, with the declared fields, by name.

        A committer that does not define it commits its input.

        Raises:
            FailedException: To fail the batch; it is replayed.
        """
        return frame
