"""Notices: tells the listeners what an event or a commit means, and counts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.coordinator import Coordinator
from txtopo.coordinator.protocol import Event, Failed, Failure, Processed, RunFailed
from txtopo.runtime.progress import BatchCommitted, BatchesProcessed, BatchFailed, Change

if TYPE_CHECKING:
    from txtopo.runtime.commit_phase import CommitReport
    from txtopo.runtime.jobs import BatchResult
    from txtopo.runtime.meter import ProgressMeter
    from txtopo.runtime.scheduler import Scheduler


class Notices:
    """What the listeners of one term are told. Events of abandoned attempts are passed over."""

    def __init__(
        self, coordinator: Coordinator, meter: ProgressMeter, tell: Callable[[Change], None]
    ) -> None:
        self._coordinator = coordinator
        self._meter = meter
        self.tell = tell

    def of(self, event: Event) -> None:
        """Tell what an event means; called before the coordinator has it."""
        match event:
            case Processed() if self._current(event.attempts[0]):
                self.tell(BatchesProcessed(event.attempts))
            case Failed() if self._known(event.attempt):
                self._failed(event.attempt, event.failure)
            case RunFailed():
                current = [attempt for attempt in event.attempts if self._current(attempt)]
                if current:
                    self._failed(current[0], event.failure)
            case _:
                pass

    def committed(
        self,
        result: BatchResult,
        report: CommitReport,
        *,
        spout_id: str,
        scheduler: Scheduler,
        commit_s: float,
    ) -> None:
        """Tell of a commit; called when the coordinator has it."""
        progress = self._meter.committed(
            result.attempt,
            rows=sum(result.outcome.tuples.get(spout_id, {}).values()),
            now_s=scheduler.now(),
            timestamp_s=scheduler.wall_clock(),
            pending={t.attempt.txid: t.phase.name for t in self._coordinator.transactions},
            lag=report.lag,
            lost=report.lost,
            tuples=report.tuples,
            processing_s=result.processing_s,
            commit_s=commit_s,
        )
        self.tell(BatchCommitted(progress))

    def _failed(self, attempt: TransactionAttempt, failure: Failure) -> None:
        self._meter.failed(attempt.txid)
        self.tell(BatchFailed(attempt, failure.kind.value, failure.error, failure.component))

    def _current(self, attempt: TransactionAttempt) -> bool:
        return any(each.attempt == attempt for each in self._coordinator.transactions)

    def _known(self, attempt: TransactionAttempt) -> bool:
        return self._current(attempt) or attempt == self._coordinator.unplanned.attempt
