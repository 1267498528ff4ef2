"""Compute a query of NEXMark in a process of its own, commit by commit, and say what happens.

After each commit it reads one byte from its standard input, so that the parent decides how far it
gets. With ``--stop-at STEP:N`` it stops at that durable step, and says so. With ``--apart`` each
state has transactions of its own, as if they were in different databases.
"""

from __future__ import annotations

import argparse
import os

from examples.nexmark.generator import Generator
from examples.nexmark.queries import QUERIES, topology
from tests.faults.processes.numbers_process import Telling
from tests.harness.dying import StoppingScheduler
from tests.harness.processes import say
from tests.harness.runs import write_states_apart
from tests.harness.servers.zookeeper import LONG_SESSION_S
from txtopo import Config, Topology, ZooKeeper
from txtopo.runtime.progress import BatchCommitted, TopologyEvent
from txtopo.runtime.start import start_topology

# Events of 40 seconds: windows close, and joins forget both of their sides.
GENERATOR = Generator(4_000, rate=100, seed=11)
TAKE, PARALLELISM = 100, 2
"""How many events a task takes for a batch, and how many tasks there are."""
EVENTS_A_TXID = TAKE * PARALLELISM
"""Each txid has the events that come next."""
TXIDS = GENERATOR.events // EVENTS_A_TXID


class Held(Telling):
    """Continues after a commit when the parent allows it.

    A listener must not block. This one does, so that the test has time to read.
    """

    def on_change(self, change: TopologyEvent) -> None:
        super().on_change(change)
        if isinstance(change, BatchCommitted) and change.progress.txid == change.progress.group[1]:
            os.read(0, 1)


def program(query: str, url: str) -> Topology:
    """Return the topology of a query."""
    return topology(query, GENERATOR, url, parallelism=PARALLELISM, take=TAKE)


def main() -> None:
    args = parse()
    if args.apart:
        write_states_apart()
    config = Config(
        carrier="local",
        slots=PARALLELISM,
        zookeeper=ZooKeeper(
            args.zookeeper, session_timeout_s=LONG_SESSION_S, connect_timeout_s=LONG_SESSION_S
        ),
        # Few, so that each life has something to plan.
        max_spout_pending=4,
        group_txids_max=args.group,
    )
    stopping = StoppingScheduler(args.stop_at)
    graph = program(args.query, args.url).graph
    run = start_topology(graph, None, config, [Held()], scheduler=stopping)
    run.process_all_available()
    run.stop()
    say("done")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("query", choices=list(QUERIES))
    parser.add_argument("url")
    parser.add_argument("zookeeper")
    parser.add_argument("--stop-at", action="append", default=[])
    parser.add_argument("--group", type=int, default=1, help="the most txids of a commit")
    parser.add_argument("--apart", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
