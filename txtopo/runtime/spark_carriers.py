"""RddCarrier: envelopes on RDDs, for classic Spark.

A run is one job: the emitters' stage over empty Spark partitions, one for each slot, then a shuffle
by address and a stage for every further level. What the last level sends to the driver is
collected.

Where the committers run in tasks, the last level is shuffled once more, to one Spark partition for
the driver and one for each attempt and slot. The job reads the driver's alone, and the cut waits in
the shuffle files. A commit reads its own partitions of that shuffle: nothing is computed again
unless an executor was lost with its files, and then the stamps tell. Only the first level of a
commit reads the cut. What it sends on is small, and further levels get it by way of the driver.

DataFrameCarrier: envelopes on DataFrames, for Spark Connect and where RDDs are not wanted.

A run is one query: ``mapInArrow`` for every stage and ``repartitionById`` between two of them, over
the columns address and payload. A DataFrame cannot read single partitions of a shuffle again, so
where the committers run in tasks the cut comes to the driver with the rest, waits there, and is
sent out again as the input of the commit's own query. Let committers work on little: aggregate
before them, or use the carrier ``rdd``.

Where the spout is a DataFrame the query begins with its plan; see :mod:`txtopo.runtime.frames`.

Micro-batches: their rows, spread over all slots.

Each slot has to run, since each says what it took part in. But where Spark sees that a plan has no
rows, when it optimizes it or while it runs (adaptive execution), it leaves out all that follows. So
rows that stand for nothing go with a micro-batch, and are dropped where it comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.attempt import TransactionAttempt
from txtopo.runtime.carrier import ProcessedRun
from txtopo.runtime.frames import RECORD, FrameFailed, Frames
from txtopo.runtime.spark_jobs import ClassicLabels, ConnectLabels, Labels, SparkJobs
from txtopo.runtime.spark_task import PackedProgram, StageTask
from txtopo.stages.program import Chain, Program, Run

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext
    from pyspark.core.rdd import RDD
    from pyspark.sql import DataFrame, SparkSession

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

    def process(self, run: Run) -> ProcessedRun:
        """Run one job over all levels of the processing phase."""
        with self._jobs.labelled(run, "processing"):
            records = self._stage(self._empty, StageTask("processing", run, 0))
            for level in range(1, len(self._program.processing)):
                shuffled = records.partitionBy(self._program.slots, _identity)
                records = self._stage(shuffled, StageTask("processing", run, level))
            if self._program.commit_in_driver:
                return ProcessedRun(run, records.mapPartitions(_rdd_payloads).collect())
            addresses = 1 + len(run.attempts) * self._program.slots
            cut = records.partitionBy(addresses, _identity)
            return ProcessedRun(run, self._context.runJob(cut, _rdd_payloads, [0]), kept=cut)

    def commit(self, processed: ProcessedRun, attempt: TransactionAttempt) -> list[bytes]:
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

    def release(self, processed: ProcessedRun) -> None:
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
        return self._task.records(
            self._packed.value, partition - self._first, _rdd_payloads(records)
        )


def _rdd_payloads(records: Iterable[Record]) -> Iterator[bytes]:
    return (payload for _, payload in records)


def _all(records: Iterable[Record]) -> Iterable[Record]:
    return records


def _identity(address: int) -> int:
    return address


Batches = Iterator[pa.RecordBatch]

Cut = dict[int, list[bytes]]

_SCHEMA = pa.schema([("address", pa.int32()), ("payload", pa.binary())])

_DRIVER = 0

# Envelopes that leave a stage are handed on together up to this size; a chunk has up to 4 MiB.
_BATCH_BYTES = 4 << 20


class DataFrameCarrier:
    """Moves envelopes through queries; see the module's text.

    Args:
        session: The session.
        labels: How its jobs are labelled; by default as the session can.
    """

    carries_frames = True
    keeps_cut_in_driver = True

    def __init__(self, session: SparkSession, labels: Labels | None = None) -> None:
        self._session = session
        self._labels = labels
        self._connect = "connect" in type(session).__module__

    def default_slots(self) -> int:
        """Return the session's default parallelism; under Connect its shuffle partitions."""
        if self._connect:
            return int(self._session.conf.get("spark.sql.shuffle.partitions") or 1)
        return self._session.sparkContext.defaultParallelism

    def start(self, program: Program) -> None:
        """Pack the program; it travels with every query, since Connect has no broadcasts."""
        self._program = program
        self._packed = PackedProgram.of(program)
        labels = self._labels
        if labels is None and self._connect:
            labels = ConnectLabels(self._session)
        elif labels is None:
            labels = ClassicLabels(self._session.sparkContext)
        self._jobs = SparkJobs(labels, program.topology_id)

    def process(self, run: Run) -> ProcessedRun:
        """Run one query over all levels of the processing phase."""
        slots = self._program.slots
        with self._jobs.labelled(run, "processing"):
            if self._program.frames is not None:
                return self._process_frames(run)
            start = self._session.range(0, slots, 1, slots).selectExpr("int(id) as address")
            kept = self._query(start, "processing", run, range(len(self._program.processing)))
        return ProcessedRun(run, kept.pop(_DRIVER, []), kept=kept)

    def process_frame(self, run: Run, frame: DataFrame) -> ProcessedRun:
        """Run one query over a frame whose rows are what the stream spout emits."""
        with self._jobs.labelled(run, "processing"):
            first = _first_stage(self._packed, StageTask("processing", run, 0))
            start = spread(frame, self._program.slots).mapInArrow(first, RECORD)
            levels = range(1, len(self._program.processing))
            kept = self._query(start, "processing", run, levels)
        return ProcessedRun(run, kept.pop(_DRIVER, []), kept=kept)

    def commit(self, processed: ProcessedRun, attempt: TransactionAttempt) -> list[bytes]:
        """Run one query over all levels of the commit phase."""
        run, slots, cut = processed.run, self._program.slots, processed.kept
        assert isinstance(cut, dict), "the run was released"
        part, number = run.only(attempt), run.attempts.index(attempt)
        with self._jobs.labelled(part, "commit"):
            table = _table({slot: cut.get(1 + number * slots + slot, []) for slot in range(slots)})
            frame = self._session.createDataFrame(table).repartitionById(slots, "address")
            records = self._query(frame, "commit", part, range(len(self._program.commit)))
        return records.get(_DRIVER, [])

    @contextmanager
    def committing(self, processed: ProcessedRun, attempt: TransactionAttempt) -> Iterator[None]:
        """Label the jobs of DataFrame committers and of what writes their frames."""
        with self._jobs.labelled(processed.run.only(attempt), "commit"):
            yield

    def release(self, processed: ProcessedRun) -> None:
        """Drop the cut, and what waits in Spark's cache."""
        processed.kept = None
        if processed.frames is not None:
            processed.frames.release()

    def cancel(self, tag: str) -> None:
        """Cancel the queries of a run."""
        self._jobs.cancel(tag)

    def close(self) -> None:
        """Cancel everything."""
        self._jobs.cancel_all()

    def _process_frames(self, run: Run) -> ProcessedRun:
        """Make and compute the plans of the only batch of a run, and emit what others read."""
        frames = Frames(self._session, self._program, run)
        kept: Cut = {}
        try:
            frames.make()
            if frames.emits:
                with frames.emitting():
                    start = frames.records(self._program.slots)
                    levels = range(len(self._program.processing))
                    kept = self._query(start, "processing", run, levels)
            frames.compute()
        except FrameFailed as failed:
            frames.release()
            return ProcessedRun(run, [], failure=failed.batch)
        except BaseException:
            frames.release()
            raise
        return ProcessedRun(run, kept.pop(_DRIVER, []), kept=kept, frames=frames)

    def _query(self, frame: DataFrame, chain: Chain, run: Run, levels: range) -> Cut:
        """Run levels of a chain over a frame that is spread over the slots."""
        for level in levels:
            if level:
                frame = frame.repartitionById(self._program.slots, "address")
            stage = _stage(self._packed, StageTask(chain, run, level))
            frame = frame.mapInArrow(stage, RECORD)
        table = frame.toArrow()
        records: Cut = {}
        columns = (table["address"].to_pylist(), table["payload"].to_pylist())
        for address, payload in zip(*columns, strict=True):
            records.setdefault(address, []).append(payload)
        return records


def _stage(packed: PackedProgram, task: StageTask) -> Callable[[Batches], Batches]:
    """Return a stage as ``mapInArrow`` calls it, which wants a plain function."""

    def stage(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from _batches(task.records(packed, context.partitionId(), _frame_payloads(batches)))

    return stage


def _first_stage(packed: PackedProgram, task: StageTask) -> Callable[[Batches], Batches]:
    """Return the first stage of a stream spout, whose input is no envelopes but rows."""

    def stage(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from _batches(task.records(packed, context.partitionId(), (), rows_of(batches)))

    return stage


def _frame_payloads(batches: Batches) -> Iterator[bytes]:
    """Yield the payloads; there are rows without one, so that each slot has a row."""
    for batch in batches:
        if batch.num_columns > 1:
            yield from (payload for payload in batch.column(1).to_pylist() if payload is not None)


def _batches(records: Iterable[tuple[int, bytes]]) -> Batches:
    addresses: list[int] = []
    payloads: list[bytes] = []
    size = 0
    for address, payload in records:
        addresses.append(address)
        payloads.append(payload)
        size += len(payload)
        if size >= _BATCH_BYTES:
            yield _batch(addresses, payloads)
            addresses, payloads, size = [], [], 0
    if addresses:
        yield _batch(addresses, payloads)


def _batch(addresses: list[int], payloads: list[bytes]) -> pa.RecordBatch:
    columns = [pa.array(addresses, pa.int32()), pa.array(payloads, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _table(records: Cut) -> pa.Table:
    """Return the records; in several batches, since one holds less than 2 GiB of payloads."""
    rows = ((address, payload) for address, payloads in records.items() for payload in payloads)
    return pa.Table.from_batches(_batches(rows), _SCHEMA)


_NOTHING = "stands for nothing"


def spread(frame: DataFrame, slots: int) -> DataFrame:
    """Return the rows of *frame*, and one that stands for nothing, in so many Spark partitions."""
    from pyspark.sql import functions as sf

    nulls = [sf.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema]
    nothing = frame.sparkSession.range(1).select(*nulls, sf.lit(True).alias(_NOTHING))
    return frame.select("*", sf.lit(False).alias(_NOTHING)).union(nothing).repartition(slots)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a micro-batch without those that stand for nothing."""
    for batch in batches:
        *columns, nothing = batch.columns
        rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(batch.schema)[:-1]))
        if pc.any(nothing).as_py():
            rows = rows.filter(pc.invert(nothing))
        if rows.num_rows:
            yield rows
