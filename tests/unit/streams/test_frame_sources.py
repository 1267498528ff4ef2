"""Programs over sources that Spark reads: a streaming query, and a spout of DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.runtime.stream_words import query, write
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
from txtopo.spouts import DataFrameTransactionalSpout, MemoryTransactionalSpout, StreamSpout
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

    query(spark, tmp_path, topology.foreach_batch(slots=2))

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


def streaming() -> StreamSpout:
    return StreamSpout(TIMED)


def frames() -> DataFrameTransactionalSpout:
    return DataFrameTransactionalSpout(Numbered(2), read, TIMED)


SPOUTS = {
    streaming: ("stream spout 'words'", "a streaming query"),
    frames: ("DataFrame transactional spout 'words'", "its batches are plans of Spark"),
}
FRAMES = pytest.mark.parametrize("spout", SPOUTS)


def windows(builder: StreamBuilder, spout: Any, **time: Any) -> None:
    words = builder.source("words", spout, event_time="ts", **time)
    counts = open_state("sqlite:///x.db", table="counts")
    words.group_by("word").window(tumbling("1 hour")).persistent_aggregate(counts, n=Count())


@FRAMES
def test_rows_that_spark_reads_have_event_time(spout: Any) -> None:
    """Without max_ahead, which is a day by default where batches have a plan."""
    builder = StreamBuilder("words")
    windows(builder, spout())

    assert "counts" in builder.build_topology().graph.components


def second_spout(builder: StreamBuilder, spout: Any) -> None:
    windows(builder, spout)
    builder.source("others", MemoryTransactionalSpout({0: []}, TIMED, 1))


def spout_that_comes_second(builder: StreamBuilder, spout: Any) -> None:
    builder.source("others", MemoryTransactionalSpout({0: []}, TIMED, 1))
    windows(builder, spout)


def clock(builder: StreamBuilder, spout: Any) -> None:
    windows(builder, spout, clock="1 minute")


def idle_after(builder: StreamBuilder, spout: Any) -> None:
    windows(builder, spout, idle_after="1 minute")


def max_ahead(builder: StreamBuilder, spout: Any) -> None:
    windows(builder, spout, max_ahead="1 hour")


def expire_after(builder: StreamBuilder, spout: Any) -> None:
    """A stream without event time goes by planned time."""
    kept = open_state("sqlite:///x.db", table="kept", value=Fields("n long"))
    builder.source("words", spout).group_by("word").update(
        lambda value, row: (1, None), "n long", state=kept, expire_after="1 hour"
    )


def planned_time(builder: StreamBuilder, spout: Any) -> None:
    stamped = builder.source("words", spout).with_planned_time()
    stamped.store(open_state("sqlite:///x.db", table="kept"), key="word")


def lookup(builder: StreamBuilder, spout: Any) -> None:
    table = builder.lookup("kinds", "delta://kinds", key="word", value="kind string")
    joined = builder.source("words", spout).join(table, on="word")
    joined.store(open_state("sqlite:///x.db", table="kept"), key="word")


@FRAMES
@pytest.mark.parametrize(
    ("program", "told"),
    [
        (second_spout, "cannot share its txids with another spout; got 'others' as well"),
        (spout_that_comes_second, "cannot share its txids with another spout; got 'others' as"),
        (clock, "cannot share its txids with another spout; got 'words.clock' as well"),
        (idle_after, "'marks' asks for planned time"),
        (max_ahead, "'words.times' asks for planned time"),
        (expire_after, "'kept' asks for planned time"),
        (planned_time, "'words.with_planned_time' asks for planned time"),
        (lookup, "'words.join' asks for a lookup"),
    ],
)
def test_what_needs_a_plan_is_refused(program: Any, told: str, spout: Any) -> None:
    with pytest.raises(TopologyError) as caught:
        built(program, spout())

    for part in (told, *SPOUTS[spout]):
        assert part in str(caught.value)


def built(program: Any, spout: Any) -> Topology:
    builder = StreamBuilder("words")
    program(builder, spout)
    return builder.build_topology()
