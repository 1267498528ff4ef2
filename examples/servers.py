"""ZooKeeper, Kafka and PostgreSQL on their usual ports of this machine, for the tutorial.

``make servers`` runs it. They live until it ends (^C), and what they hold goes with them.
"""

from __future__ import annotations

import signal
import socket
import sys
import time
from contextlib import ExitStack
from types import FrameType

from tests.harness.servers.kafka import KafkaBroker
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.zookeeper import ZooKeeperProcess

PORTS = {"ZooKeeper": 2181, "Kafka": 9092, "PostgreSQL": 5432}


class TutorialDatabase(PostgresServer):
    """PostgreSQL with a password that can be typed; it is reached from this machine only."""

    password = "tutorial"


def is_taken(port: int) -> bool:
    """Whether somebody listens on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def end(number: int, frame: FrameType | None) -> None:
    """End this program, so that the servers end, too."""
    raise SystemExit


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def main() -> None:
    """Start them, say where they are, and wait."""
    taken = [f"{name}'s {port}" for name, port in PORTS.items() if is_taken(port)]
    if taken:
        sys.exit(
            f"servers: something already listens on {', '.join(taken)}; stop that server, or use it"
        )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    with ExitStack() as servers:
        say("starting ZooKeeper, Kafka and PostgreSQL, which takes about 20 seconds")
        zookeeper = servers.enter_context(ZooKeeperProcess(port=PORTS["ZooKeeper"]))
        say(f"ZooKeeper   {zookeeper.hosts}")
        kafka = servers.enter_context(KafkaBroker(port=PORTS["Kafka"]))
        say(f"Kafka       {kafka.servers}")
        postgresql = servers.enter_context(TutorialDatabase(port=PORTS["PostgreSQL"]))
        url = postgresql.create_database("states").replace("+psycopg", "")
        say(f"PostgreSQL  {url}")
        say("they run until you press ^C")
        # In slices: a signal that another thread gets does not wake the main thread.
        while True:
            time.sleep(1)


if __name__ == "__main__":
    main()
