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
from functools import partial
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.coordinator import Coordinator
from txtopo.coordinator.protocol import (
    Action,
    Advance,
    Backoff,
    Cancel,
    Committed,
    Event,
    Failed,
    Failure,
    FailureKind,
    NotReady,
    PlanBatch,
    Processed,
    Resumed,
    StartCommit,
    StartProcessing,
    Stop,
    StopRequested,
    StoreBatches,
    Tick,
)
from txtopo.coordinator.transactions import Phase
from txtopo.errors import DriverMemoryError, FencedError, InfrastructureError
from txtopo.retries import warn_of_retry
from txtopo.runtime.commit_phase import CommitPhase, CommitReport
from txtopo.runtime.jobs import Jobs, failure_of
from txtopo.runtime.journaling import store_action
from txtopo.runtime.progress import ProcessingStarted, ProgressReporter, TopologyEvent
from txtopo.runtime.retries import Retries
from txtopo.runtime.run_context import RunContext

if TYPE_CHECKING:
    from concurrent.futures import Future

    from txtopo.runtime.progress import ProgressMeter
    from txtopo.runtime.scheduler import Timer
    from txtopo.transactional_state.journal import Journal


@dataclass(frozen=True, slots=True)
class Hooks:
    """Whom a term tells what.

    Attributes:
        tell: Takes each change, for listeners.
        after_event: Called after each event and each write.
        end: Called with the error, or None, when the coordinator stops.
    """

    tell: Callable[[TopologyEvent], None]
    after_event: Callable[[], None]
    end: Callable[[Exception | None], None]


class LeaderTerm:
    """Feeds the coordinator with events and does what it asks for. Used on the loop only.

    Args:
        parts: What the run is made of.
        journal: Writes the term's steps.
        coordinator: The coordinator of this term.
        commit_phase: Runs commits against the states that this term has claimed.
        meter: Counts commits; lives longer than a term.
        hooks: Whom to tell.
    """

    def __init__(
        self,
        parts: RunContext,
        journal: Journal,
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
        self._store = partial(store_action, parts, journal)
        self._commit_phase = commit_phase
        self._notices = ProgressReporter(coordinator, meter, hooks.tell)
        self._retries = Retries(parts.graph.id, coordinator, parts.config)
        self._after_event = hooks.after_event
        self._end = hooks.end
        self._jobs = Jobs(parts.program, parts.carrier, parts.config, parts.scheduler, self.handle)
        self._actions: deque[Action] = deque()
        self._writing = self._stopping = self._gathers = False
        self._committing: tuple[TransactionAttempt, str] | None = None
        self._poll: Timer | None = None

    @property
    def at_rest(self) -> bool:
        """Whether nothing is in flight or asked for, here or on the way to ZooKeeper."""
        asked = self.coordinator.unplanned.phase is Phase.PLANNING
        return not (self.coordinator.transactions or self._actions or self._writing or asked)

    def start(self) -> None:
        """Begin with what the coordinator wants first."""
        self._perform(self.coordinator.start())

    def handle(self, event: Event) -> None:
        """Give the coordinator an event and do what it asks for."""
        if self.over:
            return
        self._notices.of(event)
        self._stopping = self._stopping or isinstance(event, StopRequested)
        before = self._retries.standing()
        actions = self.coordinator.handle(event)
        self._retries.of(event, before, actions, self._scheduler.now())
        current = {t.attempt for t in self.coordinator.transactions}
        self._jobs.keep_only(current)
        if self._committing is not None and self._committing[0] not in current:
            self._cancel_commit()  # at once: the actions may be standing still
        self._perform(actions)
        if isinstance(event, NotReady):
            self._poll_later()
        if isinstance(event, Processed):
            self._check_memory()
        self._after_event()

    def close(self) -> None:
        """End the term: cancel its jobs; it is not heard any more."""
        self.over = True
        self._actions.clear()
        self._jobs.cancel_all()
        self._cancel_commit()

    def release(self) -> None:
        """Let go of the states of a closed term; blocks."""
        self._commit_phase.close()

    def _poll_later(self) -> None:
        """Ask the spout again after a pause; one timer, however often it was asked meanwhile."""
        if self._poll is not None:
            self._poll.cancel()
        self._poll = self._tick_later()

    def _tick_later(self) -> Timer:
        pause_s = self._parts.config.poll_interval_s
        return self._scheduler.call_later(pause_s, lambda: self.handle(Tick()))

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
                self._notices.tell(ProcessingStarted(run.attempts, run.tag))
            case StartCommit():
                self._commit(action)
            case Cancel():
                self._jobs.cancel(action.attempts)
            case Backoff():
                self._scheduler.call_later(
                    self._parts.config.pause_s(action.failures), lambda: self.handle(Resumed())
                )
            case Stop():
                self._end(action.error)

    def _write(self, action: StoreBatches | Advance, failures: int = 0) -> None:
        self._writing = True

        def done(future: Future[None]) -> None:
            if self.over:
                return
            error = future.exception()
            stop = next((each for each in self._actions if isinstance(each, Stop)), None)
            stopping = stop is not None or (self._stopping and self._committing is None)
            if isinstance(error, InfrastructureError) and stopping:
                # What was not written is found in the ledgers.
                self._end(stop.error if stop is not None else None)
            elif isinstance(error, InfrastructureError):
                self._write_later(action, error, failures + 1)
            elif error is not None:
                self._end(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            else:
                self._writing = False
                self._perform(())
                self._after_event()

        if not self.over:
            self._scheduler.submit(lambda: None if self.over else self._store(action), done)

    def _write_later(
        self, action: StoreBatches | Advance, error: InfrastructureError, failures: int
    ) -> None:
        pause_s = self._parts.config.pause_s(failures)
        stores = isinstance(action, StoreBatches)
        attempt = action.attempts[0] if isinstance(action, StoreBatches) else None
        txid = attempt.txid if attempt is not None else self.coordinator.current - 1
        warn_of_retry(
            f"to note in zookeeper that txid {txid} is {'planned' if stores else 'committed'}",
            error,
            topology=self._parts.graph.id,
            failures=failures,
            pause_s=pause_s,
            txid=txid,
            attempt=attempt.attempt if attempt is not None else None,
            epoch=self.coordinator.epoch,
        )
        self._scheduler.call_later(pause_s, lambda: self._write(action, failures))

    def _plan(self, action: PlanBatch) -> None:
        self.asks += 1
        ask, pending = self.asks, len(self.coordinator.transactions)
        slow = self._tick_later()

        def done(future: Future[Event]) -> None:
            slow.cancel()
            if (error := future.exception()) is None:
                dry = isinstance(future.result(), NotReady)
                self.dry_ask = ask if dry and not pending else self.dry_ask
                self._gathers = dry and pending > 0
                self.handle(future.result())
            else:
                spout = self._parts.program.spout_id
                self.handle(Failed(action.attempt, failure_of(error, spout)))

        def plan() -> Event:
            self._scheduler.point("plan.before")
            event = self._parts.planner.plan(action, pending)
            self._scheduler.point("plan.after")
            return event

        self._scheduler.submit(plan, done)

    def _commit(self, action: StartCommit) -> None:
        attempt, result = action.attempt, self._jobs.result(action.attempt)
        started_s = self._scheduler.now()
        limit_s = self._parts.config.batch_timeout_s
        timer = self._scheduler.call_later(limit_s, lambda: self._commit_timed_out(action, limit_s))

        def done(future: Future[CommitReport]) -> None:
            timer.cancel()
            if not wanted():
                return  # it timed out, and was abandoned
            error = future.exception()
            if error is None:
                self._commit_ended(action, future.result(), started_s)
            elif isinstance(error, FencedError):
                self._end(error)
            else:
                self.handle(Failed(attempt, failure_of(error)))

        def wanted() -> bool:
            return not self.over and self._committing == (attempt, tag)

        tag = result.run.run.commit_tag(attempt)
        self._committing = (attempt, tag)
        self._scheduler.submit(lambda: self._commit_phase.run(result, wanted), done)

    def _cancel_commit(self) -> None:
        if self._committing is not None:
            cancel = partial(self._parts.carrier.cancel, self._committing[1])
            self._committing = None
            self._scheduler.submit(cancel, lambda _: None)

    def _commit_ended(self, action: StartCommit, report: CommitReport, started_s: float) -> None:
        attempt = action.attempt
        if (failed := report.failure) is not None:
            self.handle(Failed(attempt, failure_of(failed.error, failed.component)))
            return
        self._committing = None
        result = self._jobs.result(attempt)  # before it is forgotten
        self.handle(Committed(attempt))
        if self._gathers:  # the spout may have waited for this
            self.handle(Tick())
        self._notices.committed(
            result,
            report,
            spout_id=self._parts.program.spout_id,
            scheduler=self._scheduler,
            commit_s=self._scheduler.now() - started_s,
        )

    def _commit_timed_out(self, action: StartCommit, limit_s: float) -> None:
        late = f"the commit of txid {action.attempt.txid} did not end in {limit_s:g} s; look for a "
        error = TimeoutError(late + "committer that hangs, or raise batch_timeout_s")
        self.handle(Failed(action.attempt, Failure(FailureKind.COUNTED, error)))

    def _check_memory(self) -> None:
        try:
            self._jobs.check_memory()
        except DriverMemoryError as error:
            self._end(error)
