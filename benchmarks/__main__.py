"""``python -m benchmarks``: measure all ways side by side and print the table."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.data import Source, default_folder, prepare
from benchmarks.floor import run_floor
from benchmarks.one_process import run_plain
from benchmarks.processor import Processor, functions, told_by_kind
from benchmarks.report import machine, table
from benchmarks.store import TABLE, check, fresh_database, sqlite_database
from benchmarks.streaming import run_streaming
from benchmarks.topology import run_alone, run_log, run_resident, run_topology
from benchmarks.workloads import WORKLOADS, Workload
from tests.harness.servers.postgresql import PostgresServer
from txtopo import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Way = Callable[["SparkSession", Workload, Source, str], str | None]
"""May say more than how long it took."""
WAYS: dict[str, Way] = {
    "plain": run_plain,
    "floor": run_floor,
    "ss": run_streaming,
    "txtopo": run_topology,
    "resident": run_resident,
    "alone": run_alone,
    "log": run_log,
    "sqlite": run_topology,
}
"""``alone`` commits each batch alone; the last two are txtopo with a state in mode ``log``, and
with one in SQLite."""
READABLE = dict.fromkeys(("txtopo", "resident", "alone", "log", "sqlite"), f"{TABLE}_view")
STORES = {"sqlite": sqlite_database}
USUAL = ("floor", "ss", "txtopo", "log")
WARM_UP_BATCHES = 2


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    names = [way for way in WAYS if way in arguments.ways.split(",")]
    workloads = [w for w in WORKLOADS if not arguments.only or w.name in arguments.only]
    print(f"{machine()}; medians of {arguments.runs} runs", flush=True)
    spark, _ = open_session(app_name="txtopo-benchmarks")
    walls: dict[tuple[str, str], list[float]] = defaultdict(list)
    try:
        with PostgresServer() as server:
            for workload in workloads:
                warm = workload.shortened(WARM_UP_BATCHES)
                small = prepare(warm, arguments.data)
                for name in names:
                    measure(spark, server, warm, small, name)
                source = prepare(workload, arguments.data)
                # Interleaved, so that what else the machine does meets all ways alike.
                for number in range(arguments.runs):
                    for name in names:
                        processor = Processor("benchmark")
                        profiled = arguments.profile is not None
                        measured = processor.measured() if profiled else nullcontext()
                        with measured, functions(arguments.profile or 0):
                            wall_s, more = measure(spark, server, workload, source, name)
                        walls[workload.name, name].append(wall_s)
                        said = f"{workload.name} run {number + 1} {name}: {wall_s:.2f} s"
                        told = told_by_kind(processor.took_s, workload.batches)
                        print("; ".join(filter(None, (said, more, told))), flush=True)
    finally:
        spark.stop()
    print()
    print(table(walls, names))


def measure(
    spark: SparkSession, server: PostgresServer, workload: Workload, source: Source, name: str
) -> tuple[float, str | None]:
    """Do a workload in one way, check the store; return the wall time in seconds, and more."""
    with STORES.get(name, fresh_database)(server) as url:
        started_s = time.monotonic()
        more = WAYS[name](spark, workload, source, url)
        wall_s = time.monotonic() - started_s
        check(url, workload, source, READABLE.get(name, TABLE))
    return wall_s, more


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of each; default 5")
    parser.add_argument(
        "--only", action="append", choices=[w.name for w in WORKLOADS], help="this workload only"
    )
    parser.add_argument("--ways", default=",".join(USUAL), help=f"of {', '.join(WAYS)}")
    parser.add_argument(
        "--profile",
        nargs="?",
        type=int,
        const=0,
        metavar="N",
        help="print where the processor time of a txid goes, and the N dearest functions",
    )
    parser.add_argument("--data", type=Path, default=default_folder(), help="folder of the files")
    return parser.parse_args()


if __name__ == "__main__":
    main()
