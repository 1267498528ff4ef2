"""Carrier: what moves envelopes between the stages of a topology.

A carrier knows nothing of tuples, batches or states. It runs the stage functions of a
:class:`~txtopo.stages.program.Program` over slots, hands the records that one stage yields to the
slots of the next, and returns what the last stage yields. All carriers run the same stage
functions, so all give the same result.

A stage function is ``run_stage(program, chain, run, level, slot, task_id, records)``: an iterator
of payloads in, an iterator of ``(address, payload)`` out. Between levels the address is a slot.
What the last level yields has the address ``DRIVER`` (0) or ``1 + i * slots + slot`` for an
envelope of the cut that belongs to the i-th attempt of the run and is committed in tasks.

LocalCarrier: runs the stages in this process, no Spark, one slot after the other.

For unit tests, the simulator, and for stepping through a bolt with a debugger.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from txtopo.attempt import TransactionAttempt
from txtopo.errors import RunLostError
from txtopo.stages.mailboxes import DRIVER
from txtopo.stages.outcome import FailedBatch
from txtopo.stages.program import Chain, Levels, Program, Run
from txtopo.stages.stage import run_stage

if TYPE_CHECKING:
    from txtopo.runtime.frames import Frames


@dataclass(slots=True)
class ProcessedRun:
    """What a processed run left behind.

    Attributes:
        run: The run.
        records: All payloads for the driver.
        kept: What the carrier needs to read the cut again for a commit in tasks; its own affair.
        frames: What waits in Spark for DataFrame committers.
        failure: What a plan of the user's failed with; then there is nothing else.
    """

    run: Run
    records: list[bytes]
    kept: object = field(default=None, repr=False)
    frames: Frames | None = field(default=None, repr=False)
    failure: FailedBatch | None = None


class Carrier(Protocol):
    """Moves envelopes between stages; see the module's text.

    Who calls it: the runtime, from several threads at once (one call of ``process`` per run in
    flight, one of ``commit`` at a time, ``cancel`` at any time).
    """

    keeps_cut_in_driver: bool
    """Whether the cut of a commit in tasks waits in this process, and so counts towards its cap."""

    carries_frames: bool
    """Whether it computes plans of Spark's, so that it is a :class:`FrameCarrier`."""

    def default_slots(self) -> int:
        """Return how many slots fit: the session's default parallelism."""
        ...

    def start(self, program: Program) -> None:
        """Take the program; called once, before anything runs."""
        ...

    def process(self, run: Run) -> ProcessedRun:
        """Run the processing phase of a run and wait for it.

        Raises:
            RunLostError: The job failed or was cancelled without naming a batch. Its attribute
                ``counted`` says whether a worker crashed (True) or the infrastructure did.
        """
        ...

    def commit(self, processed: ProcessedRun, attempt: TransactionAttempt) -> list[bytes]:
        """Run the commit phase of one attempt of a processed run in tasks, and wait for it.

        Returns:
            All payloads for the driver.
        """
        ...

    def release(self, processed: ProcessedRun) -> None:
        """Forget a processed run; harmless twice."""
        ...

    def cancel(self, tag: str) -> None:
        """Really cancel the jobs with this tag; their ``process`` or ``commit`` raises."""
        ...

    def close(self) -> None:
        """Cancel everything and release what was taken; never stops a session of the user's."""
        ...


class FrameCarrier(Carrier, Protocol):
    """A carrier that computes plans of Spark's as well."""

    def committing(
        self, processed: ProcessedRun, attempt: TransactionAttempt
    ) -> AbstractContextManager[None]:
        """Label what Spark does in this thread as the commit of an attempt, to be cancelled so.

        Raises:
            RunLostError: It was cancelled, or a job failed without naming a batch.
        """
        ...


if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    Rows = Sequence[Sequence[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Stage:
    """What one level in one slot is computed from; see :mod:`txtopo.runtime.carrier`."""

    program: Program
    chain: Chain
    run: Run
    level: int
    slot: int
    records: Sequence[bytes]
    rows: Sequence[pa.RecordBatch] = ()


class LocalCarrier:
    """Moves envelopes between stages of this process.

    ``cancel`` takes effect between two stages: user code that runs is not interrupted.
    """

    carries_frames = False
    keeps_cut_in_driver = True

    def __init__(self, slots: int | None = None) -> None:
        self._slots = slots or 1
        self._program: Program | None = None
        self._task_ids = itertools.count(1)
        self._running: set[str] = set()
        self._cancelled: set[str] = set()

    def default_slots(self) -> int:
        """Return the number given, or 1: more of them do no more work at a time here."""
        return self._slots

    def start(self, program: Program) -> None:
        """Take the program."""
        self._program = program

    def process(self, run: Run) -> ProcessedRun:
        """Run the processing phase of a run."""
        by_address = self._chain("processing", run, {}, run.tag)
        return ProcessedRun(run, list(by_address.pop(DRIVER, [])), kept=by_address)

    def process_frame(self, run: Run, frame: DataFrame) -> ProcessedRun:
        """Run the processing phase on a frame, whose rows come here and go round the slots."""
        assert self._program is not None
        batches, slots = frame.toArrow().to_batches(), self._program.slots
        rows = [batches[slot::slots] for slot in range(slots)]
        by_address = self._chain("processing", run, {}, run.tag, rows)
        return ProcessedRun(run, list(by_address.pop(DRIVER, [])), kept=by_address)

    def commit(self, processed: ProcessedRun, attempt: TransactionAttempt) -> list[bytes]:
        """Run the commit phase of one attempt of a processed run."""
        assert self._program is not None
        assert isinstance(processed.kept, dict)
        run, slots = processed.run, self._program.slots
        first = 1 + run.attempts.index(attempt) * slots
        cut = {slot: processed.kept.get(first + slot, []) for slot in range(slots)}
        records = self._chain("commit", run.only(attempt), cut, run.commit_tag(attempt))
        return list(records.get(DRIVER, []))

    def release(self, processed: ProcessedRun) -> None:
        """Forget a processed run."""
        processed.kept = {}

    def cancel(self, tag: str) -> None:
        """Stop the job with this tag before its next stage."""
        if tag in self._running:
            self._cancelled.add(tag)

    def close(self) -> None:
        """Cancel everything."""
        self._cancelled |= self._running

    def _chain(
        self,
        chain: Chain,
        run: Run,
        records: Mapping[int, list[bytes]],
        tag: str,
        rows: Rows = (),
    ) -> dict[int, list[bytes]]:
        self._running.add(tag)
        try:
            for level in range(len(self._levels(chain))):
                records = self._level(chain, run, level, records, tag, () if level else rows)
        finally:
            self._running.discard(tag)
            self._cancelled.discard(tag)
        return dict(records)

    def _level(
        self,
        chain: Chain,
        run: Run,
        level: int,
        records: Mapping[int, list[bytes]],
        tag: str,
        rows: Rows,
    ) -> dict[int, list[bytes]]:
        program = self._program
        assert program is not None
        sent: dict[int, list[bytes]] = {}
        for slot in range(program.slots_of(chain)):
            if tag in self._cancelled:
                raise RunLostError(
                    f"the job {tag} was cancelled", tag=tag, counted=False, cancelled=True
                )
            here = rows[slot] if rows else ()
            stage = Stage(program, chain, run, level, slot, records.get(slot, []), here)
            for address, record in self.compute(stage, next(self._task_ids)):
                sent.setdefault(address, []).append(record)
        return sent

    def compute(self, stage: Stage, task_id: int) -> Iterable[tuple[int, bytes]]:
        """Run one level in one slot."""
        return run_stage(
            stage.program,
            stage.chain,
            stage.run,
            stage.level,
            stage.slot,
            task_id,
            stage.records,
            rows=stage.rows,
        )

    def _levels(self, chain: Chain) -> Levels:
        assert self._program is not None
        return self._program.levels_of(chain)
