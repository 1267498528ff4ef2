"""CoordinatorSettings: what the protocol has to know of the topology and its configuration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """What the protocol has to know of the topology and its configuration.

    Attributes:
        window_txids: Batches that may be in flight (``max_spout_pending``).
        run_txids_max: Batches that one run processes at the most.
        jobs_max: Runs that process at the same time at the most.
        attempts_max: Counted failures of one batch at which the run ends.
        keep_processed: Keep the processed results of later batches when one fails; has an effect
            only if *repeatable*.
        repeatable: A replay brings the same batch (transactional spout).
        chained: A batch starts where its predecessor ended, which only its emitters know
            (partitioned and opaque partitioned spouts).
    """

    window_txids: int
    run_txids_max: int = 1
    jobs_max: int = 1
    attempts_max: int = 5
    keep_processed: bool = True
    repeatable: bool = True
    chained: bool = False

    @property
    def run_size(self) -> int:
        """How many batches a run should have.

        The window has room for *jobs_max* such runs and one more that gathers meanwhile; with less
        room a run would take whatever a commit frees, and runs would shrink to one batch.
        """
        return max(1, min(self.run_txids_max, self.window_txids // (self.jobs_max + 1)))
