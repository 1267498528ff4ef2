"""SimulatedCarrier: the carrier ``local``, as unreliable as a cluster.

Jobs get lost, tasks are computed a second time (and some readers see the first outcome, some the
second, as after the loss of an executor), envelopes are lost, doubled and delivered late to another
job. All of it must be noticed by the stages themselves.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.errors import RunLostError
from txtopo.runtime.carrier import LocalCarrier, Processed, Stage
from txtopo.stages.program import Run

if TYPE_CHECKING:
    from txtopo.testing.simulation.process import SimulatedProcess

Output = list[tuple[int, bytes]]
EARLIER_RECORDS_MAX = 20


class SimulatedCarrier(LocalCarrier):
    """Moves envelopes inside one simulated process."""

    def __init__(self, process: SimulatedProcess, slots: int) -> None:
        super().__init__(slots)
        self._process = process
        self._recomputed = itertools.count(1_000_000)
        self._earlier: deque[tuple[int, bytes]] = deque(maxlen=EARLIER_RECORDS_MAX)

    def process(self, run: Run) -> Processed:
        """Run the processing phase of a run, unless the job gets lost."""
        self._process.checkpoint("job")
        self._may_get_lost(run.tag)
        return super().process(run)

    def commit(self, processed: Processed, attempt: TransactionAttempt) -> list[bytes]:
        """Run the commit phase of one attempt, unless the job gets lost."""
        self._process.checkpoint("commit job")
        self._may_get_lost(processed.run.tag)
        return super().commit(processed, attempt)

    def compute(self, stage: Stage, task_id: int) -> Iterable[tuple[int, bytes]]:
        """Run one level in one slot, perhaps twice, and hand on most of what comes of it."""
        chaos = self._process.world.chaos
        self._process.checkpoint("task")
        output: Output = list(super().compute(stage, task_id))
        if chaos.happens("recompute"):
            with self._process.world.reading_otherwise():
                again: Output = list(super().compute(stage, next(self._recomputed)))
            kept = {address for address in _addresses(output, again) if chaos.below(2)}
            output = [r for r in output if r[0] in kept] + [r for r in again if r[0] not in kept]
        if output and chaos.happens("envelope_doubled"):
            output.append(output[chaos.below(len(output))])
        if output and chaos.happens("envelope_lost"):
            del output[chaos.below(len(output))]
        if self._earlier and chaos.happens("envelope_late"):
            output.append(self._earlier[chaos.below(len(self._earlier))])
        self._earlier.extend(output[:EARLIER_RECORDS_MAX])
        return output

    def _may_get_lost(self, tag: str) -> None:
        chaos = self._process.world.chaos
        if chaos.happens("job_lost"):
            counted = chaos.below(2) == 1
            raise RunLostError(f"the simulated job {tag} got lost", tag=tag, counted=counted)


def _addresses(*outputs: Output) -> list[int]:
    return sorted({address for output in outputs for address, _ in output})
