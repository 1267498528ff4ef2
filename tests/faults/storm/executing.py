"""Run Storm's count with SQL in the transactions of txids until it is killed, or to its end.

``python -m tests.faults.storm.executing CARRIER URL OTHER SPOUT TAKE ZOOKEEPER [STEP]`` kills
itself when it reaches a durable step for the second time, if one is given. It says that it is done.
"""

from __future__ import annotations

import sys
from typing import cast

from tests.faults.storm.programs import Tables, executed_count
from tests.harness.dying import DyingScheduler
from tests.harness.polling import LIMIT_S
from tests.harness.processes import say
from txtopo import ZooKeeper
from txtopo.config import Carrier, Config
from txtopo.runtime.start import start_topology


def main(
    carrier: str, url: str, other: str, spout: str, take: str, zookeeper: str, step: str = ""
) -> None:
    """Run it."""
    topology = executed_count(Tables(url, other), opaque=spout == "opaque", take=int(take))
    # The first commits are groups of three txids, since nine are processed together.
    config = Config(
        carrier=cast("Carrier", carrier),
        zookeeper=ZooKeeper(zookeeper, session_timeout_s=2),
        slots=2,
        group_txids_max=3,
        max_spout_pending=9,
        poll_interval_s=20,
    )
    scheduler = DyingScheduler(step, 2) if step else None
    run = start_topology(topology.graph, None, config, scheduler=scheduler)
    run.process_all_available(LIMIT_S)
    run.stop(LIMIT_S)
    say("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
