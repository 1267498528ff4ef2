"""The carriers for DataFrames: for topologies with DataFrame plans, and for micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.attempt import TransactionAttempt
from txtopo.carriers.carrier import EngineOutcome, LocalCarrier, RunOutput
from txtopo.carriers.spark import (
    RECORD,
    Batches,
    DataFrameCarrier,
    in_batches,
    slot_here,
)
from txtopo.carriers.spark_task import PackedTopology, run_in_task
from txtopo.frames.committing import States, run_frame_committers
from txtopo.frames.run import FrameFailed, Frames
from txtopo.stages.compiled_topology import Run
from txtopo.stages.permits import Permits, no_permits
from txtopo.stages.stage_context import ByAddress, RunLevel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class FrameCarrier(DataFrameCarrier):
    """A ``DataFrameCarrier`` that also computes DataFrame plans.

    For each run it keeps a :class:`~txtopo.frames.run.Frames`.
    """

    has_engine = True

    def process(self, run: Run) -> RunOutput:
        """Compute the DataFrame plans of a run, which has one batch, and emit rows for bolts."""
        with self._jobs.labelled(run, "processing"):
            return self._computed(run)

    def _computed(self, run: Run) -> RunOutput:
        frames = Frames(self._session, self._compiled, run)
        records: ByAddress = {}
        try:
            frames.make()
            if frames.emits:
                with frames.emitting():
                    start = frames.records(self._compiled.slots)
                    records = self._query(start, self._processing(run))
            frames.compute()
        except FrameFailed as failed:
            frames.release()
            return RunOutput(run, [], failure=failed.batch)
        except BaseException:
            frames.release()
            raise
        return RunOutput.divided(run, records, frames)

    def commit_kept(
        self,
        output: RunOutput,
        attempt: TransactionAttempt,
        states: States,
        permits: Permits = no_permits,
    ) -> EngineOutcome:
        """Run the DataFrame committers, in this thread."""
        frames = output.kept
        assert isinstance(frames, Frames)
        if not (frames.waiting or frames.aggregated):
            return EngineOutcome()
        label = partial(self._committing, output, attempt)
        with label():
            return run_frame_committers(self._compiled, frames, attempt, states, permits, label)

    def release(self, output: RunOutput) -> None:
        """Drop the handover, and unpersist the DataFrames in Spark's cache."""
        super().release(output)
        if isinstance(output.kept, Frames):
            output.kept.release()

    @contextmanager
    def _committing(self, output: RunOutput, attempt: TransactionAttempt) -> Iterator[None]:
        """Label the jobs of DataFrame committers, and those that write their DataFrames."""
        with self._jobs.labelled(output.run.only(attempt), "commit"):
            yield


class MicroBatchCarrier(DataFrameCarrier):
    """A ``DataFrameCarrier`` for topologies whose spout emits the rows of micro-batches."""

    def process_frame(self, run: Run, frame: DataFrame) -> RunOutput:
        """Run one query over a DataFrame with the rows that the stream spout emits."""
        with self._jobs.labelled(run, "processing"):
            first, *levels = self._processing(run)
            stage = _rows_stage(self._packed, first)
            start = spread_over_slots(frame, self._compiled.slots).mapInArrow(stage, RECORD)
            return RunOutput.divided(run, self._query(start, levels))


class LocalMicroBatchCarrier(LocalCarrier):
    """A ``LocalCarrier`` whose spout emits the rows of micro-batches."""

    def process_frame(self, run: Run, frame: DataFrame) -> RunOutput:
        """Run the processing phase on the rows of a DataFrame, divided among the slots."""
        return self.process_rows(run, frame.toArrow().to_batches())


def _rows_stage(packed: PackedTopology, level: RunLevel) -> Callable[[Batches], Batches]:
    """Return the first stage of a micro-batch, as a function for ``mapInArrow``."""

    def stage(batches: Batches) -> Batches:
        rows = micro_batch_rows(batches)
        yield from in_batches(run_in_task(level, packed, slot_here(), (), rows))

    return stage


_PADDING = "stands for nothing"


def spread_over_slots(frame: DataFrame, slots: int) -> DataFrame:
    """Return the rows of a micro-batch and a padding row, in one Spark partition for each slot.

    Every slot must run, because each sends manifests. But if Spark notices that a plan has no rows,
    when it optimizes the plan or while it runs (adaptive execution), it skips all further stages.
    The padding row prevents that. :func:`micro_batch_rows` removes it.
    """
    from pyspark.sql import functions as sf

    nulls = [sf.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema]
    padding = frame.sparkSession.range(1).select(*nulls, sf.lit(True).alias(_PADDING))
    return frame.select("*", sf.lit(False).alias(_PADDING)).union(padding).repartition(slots)


def micro_batch_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a micro-batch without the padding row."""
    for batch in batches:
        *columns, padding = batch.columns
        rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(batch.schema)[:-1]))
        if pc.any(padding).as_py():
            rows = rows.filter(pc.invert(padding))
        if rows.num_rows:
            yield rows
