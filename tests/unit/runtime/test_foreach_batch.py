"""A streaming query drives a topology: each micro-batch counts once, whatever is lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.runtime.stream_words import (
    contents,
    expected,
    ledger,
    query,
    words,
    write,
)
from txtopo import Config
from txtopo.errors import (
    ConfigError,
    FencedError,
    StoreAheadOfCoordinator,
    StoreBehindCoordinator,
    TopologyError,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
FILES = [{"a": 1, "b": 2}, {"a": 3, "c": 4}, {"b": 5, "c": 6}, {"a": 7}]


def check(folder: Path, *files: dict[str, int]) -> None:
    counts, totals = expected(*files)
    assert contents(folder, "count") == counts
    assert contents(folder, "total") == totals


def frame(spark: SparkSession, **rows: int) -> DataFrame:
    return spark.createDataFrame(list(rows.items()), "word string, n long")


def forget_last_commit(folder: Path) -> None:
    commits = folder / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def test_a_query_that_is_started_again_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, *FILES[:2])
    id = query(spark, tmp_path, words(tmp_path).foreach_batch(slots=2))
    check(tmp_path, *FILES[:2])
    assert ledger(tmp_path).topology == f"words@{id}"
    assert (ledger(tmp_path).txid, ledger(tmp_path).epoch) == (2, 1)
    write(tmp_path, *FILES[2:])

    assert query(spark, tmp_path, words(tmp_path).foreach_batch(slots=2)) == id
    check(tmp_path, *FILES)
    assert (ledger(tmp_path).txid, ledger(tmp_path).epoch) == (4, 2)

    forget_last_commit(tmp_path)
    query(spark, tmp_path, words(tmp_path).foreach_batch(slots=2))
    check(tmp_path, *FILES)
    assert ledger(tmp_path).writer_epoch == 3, "the batch was undone and done again"


def test_one_function_serves_several_starts_of_a_query(spark: SparkSession, tmp_path: Path) -> None:
    function = words(tmp_path).foreach_batch(carrier="local", slots=2)
    write(tmp_path, *FILES[:2])
    query(spark, tmp_path, function)
    forget_last_commit(tmp_path)
    write(tmp_path, *FILES[2:])

    query(spark, tmp_path, function)
    check(tmp_path, *FILES)
    assert ledger(tmp_path).epoch == 2


def test_a_new_checkpoint_is_refused_on_old_tables_unless_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path, FILES[0])
    id = query(spark, tmp_path, words(tmp_path).foreach_batch(carrier="local", slots=2))
    (tmp_path / "in" / "000.csv").unlink()
    write(tmp_path, FILES[1])

    with pytest.raises(Exception, match=f"continues='{id}', after_txid=1"):
        query(spark, tmp_path, words(tmp_path).foreach_batch(carrier="local", slots=2), "other")
    check(tmp_path, FILES[0])
    told = words(tmp_path).foreach_batch(carrier="local", slots=2, continues=id, after_txid=1)
    query(spark, tmp_path, told, "other")
    check(tmp_path, *FILES[:2])
    assert ledger(tmp_path).txid == 2


def test_only_the_query_that_continued_last_may_write(spark: SparkSession, tmp_path: Path) -> None:
    """Query 1, then 2 continues it, then 1 again, and a third one that says it continues 1."""
    write(tmp_path, FILES[0])
    first = query(spark, tmp_path, words(tmp_path).foreach_batch(carrier="local", slots=2))
    (tmp_path / "in" / "000.csv").unlink()
    write(tmp_path, FILES[1])
    told = words(tmp_path).foreach_batch(carrier="local", slots=2, continues=first, after_txid=1)
    second = query(spark, tmp_path, told, "second")
    assert ledger(tmp_path).topology == f"words@{second}"
    check(tmp_path, *FILES[:2])

    for again, checkpoint in (
        (words(tmp_path).foreach_batch(carrier="local", slots=2), "checkpoint"),
        (
            words(tmp_path).foreach_batch(carrier="local", slots=2, continues=first, after_txid=1),
            "third",
        ),
    ):
        write(tmp_path, FILES[2])
        with pytest.raises(Exception, match=f"belongs to .*words@{second}.*; got .*words@"):
            query(spark, tmp_path, again, checkpoint)
        check(tmp_path, *FILES[:2])
    query(spark, tmp_path, told, "second")
    check(tmp_path, *FILES[:2], FILES[2], FILES[2])


@pytest.mark.parametrize("after_txid", [0, 2])
def test_a_query_continues_where_the_other_one_ended_and_nowhere_else(
    spark: SparkSession, tmp_path: Path, after_txid: int
) -> None:
    """One txid less would undo the last batch of the other one without a word."""
    write(tmp_path, FILES[0])
    first = query(spark, tmp_path, words(tmp_path).foreach_batch(carrier="local", slots=2))

    told = words(tmp_path).foreach_batch(
        carrier="local", slots=2, continues=first, after_txid=after_txid
    )
    with pytest.raises(Exception, match=f"got after_txid={after_txid}; .*after_txid=1"):
        query(spark, tmp_path, told, "other")
    check(tmp_path, FILES[0])


def test_what_a_bolt_raises_ends_the_query_and_the_batch_comes_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path, FILES[0], {"a": -1})

    with pytest.raises(Exception, match="ValueError: negative: -1"):
        query(spark, tmp_path, words(tmp_path).foreach_batch(carrier="local", slots=2))
    check(tmp_path, FILES[0])
    (tmp_path / "in" / "001.csv").write_text("a,1\n")
    query(spark, tmp_path, words(tmp_path).foreach_batch(carrier="local", slots=2))
    check(tmp_path, FILES[0], {"a": 1})


def test_asynchronous_progress_tracking_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark itself refuses it for this sink, but can be told not to."""
    write(tmp_path, FILES[0])
    options = {
        "asyncProgressTrackingEnabled": "true",
        "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
    }
    stream = spark.readStream.schema("word string, n long").csv(str(tmp_path / "in"))
    write_batch = words(tmp_path).foreach_batch(carrier="local", slots=2)
    writer = stream.writeStream.foreachBatch(write_batch).options(**options)
    running = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception, match="asyncProgressTrackingEnabled=false"):
        running.processAllAvailable()
    running.stop()
    assert not (tmp_path / "count.db").exists()


def test_a_batch_that_is_held_is_undone_and_done_again(spark: SparkSession, tmp_path: Path) -> None:
    write_batch = words(tmp_path).foreach_batch(carrier="local", slots=2)
    write_batch(frame(spark, a=1), 0)
    write_batch(frame(spark, a=1, b=2), 1)

    write_batch(frame(spark, a=5, c=1), 1)
    check(tmp_path, {"a": 1}, {"a": 5, "c": 1})
    words(tmp_path).foreach_batch(carrier="local", slots=2)(frame(spark, b=1), 1)
    check(tmp_path, {"a": 1}, {"b": 1})


def test_transactional_states_keep_a_batch_that_they_hold(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = words(tmp_path, "transactional").foreach_batch(carrier="local", slots=2)
    first(frame(spark, a=1), 0)
    again = words(tmp_path, "transactional").foreach_batch(carrier="local", slots=2)

    again(frame(spark, a=-1), 0)  # not even computed
    check(tmp_path, {"a": 1})
    again(frame(spark, a=2), 1)
    check(tmp_path, {"a": 1}, {"a": 2})


def test_an_earlier_start_that_still_writes_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    earlier, later = (words(tmp_path).foreach_batch(carrier="local", slots=2) for _ in range(2))
    earlier(frame(spark, a=1), 0)
    later(frame(spark, a=2), 1)

    with pytest.raises(FencedError):
        earlier(frame(spark, a=2), 1)
    check(tmp_path, {"a": 1}, {"a": 2})


def test_stores_and_checkpoint_must_fit_together(spark: SparkSession, tmp_path: Path) -> None:
    batches = [frame(spark, a=1) for _ in range(3)]
    write_batch = words(tmp_path).foreach_batch(carrier="local", slots=2)
    for at, batch in enumerate(batches):
        write_batch(batch, at)

    with pytest.raises(StoreAheadOfCoordinator, match="holds txid 3, but the query passes its"):
        words(tmp_path).foreach_batch(carrier="local", slots=2)(batches[0], 1)
    with pytest.raises(StoreBehindCoordinator, match="holds txid 3, but the query passes its"):
        words(tmp_path).foreach_batch(carrier="local", slots=2)(batches[0], 4)
    assert ledger(tmp_path).epoch == 1, "nobody claimed what does not fit"


def test_a_new_store_under_a_known_checkpoint_is_told_with_its_url(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_batch = words(tmp_path).foreach_batch(carrier="local", slots=2)
    (tmp_path / "new").mkdir()
    write_batch(frame(spark, a=1), 0)

    with pytest.raises(StoreBehindCoordinator, match="holds txid 0, but the query") as told:
        words(tmp_path / "new").foreach_batch(carrier="local", slots=2)(frame(spark, a=1), 1)
    assert f"was its URL changed (now sqlite:///{tmp_path}/new/count.db)" in str(told.value)


def test_a_stream_must_have_the_columns_of_the_spout(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="lacks columns of 'stream': n; got word"):
        words(tmp_path).foreach_batch(carrier="local", slots=2)(frame(spark, a=1).select("word"), 0)


def test_who_drives_a_topology_is_checked(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="so only a streaming query can drive it"):
        words(tmp_path).start(config=Config(carrier="local", zookeeper="memory"))
    with pytest.raises(ConfigError, match="a micro-batch is a DataFrame"):
        words(tmp_path).foreach_batch(carrier="rdd")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="after_txid is wrong"):
        words(tmp_path).foreach_batch(after_txid=3)
