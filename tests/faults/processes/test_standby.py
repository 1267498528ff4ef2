"""Two drivers of an at-least-once topology: the leader is killed or frozen, and no message is lost.

Each test that kills prints how long it took from the kill to the first message that the standby has
processed; the figures of docs/how-to/at-least-once.md come from there (``pytest -s``).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from uuid import uuid4

import pytest

from tests.faults.processes.standby_process import numbers_in
from tests.harness.polling import wait_until
from tests.harness.processes import Child
from tests.harness.servers.tcp_proxy import TcpProxy
from tests.harness.servers.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.kills, pytest.mark.timeout(900)]
DRIVER = "tests.faults.processes.standby_process"
# What the leader processes before it is killed.
SOME = 50


class Drivers:
    """The drivers of a topology, the leader first, and what was processed.

    Args:
        folder: The source, and the file of what was processed.
        arguments: Of each driver's command line.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        self._arguments = ["--folder", str(folder), *arguments]
        self._started = 0
        self._stack = ExitStack()
        self.running: list[Child] = []

    def start(self, *arguments: str) -> Child:
        """Start one more."""
        self._started += 1
        child = Child(DRIVER, *self._arguments, *arguments)
        self._stack.enter_context(child)
        self.running.append(child)
        return child

    def processed(self) -> Iterator[tuple[int, float, int]]:
        """Yield process, time and number of each message, in the order of their processing."""
        path = self._folder / "processed"
        for line in path.read_text().splitlines() if path.exists() else ():
            driver, at_s, number = line.split()
            yield int(driver), float(at_s), int(number)

    def of(self, child: Child) -> list[float]:
        """Return when a driver has processed messages."""
        return [at_s for driver, at_s, _ in self.processed() if driver == child.pid]

    def wait_for_some(self, child: Child, some: int = SOME) -> None:
        """Wait until a driver has processed this many messages."""

        def are_there() -> bool:
            assert child.runs, child.story()
            return len(self.of(child)) >= some

        wait_until(are_there, "messages are processed")

    def take_over(self) -> float:
        """Kill the leader, and return after how many seconds the standby processes messages."""
        leader, standby = self.running
        self.wait_for_some(leader)
        killed_s = time.time()
        leader.kill()
        self.wait_for_some(standby, 1)
        self.running.remove(leader)
        assert not leader.runs
        return self.of(standby)[0] - killed_s

    def finish(self) -> None:
        """End the source, wait until each message was processed, and end the drivers."""
        (self._folder / "last").touch()

        def nothing_is_lost() -> bool:
            done = {number for *_, number in self.processed()}
            return done == set(numbers_in(self._folder / "emitted"))

        wait_until(nothing_is_lost, "nothing is lost")
        for child in self.running:
            child.end()

    def __enter__(self) -> Drivers:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()


def kill_again_and_again(drivers: Drivers, kills: int, what: str, *, apart: bool = False) -> None:
    """Kill each leader in turn, while a standby waits that has processed nothing yet.

    Args:
        drivers: Where to start them.
        kills: How many are killed.
        what: Words for the figures.
        apart: Whether each seems to run on another machine. A standby on the machine of a leader
            sees that its process has ended.
    """

    def start(number: int) -> Child:
        return drivers.start(*(["--machine", str(number)] if apart else []))

    with drivers:
        start(0).wait_for("leading")
        seconds = []
        for number in range(kills):
            standby = start(number + 1)
            standby.wait_for("standby")
            assert not drivers.of(standby)
            seconds.append(drivers.take_over())
            assert standby.wait_for("leading")["epoch"] == number + 2
        drivers.finish()
    print(f"\n{what}: {median(seconds):.2f} s, {min(seconds):.2f} to {max(seconds):.2f} s")


@pytest.mark.parametrize("kills", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_a_standby_takes_over_from_a_killed_leader_and_the_source_replays(
    tmp_path: Path, zookeeper: ZooKeeperProcess, kills: int
) -> None:
    """On one machine: it sees that the process is gone, and waits for no session."""
    hosts = f"{zookeeper.hosts}/{uuid4().hex}"

    drivers = Drivers(tmp_path, "--zookeeper", hosts, "--session-s", "60")

    kill_again_and_again(drivers, kills, "killed, one machine")


@pytest.mark.slow
@pytest.mark.parametrize("session_s", [2.0, 6.0])
def test_a_standby_on_another_machine_takes_over_when_the_session_ends(
    tmp_path: Path, zookeeper: ZooKeeperProcess, session_s: float
) -> None:
    hosts = f"{zookeeper.hosts}/{uuid4().hex}"

    drivers = Drivers(tmp_path, "--zookeeper", hosts, "--session-s", str(session_s))

    what = f"killed, two machines, session_timeout_s={session_s}"
    kill_again_and_again(drivers, 7, what, apart=True)


@pytest.mark.slow
@pytest.mark.spark
def test_a_standby_on_spark_starts_slots_when_the_leader_was_killed(
    tmp_path: Path, zookeeper: ZooKeeperProcess
) -> None:
    """Each driver has a Spark application of its own."""
    hosts = f"{zookeeper.hosts}/{uuid4().hex}"

    drivers = Drivers(tmp_path, "--zookeeper", hosts, "--carrier", "resident")

    kill_again_and_again(drivers, 5, "killed, one machine, resident slots")


@pytest.mark.parametrize(
    "restart", [pytest.param((), marks=pytest.mark.slow), ("--restart",)], ids=["", "restart"]
)
def test_a_frozen_leader_ends_deposed_when_it_wakes_up_and_nothing_is_lost(
    tmp_path: Path, zookeeper: ZooKeeperProcess, restart: tuple[str, ...]
) -> None:
    """Both may process a message meanwhile; a deposed driver is never restarted."""
    hosts = f"{zookeeper.hosts}/{uuid4().hex}"
    with Drivers(tmp_path, "--zookeeper", hosts, "--session-s", "2", *restart) as drivers:
        first = drivers.start()
        first.wait_for("leading")
        second = drivers.start()
        second.wait_for("standby")
        drivers.wait_for_some(first)
        first.signal(signal.SIGSTOP)
        assert second.wait_for("leading")["epoch"] == 2
        drivers.wait_for_some(second)
        first.signal(signal.SIGCONT)
        first.end_with(3)
        drivers.running.remove(first)
        drivers.finish()

    (error,) = first.events("error")
    assert error["kind"] == "FencedError"
    assert error["leader"]["pid"] == second.pid


def test_a_leader_that_is_cut_off_goes_on_until_it_is_back_and_nothing_is_lost(
    tmp_path: Path, zookeeper: ZooKeeperProcess
) -> None:
    """It cannot know whether another one leads, or nobody does because ZooKeeper is away."""
    chroot = uuid4().hex
    hosts = f"{zookeeper.hosts}/{chroot}"
    with (
        TcpProxy(zookeeper.port) as proxy,
        Drivers(tmp_path, "--zookeeper", hosts, "--session-s", "2") as drivers,
    ):
        first = drivers.start("--zookeeper", f"127.0.0.1:{proxy.port}/{chroot}")
        first.wait_for("leading")
        second = drivers.start()
        second.wait_for("standby")
        proxy.cut()
        second.wait_for("leading")
        drivers.wait_for_some(first, len(drivers.of(first)) + SOME)
        proxy.repair()
        first.end_with(3)
        drivers.running.remove(first)
        drivers.finish()

    (error,) = first.events("error")
    assert error["kind"] == "FencedError"
    assert error["leader"]["pid"] == second.pid
