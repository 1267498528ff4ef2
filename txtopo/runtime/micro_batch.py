"""Micro-batches: their rows, spread over all slots.

Each slot has to run, since each says what it took part in. But where Spark sees that a plan has no
rows, when it optimizes it or while it runs (adaptive execution), it leaves out all that follows. So
rows that stand for nothing go with a micro-batch, and are dropped where it comes in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NOTHING = "stands for nothing"


def spread(frame: DataFrame, slots: int) -> DataFrame:
    """Return the rows of *frame*, and one that stands for nothing, in so many Spark partitions."""
    from pyspark.sql import functions as sf

    nulls = [sf.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema]
    nothing = frame.sparkSession.range(1).select(*nulls, sf.lit(True).alias(_NOTHING))
    return frame.select("*", sf.lit(False).alias(_NOTHING)).union(nothing).repartition(slots)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a micro-batch without those that stand for nothing."""
    for batch in batches:
        *columns, nothing = batch.columns
        rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(batch.schema)[:-1]))
        if pc.any(nothing).as_py():
            rows = rows.filter(pc.invert(nothing))
        if rows.num_rows:
            yield rows
