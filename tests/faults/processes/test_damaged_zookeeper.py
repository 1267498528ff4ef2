"""ZooKeeper's data is lost, rolled back or damaged while a store is ahead of it.

The topology never begins again and skips nothing. Either the server refuses its data, or the
coordinator says that the store is ahead, or the rest of the data is enough. When the data is back,
the topology continues.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.faults.processes.counted_flights import CountedFlights
from tests.faults.processes.damage import cut_off, flip
from tests.harness.servers.zookeeper import ZooKeeperProcess

pytestmark = [
    pytest.mark.kills,
    pytest.mark.slow,
    pytest.mark.service("zookeeper"),
    pytest.mark.timeout(900),
]
EARLY, LATE = 3, 12
Damage = Callable[[ZooKeeperProcess, Path], None]


@pytest.fixture
def server() -> Iterator[ZooKeeperProcess]:
    """A server of the test's own."""
    with ZooKeeperProcess() as server:
        yield server


def wipe(server: ZooKeeperProcess, early: Path) -> None:
    shutil.rmtree(data(server))


def roll_back(server: ZooKeeperProcess, early: Path) -> None:
    """Go back to an earlier copy, as a restored backup does."""
    shutil.rmtree(data(server))
    shutil.copytree(early, data(server))


def lose_the_log(server: ZooKeeperProcess, early: Path) -> None:
    server.files("log")[-1].unlink()


def cut_the_log(share: float, server: ZooKeeperProcess, early: Path) -> None:
    cut_off(server.files("log")[-1], share)


def flip_in_the_log(share: float, server: ZooKeeperProcess, early: Path) -> None:
    flip(server.files("log")[-1], share)


def data(server: ZooKeeperProcess) -> Path:
    return server.folder / "data"


SEVERE = {"wiped": wipe, "rolled back": roll_back, "log lost": lose_the_log}
SHARES = (0.5, 0.9, 0.99)
SLIGHT: dict[str, Damage] = {
    **{f"log cut at {share}": partial(cut_the_log, share) for share in SHARES},
    **{f"bit flipped at {share}": partial(flip_in_the_log, share) for share in SHARES},
}


def outcome(server: ZooKeeperProcess, counting: CountedFlights) -> str:
    """Start the server and the topology; return which of them refused, or "done"."""
    try:
        server.start()
    except RuntimeError:
        return "the server refuses its data"
    child = counting.start()
    status = child.wait()
    server.kill()
    if not status:
        return "done"
    (error,) = child.events("error")
    assert status == 3
    assert "ZooKeeper" in error["text"]
    return str(error["kind"])


@pytest.mark.row(51)
@pytest.mark.parametrize(
    ("how", "outcomes"),
    [
        *(pytest.param(how, {"StoreAheadOfCoordinator"}, id=name) for name, how in SEVERE.items()),
        *(
            pytest.param(
                how,
                {"StoreAheadOfCoordinator", "the server refuses its data", "done"},
                id=name,
            )
            for name, how in SLIGHT.items()
        ),
    ],
)
def test_lost_data_is_noticed_and_nothing_is_counted_twice(
    how: Damage,
    outcomes: set[str],
    server: ZooKeeperProcess,
    flights_input: Path,
    tmp_path: Path,
) -> None:
    state = f"sqlite:///{tmp_path / 'flights.db'}"
    counting = CountedFlights(
        flights_input, state, ["--zookeeper", server.hosts, "--pause-s", "0.05"]
    )
    counting.batch_bytes = 75_000
    early, late = tmp_path / "early", tmp_path / "late"

    with counting.watched():
        child = counting.start()
        child.wait_for("committed", EARLY)
        shutil.copytree(data(server), early)
        child.wait_for("committed", LATE)
        child.kill()
        server.kill()
        shutil.copytree(data(server), late)
        how(server, early)
        came = outcome(server, counting)
        if came != "done":
            roll_back(server, late)
            server.start()
            counting.start().finish()

    assert came in outcomes
