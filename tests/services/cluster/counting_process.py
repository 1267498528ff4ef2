"""A driver on a cluster: does works one after the other, and says what came of each.

After some commits of each work it says "reached" and waits for a byte on its standard input, so
that the parent can do something to the cluster in the middle of the work.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.processes import say
from tests.harness.servers.spark_cluster import START_LIMIT_S
from tests.harness.spark_session import open_test_session
from tests.services.cluster.works import Flights, Messages, Words, Work
from txtopo import Config
from txtopo.config import Carrier
from txtopo.resident.slot_jobs import SlotJobs
from txtopo.runtime.progress import (
    BatchCommitted,
    BatchFailed,
    ProcessingStarted,
    TopologyEvent,
    TopologyListener,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS = 2
WORK_LIMIT_S = 6 * LIMIT_S


@dataclass(frozen=True, slots=True)
class Order:
    """What a child does.

    Attributes:
        master: URL of the master.
        zookeeper: Servers of the ensemble.
        kafka: Servers of the brokers; empty if no work needs them.
        conf: More settings of the session.
        python: The Python of the executors.
        tasks: Carrier and name of each work, one done after the other.
        sources: Where the sources are.
        folder: Where the states are; see :func:`folder_of`.
        holds: After how many commits of each work it waits.
        cores: How many cores there are before a work begins; None if that does not matter.
    """

    master: str
    zookeeper: str
    kafka: str
    conf: dict[str, str]
    python: str
    tasks: list[tuple[Carrier, str]]
    sources: str
    folder: str
    holds: list[int]
    cores: int | None

    def packed(self) -> str:
        """Return it as an argument of the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def unpacked(cls, text: str) -> Self:
        """Return what was packed."""
        return cls(**json.loads(text))


class Counting(TopologyListener):
    """Counts what happens to a run, and holds it.

    A listener must not block. This one does, so that the parent has time to do something.

    Attributes:
        commits: How many txids are committed.
        attempts: How many attempts were started, for each txid.
        lost: How many jobs failed, by what they failed for.
        stall_s: The longest time without a commit, in seconds; while it is held does not count.
    """

    def __init__(self, holds: Collection[int], carrier: Carrier) -> None:
        self._holds, self._carrier = holds, carrier
        self._last_s: float | None = None
        self.commits = 0
        self.attempts: dict[int, int] = {}
        self.lost: dict[str, int] = {}
        self.stall_s = 0.0

    def on_change(self, change: TopologyEvent) -> None:
        if isinstance(change, ProcessingStarted):
            for each in change.attempts:
                self.attempts[each.txid] = self.attempts.get(each.txid, 0) + 1
        elif isinstance(change, BatchFailed):
            name = type(change.error).__name__
            self.lost[name] = self.lost.get(name, 0) + 1
            say("failed", error=str(change.error)[:500], kind=change.kind)
        elif isinstance(change, BatchCommitted):
            self._committed()

    def _committed(self) -> None:
        now_s = time.monotonic()
        if self._last_s is not None:
            self.stall_s = max(self.stall_s, now_s - self._last_s)
        self.commits += 1
        if self.commits in self._holds:
            say("reached", commits=self.commits, carrier=self._carrier)
            os.read(0, 1)
        self._last_s = time.monotonic()

    @property
    def again(self) -> int:
        """How many attempts there were beyond the first one of each txid."""
        return sum(self.attempts.values()) - len(self.attempts)


class Warnings(logging.Handler):
    """Says what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        say("warned", text=record.getMessage()[:500])


def work_of(name: str, order: Order) -> Work:
    """Return a work whose source is there."""
    place = Path(order.sources)
    works: tuple[Work, ...] = (Flights(place), Words(place), Messages(order.kafka))
    (found,) = (each for each in works if each.name == name)
    return found


def folder_of(folder: str | Path, carrier: Carrier, work: str) -> Path:
    """Return where the states of a work are; its name is one of a kind."""
    return Path(f"{folder}-{carrier}-{work}")


def do_work(spark: SparkSession, carrier: Carrier, name: str, order: Order) -> None:
    """Do one work, and say what came of it."""
    folder = folder_of(order.folder, carrier, name)
    counting = Counting(order.holds, carrier)
    config = Config(
        carrier=carrier,
        zookeeper=f"{order.zookeeper}/{folder.name}",
        slots=SLOTS,
        # Small steps, so that there is always something under way, and something left to do.
        max_spout_pending=6,
        group_txids_max=1,
    )
    began_s, first_stage = time.monotonic(), next_stage(spark)
    error = ""
    topology = work_of(name, order).topology(folder)
    try:
        with topology.start(spark, config, [counting]) as run:
            run.process_all_available(WORK_LIMIT_S)
    except Exception as raised:  # noqa: BLE001 - whatever ends it is a result
        error = f"{type(raised).__name__}: {raised}"[:2000]
    say(
        "counted",
        carrier=carrier,
        work=name,
        error=error,
        commits=counting.commits,
        lost=counting.lost,
        again=counting.again,
        stall_s=counting.stall_s,
        took_s=time.monotonic() - began_s,
        **facts_of(spark, first_stage),
    )


def facts_of(spark: SparkSession, first_stage: int) -> dict[str, int]:
    """Return how many executors are excluded now, how many cores there are for slots, and how many
    tasks were copies since a stage."""
    store = scala_of(spark).statusStore()
    executors = store.executorList(True)
    excluded = sum(executors.apply(at).isExcluded() for at in range(executors.size()))
    copies = 0
    for stage in range(first_stage, next_stage(spark)):
        summary = store.speculationSummary(stage, 0)
        copies += summary.get().numTasks() if summary.isDefined() else 0
    return {
        "excluded": excluded,
        "cores": SlotJobs(spark, "stages").cores().all,
        "copies": copies,
    }


def next_stage(spark: SparkSession) -> int:
    """Return the number of the next stage."""
    return int(scala_of(spark).dagScheduler().nextStageId())


def scala_of(spark: SparkSession) -> Any:
    """Return the Spark context in the JVM."""
    return cast("Any", spark.sparkContext)._jsc.sc()


def main(order: Order) -> None:
    """Do all works in one session."""
    os.environ["PYSPARK_PYTHON"] = order.python
    logging.getLogger("txtopo").addHandler(Warnings(logging.WARNING))
    spark = open_test_session(order.master, order.conf)
    say("running")
    jobs = SlotJobs(spark, "stages")
    for carrier, name in order.tasks:
        if order.cores is not None:
            # Those of a machine that was struck in the work before are there again.
            there = f"there are {order.cores} cores"
            wait_until(lambda: jobs.cores().all == order.cores, there, START_LIMIT_S)
        do_work(spark, carrier, name, order)
    spark.stop()
    say("done")


if __name__ == "__main__":
    main(Order.unpacked(sys.argv[1]))
