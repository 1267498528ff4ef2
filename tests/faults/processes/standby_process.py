"""Process the messages of a folder at least once, in a process that leads or stands by.

The folder is the source. Its messages are numbers, and there is always a next one until the file
``last`` is there; so whoever is killed has work left. Each number that was ever emitted is in the
file ``emitted``. The source forgets one that is in its file ``acked``, and delivers the others to
who opens it next. The bolt appends a line for each message to the file ``processed``: process,
seconds since 1970, number. These files are only appended to, each time by one write, so what a
killed process has written stays, and a frozen one holds no lock.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections import deque
from pathlib import Path
from typing import Any

from tests.harness.processes import say
from tests.harness.spark_session import open_test_session
from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    Fields,
    Restart,
    SpoutOutputCollector,
    TaskContext,
    TopologyBuilder,
    TopologyListener,
    Tuple,
    ZooKeeper,
)
from txtopo.collector import BatchOutputCollector
from txtopo.config import AnyConfig
from txtopo.ensemble import store
from txtopo.reliable.spout import Spout
from txtopo.runtime.progress import Leading, Standby, TopologyEvent

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
# How long a bolt takes for a message until the file "last" is there: the files stay small.
WORK_S = 0.01


class FromFolder(Spout):
    """Emits the messages that are not acked; again those that failed."""

    output_fields = Fields("number long")

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def open(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: SpoutOutputCollector
    ) -> None:
        self._collector = collector
        self._acked = os.open(self._folder / "acked", APPEND)
        self._emitted = os.open(self._folder / "emitted", APPEND)
        acked = set(numbers_in(self._folder / "acked"))
        self._next = len(set(numbers_in(self._folder / "emitted")))
        self._left = deque(n for n in range(self._next) if n not in acked)

    def next_tuple(self) -> None:
        if not self._left:
            self._add_to_left()
        if self._left:
            number = self._left.popleft()
            self._collector.emit([number], number)

    def _add_to_left(self) -> None:
        end = self._next + 1
        if (self._folder / "last").exists():
            # A leader that is deposed by now may have emitted more.
            end = len(set(numbers_in(self._folder / "emitted")))
        else:
            os.write(self._emitted, b"%d\n" % self._next)
        self._left.extend(range(self._next, end))
        self._next = max(self._next, end)

    def ack(self, message_id: Any) -> None:
        os.write(self._acked, b"%d\n" % message_id)

    def fail(self, message_id: Any) -> None:
        self._left.append(message_id)

    def close(self) -> None:
        os.close(self._acked)
        os.close(self._emitted)


def numbers_in(path: Path) -> list[int]:
    """Return the numbers in a file, one a line."""
    return [int(line) for line in path.read_text().split()] if path.exists() else []


class Append(BasicBolt):
    """Appends each message to a file."""

    def __init__(self, folder: str, driver: int) -> None:
        self._path, self._driver = Path(folder), driver

    def prepare(self, config: AnyConfig, context: TaskContext) -> None:
        self._file = os.open(self._path / "processed", APPEND)
        self._last = self._path / "last"

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        if not self._last.exists():
            time.sleep(WORK_S)
        os.write(self._file, b"%d %.3f %d\n" % (self._driver, time.time(), tuple["number"]))


class Telling(TopologyListener):
    """Says who leads and who waits."""

    def on_change(self, change: TopologyEvent) -> None:
        if isinstance(change, Leading):
            say("leading", epoch=change.epoch)
        elif isinstance(change, Standby):
            say("standby")


def main() -> None:
    args = parse()
    if args.machine:
        store._machine = lambda: args.machine
    builder = TopologyBuilder("killed")
    builder.set_spout("source", FromFolder(args.folder))
    builder.set_bolt("append", Append(args.folder, os.getpid())).shuffle_grouping("source")
    config = AtLeastOnceConfig(
        carrier=args.carrier,
        slots=1,
        max_spout_pending=100,
        message_timeout_s=5,
        zookeeper=ZooKeeper(args.zookeeper, session_timeout_s=args.session_s),
    )
    spark = None if args.carrier == "local" else open_test_session()
    topology = builder.build_topology()
    restart = Restart() if args.restart else None
    run = topology.start(spark, config, [Telling()], restart=restart)
    run.stop_on(signal.SIGTERM)
    try:
        run.await_termination()
    except Exception as error:
        leader = getattr(error, "facts", {}).get("leader")
        say("error", kind=type(error).__name__, text=str(error), leader=leader)
        raise SystemExit(3) from error
    say("done")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--session-s", type=float, default=6.0)
    parser.add_argument("--carrier", default="local")
    parser.add_argument("--machine", default="", help="seem to run on another machine")
    parser.add_argument("--restart", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
