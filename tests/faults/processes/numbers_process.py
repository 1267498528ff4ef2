"""Count numbers in a process of its own, in groups of small batches, and say what happens."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.faults.networks.numbers import Arrivals, topology
from tests.harness.processes import say
from tests.harness.servers.zookeeper import LONG_SESSION_S
from txtopo import Config, ZooKeeper
from txtopo.runtime.progress import (
    BatchCommitted,
    BatchFailed,
    Leading,
    TopologyEvent,
    TopologyListener,
)


class Telling(TopologyListener):
    """Says which groups are committed or adopted, and which batches failed."""

    def on_change(self, change: TopologyEvent) -> None:
        if isinstance(change, Leading):
            say("leading", adopted=len(change.adopted_txids))
        elif isinstance(change, BatchCommitted):
            first, last = change.progress.group
            if change.progress.txid == last:
                say("committed", txid=last, txids=last - first + 1)
        elif isinstance(change, BatchFailed):
            say("failed", error=repr(change.error))


def main(path: str, zookeeper: str, kind: Any, mode: Any, url: str, *more: str) -> None:
    config = Config(
        carrier="local",
        zookeeper=ZooKeeper(
            zookeeper, session_timeout_s=LONG_SESSION_S, connect_timeout_s=LONG_SESSION_S
        ),
        max_spout_pending=60,
        group_txids_max=20,
        poll_interval_s=0.01,
        backoff_s=0.05,
    )
    counting = topology("numbers", url, kind, Arrivals(Path(path)), 1, more, mode)
    with counting.start(None, config, [Telling()]) as run:
        run.process_all_available()
    say("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
