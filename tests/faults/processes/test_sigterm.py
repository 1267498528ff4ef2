"""A process gets SIGTERM: it finishes the commit in hand, and the next process continues."""

from __future__ import annotations

import signal
from pathlib import Path
from uuid import uuid4

import pytest

from tests.faults.processes.counted_flights import CountedFlights
from tests.harness.processes import Child
from tests.harness.servers.zookeeper import ZooKeeperProcess
from txtopo.state import open_state

pytestmark = [pytest.mark.kills, pytest.mark.timeout(900)]
# A few of the 28 commits, so that the process is not done when the signal comes.
FEW = 10


@pytest.mark.row(54)
def test_sigterm_finishes_the_commit_in_hand_and_ends_with_status_0(
    flights_input: Path, tmp_path: Path, zookeeper: ZooKeeperProcess
) -> None:
    state = f"sqlite:///{tmp_path / 'flights.db'}"
    hosts = f"{zookeeper.hosts}/{uuid4().hex}"
    asked = CountedFlights(flights_input, state, ["--zookeeper", hosts])
    asked.batch_bytes = 150_000

    with asked.watched():
        child = asked.start("--pause-s", "0.2", held=True)
        child.allow(3)
        child.wait_for("committed", 3)
        child.signal(signal.SIGTERM)
        child.allow(FEW)  # it needs two at the most
        child.end_with(0)
        last = committed(child)[-1]
        held = {ledger_txid(state, table) for table in asked.tables}
        successor = asked.finish_seen()

    assert held == {last}, "it ended in the middle of a commit, or told of one that was not"
    assert last < committed(successor)[-1], "it did not end before everything was counted"
    assert committed(successor)[0] == last + 1
    assert [said["event"] for said in child.said][-1] == "done"


def committed(child: Child) -> list[int]:
    """Return the txids that a process said were committed."""
    return [said["txid"] for said in child.events("committed")]


def ledger_txid(state: str, table: str) -> int:
    """Return the txid in the ledger of a state."""
    with open_state(state, table=table).reader() as reader:
        assert reader.ledger is not None
        return reader.ledger.txid
