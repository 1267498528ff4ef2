"""A process of its own: jobs of which Spark runs slow tasks a second time, and what came of each.

In each job one emitter and one bolt are slow where they run first, and quick in their copies; each
emitter emits something else each time it runs. A job prints what came of it, and how many copies
there were.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from tests.harness.processes import say
from tests.harness.servers.spark_cluster import SparkCluster
from tests.harness.spark_session import open_test_session
from tests.unit.runtime.executor_loss import ROWS, SLOTS, OtherEachTime, outcome
from tests.unit.stages.running import aggregate, bolt, compile_components, shuffled, spout
from txtopo.bolts.bolt import BatchBolt
from txtopo.carriers.carrier import Carrier
from txtopo.carriers.spark import DataFrameCarrier, RddCarrier
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.spouts.spout import TransactionalEmitter
from txtopo.state.aggregates import Count
from txtopo.tuples import Tuple

SLOW_S = 6.0
"""Far longer than a copy takes to be started and to end."""
SPECULATIVE = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.5",
    # Two executors and a driver on one machine.
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class SlowEmitters(OtherEachTime):
    """One of its emitters is slow the first time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return SlowEmitter(self.folder, context.task_index)


class SlowEmitter(TransactionalEmitter):
    def __init__(self, folder: Path, task: int) -> None:
        self.folder, self.task = folder, task

    def emit_batch(self, attempt: Any, metadata: Any, collector: Any) -> None:
        row = (self.task, uuid.uuid4().hex)
        for number in range(ROWS):
            collector.emit(row)
            if number == ROWS // 2 and self.task == SLOTS - 1:
                linger(self.folder, "emitter")


class SlowBolt(BatchBolt):
    """Passes on what it gets; one task is slow the first time."""

    output_fields = OtherEachTime.output_fields

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.last = collector, context.task_index == SLOTS - 1

    def execute(self, tuple: Tuple) -> None:
        self.collector.emit(tuple.values)

    def finish_batch(self) -> None:
        if self.last:
            linger(self.folder, "bolt")


def linger(folder: Path, who: str) -> None:
    """Take long the first time; leave a file each time."""
    first = not list(folder.glob(f"{who}-*"))
    (folder / f"{who}-{uuid.uuid4().hex}").touch()
    if first:
        time.sleep(SLOW_S)


def main(kind: str, jobs: int, folder: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    paths = {"spark.executorEnv.PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])}
    with SparkCluster() as cluster:
        spark = open_test_session(cluster.url, SPECULATIVE | paths)
        for number in range(jobs):
            (ran := folder / str(number)).mkdir()
            compiled = compile_components(
                spout(SlowEmitters(ran), parallelism=SLOTS),
                bolt("slow", SlowBolt(ran), shuffled(), parallelism=SLOTS),
                aggregate("cuts", ("task", "cut"), Count(), shuffled("slow")),
                slots=SLOTS,
            )
            carrier: Carrier = RddCarrier(spark) if kind == "rdd" else DataFrameCarrier(spark)
            what = outcome(carrier, compiled)
            copies = {who: len(list(ran.glob(f"{who}-*"))) for who in ("emitter", "bolt")}
            say("job", emitters=copies["emitter"], bolts=copies["bolt"], outcome=what)
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
