"""A state as a DataFrame of Spark: through Arrow with exact types, or read by Spark from Delta."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from txtopo import Fields, Mean, open_state
from txtopo.testing.conformance.driver import StateDriver, named, putting
from txtopo.testing.conformance.value_suites import VALUES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = [*VALUES, "json"]
EVERY = Fields(", ".join(f"`c {at}` {kind}" for at, kind in enumerate(TYPES)))
# What Spark calls them.
NAMES = {"byte": "tinyint", "short": "smallint", "long": "bigint", "json": "string"}


@pytest.fixture(params=["UTC", "America/New_York"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> SparkSession:
    """A session of the test's own, in two zones."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", request.param)
    return session


def test_every_type_is_the_same_in_spark(session: SparkSession) -> None:
    state = open_state("memory:", table="every", key=Fields("`a key` int"), value=EVERY)
    rows = {0: (*(values[0] for values in VALUES.values()), {"a": [1]}), 1: (None,) * len(TYPES)}
    StateDriver(state).run(1, putting(rows))

    with state.reader() as reader:
        frame = reader.to_spark(session)

    types = [field.dataType.simpleString() for field in frame.schema.fields[1:]]
    assert types == [NAMES.get(kind, kind) for kind in TYPES]
    assert frame.columns == ["a key", *EVERY.names]
    # Spark brings a time to Python in the zone of this process, so times are compared as text.
    found = {row["a key"]: row for row in frame.collect()}
    for at, kind in enumerate(TYPES):
        assert found[1][f"c {at}"] is None
        if kind == "json":
            assert found[0][f"c {at}"] == '{"a":[1]}'
        elif not kind.startswith("timestamp"):
            assert found[0][f"c {at}"] == rows[0][at]
    at, wall = (TYPES.index(kind) for kind in ("timestamp", "timestamp_ntz"))
    told = frame.where("`a key` = 0").selectExpr(
        f"unix_micros(`c {at}`) AS instant", f"CAST(`c {wall}` AS string) AS wall"
    )
    (row,) = told.collect()
    noon = datetime.datetime(2013, 7, 4, 12, 30, 15, 123456, tzinfo=datetime.UTC)
    micros = (noon - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(
        microseconds=1
    )
    assert (row["instant"], row["wall"]) == (micros, "2013-07-04 12:30:15.123456")


def test_a_mean_in_spark_is_that_of_the_reader(spark: SparkSession) -> None:
    state = open_state("memory:", table="means").with_columns(
        Fields("key string"),
        Fields("x_sum long, x_count long"),
        (*Mean("x").columns("x").values(),),
    )
    StateDriver(state).merge(1, [("a", 1, 2), ("b", None, 0)])

    with state.reader() as reader:
        frame = reader.to_spark(spark)

    assert {tuple(row) for row in frame.collect()} == {("a", 0.5), ("b", None)}


def test_an_empty_state_is_an_empty_frame(spark: SparkSession) -> None:
    state = open_state("memory:", table="counts")
    StateDriver(state)

    with state.reader() as reader:
        frame = reader.to_spark(spark)

    assert frame.collect() == []
    assert frame.schema.simpleString() == "struct<key:string,value:bigint>"


@pytest.mark.integration
def test_a_state_in_delta_without_writer_spark_needs_no_jars(
    spark: SparkSession, tmp_path: Path
) -> None:
    state = open_state(f"delta:///{tmp_path}/states", table="counts")
    StateDriver(state).run(1, putting({"a": 1}))

    with state.reader() as reader:
        assert [
            named(Fields("key string, value long"), *row)
            for row in reader.to_spark(spark).collect()
        ] == [{"key": "a", "value": 1}]
