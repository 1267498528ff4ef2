"""``python -m benchmarks.wide``: what a txid costs as a topology, its source or its batches grow.

* ``partitions``: a source of so many partitions, with a record of each in each batch;
* ``bolts``: a chain of so many bolts, with ten records a batch;
* ``keys``: a batch of so many keys, counted in PostgreSQL;
* ``topologies``: so many topologies in one process, which share one ZooKeeper.

Wall time in milliseconds a txid, of all topologies together, from the first start to the last
commit. The state is in memory but for ``keys``, and the tasks run on the carrier ``local``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
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

TIMEOUT_S = 3600.0
SIZES: dict[str, tuple[int, ...]] = {
    "partitions": (1, 10, 100, 1_000, 10_000),
    "bolts": (1, 10, 50),
    "keys": (1_000, 10_000, 100_000, 1_000_000),
    "topologies": (1, 10, 100),
}
TXIDS = {"partitions": 50, "bolts": 200, "keys": 5, "topologies": 100}
WARM_UP_TXIDS = 3


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
    spout = Numbers(txids, partitions, records, max(KEYS, records))
    builder = TransactionalTopologyBuilder(name, source, spout)
    for number in range(1, bolts + 1):
        builder.set_bolt(f"pass-{number}", Pass()).local_or_shuffle_grouping(source)
        source = f"pass-{number}"
    counts = PersistentAggregate(open_state(url, table=f"counts_{name}"), "number", Count())
    builder.set_bolt("counts", counts).fields_grouping(source, "number")
    return builder.build_topology()


def measure(make: Callable[[int, int], Topology], txids: int, many: int, zookeeper: str) -> float:
    """Return the milliseconds of a txid, of all topologies together."""
    took_s = 0.0
    for last in (WARM_UP_TXIDS, WARM_UP_TXIDS + txids):
        config = Config(carrier="local", zookeeper=zookeeper, max_spout_pending=10)
        begun_s = time.monotonic()
        runs = [make(number, last).start(config=config) for number in range(many)]
        for run in runs:
            run.process_all_available(TIMEOUT_S)
        took_s = time.monotonic() - begun_s
        for run in runs:
            run.stop()
    return 1000 * took_s / (txids * many)


def main() -> None:
    """Measure and print a table for each kind."""
    arguments = _arguments()
    print(f"{machine()}\n", flush=True)
    with ExitStack() as stack:
        ensemble, database = ZooKeeperProcess(), PostgresServer()
        for server in (ensemble, database):
            server.start()
            stack.callback(server.stop)
        for kind in arguments.only or SIZES:
            print(f"| {kind} | ms a txid | ÷ {kind} |\n|---|---|---|")
            for size in SIZES[kind]:
                address = f"{ensemble.hosts}/{kind}-{size}"
                url = (
                    database.create_database(f"w{size}")
                    if kind == "keys"
                    else f"memory://{kind}-{size}"
                )
                many = size if kind == "topologies" else 1

                def make(
                    number: int, txids: int, kind: str = kind, size: int = size, url: str = url
                ) -> Topology:
                    shape = {
                        "partitions": {"partitions": size},
                        "bolts": {"bolts": size, "records": 10},
                        "keys": {"records": size},
                        "topologies": {},
                    }
                    return topology(f"wide-{number}", txids, url, **shape[kind])

                ms = measure(make, TXIDS[kind], many, address)
                print(f"| {size:,} | {ms:,.2f} | {ms / size:.4f} |", flush=True)
            print()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wide", description=__doc__)
    parser.add_argument("--only", action="append", choices=SIZES, help="this kind only")
    return parser.parse_args()


if __name__ == "__main__":
    main()
