"""``python -m benchmarks.commits``: what a commit of one record costs, with the state in memory.

Printed are txids a second, the processor time of a txid by kind of work, and how the last tenth of
the txids compares with the first one: a txid must not cost more because there were many before it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.processor import Processor, functions, told_by_kind
from benchmarks.report import machine
from txtopo import (
    BatchCommitted,
    Config,
    Count,
    Fields,
    PersistentAggregate,
    Topology,
    TopologyEvent,
    TopologyListener,
    TransactionalTopologyBuilder,
    ZooKeeper,
    open_session,
    open_state,
)
from txtopo.plugins.spouts import (
    LastBatch,
    PartitionedCoordinator,
    PartitionedTransactionalEmitter,
    PartitionedTransactionalSpout,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = 1_000
TIMEOUT_S = 3600.0
WARM_UP_TXIDS = 100
CASES = ("local", "resident", "rdd", "partitions")
TXIDS = {"local": 5_000, "resident": 5_000, "rdd": 2_000, "partitions": 200}
GOALS = {"local": 1_500, "resident": 700, "partitions": 60}
PARTITIONS = {"partitions": 1_000}


class Numbers(PartitionedTransactionalSpout):
    """Some numbers of each partition in each batch. It keeps no rows: it is as cheap as can be."""

    output_fields = Fields("number long")

    def __init__(self, txids: int, partitions: int, records: int = 1, keys: int = KEYS) -> None:
        self.txids, self.partitions, self.records, self.keys = txids, partitions, records, keys

    def coordinator(self, config: Any, context: Any) -> PartitionedCoordinator:
        return _Coordinator(self.txids, self.partitions)

    def emitter(self, config: Any, context: Any) -> PartitionedTransactionalEmitter:
        return _Emitter(self.records, self.keys)


class _Coordinator(PartitionedCoordinator):
    def __init__(self, txids: int, partitions: int) -> None:
        self.txids, self.partitions = txids, partitions

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= self.txids

    def number_of_partitions(self) -> int:
        return self.partitions


class _Emitter(PartitionedTransactionalEmitter):
    def __init__(self, records: int, keys: int) -> None:
        self.records, self.keys = records, keys

    def emit_partition_batch_new(
        self, attempt: Any, collector: Any, partition: int, last_metadata: Any
    ) -> Any:
        number = 0 if last_metadata is None else last_metadata + self.records
        self.emit_partition_batch(attempt, collector, partition, number)
        return number

    def emit_partition_batch(
        self, attempt: Any, collector: Any, partition: int, metadata: Any
    ) -> None:
        for number in range(metadata, metadata + self.records):
            collector.emit([number % self.keys])


class Times(TopologyListener):
    """Notes the time of each commit, and the processor time of the driver until then."""

    def __init__(self) -> None:
        self.at_s, self.took_s = [time.monotonic()], [time.process_time()]

    def on_change(self, change: TopologyEvent) -> None:
        """Note a commit."""
        if isinstance(change, BatchCommitted):
            self.at_s.append(time.monotonic())
            self.took_s.append(time.process_time())

    def tenths(self) -> str:
        """Return the processor time of a txid in the first tenth and in the last one."""
        tenth = max(1, len(self.took_s) // 10)
        first_s, last_s = (
            self.took_s[tenth] - self.took_s[0],
            self.took_s[-1] - self.took_s[-1 - tenth],
        )
        each = 1e6 / tenth
        return (
            f"driver in the first tenth {each * first_s:.0f} µs per txid, last {each * last_s:.0f}"
        )


def main() -> None:
    """Measure and print; exit status 1 if a goal was missed."""
    arguments = _arguments()
    cases = [case for case in CASES if case in arguments.only.split(",")]
    print(f"{machine()}; medians of {arguments.runs} runs", flush=True)
    spark = None
    if set(cases) & {"resident", "rdd"}:
        spark, _ = open_session(app_name="txtopo-commits")
    missed = []
    for case in cases:
        txids = arguments.txids or TXIDS[case]
        measure(spark, case, WARM_UP_TXIDS, 0)
        rates = []
        for number in range(arguments.runs):
            rate, flat, took = measure(spark, case, txids, arguments.profile)
            rates.append(rate)
            print(f"{case} run {number + 1}: {rate:.0f} txids/s; {flat}; {took}", flush=True)
        goal = GOALS.get(case, 0)
        print(f"{case}: {median(rates):.0f} txids/s, goal {goal}", flush=True)
        missed += [case] if median(rates) < goal else []
    if spark is not None:
        spark.stop()
    if missed:
        raise SystemExit(f"missed: {', '.join(missed)}")


def measure(spark: SparkSession | None, case: str, txids: int, most: int) -> tuple[float, str, str]:
    """Commit this many txids; return txids a second, the tenths, and the processor time."""
    processor, times = Processor("commits"), Times()
    with functions(most), settings_of(case) as settings, processor.measured():
        run = topology(txids, PARTITIONS.get(case, 1)).start(spark, Config(**settings), [times])
        run.process_all_available(TIMEOUT_S)
        run.stop()
    rate = txids / (times.at_s[-1] - times.at_s[0])
    return rate, times.tenths(), told_by_kind(processor.took_s, txids) or ""


@contextmanager
def settings_of(case: str) -> Iterator[dict[str, Any]]:
    """Return the settings of a case."""
    if case in ("local", "partitions"):
        yield {"carrier": "local", "zookeeper": "memory"}
        return
    with tempfile.TemporaryDirectory(prefix="txtopo-commits-zookeeper-") as folder:
        yield {"carrier": case, "zookeeper": ZooKeeper(dir=folder)}


def topology(txids: int, partitions: int) -> Topology:
    """Return the topology: numbers are counted by number, in memory."""
    builder = TransactionalTopologyBuilder("commits", "numbers", Numbers(txids, partitions))
    counts = PersistentAggregate(open_state("memory:"), "number", Count())
    builder.set_bolt("counts", counts).fields_grouping("numbers", "number")
    return builder.build_topology()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commits", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each; default 3")
    parser.add_argument("--txids", type=int, help="how many to commit; by default by the case")
    parser.add_argument("--only", default=",".join(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument(
        "--profile", type=int, default=0, metavar="N", help="print the N dearest functions, too"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
