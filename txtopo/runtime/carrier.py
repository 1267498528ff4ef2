"""Carrier: what moves envelopes between the stages of a topology.

A carrier knows nothing of tuples, batches or states. It runs the stage functions of a
:class:`~txtopo.stages.program.Program` over slots, hands the records that one stage yields to the
slots of the next, and returns what the last stage yields. All carriers run the same stage
functions, so all give the same result.

A stage function is ``run_stage(program, chain, run, level, slot, task_id, records)``: an iterator
of payloads in, an iterator of ``(address, payload)`` out. Between levels the address is a slot.
What the last level yields has the address ``DRIVER`` (0) or ``1 + i * slots + slot`` for an
envelope of the cut that belongs to the i-th attempt of the run and is committed in tasks.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from txtopo.attempt import TransactionAttempt
from txtopo.stages.outcome import FailedBatch
from txtopo.stages.program import Program, Run

if TYPE_CHECKING:
    from txtopo.runtime.frames import Frames


@dataclass(slots=True)
class Processed:
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

    def process(self, run: Run) -> Processed:
        """Run the processing phase of a run and wait for it.

        Raises:
            RunLostError: The job failed or was cancelled without naming a batch. Its attribute
                ``counted`` says whether a worker crashed (True) or the infrastructure did.
        """
        ...

    def commit(self, processed: Processed, attempt: TransactionAttempt) -> list[bytes]:
        """Run the commit phase of one attempt of a processed run in tasks, and wait for it.

        Returns:
            All payloads for the driver.
        """
        ...

    def release(self, processed: Processed) -> None:
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
        self, processed: Processed, attempt: TransactionAttempt
    ) -> AbstractContextManager[None]:
        """Label what Spark does in this thread as the commit of an attempt, to be cancelled so.

        Raises:
            RunLostError: It was cancelled, or a job failed without naming a batch.
        """
        ...
