"""The DataFrame job of a batch, for the floor and for Structured Streaming."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.workloads import Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def counted(frame: DataFrame, workload: Workload) -> pa.Table:
    """Run the job of a batch and return its result."""
    if workload.kind == "global":
        # The length is there so that each word is decoded, not only its rows counted.
        return frame.selectExpr("count(*)", "sum(length(word))").toArrow()
    if workload.kind == "sentences":
        frame = frame.mapInArrow(split_batches, "word string")
    return frame.groupBy("word").count().toArrow()


def split_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Split sentences, as ``mapInArrow`` calls it."""
    return map(split, batches)


def split(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Split the sentences of a batch into words, in Python."""
    words = chain.from_iterable(sentence.split() for sentence in batch.column(0).to_pylist())
    return pa.RecordBatch.from_pydict({"word": pa.array(words, pa.string())})
