"""A client of Spark Connect in a process of its own, which counts words and may die of it.

It says which txids are committed and how it ended. The bolt holds one batch once, until a file is
there, so that a test has time to do something.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

from pyspark.sql import SparkSession
from pyspark.sql.connect.client.retries import DefaultPolicy

from tests.harness.dying import DyingScheduler
from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.processes import SILENCE_S_MAX, say
from tests.harness.runs import Changes
from tests.harness.servers.zookeeper import LONG_SESSION_S
from tests.services.connect.programs import WORD, counting
from txtopo import BasicBolt, BatchCommitted, BatchFailed, Config, TopologyEvent, Tuple, ZooKeeper
from txtopo.collector import BatchOutputCollector
from txtopo.config import Carrier
from txtopo.runtime.start import start_topology
from txtopo.spouts import MemoryTransactionalSpout

BATCH = 50
HELD = "held"
ROWS = [f"word {number % 7}" for number in range(3 * BATCH)]
ROWS[BATCH] = HELD
"""Three batches; the second one is held."""


class HeldOnce(BasicBolt):
    """Passes words on; waits at one of them, the first time that it comes."""

    output_fields = WORD

    def __init__(self, folder: Path) -> None:
        self.reached, self.go = folder / "reached", folder / "go"

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        if tuple["word"] == HELD and not self.reached.exists():
            self.reached.touch()
            wait_until(self.go.exists, "it may continue")
        collector.emit([tuple["word"]])


def tell(change: TopologyEvent) -> None:
    """Say what is committed and what failed."""
    if isinstance(change, BatchCommitted):
        say("committed", txid=change.progress.txid)
    elif isinstance(change, BatchFailed):
        say("failed", error=type(change.error).__name__)


def main(url: str, state: str, zookeeper: str, carrier: str, folder: str, die_at: str) -> None:
    """Process everything.

    Args:
        url: The server.
        state: URL of the store.
        zookeeper: The ensemble.
        carrier: The carrier.
        folder: Where the batch is held.
        die_at: The durable step at which the process kills itself; empty for none.
    """
    spark = SparkSession.builder.remote(url).create()
    # Else it asks a server that is started again after up to a minute.
    spark.client.set_retry_policies([DefaultPolicy(max_retries=1_000, max_backoff=200)])
    spout = MemoryTransactionalSpout({0: [[word] for word in ROWS]}, WORD, BATCH)
    config = Config(
        carrier=cast("Carrier", carrier),
        zookeeper=ZooKeeper(zookeeper, session_timeout_s=LONG_SESSION_S, connect_timeout_s=LIMIT_S),
        max_spout_pending=3,
        group_txids_max=1,
    )
    scheduler = DyingScheduler(die_at, 2) if die_at else None
    topology = counting(state, spout, HeldOnce(Path(folder)))
    run = start_topology(topology.graph, spark, config, [Changes(tell)], scheduler=scheduler)
    try:
        run.process_all_available(SILENCE_S_MAX)
    except Exception as error:  # noqa: BLE001 - the test judges it
        say("ended", kind=type(error).__name__, text=str(error))
    else:
        run.stop()
        say("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
