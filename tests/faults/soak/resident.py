"""Count the flights again and again in one process, and say after each time how much it holds.

The process lives as long as the soak, so that leaks show.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoNodeError, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError

from examples.flights import ROWS, flights
from tests.faults.processes.flights_folds import folds
from tests.faults.processes.sampling_process import digest
from tests.harness.polling import retry
from tests.harness.processes import say
from txtopo import Config, ZooKeeper
from txtopo.builders.transactional import Topology
from txtopo.errors import CoordinatorUnavailable
from txtopo.runtime.handle import TopologyRun
from txtopo.runtime.progress import BatchCommitted, TopologyEvent, TopologyListener
from txtopo.state import open_state

T = TypeVar("T")
OUTAGE_S_MAX = 1200.0
"""How long the ensemble may be away: the faults of a soak follow each other."""


class Slowly(TopologyListener):
    """Pauses the run after each commit, so that a soak leaves some of the machine to others."""

    def __init__(self, pause_s: float) -> None:
        self._pause = threading.Event()
        self._pause_s = pause_s

    def on_change(self, change: TopologyEvent) -> None:
        if isinstance(change, BatchCommitted):
            self._pause.wait(self._pause_s)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--stop", type=Path, required=True, help="it ends when this file is there")
    args = parser.parse_args()
    expected = folds(args.input, ())[ROWS]
    config = Config(
        carrier="local",
        zookeeper=ZooKeeper(args.zookeeper, session_timeout_s=2.0),
        history_txids=1,  # so that the number of znodes shows what is left behind
    )
    while not args.stop.exists():
        database = args.folder / "resident.db"
        state = f"sqlite:///{database}"
        topology = flights(args.input, state, batch_bytes=600_000, name="resident")
        with started(topology, config) as run:
            run.process_all_available()
        found = {table: digest_of(state, f"resident_{table}") for table in expected}
        say("counted", right=found == expected, znodes=znodes(args.zookeeper), **held())
        forget(args.zookeeper)
        for path in args.folder.glob("resident.db*"):
            path.unlink()
    say("done")


def started(topology: Topology, config: Config) -> TopologyRun:
    """Start the topology, again and again while the ensemble is down."""
    return retry(
        lambda: topology.start(None, config, [Slowly(0.05)]),
        CoordinatorUnavailable,
        limit_s=OUTAGE_S_MAX,
    )


def digest_of(state: str, table: str) -> str:
    """Return a digest of the contents of a state."""
    with open_state(state, table=table).reader() as reader:
        return digest(dict(reader.items()))


def held() -> dict[str, int]:
    """Return the memory, files and threads of this process."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return {
        "memory_kib": int(resident.split()[1]),
        "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }


def znodes(zookeeper: str) -> int:
    """Return how many znodes there are below a chroot."""
    return asked(zookeeper, lambda client: count(client, "/"))


def count(client: KazooClient, path: str) -> int:
    """Return how many znodes there are at and below a path."""
    children = client.get_children(path)
    return 1 + sum(count(client, f"{path.rstrip('/')}/{child}") for child in children)


def forget(zookeeper: str) -> None:
    """Remove the topology from ZooKeeper, so that it begins again."""

    def remove(client: KazooClient) -> None:
        # It may be gone already: the answer of an earlier try may have been lost.
        with contextlib.suppress(NoNodeError):
            client.delete("/resident", recursive=True)

    asked(zookeeper, remove)


def asked(zookeeper: str, question: Callable[[KazooClient], T]) -> T:
    """Ask the ensemble, and ask again when a fault broke the connection."""

    def ask() -> T:
        client = KazooClient(zookeeper)
        try:
            client.start(60.0)
            return question(client)
        finally:
            client.stop()
            client.close()

    return retry(ask, ConnectionLoss, SessionExpiredError, KazooTimeoutError, limit_s=OUTAGE_S_MAX)


if __name__ == "__main__":
    main()
