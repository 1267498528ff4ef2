"""The spout whose batches Spark reads as DataFrames: DataFrameTransactionalSpout."""

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
from txtopo.spouts.spout import HasReplays, TransactionalCoordinator
from txtopo.tuples import Fields, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Plan = TransactionalCoordinator | Callable[[Config, TaskContext], TransactionalCoordinator]
"""A coordinator part, which each start copies, or a function that makes one, e.g. its class."""
Read = Callable[["SparkSession", TransactionAttempt, Json], "DataFrame"]
"""(session, attempt, metadata) -> the rows of the batch."""


class DataFrameTransactionalSpout(HasReplays):
    """Reads each batch with Spark, from the range that its metadata names.

    Delivery: transactional, as ``TransactionalSpout``. The same metadata must always return the
    same rows; states of both kinds are then exactly once. A range of a table that changes is not
    enough: put the version, the files or the keys into the metadata. If data is lost before its
    txid is committed, *read* must raise ``SourceDataLost``, which stops the run.

    A :class:`~txtopo.bolts.bolt.DataFrameBolt` downstream extends the plan in the JVM; any other
    bolt receives the rows as tuples. The topology processes one txid per job, with the carrier
    ``dataframe``.

    Args:
        plan: The coordinator part: a ``TransactionalCoordinator``, which each start copies, or
            ``plan(config, context)``, which makes one. Called in the driver.
        read: ``read(spark, attempt, metadata)`` returns a DataFrame with the declared fields, by
            name. Called in the driver, once per attempt, possibly for several batches at a time. It
            should only build a plan: work that it does itself cannot be cancelled.
        fields: The fields of the rows; optional if a subclass has ``output_fields``.

    Example:
        >>> from txtopo.plugins.spouts import TransactionalCoordinator
        >>> from txtopo.spouts import DataFrameTransactionalSpout
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
            f"{name} of a DataFrameTransactionalSpout is not a function; got {function!r:.100}; "
            f"expected {expected}{also}",
            setting=name,
            got=f"{function!r:.100}",
            expected=expected,
        )
    try:
        inspect.signature(function).bind(*arguments)
    except ValueError:
        return  # a function in C has no signature to look at
    except TypeError as error:
        raise TopologyError(
            f"{name} of a DataFrameTransactionalSpout does not fit its call; got "
            f"{name}{inspect.signature(function)}; expected {expected}",
            setting=name,
            got=f"{name}{inspect.signature(function)}",
            expected=expected,
        ) from error
