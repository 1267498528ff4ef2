"""Two coordinators of one topology: one leads, the other waits and takes over."""

from __future__ import annotations

import signal
from pathlib import Path
from uuid import uuid4

import pytest

from tests.faults.processes.counted_flights import SPARE, CountedFlights
from tests.harness.servers.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.kills, pytest.mark.timeout(900)]
# The first process waits after each commit, so that the second one comes while it is at work.
ONE_BY_ONE = ("--max-spout-pending", "1")
BATCH_BYTES = 110_000
"""With which they have 35 txids, of which the test allows the first few one by one."""
EXPIRES_S = 10.0
"""The timeout of the session that is to expire; longer than any pause of a busy machine."""


def kill_the_leader(both: CountedFlights) -> None:
    """Kill the one that leads; the other one, a standby, has to finish its work."""
    both.batch_bytes = BATCH_BYTES
    with both.watched():
        first = both.start(*ONE_BY_ONE, held=True)
        first.wait_for("leading")
        second = both.start(held=True)
        second.wait_for("standby")
        first.allow(2 * SPARE)
        first.wait_for("committed", SPARE)
        first.kill()
        assert second.wait_for("leading")["epoch"] == 2
        both.show(second)
        second.finish()


@pytest.mark.slow
@pytest.mark.row(5, 22)
def test_a_standby_takes_over_when_the_leader_is_killed(
    flights_input: Path, tmp_path: Path, zookeeper: ZooKeeperProcess
) -> None:
    hosts = f"{zookeeper.hosts}/{uuid4().hex}"
    state = f"sqlite:///{tmp_path / 'flights.db'}"
    both = CountedFlights(flights_input, state, ["--zookeeper", hosts])

    kill_the_leader(both)


@pytest.mark.spark
@pytest.mark.row(5, 22, 50)
def test_a_standby_hosts_the_embedded_server_when_the_leader_is_killed(
    flights_input: Path, tmp_path: Path
) -> None:
    """The killed process hosted ZooKeeper as well: the standby hosts it on the same data."""
    state = f"sqlite:///{tmp_path / 'flights.db'}"
    embedded = ["--carrier", "rdd", "--zookeeper", "embedded"]
    both = CountedFlights(
        flights_input, state, [*embedded, "--zookeeper-dir", str(tmp_path / "zookeeper")]
    )

    kill_the_leader(both)


@pytest.mark.row(5, 26, 29)
def test_a_leader_that_wakes_up_deposed_changes_nothing_and_names_its_successor(
    flights_input: Path, tmp_path: Path, zookeeper: ZooKeeperProcess
) -> None:
    hosts = f"{zookeeper.hosts}/{uuid4().hex}"
    state = f"sqlite:///{tmp_path / 'flights.db'}"
    session = ["--session-s", str(EXPIRES_S)]
    both = CountedFlights(flights_input, state, ["--zookeeper", hosts, *session])

    both.batch_bytes = BATCH_BYTES
    with both.watched():
        first = both.start(*ONE_BY_ONE, held=True)
        first.wait_for("leading")
        second = both.start(held=True)
        second.wait_for("standby")
        first.allow(2)
        first.wait_for("committed", 3)
        # It waits after a commit: a process that is stopped with SQLite's lock keeps it.
        first.signal(signal.SIGSTOP)
        assert second.wait_for("leading")["epoch"] == 2
        both.show(second)
        first.release()
        first.signal(signal.SIGCONT)
        first.end_with(3)
        second.finish()

    (error,) = first.events("error")
    assert error["kind"] == "FencedError"
    assert error["leader"]["pid"] == second.pid
    assert f"process {second.pid} on" in error["text"]
