"""A term of leadership: one coordinator, and everything that it started.

Rules
-----
1. Actions are done in the order given. One that writes is durable before the next one starts: the
   queue of actions stands still meanwhile, events do not.
2. A write of transactional state that cannot be made is tried again until it is made, or until the
   term is over. It never fails an attempt: what it says has happened already.
3. When a term is over nothing that it started is heard any more. What still runs may write to a
   store only as long as no later epoch has claimed it: the ledger sees to that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.coordinator import Coordinator
from txtopo.coordinator.actions import (
    Action,
    Advance,
    Backoff,
    Cancel,
    PlanBatch,
    StartCommit,
    StartProcessing,
    Stop,
    StoreBatches,
)
from txtopo.coordinator.events import (
    Committed,
    Event,
    Failed,
    Failure,
    FailureKind,
    NotReady,
    Processed,
    Resumed,
    RunFailed,
    Tick,
)
from txtopo.errors import DriverMemoryError, FencedError, InfrastructureError
from txtopo.runtime.commit_phase import BatchFailedError, CommitPhase, CommitReport
from txtopo.runtime.jobs import Jobs, failure_of
from txtopo.runtime.journaling import store_action
from txtopo.runtime.parts import Parts
from txtopo.runtime.progress import (
    BatchCommitted,
    BatchesProcessed,
    BatchFailed,
    Change,
    ProcessingStarted,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    from txtopo.runtime.meter import ProgressMeter


@dataclass(frozen=True, slots=True)
class Hooks:
    """Whom a term tells what.

    Attributes:
        tell: Takes each change, for listeners.
        after_event: Called after each event and each write.
        end: Called with the error, or None, when the coordinator stops.
    """

    tell: Callable[[Change], None]
    after_event: Callable[[], None]
    end: Callable[[Exception | None], None]


class Term:
    """Feeds the coordinator with events and does what it asks for. Used on the loop only.

    Args:
        parts: What the run is made of.
        coordinator: The coordinator of this term.
        commit_phase: Runs commits against the states that this term has claimed.
        meter: Counts commits; lives longer than a term.
        hooks: Whom to tell.
    """

    def __init__(
        self,
        parts: Parts,
        coordinator: Coordinator,
        commit_phase: CommitPhase,
        meter: ProgressMeter,
        hooks: Hooks,
    ) -> None:
        self.coordinator = coordinator
        self.over = False
        self.asks = 0
        """How often the spout was asked for a batch."""
        self.dry_ask = 0
        """The last ask, begun with nothing in flight, to which the spout said that it has nothing.
        With batches in flight it may say so because it does not know yet where they end."""
        self._parts = parts
        self._scheduler = parts.scheduler
        self._commit_phase = commit_phase
        self._meter = meter
        self._tell = hooks.tell
        self._after_event = hooks.after_event
        self._end = hooks.end
        self._jobs = Jobs(parts.program, parts.carrier, parts.config, parts.scheduler, self.handle)
        self._actions: deque[Action] = deque()
        self._writing = False
        self._commit_job: tuple[TransactionAttempt, str] | None = None

    @property
    def at_rest(self) -> bool:
        """Whether nothing is in flight, in the coordinator or on the way to ZooKeeper."""
        return not (self.coordinator.transactions or self._actions or self._writing)

    def start(self) -> None:
        """Begin with what the coordinator wants first."""
        self._perform(self.coordinator.start())

    def handle(self, event: Event) -> None:
        """Give the coordinator an event and do what it asks for."""
        if self.over:
            return
        self._notice(event)
        actions = self.coordinator.handle(event)
        self._jobs.keep_only({t.attempt for t in self.coordinator.transactions})
        self._perform(actions)
        if isinstance(event, NotReady):
            self._scheduler.call_later(self._parts.config.poll_interval_s, self._tick)
        if isinstance(event, Processed):
            self._check_memory()
        self._after_event()

    def close(self) -> None:
        """End the term: cancel its jobs; nothing of it is heard any more."""
        self.over = True
        self._actions.clear()
        self._jobs.cancel_all()

    def _tick(self) -> None:
        self.handle(Tick())

    def _perform(self, actions: Sequence[Action]) -> None:
        self._actions.extend(actions)
        while self._actions and not self._writing and not self.over:
            self._do(self._actions.popleft())

    def _do(self, action: Action) -> None:
        match action:
            case StoreBatches() | Advance():
                self._write(action)
            case PlanBatch():
                self._plan(action)
            case StartProcessing():
                run = self._jobs.start(action)
                self._tell(ProcessingStarted(run.attempts, run.tag))
            case StartCommit():
                self._commit(action)
            case Cancel():
                self._cancel(action)
            case Backoff():
                self._scheduler.call_later(
                    self._pause_s(action.failures), lambda: self.handle(Resumed())
                )
            case Stop():
                self._end(action.error)

    def _write(self, action: StoreBatches | Advance, failures: int = 0) -> None:
        self._writing = True

        def done(future: Future[None]) -> None:
            if self.over:
                return
            error = future.exception()
            if isinstance(error, InfrastructureError):
                pause_s = self._pause_s(failures + 1)
                self._scheduler.call_later(pause_s, lambda: self._write(action, failures + 1))
            elif error is not None:
                self._end(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            else:
                self._writing = False
                self._perform(())
                self._after_event()

        if not self.over:
            self._scheduler.submit(lambda: store_action(self._parts, action), done)

    def _plan(self, action: PlanBatch) -> None:
        self.asks += 1
        ask, quiet = self.asks, not self.coordinator.transactions

        def done(future: Future[Event]) -> None:
            error = future.exception()
            if error is None:
                if quiet and isinstance(future.result(), NotReady):
                    self.dry_ask = ask
                self.handle(future.result())
            else:
                spout = self._parts.program.spout_id
                self.handle(Failed(action.attempt, failure_of(error, spout)))

        self._scheduler.submit(lambda: self._parts.planner.plan(action), done)

    def _commit(self, action: StartCommit) -> None:
        attempt, result = action.attempt, self._jobs.result(action.attempt)
        started_s = self._scheduler.now()
        limit_s = self._parts.config.batch_timeout_s
        timer = self._scheduler.call_later(limit_s, lambda: self._commit_timed_out(action, limit_s))

        def done(future: Future[CommitReport]) -> None:
            timer.cancel()
            if self.over or not self._is_current(attempt):
                return  # it timed out, and was abandoned
            error = future.exception()
            if error is None:
                self._committed(action, future.result(), started_s)
            elif isinstance(error, BatchFailedError):
                self.handle(Failed(attempt, failure_of(error.error, error.component)))
            elif isinstance(error, FencedError):
                self._end(error)
            else:
                self.handle(Failed(attempt, failure_of(error)))

        self._commit_job = (attempt, result.run.run.tag)
        self._scheduler.submit(lambda: self._commit_phase.run(result), done)

    def _cancel(self, action: Cancel) -> None:
        self._jobs.cancel(action.attempts)
        if self._commit_job is not None and self._commit_job[0] in action.attempts:
            tag = self._commit_job[1]
            self._commit_job = None
            self._scheduler.submit(lambda: self._parts.carrier.cancel(tag), lambda _: None)

    def _committed(self, action: StartCommit, report: CommitReport, started_s: float) -> None:
        attempt = action.attempt
        result = self._jobs.result(attempt)
        self.handle(Committed(attempt))
        rows = sum(result.outcome.tuples.get(self._parts.program.spout_id, {}).values())
        progress = self._meter.committed(
            attempt,
            rows=rows,
            now_s=self._scheduler.now(),
            timestamp_s=self._scheduler.wall_clock(),
            pending={t.attempt.txid: t.phase.name for t in self.coordinator.transactions},
            lag=report.lag,
            tuples=report.tuples,
            processing_s=result.processing_s,
            commit_s=self._scheduler.now() - started_s,
        )
        self._tell(BatchCommitted(progress))

    def _commit_timed_out(self, action: StartCommit, limit_s: float) -> None:
        error = TimeoutError(
            f"the commit of txid {action.attempt.txid} did not end in {limit_s:g} s; look for a "
            "committer that hangs, or raise batch_timeout_s"
        )
        self.handle(Failed(action.attempt, Failure(FailureKind.COUNTED, error)))

    def _notice(self, event: Event) -> None:
        match event:
            case Processed() if self._is_current(event.attempts[0]):
                self._tell(BatchesProcessed(event.attempts))
            case Failed() if self._is_known(event.attempt):
                self._notice_failure(event.attempt, event.failure)
            case RunFailed():
                current = [a for a in event.attempts if self._is_current(a)]
                if current:
                    self._notice_failure(current[0], event.failure)
            case _:
                pass

    def _notice_failure(self, attempt: TransactionAttempt, failure: Failure) -> None:
        self._meter.failed(attempt.txid)
        self._tell(BatchFailed(attempt, failure.kind.value, failure.error, failure.component))

    def _is_current(self, attempt: TransactionAttempt) -> bool:
        return any(t.attempt == attempt for t in self.coordinator.transactions)

    def _is_known(self, attempt: TransactionAttempt) -> bool:
        return self._is_current(attempt) or attempt == self.coordinator.unplanned.attempt

    def _check_memory(self) -> None:
        try:
            self._jobs.check_memory()
        except DriverMemoryError as error:
            self._end(error)

    def _pause_s(self, failures: int) -> float:
        config = self._parts.config
        return min(config.backoff_max_s, config.backoff_s * 2.0 ** min(failures - 1, 30))
