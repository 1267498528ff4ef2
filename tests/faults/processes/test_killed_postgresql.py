"""PostgreSQL is stopped, killed and frozen, and comes back, while flights are counted into it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from tests.faults.processes.killing import SPARE, Campaign, Child
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.zookeeper import ZooKeeperProcess

pytestmark = [
    pytest.mark.kills,
    pytest.mark.service("postgresql"),
    pytest.mark.timeout(900),
]
FROZEN_S = 1.0


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of the test's own, since it dies."""
    with PostgresServer() as server:
        yield server


Fault = Callable[[PostgresServer, Child], None]


def kill(server: PostgresServer, child: Child) -> None:
    server.kill()
    come_back(server, child)


def crash(server: PostgresServer, child: Child) -> None:
    server.stop("immediate")
    come_back(server, child)


def stop(server: PostgresServer, child: Child) -> None:
    server.stop("fast")
    come_back(server, child)


def come_back(server: PostgresServer, child: Child) -> None:
    """Start it when a commit has met the fault: one was under way, or comes now."""
    child.allow(1)
    child.wait_for("failed")
    server.start()


def freeze(server: PostgresServer, child: Child) -> None:
    server.signal(signal.SIGSTOP)
    time.sleep(FROZEN_S)
    server.signal(signal.SIGCONT)


@pytest.mark.row(28, 31)
@pytest.mark.parametrize(
    "faults",
    [(kill, stop), pytest.param((kill, freeze, crash, stop) * 3, marks=pytest.mark.slow)],
    ids=["killed and stopped", "twelve times"],
)
def test_a_server_that_goes_and_comes_back_in_the_middle_of_commits_costs_only_time(
    faults: tuple[Fault, ...],
    server: PostgresServer,
    flights_input: Path,
    zookeeper: ZooKeeperProcess,
) -> None:
    chance = Random(11)
    hosts = f"{zookeeper.hosts}/{uuid4().hex}"
    arguments = ["--zookeeper", hosts, "--pause-s", "0.05"]
    counting = Campaign(flights_input, server.create_database("killed"), arguments)
    counting.batch_bytes = 320_000 if len(faults) > 2 else 900_000

    with counting.watched():
        child = counting.start(held=True)
        counting.show(child)
        for fault in faults:
            child.allow(3 + SPARE)
            child.wait_for("committed", 3)
            time.sleep(chance.uniform(0.0, 0.1))
            fault(server, child)
        child.finish()
