"""Run a program of Storm's page until it is killed, or to its end.

``python -m tests.faults.storm.process PROGRAM CARRIER DATABASE ZOOKEEPER [TXID]`` kills itself
right after its database has the write of a txid, if one is given, also if a worker of Spark has
written it. It says what it has done.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from tests.faults.storm.programs import Database, global_count, opaque_count, top_words
from tests.harness.polling import LIMIT_S
from tests.harness.processes import say
from txtopo import Topology, ZooKeeper
from txtopo.config import Carrier, Config

PROGRAMS: dict[str, Callable[[Database], Topology]] = {
    "global": global_count,
    "opaque": opaque_count,
    "words": top_words,
}


@dataclass(frozen=True)
class KilledAfter:
    """Kills a process after the write of a txid.

    Attributes:
        txid: The txid.
        process: Which process; None for the one that has written.
    """

    txid: int
    process: int | None = None

    def __call__(self, written: int) -> None:
        if written == self.txid:
            os.kill(self.process or os.getpid(), signal.SIGKILL)


def main(program: str, carrier: str, path: str, zookeeper: str, txid: str = "") -> None:
    """Run it."""
    database = Database(path, KilledAfter(int(txid), os.getpid())) if txid else Database(path)
    config = Config(
        carrier=cast("Carrier", carrier),
        zookeeper=ZooKeeper(zookeeper, session_timeout_s=2),
        slots=2,
    )
    with PROGRAMS[program](database).start(config=config) as run:
        run.process_all_available(LIMIT_S)
    say("done", counts=database.counts())


if __name__ == "__main__":
    main(*sys.argv[1:])
