"""Count flights in a process of its own, and say what happens.

With ``--die-at STEP:N`` it kills itself when that durable step is reached for the N-th time. After
each commit it reads one byte from its standard input, so that the parent decides how far it gets.
It does not wait if the input is closed. With
``--stop-at STEP:N`` it stops there, says so, and continues when it is resumed. With ``--apart``
each state has transactions of its own, as if they were in two databases.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

from examples.flights import JsonProgress, flights
from tests.harness.dying import DyingScheduler, StoppingScheduler
from tests.harness.processes import say
from tests.harness.runs import write_states_apart
from tests.harness.servers.zookeeper import LONG_SESSION_S
from tests.harness.spark_session import open_test_session
from txtopo import Config, ZooKeeper
from txtopo.runtime.progress import BatchCommitted, BatchFailed, Standby, Started, TopologyEvent
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.runtime.start import start_topology

# Short, for tests in which the session of a stopped process has to expire.
SESSION_TIMEOUT_S = 2.0


class Telling(JsonProgress):
    """Says more than a progress bar needs, and can hold the run after each commit.

    A listener must not block. This one does, so that the test has time to do something.
    """

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s

    def on_change(self, change: TopologyEvent) -> None:
        super().on_change(change)
        if isinstance(change, BatchCommitted):
            time.sleep(self._pause_s)
            os.read(0, 1)
        if isinstance(change, Started):
            say("running")
        elif isinstance(change, Standby):
            say("standby")
        elif isinstance(change, BatchFailed):
            say("failed", error=repr(change.error))


def main() -> None:
    args = parse()
    telling = Telling(args.pause_s)
    if args.apart:
        write_states_apart()
    topology = flights(
        args.input,
        args.state,
        batch_bytes=args.batch_bytes,
        name=args.name,
        kind=args.kind,
        mode=args.mode,
    )
    config = Config(
        carrier=args.carrier,
        zookeeper=ZooKeeper(
            args.zookeeper,
            dir=str(args.zookeeper_dir),
            session_timeout_s=args.session_s,
            connect_timeout_s=LONG_SESSION_S,
        ),
        max_spout_pending=args.max_spout_pending,
        group_txids_max=1,
    )
    spark = None if args.carrier == "local" else open_test_session()
    run = start_topology(topology.graph, spark, config, [telling], scheduler=scheduler_of(args))
    run.stop_on(signal.SIGTERM)
    try:
        run.process_all_available()
    except Exception as error:
        leader = getattr(error, "facts", {}).get("leader")
        say("error", kind=type(error).__name__, text=str(error), leader=leader)
        raise SystemExit(3) from error
    run.stop()
    say("done")


def scheduler_of(args: argparse.Namespace) -> ThreadScheduler | None:
    if args.stop_at:
        return StoppingScheduler(args.stop_at)
    name, _, times = args.die_at.rpartition(":")
    return DyingScheduler(name, int(times)) if name else None


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--state", required=True)
    parser.add_argument("--kind", default="opaque")
    parser.add_argument("--mode", default="table")
    parser.add_argument("--name", default="flights")
    parser.add_argument("--carrier", default="local")
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--zookeeper-dir", type=Path, default=Path("zookeeper"))
    parser.add_argument("--session-s", type=float, default=LONG_SESSION_S)
    parser.add_argument("--batch-bytes", type=int, default=320_000)
    parser.add_argument("--max-spout-pending", type=int, default=30)
    parser.add_argument("--pause-s", type=float, default=0.0)
    parser.add_argument("--die-at", default="")
    parser.add_argument("--stop-at", action="append", default=[])
    parser.add_argument("--apart", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
