"""Partial aggregates of a batch by Spark's own ``groupBy``, for stores that take frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo.bolts.persistent_aggregate import GLOBAL_KEY
from txtopo.errors import ConfigError
from txtopo.stages.program import FrameAggregate, Kind
from txtopo.state.aggregates import Operator
from txtopo.state.frames import FrameWrites

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ANSI = "spark.sql.ansi.enabled"


def grouped(aggregate: FrameAggregate, frame: DataFrame) -> FrameWrites:
    """Return the partial aggregates of a batch, one row for each key.

    Raises:
        ConfigError: The session lets sums wrap.
    """
    from pyspark.sql import functions

    if str(frame.sparkSession.conf.get(ANSI)).lower() != "true":
        raise ConfigError(
            f"the session lets sums wrap; got {ANSI}=false; expected true, Spark's default; set it "
            "where the session is built"
        )
    keys = [functions.col(f"`{name}`") for name in aggregate.key]
    if not keys:
        keys = [functions.lit(GLOBAL_KEY).alias("key")]
    columns = [
        _column(kind, field, _SPARK_TYPES.get(stored, stored), aggregate.retracted).alias(name)
        for name, (kind, field, stored) in aggregate.columns.items()
    ]
    kinds = [kind for kind, _, _ in aggregate.columns.values()]
    operators: list[Operator] = ["add" if kind == "count" else kind for kind in kinds]
    return FrameWrites(frame.groupBy(*keys).agg(*columns), tuple(operators))


_SPARK_TYPES = {"long": "bigint", "short": "smallint", "byte": "tinyint"}


def _column(kind: Kind, field: str | None, stored: str, retracted: str | None) -> Column:
    from pyspark.sql import functions

    column = functions.lit(1) if field is None else functions.col(f"`{field}`")
    if retracted is not None:
        # What is counted is summed, so that a row that is taken back is one less.
        if kind == "count":
            kind, column = "add", functions.when(column.isNotNull(), 1).otherwise(0)
        assert kind == "add", "minima and maxima are refused by the bolt"
        column = column.cast(stored)
        column = functions.when(functions.col(f"`{retracted}`"), -column).otherwise(column)
    if kind == "count":
        return functions.count(column).cast(stored)
    by_operator = {"add": functions.sum, "min": functions.min, "max": functions.max}
    # The stored type may be wider: a sum of whole numbers that is kept for a mean has 38 digits.
    return by_operator[kind](column.cast(stored)).cast(stored)
