"""Count words of files and then of a table in a process of its own; it may kill itself.

``python -m tests.faults.processes.sequence_process FOLDER DATABASE ZOOKEEPER [STEP TIMES]``. Where
the table begins is the number of the last file, which the process appends to ``begins`` in the
folder each time it is asked.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.harness.dying import DyingScheduler
from tests.harness.processes import say
from tests.harness.servers.zookeeper import LONG_SESSION_S
from txtopo import (
    Config,
    Fields,
    PersistentAggregate,
    Topology,
    TransactionalTopologyBuilder,
    ZooKeeper,
)
from txtopo.metadata import Json
from txtopo.runtime.start import start_topology
from txtopo.spouts import FilesTransactionalSpout, QueryTransactionalSpout, SequenceSpout
from txtopo.state import Count, open_state

FIELDS = Fields("id long, word string")


class Begins:
    """Begins after the rows that the files had; notes each time that it is asked."""

    def __init__(self, folder: str, after: int) -> None:
        self._folder, self._after = folder, after

    def __call__(self, end: Json) -> Json:
        with open(Path(self._folder) / "begins", "a") as file:
            file.write(f"{self._after}\n")
        return self._after


def counting(folder: str, url: str, files_rows: int) -> Topology:
    """Return the topology: rows of files, two in a batch, and the rows of a table after them."""
    spout = SequenceSpout(
        FilesTransactionalSpout(f"{folder}/*.csv", FIELDS, batch_rows_max=2),
        QueryTransactionalSpout(url, "words", "id", FIELDS, settle_s=0, batch_rows_max=2),
        Begins(folder, files_rows),
    )
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    count = PersistentAggregate(open_state(url, kind="transactional"), "word", Count())
    builder.set_bolt("count", count).fields_grouping("spout", "word")
    return builder.build_topology()


def main(
    folder: str, url: str, zookeeper: str, rows: str, step: str = "", times: str = "1"
) -> None:
    config = Config(
        carrier="local",
        zookeeper=ZooKeeper(
            zookeeper, session_timeout_s=LONG_SESSION_S, connect_timeout_s=LONG_SESSION_S
        ),
        max_spout_pending=3,
        group_txids_max=1,
    )
    scheduler = DyingScheduler(step, int(times)) if step else None
    graph = counting(folder, url, int(rows)).graph
    run = start_topology(graph, None, config, [], scheduler=scheduler)
    run.process_all_available()
    run.stop()
    say("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
