"""A term of leadership: one coordinator, and all work that it started.

The term connects the coordinator with the world. Its decisions are made elsewhere:

* :mod:`txtopo.runtime.action_queue` decides which action may be done now. No I/O.
* :mod:`txtopo.runtime.commit_watch` decides what becomes of the current commit. No I/O.
* :mod:`txtopo.runtime.spout_asks` decides when the spout is asked.
* :mod:`txtopo.runtime.jobs` keeps the jobs of the processing phase and their results.

This file carries out their decisions on threads, and reports the outcomes to them on the loop.

Rules
-----
1. When a term is over, the outcomes of its work are ignored. Work that still runs can write to a
   store only until a later epoch has claimed it; the ledger refuses it afterwards.
2. If user code of the commit phase may write elsewhere than to the states, a commit begins only
   after that code has returned from the previous commit, even if that one was given up or belongs
   to an earlier term. ``current`` is durable by then, since the ``Advance`` comes before the next
   ``StartCommit``. See :mod:`txtopo.runtime.commit_permit`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.coordinator import Coordinator
from txtopo.coordinator.failures import failure_of
from txtopo.coordinator.protocol import (
    Action,
    Advance,
    Backoff,
    Cancel,
    CommitShortened,
    Committed,
    Event,
    Failed,
    PlanBatch,
    Processed,
    Resumed,
    StartCommit,
    StartProcessing,
    Stop,
    StopRequested,
    StoreBatches,
)
from txtopo.ensemble.nodes import StoredBatch, metadata_to_json
from txtopo.errors import DriverMemoryError, FencedError
from txtopo.retries import warn_of_retry
from txtopo.runtime.action_queue import ActionQueue, EndTerm, RepeatWrite, StartBeat, Write
from txtopo.runtime.commit_permit import CommitPermit, CommitTurns
from txtopo.runtime.commit_phase import CommitPhase, GroupReport
from txtopo.runtime.commit_progress import CommitProgress
from txtopo.runtime.commit_watch import (
    CancelCommit,
    CommitWatch,
    Step,
    TellCommitted,
    WatchedCommit,
)
from txtopo.runtime.expiry import Expiry
from txtopo.runtime.handle import IdleWaiters
from txtopo.runtime.jobs import Jobs
from txtopo.runtime.leader_beat import BeatHooks, LeaderBeat
from txtopo.runtime.progress import CommitStarted, ProcessingStarted, TopologyEvent
from txtopo.runtime.reporting import ProgressReporter
from txtopo.runtime.run_context import RunContext
from txtopo.runtime.spout_asks import SpoutAsks
from txtopo.runtime.succession import as_exception

if TYPE_CHECKING:
    from concurrent.futures import Future

    from txtopo.ensemble.commands import Desired
    from txtopo.ensemble.journal import Journal
    from txtopo.runtime.reporting import ProgressMeter
    from txtopo.runtime.scheduler import Timer

# How many durations of writes to ZooKeeper are kept for the next progress event. A commit makes one
# or two writes.
WRITES_MAX = 100


@dataclass(frozen=True, slots=True)
class TermHooks:
    """How a term reaches its driver.

    Attributes:
        tell: Reports a change to the listeners.
        waiters: Callers that wait until nothing is left to do.
        end: Called with the error, or None, when the coordinator stops.
        obey: Called after each beat with the status that operators want for the topology.
    """

    tell: Callable[[TopologyEvent], None]
    waiters: IdleWaiters
    end: Callable[[Exception | None], None]
    obey: Callable[[Desired], None]


class LeaderTerm:
    """Feeds the coordinator with events and does what it asks for. Used on the loop only.

    Args:
        context: The graph, settings, carrier etc. of the topology.
        journal: Writes to ZooKeeper under the epoch of this term.
        coordinator: The coordinator of this term.
        commit_phase: Runs commits against the states that this term has claimed.
        beat: Answers operators, and announces the run.
        meter: Counts commits over all terms.
        hooks: How to reach the driver.
        turns: The turns of commits whose user code may write elsewhere, over all terms.
    """

    def __init__(
        self,
        context: RunContext,
        journal: Journal,
        coordinator: Coordinator,
        commit_phase: CommitPhase,
        beat: LeaderBeat,
        meter: ProgressMeter,
        hooks: TermHooks,
        turns: CommitTurns,
    ) -> None:
        self.coordinator = coordinator
        self.over = False
        self.window_full_at_s: float | None = None
        """When the limit of batches in flight was reached, in seconds since 1970; None while there
        is room for more."""
        self._context, self._scheduler = context, context.scheduler
        self._journal, self._beat, self._hooks = journal, beat, hooks
        self._queue = ActionQueue()
        self._writes_s: deque[float] = deque(maxlen=WRITES_MAX)
        self._asks = SpoutAsks(context, coordinator, self.handle)
        self._jobs = Jobs(
            context.compiled, context.carrier, context.config, context.scheduler, self.handle
        )
        self._commit_phase, self._turns = commit_phase, turns
        self._watch = CommitWatch(context.config.batch_timeout_s)
        self._progress = CommitProgress()
        self._expiry = Expiry(context, commit_phase.backends, coordinator.epoch)
        self._reporter = ProgressReporter(coordinator, meter, hooks.tell)
        self._pauses: dict[int, Timer] = {}

    @property
    def at_rest(self) -> bool:
        """Whether no batch is in flight, asked for, or being written to ZooKeeper.

        A term that is over is not at rest: the next one does the work that it dropped.
        """
        busy = self.coordinator.transactions or not self._queue.at_rest or self._asks.is_asking
        return not (self.over or busy)

    @property
    def asks(self) -> int:
        """How often the spout was asked for a batch."""
        return self._asks.number

    @property
    def dry_ask(self) -> int:
        """The number of the last ask that showed that the spout has no rows."""
        return self._asks.dry

    @property
    def beating(self) -> bool:
        """Whether a beat is under way."""
        return self._beat.beating

    def start(self) -> None:
        """Do the first actions of the coordinator."""
        hooks = BeatHooks(due=self._beat_due, ended=self._beat_ended, end=self._hooks.end)
        self._beat.start(hooks, at_once=False)
        self._perform(self.coordinator.start())
        self._look_at_window()

    def handle(self, event: Event) -> None:
        """Give the coordinator an event and do what it asks for."""
        if self.over:
            return
        if isinstance(event, StopRequested):
            self._queue.stop()
        # The reporter compares the batches in flight before the event with those after it.
        before = self._reporter.before(event)
        actions = self.coordinator.handle(event)
        pause_s, plan_s = self._pause_after(actions), self._asks.since_s
        self._reporter.of(event, before, pause_s=pause_s, plan_s=plan_s)
        # Results that nobody waits for are dropped at once: their Cancel may have to wait in the
        # queue behind a write.
        self._jobs.forget(self._gone(event, actions))
        # The event may have abandoned the attempts that are being committed.
        commit = self._watch.commit
        if commit is not None and not self.coordinator.is_current(commit.attempts[0]):
            self._follow(self._watch.give_up())
        self._look_at_window()
        self._perform(actions)
        self._asks.answered(event)
        # Only a processed batch adds envelopes to the memory of the driver.
        if isinstance(event, Processed):
            self._check_memory()
        self._resolve_waiters()

    def ask_soon(self) -> None:
        """Ask a spout that was not ready again now."""
        self._asks.soon()

    def close(self) -> None:
        """End the term: cancel its jobs and ignore their outcomes."""
        self.over = True
        self._queue.close()
        self._beat.close()
        self._jobs.cancel_all()
        self._follow(self._watch.give_up())
        self._expiry.close()

    def release(self) -> None:
        """Close the states of a closed term. Blocks."""
        self._commit_phase.close()

    # ------------------------------------------------------------ after each event

    def _look_at_window(self) -> None:
        if self.coordinator.has_room:
            self.window_full_at_s = None
        elif self.window_full_at_s is None:
            self.window_full_at_s = self._scheduler.wall_clock()

    def _resolve_waiters(self) -> None:
        if self._hooks.waiters.waiting:
            self._hooks.waiters.resolve(self, active=self.coordinator.activated)

    def _gone(self, event: Event, actions: Sequence[Action]) -> list[TransactionAttempt]:
        """Return the attempts whose results are no longer needed after an event."""
        gone = [
            each for action in actions if isinstance(action, Cancel) for each in action.attempts
        ]
        if isinstance(event, Committed):
            gone += event.attempts
        elif isinstance(event, Processed):  # perhaps of attempts that were abandoned meanwhile
            gone += [each for each in event.attempts if not self.coordinator.is_current(each)]
        return gone

    def _check_memory(self) -> None:
        try:
            self._jobs.check_memory()
        except DriverMemoryError as error:
            self._hooks.end(error)

    # ------------------------------------------------------------ actions

    def _perform(self, actions: Sequence[Action] = ()) -> None:
        self._queue.add(actions)
        # One at a time: an action can end the term, or cause an event whose actions belong behind
        # the ones that are left.
        while (action := self._queue.next()) is not None:
            self._do(action)

    def _do(self, action: Action | StartBeat) -> None:
        match action:
            case StoreBatches() | Advance():
                self._write(action)
            case PlanBatch():
                self._asks.ask(action)
            case StartProcessing():
                run = self._jobs.start(action)
                self._reporter.tell(ProcessingStarted(run.attempts, run.tag))
            case StartCommit():
                self._commit(action)
            case Cancel():
                self._jobs.cancel(action.attempts)
            case Backoff():
                self._pause(action)
            case Stop():
                self._hooks.end(action.error)
            case StartBeat():
                self._beat.begin()

    def _pause(self, action: Backoff) -> None:
        """Send ``Resumed`` after a pause, which replaces any earlier pause of the txid."""
        if (before := self._pauses.get(action.txid)) is not None:
            before.cancel()

        def resume() -> None:
            del self._pauses[action.txid]
            self.handle(Resumed(action.txid))

        pause_s = self._context.config.pause_s(action.failures)
        self._pauses[action.txid] = self._scheduler.call_later(pause_s, resume)

    def _pause_after(self, actions: Sequence[Action]) -> float:
        """Return the pause of the txid that failed, from the actions that follow the failure."""
        pauses = [each for each in actions if isinstance(each, Backoff)]
        return self._context.config.pause_s(pauses[0].failures) if pauses else 0.0

    # ------------------------------------------------------------ the beat

    def _beat_due(self) -> None:
        self._queue.beat_due()
        self._perform()

    def _beat_ended(self, desired: Desired) -> None:
        self._queue.beat_ended()
        # Writes have waited for the beat. Obey first: the operator's command may end the run.
        self._hooks.obey(desired)
        self._perform()

    # ------------------------------------------------------------ writes of transactional state

    def _write(self, write: Write) -> None:
        started_s = self._scheduler.now()

        def done(future: Future[None]) -> None:
            if self.over:
                return
            if (error := future.exception()) is None:
                self._written(write, self._scheduler.now() - started_s)
            else:
                self._write_failed(error)

        # The worker checks as late as it can whether the term is over. The check may still be too
        # early; safety comes from the journal, which checks the epoch in the request that writes.
        self._scheduler.submit(lambda: None if self.over else self._store(write), done)

    def _written(self, write: Write, seconds: float) -> None:
        self._queue.written()
        self._writes_s.append(seconds)
        if isinstance(write, Advance):
            self._expiry.advanced(write.current)
        if self._queue.beat_waits:
            # ZooKeeper has just answered, so the beat need not pause for its earlier failures.
            self._beat.forget_failures()
        self._perform()
        self._resolve_waiters()

    def _write_failed(self, error: BaseException) -> None:
        committing = self._watch.commit is not None
        match self._queue.write_failed(error, committing=committing):
            case EndTerm(cause):
                self._hooks.end(None if cause is None else as_exception(cause))
            case RepeatWrite(write, failures):
                self._repeat_later(write, failures, error)

    def _repeat_later(self, write: Write, failures: int, error: BaseException) -> None:
        pause_s = self._context.config.pause_s(failures)
        stores = isinstance(write, StoreBatches)
        attempt = write.attempts[0] if isinstance(write, StoreBatches) else None
        # The coordinator has counted the commit already, so an Advance is about current - 1.
        txid = attempt.txid if attempt is not None else self.coordinator.current - 1
        warn_of_retry(
            f"the write to zookeeper that txid {txid} is {'planned' if stores else 'committed'}",
            error,
            topology=self._context.graph.id,
            failures=failures,
            pause_s=pause_s,
            txid=txid,
            attempt=attempt.attempt if attempt is not None else None,
            epoch=self.coordinator.epoch,
        )

        def repeat() -> None:
            if (again := self._queue.pause_ended()) is not None:
                self._write(again)

        self._scheduler.call_later(pause_s, repeat)

    def _store(self, write: Write) -> None:
        """Make an action durable in one write. Blocks."""
        point = self._scheduler.point
        match write:
            case StoreBatches():
                point("store-metadata.before")
                self._journal.store_batches(
                    [
                        StoredBatch(attempt, metadata_to_json(metadata), metadata.content)
                        for attempt, metadata in zip(write.attempts, write.metadata, strict=True)
                    ]
                )
                point("store-metadata.after")
            case Advance():
                point("advance.before")
                self._journal.advance(write.current)
                point("advance.after")
                # Done as part of the write, so the next write waits for it. That way the spout
                # gets one call at a time, with the txids in order.
                self._clean_up(write.current)

    def _clean_up(self, current: int) -> None:
        """Tell the spouts which txids are done. If that fails, the next commit tells them."""
        self._scheduler.point("cleanup.before")
        for planner in self._context.planner.parts:
            try:
                planner.cleanup_before(current)
            except Exception as error:  # noqa: BLE001 - user code, and the txid is committed
                warn_of_retry(
                    f"the spout's cleanup_before({current})",
                    error,
                    topology=self._context.graph.id,
                    failures=planner.cleanup_failures,
                    txid=current - 1,
                    component=planner.spout_id,
                )
        self._scheduler.point("cleanup.after")

    # ------------------------------------------------------------ commits

    def _commit(self, action: StartCommit) -> None:
        # Read now: Jobs forgets a result as soon as the coordinator abandons its attempt.
        results = [self._jobs.result(each) for each in action.attempts]
        started_s = self._scheduler.now()
        commit = self._watch.start(action, results[0].commit_tag)
        progress = self._progress = CommitProgress()
        timer = self._scheduler.call_later(
            commit.limit_s, lambda: self._commit_timed_out(commit, progress)
        )

        def done(future: Future[GroupReport]) -> None:
            timer.cancel()
            if self._watch.commit is not commit:
                return  # it was given up: its outcome is ignored, even a FencedError
            error, reached = future.exception(), progress.close()
            if error is None:
                self._commit_returned(commit, future.result(), started_s)
            elif isinstance(error, FencedError):
                self._hooks.end(error)  # the driver finds out who leads, and closes this term
            else:
                self._follow(self._watch.failed(commit, failure_of(error), reached.sent))

        for attempt in action.attempts:
            self._reporter.tell(CommitStarted(attempt))
        run = partial(
            self._commit_phase.run,
            results,
            progress.sends,
            progress.calls,
            pinned=action.pinned,
            committers_s=commit.committers_s,
        )
        if self._commit_phase.may_write_elsewhere:
            self._commit_alone(commit, progress, run, done)
        elif self._watch.turn_came(commit):
            self._scheduler.submit(run, done)

    def _commit_alone(
        self,
        commit: WatchedCommit,
        progress: CommitProgress,
        run: Callable[..., GroupReport],
        done: Callable[[Future[GroupReport]], None],
    ) -> None:
        """Run a commit whose user code may write elsewhere, after the previous one has returned."""
        # The permit is given back on the thread of the commit; turns may be used on the loop only.
        leave = partial(self._scheduler.post, self._turns.leave)
        permit = CommitPermit(
            commit.attempts[0], self._journal, self._scheduler.now, progress.wanted, leave
        )

        def begin() -> None:
            if self._watch.turn_came(commit):
                self._scheduler.submit(alone, done)
            else:  # it was given up while it waited
                self._turns.leave()

        def alone() -> GroupReport:
            try:
                return run(permit=permit)
            finally:
                # The commit phase gives it back before it writes to the states. Only if user code
                # raised is it still taken here; a second call does nothing.
                permit.give_back()

        self._turns.take(begin)

    def _follow(self, steps: Sequence[Step]) -> None:
        """Carry out the steps that the commit watch returned."""
        for step in steps:
            match step:
                case CommitShortened() | Failed():
                    self.handle(step)
                case CancelCommit():
                    self._progress.close()
                    cancel = partial(self._context.carrier.cancel, step.tag)
                    self._scheduler.submit(cancel, lambda _: None)
                case StartCommit() if not self.over:  # an earlier step may have ended the term
                    self._commit(step)

    def _commit_timed_out(self, commit: WatchedCommit, progress: CommitProgress) -> None:
        if self._watch.commit is commit:
            # Closed before the decision, so that the worker can send nothing more.
            reached = progress.close()
            self._follow(self._watch.timed_out(commit, reached.batch, reached.sent))

    def _commit_returned(
        self, commit: WatchedCommit, report: GroupReport, started_s: float
    ) -> None:
        failed = None
        if (lost := report.failure) is not None:
            failed = Failed(lost.attempt, failure_of(lost.error, lost.component), unsent=True)
        for step in self._watch.returned(commit, len(report.committed), failed):
            if isinstance(step, TellCommitted):
                self._committed(commit, step.attempts, report, started_s)
            else:
                self._follow([step])

    def _committed(
        self,
        commit: WatchedCommit,
        attempts: tuple[TransactionAttempt, ...],
        report: GroupReport,
        started_s: float,
    ) -> None:
        self._watch.committed(commit)
        results = [self._jobs.result(each) for each in attempts]  # Committed makes Jobs forget them
        planner, spouts = self._context.planner, self._context.compiled.spouts
        # The pacer learns the rows before the event, since the event may plan the next batch.
        for result in results:
            planner.committed(result.attempt.txid, result.outcome.tuples)
        commit_s, writes_s = self._scheduler.now() - started_s, tuple(self._writes_s)
        self._writes_s.clear()
        self._expiry.committed(attempts[0].txid, attempts[-1].txid, report.expires)
        self.handle(Committed(attempts))
        self._asks.committed()
        # Listeners are slow, so they come last: the write of ``current`` has begun by now.
        for result, each in zip(results, report.committed, strict=True):
            # The group shares its writes, so only its last txid reports their durations.
            last = result is results[-1]
            self._reporter.committed(
                result,
                each,
                group=(attempts[0].txid, attempts[-1].txid),
                spouts=spouts,
                scheduler=self._scheduler,
                commit_s=commit_s,
                pace=planner.pace,
                zookeeper_s=writes_s if last else (),
            )
