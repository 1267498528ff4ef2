"""RddCarrier: envelopes on RDDs, for classic Spark.

A run is one job: the emitters' stage over empty Spark partitions, one for each slot, then a shuffle
by address and a stage for every further level. What the last level sends to the driver is
collected.

Where the committers run in tasks, the last level is shuffled once more, to one Spark partition for
the driver and one for each attempt and slot. The job reads the driver's alone, and the cut waits in
the shuffle files. A commit reads its own partitions of that shuffle: nothing is computed again
unless an executor was lost with its files, and then the stamps tell. Only the first level of a
commit reads the cut. What it sends on is small, and further levels get it by way of the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.runtime.carrier import Processed
from txtopo.runtime.spark_jobs import ClassicLabels, SparkJobs
from txtopo.runtime.stage_task import PackedProgram, StageTask
from txtopo.stages.program import Program, Run

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext
    from pyspark.core.rdd import RDD
    from pyspark.sql import SparkSession

Record = tuple[int, bytes]


class RddCarrier:
    """Moves envelopes through shuffles of RDDs; see the module's text."""

    carries_frames = False
    keeps_cut_in_driver = False

    def __init__(self, session: SparkSession) -> None:
        self._context: SparkContext = session.sparkContext

    def default_slots(self) -> int:
        """Return the session's default parallelism."""
        return self._context.defaultParallelism

    def start(self, program: Program) -> None:
        """Broadcast the program."""
        self._program = program
        self._packed = self._context.broadcast(PackedProgram.of(program))
        self._jobs = SparkJobs(ClassicLabels(self._context), program.topology_id)
        # Made once, since it takes Spark 4 ms.
        self._empty: RDD[Record] = self._context.parallelize([], program.slots)

    def process(self, run: Run) -> Processed:
        """Run one job over all levels of the processing phase."""
        with self._jobs.labelled(run, "processing"):
            records = self._stage(self._empty, StageTask("processing", run, 0))
            for level in range(1, len(self._program.processing)):
                shuffled = records.partitionBy(self._program.slots, _identity)
                records = self._stage(shuffled, StageTask("processing", run, level))
            if self._program.commit_in_driver:
                return Processed(run, records.mapPartitions(_payloads).collect())
            addresses = 1 + len(run.attempts) * self._program.slots
            cut = records.partitionBy(addresses, _identity)
            return Processed(run, self._context.runJob(cut, _payloads, [0]), kept=cut)

    def commit(self, processed: Processed, attempt: TransactionAttempt) -> list[bytes]:
        """Run one job per level of the commit phase."""
        run, slots, cut = processed.run, self._program.slots, processed.kept
        assert cut is not None, "the run was released"
        part, number = run.only(attempt), run.attempts.index(attempt)
        first = 1 + number * slots
        with self._jobs.labelled(part, "commit"):
            stage = self._stage(cut, StageTask("commit", part, 0), first)  # type: ignore[arg-type]
            records = self._context.runJob(stage, _all, range(first, first + slots))
            for level in range(1, len(self._program.commit)):
                spread = self._context.parallelize(records, slots).partitionBy(slots, _identity)
                records = self._stage(spread, StageTask("commit", part, level)).collect()
        return [payload for _, payload in records]

    def release(self, processed: Processed) -> None:
        """Drop the shuffle; Spark deletes its files once the driver's garbage is collected."""
        processed.kept = None

    def cancel(self, tag: str) -> None:
        """Cancel the jobs of a run, also those that are about to start."""
        self._jobs.cancel(tag)

    def close(self) -> None:
        """Cancel everything and take the program back from the executors."""
        self._jobs.cancel_all()
        self._packed.unpersist()

    def _stage(self, records: RDD[Record], task: StageTask, first: int = 0) -> RDD[Record]:
        """Add a stage; Spark partition *first* is slot 0."""
        return records.mapPartitionsWithIndex(RddStage(self._packed, task, first))


class RddStage:
    """A stage as a function of (Spark partition, records)."""

    def __init__(self, packed: Broadcast[PackedProgram], task: StageTask, first: int) -> None:
        self._packed = packed
        self._task = task
        self._first = first

    def __call__(self, partition: int, records: Iterable[Record]) -> Iterator[Record]:
        """Run the stage of one slot."""
        return self._task.records(self._packed.value, partition - self._first, _payloads(records))


def _payloads(records: Iterable[Record]) -> Iterator[bytes]:
    return (payload for _, payload in records)


def _all(records: Iterable[Record]) -> Iterable[Record]:
    return records


def _identity(address: int) -> int:
    return address
