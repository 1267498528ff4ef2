"""``python -m benchmarks.nexmark``: the queries of NEXMark into PostgreSQL, events a second.

* **txtopo**: the programs of ``examples/nexmark``, as they are.
* **ss**: Structured Streaming, ``foreachBatch``, and an upsert with the number of the batch in one
  transaction, written by hand; where it can express the query.
* **plain**: a loop in one Python process, with Arrow and pandas and the same upsert. Its state is
  in memory: a crash loses it.
* **flink**: Flink SQL on a small cluster of its own, which is up before the clock starts; see
  :mod:`benchmarks.nexmark_flink`. Only where it is named: ``--ways txtopo,flink``.

All read the same Parquet files, one for each kind of events, batch and task, and store the same
rows, which are compared with pandas. Events of all kinds count, also those that a query skips. The
time is from the start of the query or topology to its last commit and its end.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import default_folder
from benchmarks.nexmark_flink import FLINK, FLINK_TABLES, FlinkCluster
from benchmarks.nexmark_plain import PLAIN
from benchmarks.nexmark_store import TABLES, Results, Table
from benchmarks.nexmark_streaming import STREAMING
from benchmarks.processor import functions
from benchmarks.report import machine
from benchmarks.store import fresh_database, plain
from examples.nexmark.generator import FIELDS, Generator, Kind
from examples.nexmark.queries import QUERIES, topology
from tests.harness.nexmark import EXPECTED, Events, held
from tests.harness.servers.postgresql import PostgresServer
from txtopo import Config, ZooKeeper, open_session, open_state
from txtopo.spouts import FilesTransactionalSpout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES_PER_BATCH = 2
LIMIT_S = 3600.0
WAYS = ("txtopo", "ss", "plain", "flink")
DEFAULT_WAYS = WAYS[:3]


@dataclass(frozen=True)
class Source:
    """The files of all events.

    Attributes:
        generator: What made them.
        folder: Has a folder for each kind.
        batches: How many batches there are.
    """

    generator: Generator
    folder: Path
    batches: int

    def files(self, kind: Kind) -> list[list[str]]:
        """Return the files of each batch."""
        found = sorted(map(str, (self.folder / kind).glob("*.parquet")))
        return [found[at : at + FILES_PER_BATCH] for at in range(0, len(found), FILES_PER_BATCH)]

    def all_files(self) -> dict[Kind, list[str]]:
        """Return the files of all batches, in order."""
        return {kind: list(chain.from_iterable(self.files(kind))) for kind in FIELDS}


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    queries = arguments.only or list(QUERIES)
    names = [way for way in WAYS if way in arguments.ways.split(",")]
    print(f"{machine()}; load {os.getloadavg()[0]:.1f}; medians of {arguments.runs}", flush=True)
    cluster = FlinkCluster() if "flink" in names else None
    spark, _ = open_session(app_name="txtopo-benchmarks")
    source = prepare(arguments.events, arguments.batches, arguments.data)
    warm = prepare(arguments.events // arguments.batches * 2, 2, arguments.data)
    walls: dict[tuple[str, str], list[float]] = defaultdict(list)
    try:
        with ExitStack() as stack:
            server = stack.enter_context(PostgresServer())
            if cluster is not None:
                stack.enter_context(cluster)
            for query in queries:
                ways = [way for way in names if can(way, query)]
                for way in ways:
                    measure(spark, cluster, server, query, way, warm)
                for number in range(arguments.runs):
                    for way in ways:
                        with functions(arguments.profile if way == "txtopo" else 0):
                            wall_s = measure(spark, cluster, server, query, way, source)
                        walls[query, way].append(wall_s)
                        print(f"{query} run {number + 1} {way}: {wall_s:.2f} s", flush=True)
    finally:
        spark.stop()
    print(f"\nload {os.getloadavg()[0]:.1f}\n\n{report(walls, arguments.events, names)}")


def can(way: str, query: str) -> bool:
    """Return whether a way can express a query."""
    ways = {"txtopo": QUERIES, "ss": STREAMING, "plain": PLAIN, "flink": FLINK}
    return query in ways[way]


def prepare(events: int, batches: int, folder: Path) -> Source:
    """Make the files of the events unless they are there."""
    generator = Generator(events)
    path = folder / f"nexmark-{events}-{batches}"
    if not path.exists():
        made = folder / f".nexmark-{os.getpid()}"
        shutil.rmtree(made, ignore_errors=True)
        edges = np.linspace(0, events, batches * FILES_PER_BATCH + 1).astype(np.int64)
        for kind in FIELDS:
            (made / kind).mkdir(parents=True)
            for number in range(len(edges) - 1):
                rows = generator.rows(kind, np.arange(edges[number], edges[number + 1]))
                file = made / kind / f"part-{number:05}.parquet"
                pq.write_table(pa.Table.from_batches([rows]), file)
                # Structured Streaming takes files in the order of their times, in whole seconds.
                os.utime(file, (1_700_000_000 + 10 * number,) * 2)
        made.rename(path)
    return Source(generator, path, batches)


def measure(
    spark: SparkSession,
    cluster: FlinkCluster | None,
    server: PostgresServer,
    query: str,
    way: str,
    source: Source,
) -> float:
    """Do a query in one way, check the store, and return the wall time in seconds."""
    with fresh_database(server) as url:
        started_s = time.monotonic()
        if way == "txtopo":
            run_txtopo(spark, query, source, url)
        else:
            with psycopg.connect(plain(url)) as connection:
                results = Results(connection, tables(way)[query])
                if way == "ss":
                    run_streaming(spark, query, source, results)
                elif way == "flink":
                    assert cluster is not None
                    cluster.run(query, source.generator, source.all_files(), url)
                else:
                    run_plain(query, source, results)
        wall_s = time.monotonic() - started_s
        check(query, way, source, url)
    return wall_s


def run_txtopo(spark: SparkSession, query: str, source: Source, url: str) -> None:
    """Run the topology of a query until everything is committed, and stop it."""

    def spout(kind: Kind) -> FilesTransactionalSpout:
        files = FILES_PER_BATCH
        folder = str(source.folder / kind)
        return FilesTransactionalSpout(folder, FIELDS[kind], "parquet", batch_files_max=files)

    with tempfile.TemporaryDirectory(prefix="txtopo-benchmark-zookeeper-") as folder:
        program = topology(query, source.generator, url, spout, FILES_PER_BATCH)
        run = program.start(spark, Config(zookeeper=ZooKeeper(dir=folder)))
        run.process_all_available(LIMIT_S)
        run.stop()


def run_streaming(spark: SparkSession, query: str, source: Source, results: Results) -> None:
    """Run a streaming query over all files that ends when they are done."""

    def read(kind: Kind) -> Any:
        frame = spark.readStream.schema(frame_schema(kind))
        return frame.option("maxFilesPerTrigger", FILES_PER_BATCH).parquet(
            str(source.folder / kind)
        )

    frame, mode, in_batch = STREAMING[query](read, source.generator)
    with tempfile.TemporaryDirectory() as checkpoint:
        (
            frame.writeStream.outputMode(mode)
            .foreachBatch(lambda rows, batch: results.write(in_batch(rows).toArrow(), batch))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )


def run_plain(query: str, source: Source, results: Results) -> None:
    """Do the work of all batches, one after the other."""
    step = PLAIN[query](source.generator)
    kinds: Sequence[Kind] = step.kinds
    files = {kind: source.files(kind) for kind in kinds}
    for number in range(source.batches):
        tables = [
            pa.concat_tables([pq.read_table(file) for file in files[kind][number]])
            for kind in kinds
        ]
        results.write(step.step(*tables), number)


def frame_schema(kind: Kind) -> str:
    """Return the fields of a kind as Spark names them."""
    return ", ".join(f"{field.name} {field.type}" for field in FIELDS[kind])


def tables(way: str) -> Mapping[str, Table]:
    """Return the table of each query."""
    return FLINK_TABLES if way == "flink" else TABLES


@cache
def expected(query: str, generator: Generator, ended: bool) -> Any:
    """Return the rows that a query must have stored.

    Args:
        query: The query.
        generator: What made the events.
        ended: Whether the end of the events has closed all windows.
    """
    events = Events.made_by(generator)
    if ended:
        events = replace(events, delay=-datetime.timedelta(hours=1))
    return TABLES[query].rows_of(EXPECTED[query](events))


def check(query: str, way: str, source: Source, url: str) -> None:
    """Compare what is stored with pandas."""
    table = tables(way)[query]
    if way == "txtopo":
        with open_state(url, table=query).reader() as reader:
            found = table.rows_of(held(reader))
    else:
        with psycopg.connect(plain(url)) as connection:
            found = table.stored(connection)
    # Flink closes all windows when the files end; to the others, more files could follow.
    wanted = expected(query, source.generator, ended=way == "flink")
    if query == "q12":
        # When it was planned is not known.
        totals: Counter[int] = Counter()
        for _, bidder, bids in found:
            totals[bidder] += bids
        found = set(totals.items())
    if query == "q4":
        found, wanted = ({(c, round(p, 3)) for c, p in rows} for rows in (found, wanted))
    if query == "q8" and way in ("ss", "plain"):
        # These find a person at once, txtopo when the window is closed.
        found = {row for row in found if row in wanted or row[0] in {each[0] for each in wanted}}
    if query == "q11" and way == "ss":
        # In append mode sessions that are open are not there.
        wanted = wanted & found
    if found != wanted:
        missing, more = sorted(wanted - found)[:3], sorted(found - wanted)[:3]
        raise AssertionError(
            f"{way} is wrong in {query}: {len(found)} rows, expected {len(wanted)}; "
            f"missing {missing}, more {more}"
        )


def report(walls: dict[tuple[str, str], list[float]], events: int, ways: Sequence[str]) -> str:
    """Return events a second, and ratios, as a Markdown table."""
    ratios = [way for way in ways if way != "txtopo" and "txtopo" in ways]
    titles = [*(f"{way} events/s" for way in ways), *(f"txtopo ÷ {way}" for way in ratios)]
    lines = [" | ".join(["|", *titles, ""]).strip(), "|---" * (len(titles) + 1) + "|"]
    for query in dict.fromkeys(query for query, _ in walls):
        speed = {
            way: events / statistics.median(walls[query, way])
            for way in ways
            if walls.get((query, way))
        }
        cells = [f"{speed[way]:,.0f}" if way in speed else "" for way in ways]
        cells += [f"{speed['txtopo'] / speed[way]:.2f}" if way in speed else "" for way in ratios]
        lines.append("| " + " | ".join([query, *cells]) + " |")
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nexmark", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each; default 3")
    parser.add_argument("--events", type=int, default=500_000, help="how many; default 500,000")
    parser.add_argument("--batches", type=int, default=20, help="into how many batches; default 20")
    parser.add_argument("--only", action="append", choices=list(QUERIES), help="this query only")
    parser.add_argument("--ways", default=",".join(DEFAULT_WAYS), help=f"of {', '.join(WAYS)}")
    parser.add_argument("--profile", type=int, default=0, help="the dearest functions of txtopo")
    parser.add_argument("--data", type=Path, default=default_folder(), help="folder of the files")
    return parser.parse_args()


if __name__ == "__main__":
    main()
