"""Progress and listeners: one event per change, for bars, metrics, logs and pages.

Progress of an at-least-once run: one event a second, and one for each thing that goes wrong.

Listeners: everybody who is told of every change.

ProgressMeter: makes a Progress of each commit.

Notices: tells the listeners what an event or a commit means, and counts it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from txtopo.attempt import TransactionAttempt
from txtopo.coordinator import Coordinator
from txtopo.coordinator.protocol import Event, Failed, Failure, Processed, RunFailed
from txtopo.metadata import Json

if TYPE_CHECKING:
    from txtopo.runtime.commit_phase import CommitReport
    from txtopo.runtime.jobs import BatchResult
    from txtopo.runtime.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known after the commit of a batch (compare Spark ``StreamingQueryProgress``).

    Attributes:
        attempt: The attempt that was committed.
        timestamp_s: When, in seconds since 1970.
        rows: Tuples that the spout emitted in this batch.
        rows_total: Tuples that the spout emitted in all batches committed by this run.
        rows_per_second: Tuples per second over the last batches.
        attempts: Attempts that this batch needed in this run, 1 if nothing failed.
        attempts_failed: Attempts that failed in this run, of all batches.
        pending: Phase of each batch in flight, by txid.
        lag: Records behind this batch, by partition, where the spout knows it.
        lost: What the source lost before this batch could read it, by partition, where the spout
            goes on without it.
        tuples: Tuples that each component emitted in this batch.
        processing_s: Time from the start of the batch's job to its end.
        commit_s: Time that the commit phase took.
    """

    attempt: TransactionAttempt
    timestamp_s: float
    rows: int
    rows_total: int
    rows_per_second: float
    attempts: int
    attempts_failed: int
    pending: Mapping[int, str] = field(default_factory=dict)
    lag: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    tuples: Mapping[str, int] = field(default_factory=dict)
    processing_s: float = 0.0
    commit_s: float = 0.0

    @property
    def txid(self) -> int:
        """The txid that was committed."""
        return self.attempt.txid


@dataclass(frozen=True, slots=True)
class Started:
    """The run has started and asks for the leadership."""

    topology_id: str


@dataclass(frozen=True, slots=True)
class Leading:
    """This coordinator leads; the states are claimed.

    Attributes:
        epoch: Its epoch.
        current: The lowest uncommitted txid.
        adopted: The txid that the stores held already and that was adopted, if any.
    """

    topology_id: str
    epoch: int
    current: int
    adopted: int | None


@dataclass(frozen=True, slots=True)
class Standby:
    """Another coordinator leads; this one waits.

    Attributes:
        holder: Who claimed last: ``{"epoch": number, "leader": {"host": …, "pid": …}}``; None if
            nobody has yet.
    """

    topology_id: str
    holder: Json = None


@dataclass(frozen=True, slots=True)
class ProcessingStarted:
    """A job has started for these attempts."""

    attempts: tuple[TransactionAttempt, ...]
    tag: str


@dataclass(frozen=True, slots=True)
class BatchesProcessed:
    """These attempts wait for their turn to commit."""

    attempts: tuple[TransactionAttempt, ...]


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """Every state holds the batch; ZooKeeper is told next."""

    progress: Progress


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """An attempt failed and will be replayed, or ends the run.

    Attributes:
        attempt: The first attempt that is replayed.
        kind: ``counted``, ``infrastructure`` or ``fatal``.
        error: What happened.
        component: Where, if known.
    """

    attempt: TransactionAttempt
    kind: str
    error: Exception
    component: str | None


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run has ended; *error* is None when it was asked to."""

    topology_id: str
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Progressed:
    """About a second has gone by, or the run is at rest or ends."""

    progress: ReliableProgress


@dataclass(frozen=True, slots=True)
class TreesFailed:
    """Trees failed; the spout is told next.

    Attributes:
        component: Id of the spout.
        task: Its task.
        message_ids: Their message ids.
        reason: ``failed`` by a bolt, or ``timed out``.
    """

    component: str
    task: int
    message_ids: tuple[Any, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class SlotLost:
    """A slot is gone with its bolts' memory; another will take its place."""

    slot: int
    reason: str


@dataclass(frozen=True, slots=True)
class ErrorReported:
    """A spout or bolt reported an error; nothing else happens."""

    component: str
    task: int
    error: Exception


TopologyEvent = (
    Started
    | Progressed
    | TreesFailed
    | SlotLost
    | ErrorReported
    | Standby
    | Leading
    | ProcessingStarted
    | BatchesProcessed
    | BatchCommitted
    | BatchFailed
    | Stopped
)


class TopologyListener:
    """Gets one event per change (compare Spark ``StreamingQueryListener``).

    Who calls it: the runtime's loop, in the driver, one call at a time. It must not block; an
    exception that it raises is logged and changes nothing.
    """

    def on_change(self, change: TopologyEvent) -> None:
        """Take note of a change."""


@dataclass(frozen=True, slots=True)
class ReliableProgress:
    """What is known of an at-least-once run; counts are those since its start.

    Attributes:
        timestamp_s: When, in seconds since 1970.
        emitted: Tuples that the spouts emitted.
        acked: Trees that were processed to the end.
        failed: Trees that a bolt failed.
        timed_out: Trees whose time was up.
        replays: Tuples that a spout emitted under a message id that had failed.
        pending: Trees that have not ended yet.
        backlog: Tuples that slots have still to consume.
        slots_lost: How many times a slot was lost.
        acked_per_second: Trees that were processed to the end since the progress before, a second.
        latency_p50_s: Complete latency, from emit to ack, of the trees acked since the progress
            before: half of them took at most so long. None if there was none.
        latency_p99_s: The same for all but one in a hundred.
        executed: Tuples that each bolt was given.
        emitted_by: Tuples that each component emitted.
        acked_by: Tuples that each bolt acked, ticks among them.
        failed_by: Tuples that each bolt failed.
    """

    timestamp_s: float
    emitted: int
    acked: int
    failed: int
    timed_out: int
    replays: int
    pending: int
    backlog: int
    slots_lost: int
    acked_per_second: float = 0.0
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    executed: Mapping[str, int] = field(default_factory=dict)
    emitted_by: Mapping[str, int] = field(default_factory=dict)
    acked_by: Mapping[str, int] = field(default_factory=dict)
    failed_by: Mapping[str, int] = field(default_factory=dict)


logger = logging.getLogger("txtopo")


class Listeners:
    """Tells all listeners; what one of them raises is logged and changes nothing."""

    def __init__(self, listeners: Iterable[TopologyListener]) -> None:
        self._listeners = list(listeners)

    def tell(self, change: TopologyEvent) -> None:
        """Tell all of a change."""
        for listener in self._listeners:
            try:
                listener.on_change(change)
            except BaseException:
                logger.warning("a listener failed on %s", change, exc_info=True)


# Enough commits for a steady rate, few enough to follow a change within seconds.
RATE_COMMITS = 20


class ProgressMeter:
    """Counts what one run has committed."""

    def __init__(self, started_s: float) -> None:
        self._rows_total = 0
        self._failures: dict[int, int] = {}
        self._failed = 0
        self._commits: deque[tuple[float, int]] = deque([(started_s, 0)], maxlen=RATE_COMMITS + 1)

    def failed(self, txid: int) -> None:
        """Count a failed attempt."""
        self._failed += 1
        self._failures[txid] = self._failures.get(txid, 0) + 1

    def committed(
        self,
        attempt: TransactionAttempt,
        *,
        rows: int,
        now_s: float,
        timestamp_s: float,
        pending: Mapping[int, str],
        lag: Mapping[str, int],
        lost: Mapping[str, str],
        tuples: Mapping[str, int],
        processing_s: float,
        commit_s: float,
    ) -> Progress:
        """Count a commit and return the progress after it."""
        self._rows_total += rows
        self._commits.append((now_s, self._rows_total))
        first_s, first_rows = self._commits[0]
        seconds = now_s - first_s
        return Progress(
            attempt=attempt,
            timestamp_s=timestamp_s,
            rows=rows,
            rows_total=self._rows_total,
            rows_per_second=(self._rows_total - first_rows) / seconds if seconds > 0 else 0.0,
            attempts=1 + self._failures.pop(attempt.txid, 0),
            attempts_failed=self._failed,
            pending=pending,
            lag=lag,
            lost=lost,
            tuples=tuples,
            processing_s=processing_s,
            commit_s=commit_s,
        )


class ProgressReporter:
    """What the listeners of one term are told. Events of abandoned attempts are passed over."""

    def __init__(
        self, coordinator: Coordinator, meter: ProgressMeter, tell: Callable[[TopologyEvent], None]
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
