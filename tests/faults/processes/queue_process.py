"""Read a queue at least once, until the process is killed.

``python -m tests.faults.processes.queue_process URL QUEUE FILE`` appends each word to the file, and
acks two of three. With ``ZOOKEEPER`` as a fourth argument it reads while it leads.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from tests.faults.processes.standby_process import Telling
from txtopo import (
    AtLeastOnceConfig,
    Bolt,
    Fields,
    OutputCollector,
    TaskContext,
    TopologyBuilder,
    Tuple,
)
from txtopo.spouts import QueueSpout


class Append(Bolt):
    """Appends each word to a file, in one write; never acks every third tuple."""

    def __init__(self, path: str) -> None:
        self._path = path

    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
        self._collector, self._count = collector, 0
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def execute(self, tuple: Tuple) -> None:
        os.write(self._file, tuple["word"].encode() + b"\n")
        self._count += 1
        if self._count % 3:
            self._collector.ack(tuple)


def main(url: str, queue: str, path: str, zookeeper: str = "") -> None:
    """Read until killed."""
    builder = TopologyBuilder("killed")
    builder.set_spout("queue", QueueSpout(url, queue, Fields("word string")))
    builder.set_bolt("append", Append(path)).shuffle_grouping("queue")
    named: dict[str, Any] = {"zookeeper": zookeeper} if zookeeper else {}
    config = AtLeastOnceConfig(carrier="local", slots=1, max_spout_pending=60, **named)
    builder.build_topology().start(None, config, [Telling()]).await_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
