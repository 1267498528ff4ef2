"""A process of its own: kills executors in the middle of jobs, and says what came of each job.

Every job has an emitter that emits something else each time it runs. An executor is killed while
the second level is half done: some of its tasks have read what the first level made, and the rest
will read what it makes when it is run again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from tests.harness.polling import wait_until
from tests.harness.processes import parent_of, say
from tests.harness.spark_session import open_test_session
from tests.unit.stages.running import aggregate, bolt, compile_components, run_of, shuffled, spout
from txtopo.bolts.bolt import BatchBolt
from txtopo.carriers.carrier import Carrier
from txtopo.carriers.spark import DataFrameCarrier, RddCarrier
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import InfrastructureError
from txtopo.spouts.spout import TransactionalEmitter, TransactionalSpout
from txtopo.stages.compiled_topology import CompiledTopology
from txtopo.stages.outcome import judge
from txtopo.stages.partials import merge_partials
from txtopo.state.aggregates import Count
from txtopo.tuples import Fields, Tuple

SLOTS = 4
ROWS = 40


class OtherEachTime(TransactionalSpout):
    """Emits (its task, a name of this cut); another name each time that it runs."""

    output_fields = Fields("task int, cut string")

    def coordinator(self, config: Config, context: TaskContext) -> Any:
        raise NotImplementedError

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return OtherEachTimeEmitter(context.task_index)


class OtherEachTimeEmitter(TransactionalEmitter):
    def __init__(self, task: int) -> None:
        self.row = (task, uuid.uuid4().hex)

    def emit_batch(self, attempt: Any, metadata: Any, collector: Any) -> None:
        for _ in range(ROWS):
            collector.emit(self.row)


class Slow(BatchBolt):
    """Passes on what it gets, slowly, and tells when it began."""

    output_fields = OtherEachTime.output_fields

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector = collector
        (self.folder / f"{context.task_index}").touch()
        time.sleep(0.5)

    def execute(self, tuple: Tuple) -> None:
        self.collector.emit(tuple.values)

    def finish_batch(self) -> None:
        pass


def main(kind: str, kills: int, folder: Path) -> None:
    spark = open_test_session("local-cluster[2,1,1024]")
    for number in range(kills):
        (began := folder / str(number)).mkdir()
        compiled = compile_components(
            spout(OtherEachTime(), parallelism=SLOTS),
            bolt("slow", Slow(began), shuffled(), parallelism=SLOTS),
            aggregate("cuts", ("task", "cut"), Count(), shuffled("slow")),
            slots=SLOTS,
        )
        carrier: Carrier = RddCarrier(spark) if kind == "rdd" else DataFrameCarrier(spark)
        killer = threading.Thread(target=kill_in_the_middle, args=(began, number))
        killer.start()
        say("job", outcome=outcome(carrier, compiled))
        killer.join()
    spark.stop()


def outcome(carrier: Carrier, compiled: CompiledTopology) -> str:
    """Run one job: ``lost`` when it is thrown away, else ``whole``, or ``mixed`` if it is wrong."""
    run = run_of(1)
    carrier.start(compiled)
    try:
        judged = judge(compiled, run, carrier.process(run).records)
    except InfrastructureError as error:
        return f"lost {type(error).__name__} counted={error.facts.get('counted', False)}"
    finally:
        carrier.close()
    partials = [(1, record) for record in judged.processed[0].partials["cuts"]]
    rows = merge_partials(compiled, "cuts", partials).to_pylist()
    whole = len(rows) == SLOTS and all(row["count"] == ROWS for row in rows)
    return "whole" if whole else f"mixed {rows}"


def kill_in_the_middle(began: Path, number: int) -> None:
    """Kill an executor once more tasks of the second level have begun than run at a time."""
    wait_until(lambda: len(list(began.iterdir())) >= SLOTS - 1, "enough tasks have begun")
    found = executors()
    os.kill(found[number % len(found)], signal.SIGKILL)


def executors() -> list[int]:
    """Return the executors of this process, oldest first."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        ours = any(b"CoarseGrainedExecutorBackend" in word for word in words)
        if ours and _below(int(path.parent.name), os.getpid()):
            found.append(int(path.parent.name))
    return sorted(found)


def _below(process: int, ancestor: int) -> bool:
    while process > 1:
        if process == ancestor:
            return True
        process = parent_of(process)
    return False


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
