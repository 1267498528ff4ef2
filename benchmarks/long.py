"""``python -m benchmarks.long``: a million txids of ten records, and what each tenth of them cost.

The run must be as quick at its end as at its beginning, in the same memory, and with files that
stay small: those of the embedded ZooKeeper and of the store. Afterwards the topology is started
again, with ten records more: the time to the first commit is that of a young topology.
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

from benchmarks.commits import Numbers
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
    open_session,
    open_state,
)
from txtopo.config import Carrier
from txtopo.transactional_state.embedded import EmbeddedServer

TIMEOUT_S = 24 * 3600.0
RECORDS = 10
YOUNG_TXIDS = 10
STORES = ("memory", "sqlite", "postgresql", "delta")
CARRIERS: tuple[Carrier, ...] = ("resident", "rdd", "dataframe")
COLUMNS = (
    "txids",
    "ms for 1,000",
    "driver's µs a txid",
    *(f"{name}, MiB" for name in FAMILIES),
    "open files",
    "threads",
    "znodes",
    "ZooKeeper's files, MiB",
    "store, MiB",
    "files of the store",
)


class Sampler(TopologyListener):
    """Prints a row of the table at each tenth of the txids, and notes the time of each commit."""

    def __init__(self, txids: int, zookeeper: str, folder: Path, store: str, url: str) -> None:
        self.tenth, self.folder, self.store, self.url = max(1, txids // 10), folder, store, url
        self.started_s = self.then_s = time.monotonic()
        self.took_s, self.first_s, self.next = time.process_time(), 0.0, self.tenth
        self.client = KazooClient(zookeeper)
        self.client.start()
        print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|", flush=True)

    def on_change(self, change: TopologyEvent) -> None:
        """Print a row if a tenth is committed."""
        if isinstance(change, BatchCommitted) and change.progress.txid >= self.next:
            self.print_row(change.progress.txid)
            self.next += self.tenth

    def print_row(self, txid: int) -> None:
        """Print what the txids since the row before took, and what all hold now."""
        now_s, processor_s = time.monotonic(), time.process_time()
        each = 1e6 * (processor_s - self.took_s) / self.tenth
        by_family = families()
        memory = [sum(map(resident_mib, by_family[name])) for name in FAMILIES]
        files, size = stored(self.store, self.url, self.folder / "store")
        cells = (
            f"{txid:,}",
            f"{1e6 * (now_s - self.then_s) / self.tenth:,.0f}",
            f"{each:,.0f}",
            *(f"{mib:,.0f}" for mib in memory),
            sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in by_family["driver"]),
            len(os.listdir("/proc/self/task")),
            self.znodes("/"),
            f"{mib_of(self.folder / 'zookeeper')[1]:,.1f}",
            f"{size:,.1f}",
            files,
        )
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
        self.then_s, self.took_s = time.monotonic(), time.process_time()

    def znodes(self, path: str) -> int:
        """Return how many znodes there are at and below a path."""
        children = self.client.get_children(path)
        return 1 + sum(self.znodes(f"{path.rstrip('/')}/{child}") for child in children)


class First(TopologyListener):
    """Notes when the first commit was."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def on_change(self, change: TopologyEvent) -> None:
        """Note a commit."""
        if isinstance(change, BatchCommitted) and not self.at_s:
            self.at_s = time.monotonic()


def main() -> None:
    """Run, and print the table and the times of starts."""
    arguments = _arguments()
    print(f"{machine()}; {arguments.carrier}, {arguments.store}, {RECORDS} records a txid\n")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="txtopo-long-")))
        url = stack.enter_context(database(arguments.store, folder))
        spark, _ = open_session(app_name="txtopo-long")
        stack.callback(spark.stop)
        config = Config(carrier=arguments.carrier, zookeeper_dir=str(folder / "zookeeper"))
        # The first start makes tables and loads classes.
        started(spark, config, url, YOUNG_TXIDS)
        young_s = started(spark, config, url, 2 * YOUNG_TXIDS)
        server = EmbeddedServer(spark._jvm, folder / "zookeeper")
        sampler = Sampler(arguments.txids, server.attach(), folder, arguments.store, url)
        started(spark, config, url, arguments.txids, sampler)
        sampler.client.stop()
        sampler.client.close()
        old_s = started(spark, config, url, arguments.txids + YOUNG_TXIDS)
        server.close()
        check(url, arguments.txids + YOUNG_TXIDS)
    print(f"\nfrom start() to the first commit: {young_s:.2f} s after ten txids, {old_s:.2f} s")
    print("after all of them. Every record was counted once.")


def started(
    spark: Any, config: Config, url: str, txids: int, *listeners: TopologyListener
) -> float:
    """Run until so many txids are committed; return the seconds to the first one."""
    first, begun_s = First(), time.monotonic()
    run = topology(txids, url).start(spark, config, [first, *listeners])
    run.process_all_available(TIMEOUT_S)
    run.stop()
    return first.at_s - begun_s


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
    urls = {"memory": "memory:", "sqlite": f"sqlite:///{folder}/store/long.db"}
    yield urls.get(store, f"delta:///{folder}/store")


def stored(store: str, url: str, folder: Path) -> tuple[int, float]:
    """Return how many files a store has, and its size in MiB; of PostgreSQL the size alone."""
    if store == "postgresql":
        with psycopg.connect(plain(url)) as connection:
            size = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        assert size is not None
        return 0, size[0] / 2**20
    return mib_of(folder)


def mib_of(folder: Path) -> tuple[int, float]:
    """Return how many files a folder has, and their size in MiB."""
    sizes = []
    for path in folder.rglob("*"):
        try:
            sizes += [path.stat().st_size] if path.is_file() else []
        except OSError:
            continue  # it is gone meanwhile
    return len(sizes), sum(sizes) / 2**20


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
