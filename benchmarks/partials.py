"""``python -m benchmarks.partials``: what the merge of partial results costs beside the write.

Each slot combines the rows that it emits, and the driver merges the partial results of all slots
into one row for each key, which it writes. Here both resident slots see every key in every txid,
the worst there is, so that each row is merged from two. All keys are in the store before: each is
updated.

Printed is processor time in milliseconds a txid: of the driver for the merge, for the client of the
store (which of SQLite is the store), and for all else; and of the servers of PostgreSQL. Txids go
one by one, so that nothing else is in it. A second table has the merge alone, by the number of
slots, without Spark; each slot has the keys in another order.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.commits import Numbers
from benchmarks.processor import Processor, took_s
from benchmarks.report import machine
from tests.harness.servers.postgresql import PostgresServer
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
from txtopo.stages.aggregation import Aggregation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 3600.0
SLOTS = 2
MERGED_SLOTS = (2, 8, 32, 128)
MERGED_KEYS = 100_000
MERGES = 5
WARM_UP_TXIDS = 2
KEYS = (1_000, 10_000, 100_000, 1_000_000)
TXIDS = {1_000: 100, 10_000: 30, 100_000: 10, 1_000_000: 5}
STORES = ("postgresql", "sqlite")


@dataclass(frozen=True, slots=True)
class Took:
    """What a txid took, in seconds.

    Attributes:
        merge: Processor time of the merge.
        client: Processor time of the client of the store.
        rest: Processor time of the rest of the driver's Python.
        server: Processor time of the store's servers.
        write: Wall time of the write.
    """

    merge: float
    client: float
    rest: float
    server: float
    write: float

    def told(self) -> str:
        """Return the cells of a row."""
        parts = (self.merge, self.client, self.rest, self.server)
        cells = " | ".join(f"{1000 * s:,.1f}" for s in parts)
        share = self.merge / (self.client + self.server)
        return f"{cells} | {share:.2f} | {1000 * self.write:,.1f}"


class Sums(TopologyListener):
    """Adds up what the txids after the first ones took."""

    def __init__(self, processor: Processor, server: PostgresServer | None) -> None:
        self.processor, self.server = processor, server
        self.before = self.now()
        self.writes_s: list[float] = []

    def now(self) -> dict[str, float]:
        """Return the processor time so far by kind, and that of the servers."""
        return {**self.processor.read(), "server": server_s(self.server)}

    def on_change(self, change: TopologyEvent) -> None:
        """Note a commit."""
        if not isinstance(change, BatchCommitted):
            return
        if change.progress.txid == WARM_UP_TXIDS:
            self.before = self.now()
        elif change.progress.txid > WARM_UP_TXIDS:
            self.writes_s.append(sum(change.progress.state_s.values()))

    def took(self) -> Took:
        """Return what a txid took since the first ones."""
        txids, now = len(self.writes_s), self.now()
        each = {kind: (now[kind] - self.before[kind]) / txids for kind in now}
        apart = {kind: each.pop(kind) for kind in ("merge", "store", "server", "workers")}
        rest, written_s = sum(each.values()), median(self.writes_s)
        return Took(apart["merge"], apart["store"], rest, apart["server"], written_s)


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    print(f"{machine()}; each slot has every key in every txid")
    print_merges()
    if arguments.merges:
        return
    print()
    titles = ("store", "keys", "merge ms", "client ms", "rest ms", "server ms")
    print(f"| {' | '.join(titles)} | merge ÷ (client + server) | wall of the write ms |")
    print("|---" * (len(titles) + 2) + "|", flush=True)
    spark, _ = open_session(master=f"local[{SLOTS}]", app_name="txtopo-partials")
    for name in arguments.only or STORES:
        for keys in arguments.keys or KEYS:
            with store(name) as (url, server):
                took = measure(spark, url, server, keys)
            print(f"| {name} | {keys:,} | {took.told()} |", flush=True)
    spark.stop()


def print_merges() -> None:
    """Print what the merge takes by the number of slots that have all keys."""
    print(f"\n| slots, each with {MERGED_KEYS:,} keys | merge ms |\n|---|---|")
    bolt = PersistentAggregate(open_state("memory:"), "number", Count())
    aggregation = Aggregation.of(bolt, Fields("number long"))
    chance = np.random.default_rng(1)
    for slots in MERGED_SLOTS:
        batches = []
        for _ in range(slots):
            numbers = pa.array(chance.permutation(MERGED_KEYS))
            columns = [numbers, pa.repeat(1, MERGED_KEYS)]
            batches.append(pa.RecordBatch.from_arrays(columns, schema=aggregation.schema))
        taken = []
        for _ in range(MERGES):
            begun_s = time.thread_time()
            assert aggregation.combine(batches).num_rows == MERGED_KEYS
            taken.append(time.thread_time() - begun_s)
        print(f"| {slots} | {1000 * median(taken):,.1f} |", flush=True)


def measure(spark: SparkSession, url: str, server: PostgresServer | None, keys: int) -> Took:
    """Return what a txid of this many keys took."""
    processor = Processor("partials")
    with tempfile.TemporaryDirectory(prefix="txtopo-partials-") as folder, processor.measured():
        sums = Sums(processor, server)
        config = Config(carrier="resident", zookeeper=ZooKeeper(dir=folder), max_spout_pending=1)
        run = topology(url, keys, WARM_UP_TXIDS + TXIDS.get(keys, 5)).start(spark, config, [sums])
        run.process_all_available(TIMEOUT_S)
        took = sums.took()
        run.stop()
    return took


def topology(url: str, keys: int, txids: int) -> Topology:
    """Return the topology: each partition has each key once in each txid."""
    spout = Numbers(txids, SLOTS, keys, keys)
    builder = TransactionalTopologyBuilder("partials", "numbers", spout, SLOTS)
    counts = PersistentAggregate(open_state(url, table="counts"), "number", Count())
    builder.set_bolt("counts", counts).fields_grouping("numbers", "number")
    return builder.build_topology()


@contextmanager
def store(name: str) -> Iterator[tuple[str, PostgresServer | None]]:
    """Yield the URL of an empty store, and its server if it has one."""
    if name == "postgresql":
        with PostgresServer() as server:
            yield server.create_database("partials"), server
        return
    with tempfile.TemporaryDirectory(prefix="txtopo-partials-") as folder:
        yield f"sqlite:///{folder}/partials.db", None


def server_s(server: PostgresServer | None) -> float:
    """Return the processor time of the processes of a server so far, also of those that ended."""
    if server is None:
        return 0.0
    pid = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(map(took_s, [pid, *map(int, children)]))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partials", description=__doc__)
    parser.add_argument("--only", action="append", choices=STORES, help="this store only")
    parser.add_argument(
        "--keys", action="append", type=int, help=f"of a txid; may be repeated; default {KEYS}"
    )
    parser.add_argument("--merges", action="store_true", help="the merge alone, without Spark")
    return parser.parse_args()


if __name__ == "__main__":
    main()
