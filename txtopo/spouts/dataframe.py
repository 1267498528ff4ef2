"""DataFrameTransactionalSpout: batches that Spark reads, planned as ranges in the driver."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import TopologyError
from txtopo.metadata import Json
from txtopo.spouts.spout import TransactionalCoordinator
from txtopo.tuples import Fields, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Plan = TransactionalCoordinator | Callable[[Config, TaskContext], TransactionalCoordinator]
"""A coordinator part, copied for each start; or what makes one, e.g. its class."""
Read = Callable[["SparkSession", TransactionAttempt, Json], "DataFrame"]
"""(session, attempt, metadata) -> the rows of the batch."""


class DataFrameTransactionalSpout:
    """A source that Spark reads by range: the metadata of a batch names the range.

    Delivery: transactional, as ``TransactionalSpout``: the same metadata must bring the same rows,
    always, so both kinds of state are exactly once. If its data is gone before a txid is committed,
    the run stands still. A range that is read from a table that changes is not enough: name the
    version, the files or the keys in the metadata.

    Below it stand :class:`~txtopo.bolts.bolt.DataFrameBolt`, which go on with the plan in the
    JVM, and every other bolt, which gets the rows as tuples. Its topology processes one txid a job,
    on the carrier ``dataframe``.

    Args:
        plan: The coordinator part: a ``TransactionalCoordinator``, of which each start takes a
            copy, or ``plan(config, context)``, which makes one. Called in the driver.
        read: ``read(spark, attempt, metadata)`` returns a DataFrame with the declared fields, by
            name. Called in the driver, once per attempt, perhaps for several batches at a time; it
            should only make a plan, since what it computes itself cannot be cancelled.
        fields: What the rows are; may be left out where a subclass has ``output_fields``.

    Example:
        >>> from txtopo.spouts import DataFrameTransactionalSpout, TransactionalCoordinator
        >>> class Days(TransactionalCoordinator):
        ...     def is_ready(self, txid, last):
        ...         return txid <= 365
        ...     def initialize_transaction(self, txid, previous_metadata):
        ...         return {"day": txid}
        >>> def read(spark, attempt, metadata):
        ...     return spark.read.parquet(f"events/day={metadata['day']}")
        >>> spout = DataFrameTransactionalSpout(Days(), read, Fields("word string"))
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}

    def __init__(self, plan: Plan, read: Read, fields: Fields | None = None) -> None:
        if not isinstance(plan, TransactionalCoordinator):
            _check_call("plan", plan, "config", "context")
        _check_call("read", read, "spark", "attempt", "metadata")
        self._plan = plan
        self._read = read
        if fields is not None:
            self.output_fields = fields

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        """Return the planning part. Called by the framework in the driver, once per start."""
        if isinstance(self._plan, TransactionalCoordinator):
            return copy.deepcopy(self._plan)
        return self._plan(config, context)

    def read(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Json) -> DataFrame:
        """Return the rows of a batch. Called by the framework in the driver, once per attempt."""
        return self._read(spark, attempt, metadata)


def _check_call(name: str, function: object, *arguments: str) -> None:
    expected = f"{name}({', '.join(arguments)})"
    if not callable(function):
        also = " or a TransactionalCoordinator" if name == "plan" else ""
        raise TopologyError(
            f"{name} of a DataFrameTransactionalSpout is no function; got {function!r:.100}; "
            f"expected {expected}{also}"
        )
    try:
        inspect.signature(function).bind(*arguments)
    except ValueError:
        return  # a function in C has no signature to look at
    except TypeError as error:
        raise TopologyError(
            f"{name} of a DataFrameTransactionalSpout does not fit its call; got "
            f"{name}{inspect.signature(function)}; expected {expected}"
        ) from error
