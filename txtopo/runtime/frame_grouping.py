"""Partial aggregates of a batch by Spark's own ``groupBy``, for stores that take frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo.bolts.persistent_aggregate import GLOBAL_KEY
from txtopo.errors import ConfigError
from txtopo.planning.frame_plan import FrameAggregate
from txtopo.state.aggregates import Operator
from txtopo.state.frames import FrameWrites

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OPERATORS: dict[str, Operator] = {"Min": "min", "Max": "max"}
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
        _column(kind, field).cast(_SPARK_TYPES.get(stored, stored)).alias(name)
        for name, (kind, field, stored) in aggregate.columns.items()
    ]
    operators = tuple(_OPERATORS.get(kind, "add") for kind, _, _ in aggregate.columns.values())
    return FrameWrites(frame.groupBy(*keys).agg(*columns), operators)


_SPARK_TYPES = {"long": "bigint", "short": "smallint", "byte": "tinyint"}


def _column(kind: str, field: str | None) -> Column:
    from pyspark.sql import functions

    if field is None:
        return functions.count(functions.lit(1))
    column = functions.col(f"`{field}`")
    by_kind = {
        "Count": functions.count,
        "Sum": functions.sum,
        "Min": functions.min,
        "Max": functions.max,
    }
    return by_kind[kind](column)
