"""What a streaming query logs of its topology, and what Spark's log does not say of one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.runtime.kept_records import Kept, kept
from tests.unit.runtime.stream_words import contents, query, words, write
from txtopo.carriers.spark_jobs import ClassicLabels

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["kept"]

pytestmark = pytest.mark.spark
ACCUMULATOR = "org.apache.spark.api.python.PythonAccumulatorV2"


def test_a_streaming_query_logs_its_batches_and_its_failures(
    spark: SparkSession, tmp_path: Path, kept: Kept
) -> None:
    function = words(tmp_path).foreach_batch(carrier="local", slots=2)
    write(tmp_path, {"a": 1})
    query(spark, tmp_path, function)
    write(tmp_path, {"b": -2})
    for _ in range(2):
        with pytest.raises(Exception, match="negative"):
            query(spark, tmp_path, function)
    function.close()

    assert contents(tmp_path, "total") == {"a": 1}
    assert kept.lacking == []
    assert {vars(each)["topology"] for each in kept.records} == {"words"}
    assert "topology 'words': leads with epoch 1 and resumes at txid 1" in kept.at(logging.INFO)
    assert "topology 'words': leads with epoch 2 and resumes at txid 2" in kept.at(logging.INFO)
    debug = kept.at(logging.DEBUG)
    assert [each for each in debug if "of txid 1 is committed: 1 tuples" in each]
    assert not [each for each in debug if "of txid 2 is committed" in each]
    failed = [vars(each) for each in kept.records if each.levelno == logging.WARNING]
    facts = ("txid", "attempt", "component", "failures", "pause_s")
    assert [tuple(each[name] for name in facts) for each in failed] == [
        (2, 0, "halve", 1, None),
        (2, 0, "halve", 2, None),
    ]
    assert {each["cause"] for each in failed} == {"ValueError: negative: -2"}


@pytest.fixture
def told(spark: SparkSession) -> Iterator[Any]:
    """What Spark's root logger writes, in the driver's JVM."""
    jvm: Any = spark._jvm
    core = jvm.org.apache.logging.log4j.core
    writer = jvm.java.io.StringWriter()
    layout = core.layout.PatternLayout.createDefaultLayout()
    appender = core.appender.WriterAppender.createAppender(
        layout, None, writer, "txtopo-test", False, True
    )
    appender.start()
    context = jvm.org.apache.logging.log4j.LogManager.getContext(False)
    root = context.getConfiguration().getRootLogger()
    root.addAppender(appender, None, None)
    level = str(root.getLevel())
    spark.sparkContext.setLogLevel("WARN")
    yield writer
    spark.sparkContext.setLogLevel(level)
    root.removeAppender("txtopo-test")


def test_spark_says_nothing_of_what_we_cancel_and_all_else(spark: SparkSession, told: Any) -> None:
    jvm: Any = spark._jvm
    ClassicLabels(spark.sparkContext)
    ClassicLabels(spark.sparkContext)  # the filter is there once
    log = jvm.org.apache.logging.log4j.LogManager.getLogger("org.apache.spark.scheduler.Some")

    log.warn("Lost task: Job 1 cancelled part of cancelled job group txtopo:words:1:11-20:2#0\nat")
    log.error(f"Failed to update accumulator 0 ({ACCUMULATOR}) for task 0")
    log.error("Error in TaskCompletionListener")
    log.error("Exception in task 0.0 in stage 0.0 (TID 0): Python worker exited unexpectedly (x)")
    log.warn("Lost task: Job 1 cancelled part of cancelled job group mine")
    log.error("Failed to update accumulator 7 (org.example.Mine) for task 0")

    lines = str(told.toString()).splitlines()
    assert [line.rpartition(" ")[2] for line in lines if line] == ["mine", "0"], lines
