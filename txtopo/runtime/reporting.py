"""Reporting: makes an event of each change of a term, and a progress of each commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.coordinator import Coordinator
from txtopo.coordinator.protocol import (
    Event,
    Failed,
    Failure,
    Planned,
    Processed,
    RunFailed,
    StopRequested,
)
from txtopo.metadata import Json
from txtopo.runtime.progress import (
    BatchCommitted,
    BatchesAbandoned,
    BatchesProcessed,
    BatchFailed,
    BatchPlanned,
    Progress,
    TopologyEvent,
)

if TYPE_CHECKING:
    from txtopo.runtime.commit_phase import CommitReport
    from txtopo.runtime.jobs import BatchResult
    from txtopo.runtime.scheduler import Scheduler


# Enough commits for a steady rate, few enough to follow a change within seconds.
RATE_COMMITS = 20


class ProgressMeter:
    """Counts the commits of a topology, and makes a :class:`Progress` of each."""

    def __init__(self, started_s: float) -> None:
        self._rows_total = 0
        self._failures: dict[int, int] = {}
        self._failed = 0
        self._commits: deque[tuple[float, int]] = deque([(started_s, 0)], maxlen=RATE_COMMITS + 1)

    def failed(self, txid: int) -> int:
        """Count a failed attempt, and return how many have failed in a row."""
        self._failed += 1
        self._failures[txid] = self._failures.get(txid, 0) + 1
        return self._failures[txid]

    def committed(
        self,
        result: BatchResult,
        report: CommitReport,
        *,
        spouts: Sequence[str],
        scheduler: Scheduler,
        commit_s: float,
        pending: Mapping[int, str],
        pace: Mapping[str, Json] = MappingProxyType({}),
        zookeeper_s: Sequence[float] = (),
        group: tuple[int, int] | None = None,
    ) -> Progress:
        """Count a commit and return the progress after it."""
        rows = result.outcome.rows_of(spouts)
        self._rows_total += rows
        group = group or (result.attempt.txid, result.attempt.txid)
        if result.attempt.txid > group[0]:
            self._commits.pop()  # a group is one commit: its batches arrive at the same time
        self._commits.append((scheduler.now(), self._rows_total))
        (first_s, first_rows), (now_s, _) = self._commits[0], self._commits[-1]
        seconds = now_s - first_s
        return Progress(
            attempt=result.attempt,
            timestamp_s=scheduler.wall_clock(),
            rows=rows,
            rows_total=self._rows_total,
            rows_per_second=(self._rows_total - first_rows) / seconds if seconds > 0 else 0.0,
            failures=self._failures.pop(result.attempt.txid, 0),
            failures_total=self._failed,
            pending=pending,
            lag=report.lag,
            lost=report.lost,
            tuples=report.tuples,
            processing_s=result.processing_s,
            commit_s=commit_s,
            pace=pace,
            state_s=report.state_s,
            component_s=report.component_s,
            zookeeper_s=zookeeper_s,
            driver_bytes=sum(result.outcome.bytes_by_stream.values()),
            group=group,
        )


@dataclass(frozen=True, slots=True)
class PriorAttempts:
    """The attempts that an event concerns, as they were before the event.

    Attributes:
        current: The attempts in the event that were current.
        in_flight: All current attempts, if the event may end some of them.
    """

    current: Sequence[TransactionAttempt] = ()
    in_flight: Sequence[TransactionAttempt] = ()


class ProgressReporter:
    """Reports the events and commits of one term to the listeners, leaving out stale results."""

    def __init__(
        self,
        coordinator: Coordinator,
        meter: ProgressMeter,
        tell: Callable[[TopologyEvent], None],
    ) -> None:
        self._coordinator = coordinator
        self._meter = meter
        self.tell = tell

    def before(self, event: Event) -> PriorAttempts:
        """Return the input of :meth:`of`; called before the coordinator handles the event."""
        match event:
            case Processed():
                return PriorAttempts(self._still(event.attempts))
            case RunFailed():
                return PriorAttempts(self._still(event.attempts), self._in_flight())
            case Failed():
                return PriorAttempts(self._still([event.attempt]), self._in_flight())
            case StopRequested():
                return PriorAttempts((), self._in_flight())
            case _:
                return PriorAttempts()

    def of(self, event: Event, before: PriorAttempts, *, pause_s: float, plan_s: float) -> None:
        """Report an event; called after the coordinator has handled it.

        Args:
            event: The event.
            before: What :meth:`before` returned for it.
            pause_s: Seconds until a failed batch is tried again; 0 for at once.
            plan_s: Seconds since the spout was asked last.
        """
        current = before.current
        match event:
            case Planned() if self._newest() == event.attempt:
                self.tell(BatchPlanned(event.attempt, plan_s))
            case Processed() if current:
                self.tell(BatchesProcessed(tuple(current)))
            case Failed() | RunFailed() if current:
                # Results that are kept have not failed with their run. A batch that the spout could
                # not plan stays where it is if the topology ends.
                gone = [each for each in current if not self._coordinator.is_current(each)]
                failed = gone or current[:1]
                self._failed(failed, event.failure, pause_s)
                self._abandoned(before, failed)
            case StopRequested():
                self._abandoned(before, ())

    def committed(
        self,
        result: BatchResult,
        report: CommitReport,
        *,
        group: tuple[int, int],
        spouts: Sequence[str],
        scheduler: Scheduler,
        commit_s: float,
        pace: Mapping[str, Json],
        zookeeper_s: Sequence[float],
    ) -> None:
        """Report a commit; called after the coordinator has handled it."""
        progress = self._meter.committed(
            result,
            report,
            group=group,
            spouts=spouts,
            scheduler=scheduler,
            commit_s=commit_s,
            pending={t.attempt.txid: t.phase.name for t in self._coordinator.transactions},
            pace=pace,
            zookeeper_s=zookeeper_s,
        )
        self.tell(BatchCommitted(progress))

    def _still(self, attempts: Sequence[TransactionAttempt]) -> list[TransactionAttempt]:
        return [each for each in attempts if self._coordinator.is_current(each)]

    def _newest(self) -> TransactionAttempt | None:
        in_flight = self._coordinator.transactions
        return in_flight[-1].attempt if in_flight else None

    def _in_flight(self) -> list[TransactionAttempt]:
        return [each.attempt for each in self._coordinator.transactions]

    def _abandoned(self, before: PriorAttempts, failed: Sequence[TransactionAttempt]) -> None:
        """Report the attempts that are no longer in flight although they did not fail."""
        still = {*self._in_flight(), *failed}
        if gone := tuple(each for each in before.in_flight if each not in still):
            self.tell(BatchesAbandoned(gone, failed[0] if failed else None))

    def _failed(
        self, attempts: Sequence[TransactionAttempt], failure: Failure, pause_s: float
    ) -> None:
        first, failures = attempts[0], [self._meter.failed(each.txid) for each in attempts]
        again = self._coordinator.is_replaced(first)
        self.tell(
            BatchFailed(
                first,
                failure.kind.value,
                failure.error,
                failure.component,
                failures[0],
                pause_s if again else None,
                len(attempts),
            )
        )
