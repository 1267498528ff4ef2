"""Publish the outbox of ``examples/outbox.py`` to one server, until the process is killed.

``python -m tests.faults.processes.outbox_process URL ZOOKEEPER NAME SERVER PLACE ROWS`` sends so
many of the rows that it is given, says so, and waits to be killed.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from examples.outbox import publisher, to_kafka, to_rabbitmq
from tests.harness.processes import say
from txtopo import Config
from txtopo.outbox import OutboxRow


def main(url: str, zookeeper: str, name: str, server: str, place: str, rows_max: str) -> None:
    """Publish until killed."""
    send = {"kafka": to_kafka, "rabbitmq": to_rabbitmq}[name](server, place)

    def send_part(rows: Sequence[OutboxRow]) -> None:
        sent = rows[: int(rows_max)]
        send(sent)
        say("sent", rows=len(sent))
        signal.pause()

    with publisher(url, name, Config(zookeeper=zookeeper)) as published:
        published.publish_ready(send_part)


if __name__ == "__main__":
    main(*sys.argv[1:])
