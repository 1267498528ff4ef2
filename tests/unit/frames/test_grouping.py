"""Spark's partial aggregates are those of Python, for the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from txtopo.frames.plan import FrameAggregate
from txtopo.frames.run import grouped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_rows_that_take_others_back_count_against_them(spark: SparkSession) -> None:
    rows = [("a", 5, False), ("a", 7, None), ("a", 5, True), ("b", 2, True), ("b", None, True)]
    frame = spark.createDataFrame(rows, "word string, n int, gone boolean")
    columns = {
        "rows": ("count", None, "long"),
        "known": ("count", "n", "long"),
        "total": ("add", "n", "long"),
    }
    aggregate = FrameAggregate("sums", ("spout",), ("word",), columns, "gone")  # type: ignore[arg-type]

    writes = grouped(aggregate, frame)

    assert writes.operators == ("add", "add", "add")
    assert [type.simpleString() for type in (f.dataType for f in writes.frame.schema)] == [
        "string",
        "bigint",
        "bigint",
        "bigint",
    ]
    found = {word: tuple(rest) for word, *rest in writes.frame.collect()}
    assert found == {"a": (1, 1, 7), "b": (-2, -1, -2)}


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("rows", [[-0.0], [0.0, -0.0], [-0.0, 0.0]])
def test_no_aggregate_of_spark_holds_the_sign_of_a_zero(
    spark: SparkSession, kind: str, rows: list[float]
) -> None:
    frame = spark.createDataFrame([(x,) for x in rows], f"x {kind}").coalesce(1)
    columns = {operator: (operator, "x", kind) for operator in ("min", "max", "add")}
    aggregate = FrameAggregate("zeros", ("spout",), (), columns)  # type: ignore[arg-type]

    (row,) = grouped(aggregate, frame).frame.collect()

    assert repr(tuple(row)[1:]) == "(0.0, 0.0, 0.0)"
