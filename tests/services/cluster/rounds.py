"""One round: a driver does works on a new cluster, in one situation."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.harness.processes import ROOT, Child
from tests.harness.servers.kafka import KafkaBroker
from tests.harness.servers.spark_cluster import SparkCluster
from tests.harness.servers.zookeeper import ZooKeeperProcess
from tests.services.cluster.counting_process import Order, folder_of
from tests.services.cluster.environment import Archive
from tests.services.cluster.situations import Situation
from tests.services.cluster.works import Flights, Messages, Words, Work
from txtopo.config import Carrier

CARRIERS: tuple[Carrier, ...] = ("rdd", "dataframe", "resident")
SESSION = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
SILENCE_S_MAX = 900.0
"""The longest silence of a child: a start, an archive for each executor, a slot that is missed."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one work.

    Attributes:
        situation: Name of the situation.
        carrier: The carrier.
        work: Name of the work.
        wrong: How it ended, or how the states differ; empty if all is right.
        lost: How many jobs failed.
        again: How many attempts there were beyond the first one of each txid.
        stall_s: The longest time from one commit to the next, in seconds.
        took_s: Time from the start of the topology to its end, in seconds.
        excluded: How many executors were excluded at the end.
        cores: How many cores there were for slots at the end.
        copies: How many tasks Spark started speculatively.
        load: Load of the machine in the last minute, at the end.
    """

    situation: str
    carrier: str
    work: str
    wrong: str
    lost: int = 0
    again: int = 0
    stall_s: float = 0.0
    took_s: float = 0.0
    excluded: int = 0
    cores: int = 0
    copies: int = 0
    load: float = 0.0


class Services:
    """The servers and sources of all rounds; a context manager.

    Args:
        kafka: Whether there is a broker; without one, there is no work with it.

    Attributes:
        folder: Of sources and states.
        zookeeper: The ensemble.
        kafka: Servers of the broker; empty if there is none.
        works: The works.
        archive: An environment for executors that have none.
    """

    def __init__(self, *, kafka: bool) -> None:
        self._kafka = kafka

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="txtopo-cluster-"))
            self.folder = Path(place)
            self.zookeeper = stack.enter_context(ZooKeeperProcess())
            self.works: list[Work] = [Flights(self.folder), Words(self.folder)]
            self.kafka = ""
            if self._kafka:
                broker = stack.enter_context(KafkaBroker())
                self.kafka = broker.servers
                self.works.append(Messages(self.kafka, broker))
            for work in self.works:
                work.prepare()
            self.archive = Archive(self.folder / "environment")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def work(self, name: str) -> Work:
        """Return the work of a name."""
        (found,) = (each for each in self.works if each.name == name)
        return found


Task = tuple[Carrier, str]
"""A carrier, and the name of a work."""


def rounds_of(situation: Situation, tasks: Sequence[Task]) -> list[list[Task]]:
    """Return what is done together: everything, or what has one carrier."""
    if not situation.apart:
        return [list(tasks)]
    return [[task for task in tasks if task[0] == carrier] for carrier in CARRIERS]


def run_round(situation: Situation, tasks: Sequence[Task], services: Services) -> Iterator[Result]:
    """Do works on a new cluster, and yield what came of each.

    Args:
        situation: The situation.
        tasks: Carrier and name of each work, one done after the other in one session.
        services: Servers and sources.
    """
    folder = services.folder / situation.name
    for carrier, name in tasks:
        (states := folder_of(folder, carrier, name)).mkdir()
        services.work(name).prepare_run(states)
    with SparkCluster(situation.workers) as cluster:
        order = order_of(situation, tasks, services, cluster)
        with Child("tests.services.cluster.counting_process", order.packed(), held=True) as child:
            left = list(tasks)
            for counted in followed(child, cluster, situation):
                left.pop(0)
                yield judged(situation, services.work(counted["work"]), counted, folder)
            story = child.story() if left else ""
            for carrier, name in left:
                yield Result(situation.name, carrier, name, f"the driver ended: {story}")


def order_of(
    situation: Situation,
    tasks: Sequence[Task],
    services: Services,
    cluster: SparkCluster,
) -> Order:
    """Return what the child is to do."""
    shipped = {"spark.executorEnv.PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    if situation.archive:
        shipped = services.archive.settings()
    cores = {"spark.cores.max": str(situation.workers)}
    return Order(
        master=cluster.url,
        zookeeper=services.zookeeper.hosts,
        kafka=services.kafka,
        conf=SESSION | cores | dict(situation.conf) | shipped,
        python=services.archive.python if situation.archive else sys.executable,
        tasks=list(tasks),
        sources=str(services.folder),
        folder=str(services.folder / situation.name),
        holds=sorted(situation.strikes),
        cores=situation.workers if situation.steady else None,
    )


def followed(child: Child, cluster: SparkCluster, situation: Situation) -> Iterator[dict[str, Any]]:
    """Strike when the child has come so far, and yield what it says of each work."""
    while (said := child.next_event(SILENCE_S_MAX)) is not None:
        if said["event"] == "reached":
            strike = situation.strikes[said["commits"]](cluster, said["carrier"])
            next(strike)
            child.allow(1)
            next(strike, None)
        elif said["event"] == "counted":
            yield said
        elif said["event"] != "failed":
            print(f"{time.strftime('%H:%M:%S')} {said}", file=sys.stderr, flush=True)


def judged(situation: Situation, work: Work, counted: dict[str, Any], folder: Path) -> Result:
    """Judge a work that has ended."""
    carrier = counted["carrier"]
    return Result(
        situation=situation.name,
        carrier=carrier,
        work=work.name,
        wrong=counted["error"] or work.wrong(folder_of(folder, carrier, work.name)),
        lost=sum(counted["lost"].values()),
        again=counted["again"],
        stall_s=round(counted["stall_s"], 1),
        took_s=round(counted["took_s"], 1),
        excluded=counted["excluded"],
        cores=counted["cores"],
        copies=counted["copies"],
        load=round(os.getloadavg()[0], 1),
    )
