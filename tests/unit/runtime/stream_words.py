"""A keyed count that a streaming query over files drives; also run as a process of its own.

``python -m tests.unit.runtime.stream_words FOLDER POINT TIMES`` kills itself when the
durable step POINT is reached for the TIMES-th time.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txtopo import (
    BasicBolt,
    Fields,
    PersistentAggregate,
    Topology,
    TransactionalTopologyBuilder,
)
from txtopo.spouts import StreamSpout
from txtopo.state import Count, Ledger, Sum, open_state
from txtopo.state.backend import StateKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT_S = 120


class Halve(BasicBolt):
    """Refuses a negative number; the rest is passed on."""

    output_fields = Fields("word string, n long")

    def execute(self, tuple: Any, collector: Any) -> None:
        if tuple["n"] < 0:
            raise ValueError(f"negative: {tuple['n']}")
        collector.emit(tuple.values)


def words(folder: Path, kind: StateKind = "opaque") -> Topology:
    """Count the words and sum their numbers: two states, one of them behind a bolt."""
    stream = StreamSpout(Fields("word string, n long"))
    builder = TransactionalTopologyBuilder("words", "stream", stream)
    builder.set_bolt("halve", Halve(), 3).shuffle_grouping("stream")
    count = PersistentAggregate(state(folder, "count", kind), "word", Count())
    builder.set_bolt("count", count).fields_grouping("stream", "word")
    total = PersistentAggregate(state(folder, "total", kind), "word", Sum("n"))
    builder.set_bolt("total", total).fields_grouping("halve", "word")
    return builder.build_topology()


def state(folder: Path, table: str, kind: StateKind = "opaque") -> Any:
    return open_state(f"sqlite:///{folder / table}.db", kind, table)


def contents(folder: Path, table: str) -> dict[Any, Any]:
    with state(folder, table).reader() as reader:
        return {key[0] if isinstance(key, tuple) else key: value for key, value in reader.items()}


def ledger(folder: Path, table: str = "count") -> Ledger:
    with state(folder, table).reader() as reader:
        found: Ledger | None = reader.ledger
        assert found is not None
        return found


def write(folder: Path, *files: Mapping[str, int]) -> None:
    """Write files of words with a number each; each is a batch of the query."""
    (folder / "in").mkdir(exist_ok=True)
    start = len(list((folder / "in").iterdir()))
    for at, file in enumerate(files, start):
        lines = "".join(f"{word},{n}\n" for word, n in file.items())
        path = folder / "in" / f"{at:03}.csv"
        path.write_text(lines)
        os.utime(path, (at + 1, at + 1))  # Spark reads the older file first


def expected(*files: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the count and the total of each word."""
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for file in files:
        counts.update(file.keys())
        totals.update(file)
    return dict(counts), dict(totals)


def query(
    spark: SparkSession,
    folder: Path,
    function: Any,
    checkpoint: str = "checkpoint",
    **options: str,
) -> str:
    """Run the query over all files there are, to its end; return its id."""
    stream = (
        spark.readStream.schema("word string, n long, other string")
        .option("maxFilesPerTrigger", 1)
        .csv(str(folder / "in"))
    )
    writer = stream.writeStream.foreachBatch(function).trigger(availableNow=True)
    for name, value in options.items():
        writer = writer.option(name, value)
    running = writer.option("checkpointLocation", str(folder / checkpoint)).start()
    try:
        assert running.awaitTermination(LIMIT_S), "the query does not end"
    finally:
        running.stop()
    return str(running.id)


def main(folder: Path, point: str, times: int) -> None:
    from tests.harness.dying import DyingScheduler
    from tests.harness.spark_session import open_test_session
    from txtopo.frames.foreach_batch import ForeachBatch

    function = ForeachBatch(words(folder).graph, "local", 2, scheduler=DyingScheduler(point, times))
    query(open_test_session(), folder, function)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
