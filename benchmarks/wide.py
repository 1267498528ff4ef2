"""``python -m benchmarks.wide``: what a txid costs as a topology, its source or its batches grow.

* ``partitions``: a source of this many partitions, with a record of each in each batch;
* ``bolts``: a chain of this many bolts, with ten records a batch;
* ``keys``: a batch of this many keys, counted in PostgreSQL;
* ``topologies``: this many topologies in one process, which share one ZooKeeper.

Processor time of this process and wall time in milliseconds a txid, of all topologies together:
from the moment in which all of them run and have committed a few txids, to the last commit. The
state is in memory but for ``keys``, and tasks run on the carrier ``local``: what is counted is
txtopo's own work and that of the tasks, without Spark.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from benchmarks.commits import KEYS, Numbers
from benchmarks.report import machine
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.zookeeper import ZooKeeperProcess
from txtopo import (
    BasicBolt,
    Config,
    Count,
    Fields,
    PersistentAggregate,
    Topology,
    TransactionalTopologyBuilder,
    Tuple,
    open_state,
)
from txtopo.plugins.spouts import LastBatch, PartitionedCoordinator

TIMEOUT_S = 3600.0
SIZES: Mapping[str, Mapping[int, int]] = {
    "partitions": {1: 2_000, 10: 2_000, 100: 1_000, 1_000: 100, 10_000: 20},
    "bolts": {1: 1_000, 10: 500, 50: 200},
    "keys": {1_000: 200, 10_000: 50, 100_000: 10, 1_000_000: 4},
    "topologies": {1: 2_000, 10: 200, 100: 50},
}
"""How many txids are measured of each size; of each topology."""
WARM_UP_TXIDS = 3

OPEN = threading.Event()
"""Whether the spouts may continue. It is set when all topologies run."""


class Gated(Numbers):
    """Numbers that wait, after a few txids, until all topologies run."""

    def coordinator(self, config: Any, context: Any) -> PartitionedCoordinator:
        return _Coordinator(self.txids, self.partitions)


class _Coordinator(PartitionedCoordinator):
    def __init__(self, txids: int, partitions: int) -> None:
        self.txids, self.partitions = txids, partitions

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= WARM_UP_TXIDS or (OPEN.is_set() and txid <= WARM_UP_TXIDS + self.txids)

    def number_of_partitions(self) -> int:
        return self.partitions


class Pass(BasicBolt):
    """Passes a number on."""

    output_fields = Fields("number long")

    def execute(self, tuple: Tuple, collector: Any) -> None:
        collector.emit(tuple.values)


def topology(
    name: str, txids: int, url: str, *, partitions: int = 1, records: int = 1, bolts: int = 0
) -> Topology:
    """Return the topology: numbers pass through a chain of bolts and are counted by number."""
    source = "numbers"
    # At least as many keys as records, so that each record of a batch has its own.
    spout = Gated(txids, partitions, records, max(KEYS, records))
    builder = TransactionalTopologyBuilder(name, source, spout)
    for number in range(1, bolts + 1):
        builder.set_bolt(f"pass-{number}", Pass()).local_or_shuffle_grouping(source)
        source = f"pass-{number}"
    counts = PersistentAggregate(open_state(url, table=f"counts_{name}"), "number", Count())
    builder.set_bolt("counts", counts).fields_grouping(source, "number")
    return builder.build_topology()


def measure(kind: str, size: int, url: str, zookeeper: str) -> tuple[float, float]:
    """Return the milliseconds of a txid, of all topologies together: processor and wall time."""
    shape: dict[str, int] = {}
    if kind != "topologies":
        shape = {kind: size} if kind != "keys" else {"records": size}
    if kind == "bolts":
        shape["records"] = 10
    txids, many = SIZES[kind][size], size if kind == "topologies" else 1
    config = Config(carrier="local", zookeeper=zookeeper)
    OPEN.clear()
    runs = [
        topology(f"wide-{number}", txids, url, **shape).start(config=config)
        for number in range(many)
    ]
    for run in runs:
        run.process_all_available(TIMEOUT_S)
    begun_s, processor_s = time.monotonic(), time.process_time()
    OPEN.set()
    for run in runs:
        run.process_all_available(TIMEOUT_S)
    each = 1000 / (txids * many)
    took = (time.process_time() - processor_s) * each, (time.monotonic() - begun_s) * each
    for run in runs:
        run.stop()
    return took


def main() -> None:
    """Measure and print a table for each kind."""
    arguments = _arguments()
    print(f"{machine()}\n", flush=True)
    with ExitStack() as stack:
        ensemble, database = ZooKeeperProcess(), PostgresServer()
        for server in (ensemble, database):
            server.start()
            stack.callback(server.stop)
        print("| what | how many | processor ms per txid | µs for each | wall ms per txid |")
        print("|---" * 5 + "|", flush=True)
        for kind in arguments.only or SIZES:
            for size in SIZES[kind]:
                url = f"memory://{kind}-{size}"
                if kind == "keys":
                    url = database.create_database(f"w{size}")
                processor, wall = measure(kind, size, url, f"{ensemble.hosts}/{kind}-{size}")
                # A txid is one topology's, however many there are.
                each = processor if kind == "topologies" else processor / size
                cells = f"{processor:,.2f} | {1000 * each:,.1f} | {wall:,.2f}"
                print(f"| {kind} | {size:,} | {cells} |", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wide", description=__doc__)
    parser.add_argument("--only", action="append", choices=SIZES, help="this kind only")
    return parser.parse_args()


if __name__ == "__main__":
    # Classes of __main__ are pickled by value, and the spout must see the event of this module.
    from benchmarks import wide

    wide.main()
