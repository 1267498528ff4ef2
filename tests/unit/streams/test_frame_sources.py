"""Programs over sources that Spark reads: a streaming query, and a spout of DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.runtime.stream_words import CONFIG, query, write
from tests.unit.topology.frame_parts import Numbered
from txtopo import (
    Config,
    Count,
    Fields,
    StreamBuilder,
    Sum,
    Topology,
    TopologyError,
    open_state,
)
from txtopo.spouts import DataFrameTransactionalSpout, StreamSpout
from txtopo.streams import DataStream, tumbling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
WORD = Fields("word string, n long")


def counting(builder: StreamBuilder, words: DataStream, url: str) -> Topology:
    kept = words.filter(lambda row: row["n"] > 1).map(lambda row: [row["word"], row["n"]], WORD)
    table = kept.group_by("word").persistent_aggregate(
        open_state(url, table="counts"), n=Count(), total=Sum("n")
    )
    table.changes().store(open_state(url, table="view"), key="word")
    words.group_by("word").aggregate(total=Sum("n")).store(
        open_state(url, table="last"), key="word"
    )
    return builder.build_topology()


def contents(url: str, table: str) -> dict[Any, Any]:
    with open_state(url, table=table).reader() as reader:
        return dict(reader.items())


def judge(url: str) -> None:
    assert contents(url, "counts") == {"b": {"n": 2, "total": 7}, "a": {"n": 1, "total": 3}}
    assert contents(url, "view") == contents(url, "counts")
    assert contents(url, "last") == {"a": 3, "b": 5}


def test_a_streaming_query_drives_a_program(spark: SparkSession, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'counts.db'}"
    builder = StreamBuilder("words")
    topology = counting(builder, builder.source("words", StreamSpout(WORD)), url)
    write(tmp_path, {"a": 1, "b": 2}, {"a": 3, "b": 5})

    query(spark, tmp_path, topology.foreach_batch(CONFIG))

    judge(url)


def read(spark: Any, attempt: Any, metadata: Any) -> Any:
    """Return the two rows of each of two batches."""
    rows = [("a", 1), ("b", 2)] if attempt.txid == 1 else [("a", 3), ("b", 5)]
    return spark.createDataFrame(rows, "word string, n long")


def test_the_rows_of_dataframes_go_through_operators(spark: SparkSession, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'counts.db'}"
    builder = StreamBuilder("words")
    spout = DataFrameTransactionalSpout(Numbered(2), read, WORD)
    topology = counting(builder, builder.source("words", spout), url)

    with topology.start(spark, Config(zookeeper="memory")) as run:
        run.process_all_available()

    judge(url)


TIMED = Fields("word string, ts timestamp")


@pytest.mark.parametrize(
    ("time", "told"),
    [({}, None), ({"idle_after": "1 minute"}, "planned time"), ({"max_ahead": "1 hour"}, "time")],
)
def test_a_streaming_query_has_event_time_without_planned_time(time: Any, told: str | None) -> None:
    builder = StreamBuilder("words")
    words = builder.source("words", StreamSpout(TIMED), event_time="ts", **time)
    counts = open_state("sqlite:///x.db", table="counts")
    words.group_by("word").window(tumbling("1 hour")).persistent_aggregate(counts, n=Count())
    if told is None:
        builder.build_topology()
    else:
        with pytest.raises(TopologyError, match=f"asks for planned {told.split()[-1]}, which str"):
            builder.build_topology()
