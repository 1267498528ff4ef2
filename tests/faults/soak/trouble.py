"""The faults of a soak, one function each; the fault is over when its function returns."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.processes.counted_flights import CountedFlights
from tests.faults.processes.flights_process import SESSION_TIMEOUT_S
from tests.harness.processes import Child
from tests.harness.servers.ensemble import ZooKeeperEnsemble
from tests.harness.servers.postgresql import PostgresServer

LONG_S = 1.5 * SESSION_TIMEOUT_S
SHORT_S = 0.5


@dataclass(slots=True)
class Scene:
    """Everything that a fault can break.

    Attributes:
        ensemble: ZooKeeper.
        server: The database of a round that counts into one.
        counting: The topology of the round.
        child: The driver that leads, or will.
    """

    ensemble: ZooKeeperEnsemble
    server: PostgresServer | None
    counting: CountedFlights
    child: Child

    def start(self) -> None:
        """Start the next driver."""
        self.child = self.counting.start("--pause-s", "0.05")
        self.child.wait_for("running")


def kill_the_driver(scene: Scene) -> None:
    scene.child.kill()
    scene.start()


def end_the_driver(scene: Scene) -> None:
    scene.child.end()
    scene.start()


def freeze_the_driver_for_a_moment(scene: Scene) -> None:
    _freeze_the_driver(scene, SHORT_S)


def freeze_the_driver_beyond_its_session(scene: Scene) -> None:
    _freeze_the_driver(scene, LONG_S)


def freeze_the_driver_until_another_leads(scene: Scene) -> None:
    """The frozen one wakes up deposed, or leads again if the other is slow; one finishes."""
    frozen = scene.child
    frozen.signal(signal.SIGSTOP)
    try:
        scene.start()
        scene.child.wait_for("leading")
    finally:
        frozen.signal(signal.SIGCONT)
    if frozen.end_with(0, 3) == 0:
        scene.child.end_with(0, 3)
        scene.child, frozen = frozen, scene.child
    errors = {said["kind"] for said in frozen.events("error")}
    assert errors <= {"FencedError"}, errors


def kill_the_driver_beside_a_standby(scene: Scene) -> None:
    killed = scene.child
    scene.start()
    time.sleep(SHORT_S)
    killed.kill()


def kill_the_leader_of_zookeeper(scene: Scene) -> None:
    scene.ensemble.leader.kill()
    scene.ensemble.heal()


def kill_a_follower_of_zookeeper(scene: Scene) -> None:
    scene.ensemble.follower.kill()
    scene.ensemble.heal()


def kill_two_of_three_of_zookeeper(scene: Scene) -> None:
    for member in (scene.ensemble.leader, scene.ensemble.follower):
        member.kill()
    scene.ensemble.heal()


def freeze_the_leader_of_zookeeper(scene: Scene) -> None:
    scene.ensemble.leader.freeze()
    time.sleep(LONG_S)
    scene.ensemble.heal()


def wipe_a_follower_of_zookeeper(scene: Scene) -> None:
    member = scene.ensemble.follower
    member.kill()
    member.wipe()
    scene.ensemble.heal()


def kill_the_database(scene: Scene) -> None:
    if scene.server is not None:
        scene.server.kill()
        scene.server.start()


def stop_the_database(scene: Scene) -> None:
    if scene.server is not None:
        scene.server.stop("fast")
        scene.server.start()


def freeze_the_database(scene: Scene) -> None:
    if scene.server is not None:
        scene.server.signal(signal.SIGSTOP)
        time.sleep(SHORT_S)
        scene.server.signal(signal.SIGCONT)


def _freeze_the_driver(scene: Scene, seconds: float) -> None:
    scene.child.signal(signal.SIGSTOP)
    time.sleep(seconds)
    scene.child.signal(signal.SIGCONT)


EVERYWHERE: tuple[Callable[[Scene], None], ...] = (
    kill_the_driver,
    end_the_driver,
    freeze_the_driver_for_a_moment,
    freeze_the_driver_beyond_its_session,
    kill_the_driver_beside_a_standby,
    kill_the_leader_of_zookeeper,
    kill_a_follower_of_zookeeper,
    kill_two_of_three_of_zookeeper,
    freeze_the_leader_of_zookeeper,
    wipe_a_follower_of_zookeeper,
)
NOT_WITH_SQLITE: tuple[Callable[[Scene], None], ...] = (freeze_the_driver_until_another_leads,)
"""A process that is frozen within a transaction keeps the lock of the file, so none can start."""
OF_A_DATABASE: tuple[Callable[[Scene], None], ...] = (
    kill_the_database,
    stop_the_database,
    freeze_the_database,
)
