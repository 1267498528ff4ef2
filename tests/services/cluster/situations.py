"""The situations that works are done in: what is set, and what is done to the cluster meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from signal import SIGCONT, SIGKILL, SIGSTOP

from tests.harness.polling import wait_until
from tests.harness.servers.spark_cluster import HOSTS, START_LIMIT_S, SparkCluster
from tests.services.cluster.bad_machine_daemon import BAD
from txtopo.config import Carrier

Strike = Callable[[SparkCluster, Carrier], Iterator[None]]
"""Does something to the cluster while the run is held, and after its only ``yield`` the rest."""

FROZEN_S = 6.0
"""Longer than Spark waits before it starts copies, shorter than a slot is given up."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A situation.

    Attributes:
        name: On the command line.
        title: In the table.
        workers: How many machines with one core there are; a driver has two cores.
        conf: Settings of the session.
        strikes: What is done to the cluster, by the number of commits before it.
        archive: Whether executors have nothing but what an archive brings.
        apart: Whether each carrier needs a new cluster.
        steady: Whether all cores are there before each work, also after what was done in another.
    """

    name: str
    title: str
    workers: int = 2
    conf: Mapping[str, str] = field(default_factory=dict)
    strikes: Mapping[int, Strike] = field(default_factory=dict)
    archive: bool = False
    apart: bool = False
    steady: bool = True


def kill_a_worker(cluster: SparkCluster, carrier: Carrier) -> Iterator[None]:
    cluster.kill_worker(HOSTS[1])
    yield
    cluster.start_worker(HOSTS[1])


def kill_the_master(cluster: SparkCluster, carrier: Carrier) -> Iterator[None]:
    cluster.kill_master()
    yield
    cluster.start_master()


def let_a_machine_go_bad(cluster: SparkCluster, carrier: Carrier) -> Iterator[None]:
    (cluster.folder / HOSTS[1] / BAD).touch()
    cluster.signal_pythons(HOSTS[1], SIGKILL)
    yield


def freeze_a_machine(cluster: SparkCluster, carrier: Carrier) -> Iterator[None]:
    cluster.signal_pythons(HOSTS[1], SIGSTOP)
    yield
    time.sleep(FROZEN_S)
    cluster.signal_pythons(HOSTS[1], SIGCONT)


def wait_until_no_executor_is_left(cluster: SparkCluster, carrier: Carrier) -> Iterator[None]:
    # Slots keep theirs.
    if carrier != "resident":
        wait_until(lambda: cluster.cores() == 0, "no executor is left", START_LIMIT_S)
    yield


EXCLUSION = {
    "spark.excludeOnFailure.enabled": "true",
    "spark.excludeOnFailure.application.maxFailedTasksPerExecutor": "1",
    "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor": "1",
    "spark.python.daemon.module": "tests.services.cluster.bad_machine_daemon",
}
DYNAMIC_ALLOCATION = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
    # With 1 s, executors come and go between two jobs on a busy machine, and little else is done.
    "spark.dynamicAllocation.executorIdleTimeout": "5s",
}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.5",
    # Without it Spark copies no task of a job that has only one, as those of slots do.
    "spark.speculation.task.duration.threshold": "1s",
}

SITUATIONS = (
    Situation("calm", "nothing happens"),
    Situation("archive", "executors with nothing but an archive", archive=True),
    Situation("worker", "a worker is killed and started again", strikes={5: kill_a_worker}),
    Situation(
        "master",
        "the master is killed and started again; then a worker",
        strikes={4: kill_the_master, 9: kill_a_worker},
        # A master that was killed may count a core twice afterwards, and start no executor for it.
        steady=False,
    ),
    Situation(
        "excluded",
        "tasks fail on one machine of three, whose executor is excluded",
        workers=3,
        conf=EXCLUSION,
        strikes={5: let_a_machine_go_bad},
        apart=True,
        steady=False,
    ),
    Situation(
        "allocation",
        "dynamic allocation: executors come, go and come again",
        conf=DYNAMIC_ALLOCATION,
        strikes={5: wait_until_no_executor_is_left},
        steady=False,
    ),
    Situation(
        "speculation",
        "speculation; one machine of three hangs for some seconds",
        workers=3,
        conf=SPECULATION,
        strikes={5: freeze_a_machine},
    ),
)
QUICK = Situation(
    "quick",
    "dynamic allocation and speculation; a worker is killed and started again",
    conf=DYNAMIC_ALLOCATION | SPECULATION | {"spark.dynamicAllocation.executorIdleTimeout": "30s"},
    strikes={5: kill_a_worker},
    steady=False,
)
