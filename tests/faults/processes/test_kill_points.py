"""A process that kills itself at a durable step: two states of one topology stay exact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from tests.faults.processes.counted_flights import CountedFlights
from tests.harness.servers.zookeeper import ZooKeeperProcess
from txtopo.state.backend import StateKind

pytestmark = [pytest.mark.kills, pytest.mark.timeout(900)]
# Around the writes of the two states and of ZooKeeper, in the order of the protocol.
POINTS = (
    "rows.before:by-carrier-hour.by-carrier-hour",
    "write.after:by-carrier-hour.by-carrier-hour",
    "write.after:total.total",
    "advance.after",
)
BETWEEN = "write.after:by-carrier-hour.by-carrier-hour"


@pytest.mark.parametrize(
    ("kind", "points"),
    [
        ("opaque", [BETWEEN]),
        pytest.param("opaque", POINTS, marks=pytest.mark.slow),
        pytest.param("transactional", POINTS, marks=pytest.mark.slow),
    ],
    ids=["between the writes", "opaque", "transactional"],
)
@pytest.mark.row(7, 31, 42, 43, 46)
def test_two_states_stay_exact_when_the_process_dies_between_their_writes(
    kind: StateKind,
    points: Sequence[str],
    flights_input: Path,
    tmp_path: Path,
    zookeeper: ZooKeeperProcess,
) -> None:
    hosts = f"{zookeeper.hosts}/{uuid4().hex}"
    state = f"sqlite:///{tmp_path / 'flights.db'}"
    arguments = ["--kind", kind, "--zookeeper", hosts, "--apart"]
    dying = CountedFlights(flights_input, state, arguments)
    dying.batch_bytes = 110_000

    with dying.watched():
        for times, point in enumerate(points, start=1):
            dying.start("--die-at", f"{point}:{times}").die()
        # And in a takeover, between the claims of the two states.
        dying.start("--die-at", "claim.claimed:by-carrier-hour.by-carrier-hour:1").die()
        dying.finish_seen()
