"""Read a topic for a consumer group at least once, until the process is killed.

``python -m tests.faults.processes.group_process SERVERS TOPIC GROUP FILE`` appends partition and
offset of each record to the file before it acks it. It holds some records, and acks them in random
order. With ``ZOOKEEPER`` as a fifth argument it reads while it leads. With ``MOST`` as a sixth one
it appends this many and holds all others, so that it has not read all when it is killed.
"""

from __future__ import annotations

import os
import random
import sys
from typing import Any

from tests.faults.processes.standby_process import Telling
from txtopo import (
    AtLeastOnceConfig,
    Bolt,
    OutputCollector,
    TaskContext,
    TopologyBuilder,
    Tuple,
    is_tick,
)
from txtopo.spouts import KafkaSpout

HELD = 20

# A broker takes no less. So long the next process waits for one that was killed.
SESSION_MS = 6_000


class Append(Bolt):
    """Appends a record to a file, in one write, and acks it; the order is that of chance."""

    tick_interval_s = 0.2

    def __init__(self, path: str, most: float) -> None:
        self._path, self._left = path, most

    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
        self._collector, self._chance = collector, random.Random()
        self._held: list[Tuple] = []
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def execute(self, tuple: Tuple) -> None:
        if not is_tick(tuple):
            self._held.append(tuple)
        while self._left and len(self._held) > (0 if is_tick(tuple) else HELD):
            self._left -= 1
            done = self._held.pop(self._chance.randrange(len(self._held)))
            os.write(self._file, f"{done['partition']} {done['offset']}\n".encode())
            self._collector.ack(done)


def main(
    servers: str, topic: str, group: str, path: str, zookeeper: str = "", most: str = "inf"
) -> None:
    """Read until killed."""
    columns, settings = ("partition", "offset"), {"session.timeout.ms": SESSION_MS}
    spout = KafkaSpout(servers, topic, group, columns=columns, settings=settings)
    builder = TopologyBuilder("killed")
    builder.set_spout("records", spout)
    builder.set_bolt("append", Append(path, float(most))).shuffle_grouping("records")
    named: dict[str, Any] = {"zookeeper": zookeeper} if zookeeper else {}
    config = AtLeastOnceConfig(carrier="local", slots=1, max_spout_pending=200, **named)
    builder.build_topology().start(None, config, [Telling()]).await_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
