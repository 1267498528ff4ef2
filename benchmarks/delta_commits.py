"""``python -m benchmarks.delta_commits``: commits into Delta, by this process and by Spark's JVM.

The partial counts of W3's batches (1,000 words of a Zipf distribution over 100,000 keys, about 645
distinct ones) are committed one after the other: in mode ``log`` and ``table`` with everything that
a commit of txtopo does, and for comparison by delta-spark, a merge of the same rows with the same
columns, without ledger and fence. ``make delta-jar`` fetches what the last one needs.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.data import zipf_words
from benchmarks.delta_session import delta_session
from benchmarks.report import machine
from txtopo import ConfigError, Count, Fields, TransactionAttempt, open_state
from txtopo.plugins.stores import Merges
from txtopo.state import StateMode
from txtopo.testing.conformance.driver import claim_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES, WORDS = 100, 1_000
JVM_BATCHES = 10


def main() -> None:
    """Measure and print."""
    batches = list(_partials())
    keys = sum(batch.num_rows for batch in batches) / len(batches)
    print(f"{machine()}; {BATCHES} commits of {keys:.0f} keys each; milliseconds per commit")
    print()
    print("| way | median | longest | last tenth |")
    print("|---|---|---|---|")
    for mode in ("log", "table"):
        _print(f"txtopo, {mode}", _by_txtopo(mode, batches))
    try:
        spark = delta_session()
    except ConfigError as missing:
        print(f"no comparison with the JVM: {missing}")
        return
    try:
        _print("delta-spark, merge", _by_jvm(spark, batches[:JVM_BATCHES]))
    finally:
        spark.stop()


def _partials() -> Iterator[pa.Table]:
    words = zipf_words(BATCHES * WORDS)
    for first in range(0, BATCHES * WORDS, WORDS):
        counted = pa.table({"key": words[first : first + WORDS]}).group_by("key")
        counts = counted.aggregate([("key", "count")]).rename_columns(["key", "count"])
        yield counts


def _by_txtopo(mode: StateMode, batches: list[pa.Table]) -> list[float]:
    folder = tempfile.mkdtemp(prefix="txtopo-delta-")
    state = open_state(f"delta://{folder}", table="counts", mode=mode)
    state = state.with_columns(Fields("key string"), Fields("count long"), (Count(),))
    backend = state.open()
    backend.create()
    backend.claim(claim_of("benchmark", 1))
    walls = []
    for txid, batch in enumerate(batches, start=1):
        begun = time.perf_counter()
        backend.commit(TransactionAttempt(txid, 0, 1), Merges(batch))
        walls.append((time.perf_counter() - begun) * 1000)
    with state.reader() as reader:
        total = sum(count for _, count in reader.items())
    backend.close()
    shutil.rmtree(folder)
    if total != BATCHES * WORDS:
        raise AssertionError(f"the store is wrong; got {total}; expected {BATCHES * WORDS}")
    return walls


def _by_jvm(spark: SparkSession, batches: list[pa.Table]) -> list[float]:
    from delta.tables import DeltaTable

    folder = tempfile.mkdtemp(prefix="txtopo-delta-jvm-")
    columns = "key string, count long, txid long, prev_count long, prev_txid long, deleted boolean"
    spark.createDataFrame([], columns).write.format("delta").mode("append").save(folder)
    table = DeltaTable.forPath(spark, folder)
    walls = []
    for txid, batch in enumerate(batches, start=1):
        begun = time.perf_counter()
        rows = spark.createDataFrame(batch.to_pandas())
        merge = table.alias("t").merge(rows.alias("s"), "t.key = s.key")
        merge = merge.whenMatchedUpdate(
            set={
                "count": "t.count + s.count",
                "txid": str(txid),
                "prev_count": "t.count",
                "prev_txid": "t.txid",
            }
        )
        merge = merge.whenNotMatchedInsert(
            values={"key": "s.key", "count": "s.count", "txid": str(txid), "deleted": "false"}
        )
        merge.execute()
        walls.append((time.perf_counter() - begun) * 1000)
    shutil.rmtree(folder)
    return walls


def _print(way: str, walls: list[float]) -> None:
    last = walls[-len(walls) // 10 :]
    print(f"| {way} | {median(walls):.0f} | {max(walls):.0f} | {median(last):.0f} |", flush=True)


if __name__ == "__main__":
    main()
