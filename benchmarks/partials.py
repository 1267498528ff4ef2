"""``python -m benchmarks.partials``: what the merge of partial results costs beside the write.

Each slot combines the rows that it emits, and the driver merges the partial results of all slots
into one row for each key, which it writes. Here each resident slot sees every key in every txid,
the worst there is, so that each row is merged from as many as there are slots. All keys are in the
store before: each is updated.

Printed is processor time in milliseconds a txid: of the driver for the merge, for the client of the
store (which of SQLite is the store), and for all else; and of the servers of PostgreSQL. Txids go
one by one, so that nothing else is in it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.commits import Numbers
from benchmarks.processor import Processor, took_s
from benchmarks.report import machine
from tests.harness.servers.postgresql import PostgresServer
from txtopo import (
    BatchCommitted,
    Config,
    Count,
    PersistentAggregate,
    Topology,
    TopologyEvent,
    TopologyListener,
    TransactionalTopologyBuilder,
    open_session,
    open_state,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 3600.0
SLOTS = (2,)
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
    print(f"{machine()}; each slot has every key in every txid\n")
    titles = ("store", "slots", "keys", "merge ms", "client ms", "rest ms", "server ms")
    print(f"| {' | '.join(titles)} | merge ÷ (client + server) | wall of the write ms |")
    print("|---" * (len(titles) + 2) + "|")
    for slots in arguments.slots or SLOTS:
        spark, _ = open_session(master=f"local[{slots}]", app_name="txtopo-partials")
        for name in arguments.only or STORES:
            for keys in arguments.keys or KEYS:
                with store(name) as (url, server):
                    took = measure(spark, url, server, slots, keys)
                print(f"| {name} | {slots} | {keys:,} | {took.told()} |", flush=True)
        spark.stop()


def measure(
    spark: SparkSession, url: str, server: PostgresServer | None, slots: int, keys: int
) -> Took:
    """Return what a txid of so many keys took."""
    processor = Processor("partials")
    with tempfile.TemporaryDirectory(prefix="txtopo-partials-") as folder, processor.measured():
        sums = Sums(processor, server)
        config = Config(carrier="resident", slots=slots, zookeeper_dir=folder, max_spout_pending=1)
        txids = WARM_UP_TXIDS + TXIDS.get(keys, 5)
        run = topology(url, slots, keys, txids).start(spark, config, [sums])
        run.process_all_available(TIMEOUT_S)
        took = sums.took()
        run.stop()
    return took


def topology(url: str, slots: int, keys: int, txids: int) -> Topology:
    """Return the topology: each partition has each key once in each txid."""
    spout = Numbers(txids, slots, keys, keys)
    builder = TransactionalTopologyBuilder("partials", "numbers", spout, slots)
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
    parser.add_argument("--slots", action="append", type=int, help="may be repeated; default 2")
    return parser.parse_args()


if __name__ == "__main__":
    main()
