"""DataFrameBolt: a bolt that is a Spark plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.config import Config
from txtopo.context import FrameContext
from txtopo.tuples import Fields, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
