"""PostgreSQL is stopped, killed and frozen, and comes back, while flights are counted into it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from tests.kills.killing import Campaign
from tests.services.postgresql import PostgresServer
from tests.services.zookeeper import ZooKeeperProcess

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


def kill(server: PostgresServer) -> None:
    server.kill()
    server.start()


def crash(server: PostgresServer) -> None:
    server.stop("immediate")
    server.start()


def stop(server: PostgresServer) -> None:
    server.stop("fast")
    server.start()


def freeze(server: PostgresServer) -> None:
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
    faults: tuple[Callable[[PostgresServer], None], ...],
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
        child = counting.start()
        for fault in faults:
            child.wait_for("committed", 3)
            time.sleep(chance.uniform(0.0, 0.1))
            fault(server)
        child.wait_for("committed", 3)
        child.finish()

    assert any(said["event"] == "failed" for said in child.said), "no commit met a fault"
