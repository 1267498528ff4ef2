"""``python -m benchmarks.long``: a million txids of ten records, and what each tenth of them cost.

The run must be as quick at its end as at its beginning, in the same memory, and with files that
stay small: those of the embedded ZooKeeper and of the store. Afterwards the topology is started
again, with ten txids more: the time to the first commit is that of a young topology.

A row has the txids since the row before, and the first one those since the first commit: the start
is not in it. Sizes of files are what they take of the disk, since ZooKeeper makes its logs larger
than their content.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from benchmarks.commits import Numbers
from benchmarks.memory import live_heap_mb
from benchmarks.processor import FAMILIES, families
from benchmarks.report import machine
from benchmarks.store import plain
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
    ZooKeeper,
    open_session,
    open_state,
)
from txtopo.config import Carrier
from txtopo.ensemble.embedded import EmbeddedServer

TIMEOUT_S = 24 * 3600.0
RECORDS = 10
YOUNG_TXIDS = 10
STORES = ("sqlite", "postgresql", "delta")
CARRIERS: tuple[Carrier, ...] = ("resident", "rdd", "dataframe")
COLUMNS = (
    "txids",
    "ms for 1,000",
    "driver's µs per txid",
    *(f"{name}, MiB" for name in FAMILIES),
    "live in the JVM's heap, MiB",
    "open files",
    "threads",
    "znodes",
    "ZooKeeper's files, MiB",
    "store, MiB",
    "files of the store",
)


class Sampler(TopologyListener):
    """Prints a row of the table at each tenth of the txids.

    Args:
        spark: The session.
        txids: The last txid of the run.
        zookeeper: Address of the ensemble.
        folder: Where the files are.
        store: The kind of the store.
        url: Where it is.
    """

    def __init__(
        self, spark: Any, txids: int, zookeeper: str, folder: Path, store: str, url: str
    ) -> None:
        self.spark, self.folder, self.store, self.url = spark, folder, store, url
        self.tenth = self.next = max(1, txids // 10)
        self.then: tuple[int, float, float] | None = None
        self.zookeeper = zookeeper
        print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|", flush=True)

    def on_change(self, change: TopologyEvent) -> None:
        """Print a row if a tenth is committed."""
        if not isinstance(change, BatchCommitted):
            return
        txid = change.progress.txid
        if self.then is None:
            self.then = txid, time.monotonic(), time.process_time()
        elif txid >= self.next:
            self.print_row(txid, *self.then)
            # What the row itself takes is in none of them.
            self.then = txid, time.monotonic(), time.process_time()
            self.next += self.tenth

    def print_row(self, txid: int, then: int, then_s: float, took_s: float) -> None:
        """Print what the txids since the row before took, and what all hold now."""
        wall_s, driver_s = time.monotonic() - then_s, time.process_time() - took_s
        by_family = families()
        memory = [sum(map(resident_mib, by_family[name])) for name in FAMILIES]
        files, size = stored(self.store, self.url, self.folder / "store")
        cells = (
            f"{txid:,}",
            f"{1e6 * wall_s / (txid - then):,.0f}",
            f"{1e6 * driver_s / (txid - then):,.0f}",
            *(f"{mib:,.0f}" for mib in memory),
            f"{live_heap_mb(self.spark):,.0f}",
            sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in by_family["driver"]),
            len(os.listdir("/proc/self/task")),
            znodes(self.zookeeper),
            f"{mib_of(self.folder / 'zookeeper')[1]:,.1f}",
            f"{size:,.1f}",
            files,
        )
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


class First(TopologyListener):
    """Notes when the first commit was, and the processor time of this process until then."""

    def __init__(self) -> None:
        self.at_s = self.processor_s = 0.0

    def on_change(self, change: TopologyEvent) -> None:
        """Note a commit."""
        if isinstance(change, BatchCommitted) and not self.at_s:
            self.at_s, self.processor_s = time.monotonic(), time.process_time()


def main() -> None:
    """Run, and print the table and the times of starts."""
    arguments = _arguments()
    print(f"{machine()}; {arguments.carrier}, {arguments.store}, {RECORDS} records per txid\n")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="txtopo-long-")))
        url = stack.enter_context(database(arguments.store, folder))
        spark, _ = open_session(app_name="txtopo-long")
        stack.callback(spark.stop)
        config = Config(
            carrier=arguments.carrier,
            zookeeper=ZooKeeper(dir=str(folder / "zookeeper")),
            history_txids=1,
        )
        # The first start makes tables and loads classes.
        started(spark, config, url, YOUNG_TXIDS)
        young = started(spark, config, url, 2 * YOUNG_TXIDS)
        server = EmbeddedServer(spark._jvm, folder / "zookeeper")
        place = server.attach(), folder, arguments.store, url
        sampler = Sampler(spark, arguments.txids, *place)
        started(spark, config, url, arguments.txids, sampler)
        old = started(spark, config, url, arguments.txids + YOUNG_TXIDS)
        server.close()
        check(url, arguments.txids + YOUNG_TXIDS)
    print("\nfrom start() to the first commit, s of wall and of the driver's processor: after ten")
    print(f"txids {young[0]:.2f} {young[1]:.2f}, after all of them {old[0]:.2f} {old[1]:.2f}.")
    print("Every record was counted once.")


def started(
    spark: Any, config: Config, url: str, txids: int, *listeners: TopologyListener
) -> tuple[float, float]:
    """Run until this many txids are committed.

    Returns:
        The seconds to the first commit: of wall and of processor time of this process.
    """
    first, begun_s, processor_s = First(), time.monotonic(), time.process_time()
    run = topology(txids, url).start(spark, config, [first, *listeners])
    run.process_all_available(TIMEOUT_S)
    run.stop()
    return first.at_s - begun_s, first.processor_s - processor_s


def topology(txids: int, url: str) -> Topology:
    """Return the topology: numbers below 1,000 are counted by number."""
    builder = TransactionalTopologyBuilder("long", "numbers", Numbers(txids, 1, RECORDS))
    counts = PersistentAggregate(open_state(url, table="counts"), "number", Count())
    builder.set_bolt("counts", counts).fields_grouping("numbers", "number")
    return builder.build_topology()


def check(url: str, txids: int) -> None:
    """Check that each record was counted once."""
    with open_state(url, table="counts").reader() as reader:
        counted = sum(value if isinstance(value, int) else value[0] for _, value in reader.items())
    assert counted == RECORDS * txids, f"{counted:,} were counted; expected {RECORDS * txids:,}"


@contextmanager
def database(store: str, folder: Path) -> Iterator[str]:
    """Yield the URL of an empty store."""
    if store == "postgresql":
        server = PostgresServer()
        server.start()
        try:
            yield server.create_database("long")
        finally:
            server.stop()
        return
    (folder / "store").mkdir()
    yield f"sqlite:///{folder}/store/long.db" if store == "sqlite" else f"delta://{folder}/store"


def stored(store: str, url: str, folder: Path) -> tuple[int, float]:
    """Return how many files a store has, and its size in MiB; of PostgreSQL the size alone."""
    if store == "postgresql":
        with psycopg.connect(plain(url)) as connection:
            size = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        assert size is not None
        return 0, size[0] / 2**20
    return mib_of(folder)


def mib_of(folder: Path) -> tuple[int, float]:
    """Return how many files a folder has, and what they take of the disk, in MiB."""
    sizes = []
    for path in folder.rglob("*"):
        try:
            # st_size would count what is only set aside. Blocks are of 512 bytes on every system.
            sizes += [path.stat().st_blocks * 512] if path.is_file() else []
        except OSError:
            continue  # it is gone meanwhile
    return len(sizes), sum(sizes) / 2**20


def znodes(zookeeper: str) -> int:
    """Return how many znodes an ensemble has."""
    client = KazooClient(zookeeper)
    client.start()
    try:
        return _znodes(client, "/")
    finally:
        client.stop()
        client.close()


def _znodes(client: KazooClient, path: str) -> int:
    """Return how many there are at and below a path; one that is gone meanwhile is none."""
    try:
        children = client.get_children(path)
    except NoNodeError:
        return 0
    return 1 + sum(_znodes(client, f"{path.rstrip('/')}/{child}") for child in children)


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long", description=__doc__)
    parser.add_argument("--txids", type=int, default=1_000_000, help="default 1,000,000")
    parser.add_argument("--store", choices=STORES, default="postgresql")
    parser.add_argument("--carrier", choices=CARRIERS, default="resident")
    return parser.parse_args()


if __name__ == "__main__":
    main()
