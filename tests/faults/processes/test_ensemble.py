"""Three ZooKeeper servers that are killed, frozen, emptied and damaged while flights are counted.

The topology only pauses, and an outside reader never sees anything wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.faults.processes.counted_flights import SPARE, CountedFlights
from tests.faults.processes.damage import cut_off, flip
from tests.faults.processes.flights_process import SESSION_TIMEOUT_S
from tests.harness.servers.ensemble import Member, ZooKeeperEnsemble

pytestmark = [
    pytest.mark.kills,
    pytest.mark.service("zookeeper"),
    pytest.mark.timeout(900),
]
Fault = Callable[[ZooKeeperEnsemble], None]


@pytest.fixture(scope="module")
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble() as ensemble:
        yield ensemble


def kill_the_leader(ensemble: ZooKeeperEnsemble) -> None:
    ensemble.leader.kill()


def kill_a_follower(ensemble: ZooKeeperEnsemble) -> None:
    ensemble.follower.kill()


def kill_two_of_three(ensemble: ZooKeeperEnsemble) -> None:
    for member in (ensemble.leader, ensemble.follower):
        member.kill()
    time.sleep(SESSION_TIMEOUT_S)


def freeze_the_leader(ensemble: ZooKeeperEnsemble) -> None:
    """Freeze it for so long that the others elect a new leader, and sessions expire."""
    frozen = ensemble.leader
    frozen.freeze()
    assert ensemble.leader is not frozen
    time.sleep(SESSION_TIMEOUT_S)


def freeze_a_follower(ensemble: ZooKeeperEnsemble) -> None:
    ensemble.follower.freeze()
    time.sleep(2 * SESSION_TIMEOUT_S)


def wipe_a_follower(ensemble: ZooKeeperEnsemble) -> None:
    member = ensemble.follower
    member.kill()
    member.wipe()


def cut_off_the_log_of_a_follower(ensemble: ZooKeeperEnsemble) -> None:
    damage(ensemble.follower, "log", cut_off)


def flip_a_bit_in_the_log_of_a_follower(ensemble: ZooKeeperEnsemble) -> None:
    damage(ensemble.follower, "log", flip)


def cut_off_the_snapshot_of_a_follower(ensemble: ZooKeeperEnsemble) -> None:
    damage(ensemble.follower, "snapshot", cut_off)


def flip_a_bit_in_the_snapshot_of_a_follower(ensemble: ZooKeeperEnsemble) -> None:
    damage(ensemble.follower, "snapshot", flip)


def damage(member: Member, kind: str, how: Callable[[Path], None]) -> None:
    """Damage the newest file; a server that then refuses to start is set up again, by hand."""
    member.kill()
    how(member.files(kind)[-1])
    member.launch()
    try:
        member.wait()
    except RuntimeError:
        member.kill()
        member.wipe()


OFTEN = (kill_two_of_three,)
SELDOM = (
    kill_the_leader,
    freeze_the_leader,
    kill_a_follower,
    freeze_a_follower,
    wipe_a_follower,
    cut_off_the_log_of_a_follower,
    flip_a_bit_in_the_log_of_a_follower,
    cut_off_the_snapshot_of_a_follower,
    flip_a_bit_in_the_snapshot_of_a_follower,
)


@pytest.mark.row(50)
@pytest.mark.parametrize(
    "fault",
    [*OFTEN, *(pytest.param(fault, marks=pytest.mark.slow) for fault in SELDOM)],
    ids=lambda fault: fault.__name__,
)
def test_a_topology_goes_on_whatever_happens_to_part_of_the_ensemble(
    fault: Fault, ensemble: ZooKeeperEnsemble, flights_input: Path, tmp_path: Path
) -> None:
    ensemble.heal()
    state = f"sqlite:///{tmp_path / 'flights.db'}"
    hosts = f"{ensemble.hosts}/{uuid4().hex}"
    arguments = ["--zookeeper", hosts, "--pause-s", "0.1", "--session-s", str(SESSION_TIMEOUT_S)]
    counting = CountedFlights(flights_input, state, arguments)
    counting.batch_bytes = 110_000

    with counting.watched():
        child = counting.start(held=True)
        counting.show(child)
        child.allow(3 + SPARE)
        child.wait_for("committed", 3)
        fault(ensemble)
        ensemble.heal()
        child.release()
        child.wait_for("committed", 3 + SPARE)
        child.finish()
