"""What a run leaves does not grow with its txids, and a start after many of them is a usual one."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.long import YOUNG_TXIDS, check, mib_of, started, znodes
from txtopo import BatchCommitted, Config, TopologyEvent, TopologyListener, ZooKeeper
from txtopo.ensemble.embedded import EmbeddedServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TXIDS, EVERY = 2_000, 100
# The window has 30 txids, and metadata of the group before it is there; all else are a dozen.
ZNODES_MAX = 100
# A database, its log and the index of that; and of ZooKeeper its snapshots, logs, lock and port.
FILES_MAX = 3 + 15
# SQLite's log is emptied at 4 MiB; ZooKeeper's grows by 0.5 KiB a txid, and is purged by snapshots.
MIB_MAX = 8.0


@dataclass
class Held(TopologyListener):
    """Notes what there is after each hundredth txid."""

    folder: Path
    zookeeper: str
    txids: list[int] = field(default_factory=list)
    znodes: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    mib: list[float] = field(default_factory=list)
    open_files: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)

    def on_change(self, change: TopologyEvent) -> None:
        """Note it."""
        if isinstance(change, BatchCommitted):
            self.txids.append(change.progress.txid)
            if change.progress.txid % EVERY == 0:
                self.znodes.append(znodes(self.zookeeper))
                files, mib = mib_of(self.folder)
                self.files.append(files)
                self.mib.append(mib)
                self.open_files.append(len(os.listdir("/proc/self/fd")))
                self.threads.append(len(os.listdir("/proc/self/task")))


@pytest.mark.slow
@pytest.mark.spark
def test_after_2000_txids_nothing_has_grown_and_a_start_goes_on_as_after_ten(
    spark: SparkSession, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/long.db"
    config = Config(carrier="resident", zookeeper=ZooKeeper(dir=str(tmp_path / "zookeeper")))
    started(spark, config, url, YOUNG_TXIDS)
    server = EmbeddedServer(spark._jvm, tmp_path / "zookeeper")
    held = Held(tmp_path, server.attach())

    started(spark, config, url, TXIDS, held)
    started(spark, config, url, TXIDS + YOUNG_TXIDS, again := Held(tmp_path, server.locate()))
    server.close()

    assert held.txids == list(range(YOUNG_TXIDS + 1, TXIDS + 1))
    assert again.txids == list(range(TXIDS + 1, TXIDS + YOUNG_TXIDS + 1))
    check(url, TXIDS + YOUNG_TXIDS)
    assert max(held.znodes) <= ZNODES_MAX
    assert max(held.files) <= FILES_MAX
    assert max(held.mib) <= MIB_MAX
    # Whatever a txid opened and left open would be there a thousand times.
    for each in (held.open_files, held.threads):
        assert max(each) <= each[0] + 10
