"""Micro-batches that are not as one would write them, and queries that come in between."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from tests.unit.runtime.stream_words import (
    contents,
    ledger,
    query,
    state,
    words,
    write,
)
from txtopo import Fields, PersistentAggregate, TransactionalTopologyBuilder
from txtopo.errors import ConfigError, RunLostError, TopologyError
from txtopo.frames.foreach_batch import ForeachBatch
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.spouts import StreamSpout
from txtopo.state import Count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def frame(spark: SparkSession, **rows: int) -> DataFrame:
    return spark.createDataFrame(list(rows.items()), "word string, n long")


@pytest.fixture
def adaptive(spark: SparkSession) -> Any:
    """Adaptive execution, which is on in Spark's own defaults and off in the session of tests."""
    before = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    yield
    spark.conf.set("spark.sql.adaptive.enabled", str(before))


def test_a_batch_whose_plan_spark_finds_empty_is_committed(
    spark: SparkSession, tmp_path: Path, adaptive: None
) -> None:
    """It leaves out what follows: at once, or when a shuffle turns out to have no rows."""
    write_batch = words(tmp_path).foreach_batch(slots=2)
    full = frame(spark, a=1, b=2)
    while_it_runs = full.where("n > 5 + rand()").groupBy("word").sum("n").toDF("word", "n")

    write_batch(full.limit(0), 0)
    write_batch(while_it_runs.join(full.select("word").distinct(), "word"), 1)
    write_batch(full, 2)
    assert (ledger(tmp_path).txid, contents(tmp_path, "total")) == (3, {"a": 1, "b": 2})


class Intruding(ThreadScheduler):
    """Does something when a durable step is reached for the first time."""

    def __init__(self, step: str) -> None:
        super().__init__("intruding")
        self.step = step
        self.intrude: Callable[[], None] = lambda: None

    def point(self, name: str) -> None:
        if name == self.step:
            self.step = ""
            self.intrude()


def test_a_query_that_fails_leaves_the_run_of_another_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One function for two queries: the second one finds the tables taken, in between."""
    write(tmp_path, {"a": 1}, {"a": 2})
    scheduler = Intruding("begin.before:total.total")
    function = ForeachBatch(words(tmp_path).graph, "local", 2, scheduler=scheduler)
    refused = []

    def intrude() -> None:
        with pytest.raises(Exception, match="written by a query with another checkpoint") as told:
            query(spark, tmp_path, function, "other")
        refused.append(told)

    scheduler.intrude = intrude
    query(spark, tmp_path, function)
    assert refused
    assert contents(tmp_path, "total") == {"a": 3}
    assert ledger(tmp_path).epoch == 1, "its states stayed claimed"
    function.close()


def test_a_batch_of_a_query_that_has_ended_is_not_wanted(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Without its id the ledgers would not tell it from a batch of another checkpoint."""
    context = spark.sparkContext
    context.setLocalProperty("sql.streaming.queryId", str(uuid4()))
    try:
        with pytest.raises(RunLostError, match="is no longer active"):
            words(tmp_path).foreach_batch(carrier="local", slots=2)(frame(spark, a=1), 0)
    finally:
        context.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]
    assert not (tmp_path / "count.db").exists()


class Needy(StreamSpout):
    client_modules = ("no_such_client",)


def test_what_executors_lack_is_told_before_anything_is_claimed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = TransactionalTopologyBuilder("needy", "stream", Needy(Fields("word string")))
    count = PersistentAggregate(state(tmp_path, "count"), "word", Count())
    builder.set_bolt("count", count).fields_grouping("stream", "word")
    monkeypatch.setattr(spark.sparkContext, "master", "spark://elsewhere:7077")

    with pytest.raises(ConfigError, match="the workers cannot import no_such_client"):
        builder.build_topology().foreach_batch(slots=2)(frame(spark, a=1), 0)
    assert not (tmp_path / "count.db").exists()


def test_a_column_that_is_there_twice_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="columns of 'stream' more than once: n; got word, n, "):
        words(tmp_path).foreach_batch(carrier="local", slots=2)(
            frame(spark, a=1).selectExpr("*", "n"), 0
        )


def test_what_it_is_made_with_is_checked(tmp_path: Path) -> None:
    topology = words(tmp_path)

    with pytest.raises(ConfigError, match="slots must be a whole number"):
        topology.foreach_batch(slots=0)
    for id in ("", 5):
        with pytest.raises(ConfigError, match="continues is wrong"):
            topology.foreach_batch(continues=id)  # type: ignore[arg-type]


def test_it_does_not_travel_to_another_process(tmp_path: Path) -> None:
    """Spark Connect pickles it, and would say no more than that something cannot be pickled."""
    with pytest.raises(ConfigError, match="foreach_batch needs classic Spark"):
        pickle.dumps(words(tmp_path).foreach_batch())
