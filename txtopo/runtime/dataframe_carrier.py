"""DataFrameCarrier: envelopes on DataFrames, for Spark Connect and where RDDs are not wanted.

A run is one query: ``mapInArrow`` for every stage and ``repartitionById`` between two of them, over
the columns address and payload. A DataFrame cannot read single partitions of a shuffle again, so
where the committers run in tasks the cut comes to the driver with the rest, waits there, and is
sent out again as the input of the commit's own query. Let committers work on little: aggregate
before them, or use the carrier ``rdd``.

Where the spout is a DataFrame the query begins with its plan; see :mod:`txtopo.runtime.frames`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.runtime.carrier import Processed
from txtopo.runtime.frames import RECORD, FrameFailed, Frames
from txtopo.runtime.micro_batch import rows_of, spread
from txtopo.runtime.spark_jobs import ClassicLabels, ConnectLabels, Labels, SparkJobs
from txtopo.runtime.stage_task import PackedProgram, StageTask
from txtopo.stages.program import Chain, Program, Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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

    def process(self, run: Run) -> Processed:
        """Run one query over all levels of the processing phase."""
        slots = self._program.slots
        with self._jobs.labelled(run, "processing"):
            if self._program.frames is not None:
                return self._process_frames(run)
            start = self._session.range(0, slots, 1, slots).selectExpr("int(id) as address")
            kept = self._query(start, "processing", run, range(len(self._program.processing)))
        return Processed(run, kept.pop(_DRIVER, []), kept=kept)

    def process_frame(self, run: Run, frame: DataFrame) -> Processed:
        """Run one query over a frame whose rows are what the stream spout emits."""
        with self._jobs.labelled(run, "processing"):
            first = _first_stage(self._packed, StageTask("processing", run, 0))
            start = spread(frame, self._program.slots).mapInArrow(first, RECORD)
            levels = range(1, len(self._program.processing))
            kept = self._query(start, "processing", run, levels)
        return Processed(run, kept.pop(_DRIVER, []), kept=kept)

    def commit(self, processed: Processed, attempt: TransactionAttempt) -> list[bytes]:
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
    def committing(self, processed: Processed, attempt: TransactionAttempt) -> Iterator[None]:
        """Label the jobs of DataFrame committers and of what writes their frames."""
        with self._jobs.labelled(processed.run.only(attempt), "commit"):
            yield

    def release(self, processed: Processed) -> None:
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

    def _process_frames(self, run: Run) -> Processed:
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
            return Processed(run, [], failure=failed.batch)
        except BaseException:
            frames.release()
            raise
        return Processed(run, kept.pop(_DRIVER, []), kept=kept, frames=frames)

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
        yield from _batches(task.records(packed, context.partitionId(), _payloads(batches)))

    return stage


def _first_stage(packed: PackedProgram, task: StageTask) -> Callable[[Batches], Batches]:
    """Return the first stage of a stream spout, whose input is no envelopes but rows."""

    def stage(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from _batches(task.records(packed, context.partitionId(), (), rows_of(batches)))

    return stage


def _payloads(batches: Batches) -> Iterator[bytes]:
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
