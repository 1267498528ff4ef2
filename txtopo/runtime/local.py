"""LocalCarrier: runs the stages in this process, no Spark, one slot after the other.

For unit tests, the simulator, and for stepping through a bolt with a debugger.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from txtopo.attempt import TransactionAttempt
from txtopo.errors import RunLostError
from txtopo.planning.outbox import DRIVER
from txtopo.planning.program import Chain, Program
from txtopo.planning.run import Run
from txtopo.planning.stages import run_stage
from txtopo.runtime.carrier import Processed


class LocalCarrier:
    """Moves envelopes between stages of this process.

    ``cancel`` takes effect between two stages: user code that runs is not interrupted.
    """

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
        self._running.add(run.tag)
        try:
            by_address = self._chain("processing", run, {})
        finally:
            self._running.discard(run.tag)
            self._cancelled.discard(run.tag)
        return Processed(run, list(by_address.pop(DRIVER, [])), kept=by_address)

    def commit(self, processed: Processed, attempt: TransactionAttempt) -> list[bytes]:
        """Run the commit phase of one attempt of a processed run."""
        assert self._program is not None
        assert isinstance(processed.kept, dict)
        slots = self._program.slots
        first = 1 + processed.run.attempts.index(attempt) * slots
        cut = {slot: processed.kept.get(first + slot, []) for slot in range(slots)}
        return list(self._chain("commit", processed.run.only(attempt), cut).get(DRIVER, []))

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
        self, chain: Chain, run: Run, records: Mapping[int, list[bytes]]
    ) -> dict[int, list[bytes]]:
        program = self._program
        assert program is not None
        levels = len(program.levels_of(chain))
        for level in range(levels):
            sent: dict[int, list[bytes]] = {}
            for slot in range(program.slots_of(chain)):
                self._check(run)
                arrived = records.get(slot, [])
                task_id = next(self._task_ids)
                stage = run_stage(program, chain, run, level, slot, task_id, arrived)
                for address, record in stage:
                    sent.setdefault(address, []).append(record)
            records = sent
        return dict(records)

    def _check(self, run: Run) -> None:
        if run.tag in self._cancelled:
            raise RunLostError(f"job {run.tag} was cancelled", counted=False, cancelled=True)
