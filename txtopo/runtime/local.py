"""LocalCarrier: runs the stages in this process, no Spark, one slot after the other.

For unit tests, the simulator, and for stepping through a bolt with a debugger.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.errors import RunLostError
from txtopo.runtime.carrier import Processed
from txtopo.stages.mailboxes import DRIVER
from txtopo.stages.program import Chain, Levels, Program, Run
from txtopo.stages.stages import run_stage

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

    def process(self, run: Run) -> Processed:
        """Run the processing phase of a run."""
        by_address = self._chain("processing", run, {}, run.tag)
        return Processed(run, list(by_address.pop(DRIVER, [])), kept=by_address)

    def process_frame(self, run: Run, frame: DataFrame) -> Processed:
        """Run the processing phase on a frame, whose rows come here and go round the slots."""
        assert self._program is not None
        batches, slots = frame.toArrow().to_batches(), self._program.slots
        rows = [batches[slot::slots] for slot in range(slots)]
        by_address = self._chain("processing", run, {}, run.tag, rows)
        return Processed(run, list(by_address.pop(DRIVER, [])), kept=by_address)

    def commit(self, processed: Processed, attempt: TransactionAttempt) -> list[bytes]:
        """Run the commit phase of one attempt of a processed run."""
        assert self._program is not None
        assert isinstance(processed.kept, dict)
        run, slots = processed.run, self._program.slots
        first = 1 + run.attempts.index(attempt) * slots
        cut = {slot: processed.kept.get(first + slot, []) for slot in range(slots)}
        records = self._chain("commit", run.only(attempt), cut, run.commit_tag(attempt))
        return list(records.get(DRIVER, []))

    def release(self, processed: Processed) -> None:
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
