"""A term of leadership: one coordinator, and all work that it started.

Rules
-----
1. Actions are done in the order given. An action that writes is durable before the next one starts.
   Until then the queue of actions waits; events are still handled.
2. The transactional state gets one call at a time: a write waits for the beat of the leader, and
   the beat for a write. Only the question whether this term still leads is not waited for.
3. A write of transactional state that fails is tried again until it succeeds or the term is over.
   It never fails an attempt, because it records what has happened already.
4. When a term is over, the outcomes of its work are ignored. Work that still runs can write to a
   store only until a later epoch has claimed it; the ledger refuses it afterwards.
5. If user code of the commit phase may write elsewhere than to the states, a commit begins when
   that code has returned from the one before, also from one that was given up or is of an earlier
   term; and ``current`` is durable by then, since the ``Advance`` comes before the next
   ``StartCommit``. See :mod:`txtopo.runtime.commit_permit`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt, txids_text
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
    Failure,
    FailureKind,
    NotReady,
    PlanBatch,
    Planned,
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
from txtopo.runtime.commit_permit import CommitPermit, CommitTurns
from txtopo.runtime.commit_phase import CommitPhase, GroupReport
from txtopo.runtime.expiry import Expiry
from txtopo.runtime.handle import IdleWaiters
from txtopo.runtime.jobs import Jobs
from txtopo.runtime.leader_beat import BEAT_S, LeaderBeat
from txtopo.runtime.progress import (
    CommitStarted,
    ProcessingStarted,
    TopologyEvent,
)
from txtopo.runtime.reporting import ProgressReporter
from txtopo.runtime.run_context import RunContext
from txtopo.runtime.succession import as_exception
from txtopo.transactional_state.nodes import StoredBatch, metadata_to_json

if TYPE_CHECKING:
    from concurrent.futures import Future

    from txtopo.runtime.reporting import ProgressMeter
    from txtopo.runtime.scheduler import Timer
    from txtopo.transactional_state.commands import Desired
    from txtopo.transactional_state.journal import Journal

# Writes to ZooKeeper whose durations are kept for the next progress. A commit has one or two.
WRITES_MAX = 100

FIRST_POLL_SHARE = 0.1
"""The share of ``poll_interval_s`` after which a spout that has just become dry is asked again."""
DOUBLINGS_MAX = 10
"""Enough to make a pause of that share longer than the whole."""

COMMITTERS_SHARE = 0.25
"""The share of ``batch_timeout_s`` after which no further batch is added to a group: the last one
that was added, and the stores, have the rest."""


@dataclass(frozen=True, slots=True)
class TermHooks:
    """How a term reaches its driver.

    Attributes:
        tell: Tells the listeners of a change.
        waiters: Wait until nothing is left to do.
        end: Called with the error, or None, when the coordinator stops.
        obey: Called after each beat with what an operator wants of the topology.
    """

    tell: Callable[[TopologyEvent], None]
    waiters: IdleWaiters
    end: Callable[[Exception | None], None]
    obey: Callable[[Desired], None]


@dataclass(slots=True)
class _Commit:
    """A commit that is under way.

    Attributes:
        attempts: The attempts of its group.
        tag: Tag of its job.
        sent: How many of the attempts are in the write that a state was asked for last; 0 if none
            was asked yet.
        at: Index of the attempt whose committers run, until something is sent.
    """

    attempts: tuple[TransactionAttempt, ...]
    tag: str
    sent: int = 0
    at: int = 0


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
        self.asks = 0
        """How often the spout was asked for a batch."""
        self.dry_ask = 0
        """Number of the last ask with nothing in flight that the spout answered with ``NotReady``.
        With batches in flight it may answer so because it does not know yet where they end."""
        self._context = context
        self._scheduler = context.scheduler
        self._journal = journal
        self._commit_phase, self._turns = commit_phase, turns
        self._expiry = Expiry(context, commit_phase.backends, coordinator.epoch)
        self._reporter = ProgressReporter(coordinator, meter, hooks.tell)
        self._waiters = hooks.waiters
        self._end = hooks.end
        self._beat, self._obey = beat, hooks.obey
        self.beating = False
        """Whether a beat is under way."""
        self._beat_is_due = False
        self.window_full_at_s: float | None = None
        """Since when no more batches may be in flight, in seconds since 1970; None with room."""
        self._jobs = Jobs(
            context.program, context.carrier, context.config, context.scheduler, self.handle
        )
        self._actions: deque[Action] = deque()
        self._writing = self._stopping = self._gathers = False
        self._asks_again = False
        """Whether to ask the spout again as soon as it answers that it has nothing: it may have
        looked before somebody began to wait, or before a commit."""
        self._committing: _Commit | None = None
        self._asked_s = 0.0
        self._writes_s: deque[float] = deque(maxlen=WRITES_MAX)
        self._poll: Timer | None = None
        self._dry_asks = 0
        self._pauses: dict[int, Timer] = {}

    @property
    def at_rest(self) -> bool:
        """Whether no batch is in flight, asked for, or being written to ZooKeeper.

        A term that is over is not at rest: what it has dropped is up to the next one.
        """
        busy = self.coordinator.transactions or self._actions or self._writing or self._is_asking
        return not (self.over or busy)

    @property
    def _is_asking(self) -> bool:
        """Whether the spout has been asked for a batch and has not answered."""
        return self.coordinator.unplanned.phase is Phase.PLANNING

    def start(self) -> None:
        """Do the first actions of the coordinator."""
        self._scheduler.call_later(BEAT_S, self._begin_beat)
        self._perform(self.coordinator.start())
        self._look_at_window()

    def handle(self, event: Event) -> None:
        """Give the coordinator an event and do what it asks for."""
        if self.over:
            return
        self._stopping = self._stopping or isinstance(event, StopRequested)
        before = self._reporter.before(event)
        actions = self.coordinator.handle(event)
        plan_s = self._scheduler.now() - self._asked_s
        self._reporter.of(event, before, pause_s=self._pause_after(actions), plan_s=plan_s)
        # Now, because the queue of actions may wait for a write.
        self._jobs.forget(self._gone(event, actions))
        if (commit := self._committing) and not self.coordinator.is_current(commit.attempts[0]):
            self._cancel_commit()
        self._look_at_window()
        self._perform(actions)
        if isinstance(event, NotReady):
            self._poll_later(held=event.held)
        if isinstance(event, Planned):
            self._dry_asks = 0
        if isinstance(event, Processed):
            self._check_memory()
        self._resolve_waiters()

    def ask_soon(self) -> None:
        """Ask a spout that was not ready again now. One that is being asked is not slow yet."""
        if self._is_asking:
            self._asks_again = True
        else:
            self.handle(Tick())

    def close(self) -> None:
        """End the term: cancel its jobs and ignore their outcomes."""
        self.over = True
        self._actions.clear()
        self._jobs.cancel_all()
        self._cancel_commit()
        self._expiry.close()

    def release(self) -> None:
        """Close the states of a closed term. Blocks."""
        self._commit_phase.close()

    def _look_at_window(self) -> None:
        if self.coordinator.has_room:
            self.window_full_at_s = None
        elif self.window_full_at_s is None:
            self.window_full_at_s = self._scheduler.wall_clock()

    def _resolve_waiters(self) -> None:
        if self._waiters.waiting:
            self._waiters.resolve(self, active=self.coordinator.activated)

    def _gone(self, event: Event, actions: Sequence[Action]) -> list[TransactionAttempt]:
        """Return the attempts whose results are not needed after an event."""
        gone = [
            each for action in actions if isinstance(action, Cancel) for each in action.attempts
        ]
        if isinstance(event, Committed):
            gone += event.attempts
        elif isinstance(event, Processed):  # perhaps of attempts that were abandoned meanwhile
            gone += [each for each in event.attempts if not self.coordinator.is_current(each)]
        return gone

    def _poll_later(self, *, held: bool) -> None:
        """Ask the spout again after a pause. A new timer replaces the one before.

        The pause is short at first, and doubles as long as the spout has nothing. If the pace holds
        back what it has, it is the longest at once, or a slow rate would be cut into tiny batches.
        """
        if self._poll is not None:
            self._poll.cancel()
        longest_s = self._context.config.poll_interval_s
        share = 1.0 if held else FIRST_POLL_SHARE * 2**self._dry_asks
        pause_s = longest_s * min(1.0, share)
        self._poll = self._tick_later(pause_s)
        self._dry_asks = min(self._dry_asks + 1, DOUBLINGS_MAX)

    def _tick_later(self, pause_s: float) -> Timer:
        return self._scheduler.call_later(pause_s, lambda: self.handle(Tick()))

    def _perform(self, actions: Sequence[Action]) -> None:
        self._actions.extend(actions)
        while self._actions and not self._writing and not self.over:
            if self.beating and isinstance(self._actions[0], StoreBatches | Advance):
                return
            self._do(self._actions.popleft())

    def _begin_beat(self, failures: int = 0) -> None:
        """Begin a beat, or let the write that is under way do so when it ends."""
        self._beat_is_due = self._writing
        if self.over or self._stopping or self._writing:
            return
        self.beating = True

        def done(future: Future[None]) -> None:
            self.beating = False
            if not self.over:
                self._beat_ended(future.exception(), failures)

        self._scheduler.submit(self._beat.run, done)

    def _beat_ended(self, error: BaseException | None, failures: int) -> None:
        if isinstance(error, FencedError):
            self._end(error)
            return
        pause_s = BEAT_S
        if error is not None:
            failures += 1
            pause_s = max(BEAT_S, self._context.config.pause_s(failures))
            what = "the look at what operators ask for"
            id, epoch = self._context.graph.id, self.coordinator.epoch
            warn_of_retry(what, error, topology=id, failures=failures, pause_s=pause_s, epoch=epoch)
        again = failures if error is not None else 0
        self._scheduler.call_later(pause_s, lambda: self._begin_beat(again))
        self._obey(self._beat.desired)
        self._perform(())

    def _do(self, action: Action) -> None:
        match action:
            case StoreBatches() | Advance():
                self._write(action)
            case PlanBatch():
                self._plan(action)
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
                self._end(action.error)

    def _pause(self, action: Backoff) -> None:
        """Send ``Resumed`` later, instead of that of an earlier pause of the txid."""
        if (before := self._pauses.get(action.txid)) is not None:
            before.cancel()

        def resume() -> None:
            del self._pauses[action.txid]
            self.handle(Resumed(action.txid))

        pause_s = self._context.config.pause_s(action.failures)
        self._pauses[action.txid] = self._scheduler.call_later(pause_s, resume)

    def _pause_after(self, actions: Sequence[Action]) -> float:
        """Return how long the txid that failed pauses, by the actions after its failure."""
        pauses = [each for each in actions if isinstance(each, Backoff)]
        return self._context.config.pause_s(pauses[0].failures) if pauses else 0.0

    def _write(self, action: StoreBatches | Advance, failures: int = 0) -> None:
        self._writing, started_s = True, self._scheduler.now()

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
                self._end(as_exception(error))
            else:
                self._writing = False
                self._writes_s.append(self._scheduler.now() - started_s)
                if isinstance(action, Advance):
                    self._expiry.advanced(action.current)
                if self._beat_is_due:
                    self._begin_beat()
                self._perform(())
                self._resolve_waiters()

        if not self.over:
            self._scheduler.submit(lambda: None if self.over else self._store(action), done)

    def _store(self, action: StoreBatches | Advance) -> None:
        """Make an action durable in one write. Blocks."""
        point = self._scheduler.point
        match action:
            case StoreBatches():
                point("store-metadata.before")
                self._journal.store_batches(
                    [
                        StoredBatch(attempt, metadata_to_json(metadata), metadata.content)
                        for attempt, metadata in zip(action.attempts, action.metadata, strict=True)
                    ]
                )
                point("store-metadata.after")
            case Advance():
                point("advance.before")
                self._journal.advance(action.current, drop_before=action.drop_before)
                point("advance.after")
                self._clean_up(action.current)

    def _clean_up(self, current: int) -> None:
        """Tell the spout which txids are done. It is told again after the next commit."""
        self._scheduler.point("cleanup.before")
        for planner in self._context.planner.parts:
            try:
                planner.cleanup_before(current)
            except Exception as error:  # noqa: BLE001 - user code; the txid is committed anyway
                warn_of_retry(
                    f"the spout's cleanup_before({current})",
                    error,
                    topology=self._context.graph.id,
                    failures=planner.cleanup_failures,
                    txid=current - 1,
                    component=planner.spout_id,
                )
        self._scheduler.point("cleanup.after")

    def _write_later(
        self, action: StoreBatches | Advance, error: InfrastructureError, failures: int
    ) -> None:
        pause_s = self._context.config.pause_s(failures)
        stores = isinstance(action, StoreBatches)
        attempt = action.attempts[0] if isinstance(action, StoreBatches) else None
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
        self._scheduler.call_later(pause_s, lambda: self._write(action, failures))

    def _plan(self, action: PlanBatch) -> None:
        self.asks += 1
        ask, pending = self.asks, len(self.coordinator.transactions)
        self._asks_again = False
        self._asked_s = self._scheduler.now()
        slow = self._tick_later(self._context.config.poll_interval_s)

        def done(future: Future[Event]) -> None:
            slow.cancel()
            if (error := future.exception()) is None:
                event = future.result()
                dry = isinstance(event, NotReady)
                held = isinstance(event, NotReady) and event.held
                idle = isinstance(event, Planned) and event.idle
                self.dry_ask = ask if (dry or idle) and not (pending or held) else self.dry_ask
                self._gathers = dry and pending > 0
                again = self._asks_again and dry and not held
                self.handle(event)
                if again:
                    self.ask_soon()
            else:
                spout = self._context.program.only_spout
                self.handle(Failed(action.attempt, failure_of(error, spout)))

        def plan() -> Event:
            self._scheduler.point("plan.before")
            event = self._context.planner.plan(action, pending)
            self._scheduler.point("plan.after")
            return event

        self._scheduler.submit(plan, done)

    def _commit(self, action: StartCommit) -> None:
        results = [self._jobs.result(each) for each in action.attempts]
        started_s = self._scheduler.now()
        # The time of a batch is that of a group. One that is pinned cannot be made smaller.
        timeout_s = self._context.config.batch_timeout_s
        limit_s = timeout_s * (len(results) if action.pinned else 1)
        timer = self._scheduler.call_later(
            limit_s, lambda: self._commit_timed_out(commit, action, limit_s)
        )

        def done(future: Future[GroupReport]) -> None:
            timer.cancel()
            if not wanted():
                return  # the attempts were abandoned, for example after a timeout
            error = future.exception()
            if error is None:
                self._commit_ended(action, future.result(), started_s)
            elif isinstance(error, FencedError):
                self._end(error)
            else:
                self._commit_failed(commit, failure_of(error))

        def wanted() -> bool:
            return not self.over and self._committing is commit

        def wants(size: int) -> bool:
            commit.sent = size  # before the look: so what is sent is known to who gives it up
            return wanted()

        def reached(index: int) -> bool:
            commit.at = index
            return wanted()

        commit = self._committing = _Commit(action.attempts, results[0].commit_tag)
        for attempt in action.attempts:
            self._reporter.tell(CommitStarted(attempt))
        run = partial(
            self._commit_phase.run,
            results,
            wants,
            reached,
            pinned=action.pinned,
            committers_s=timeout_s * COMMITTERS_SHARE,
        )
        if self._commit_phase.may_write_elsewhere:
            self._commit_alone(action.attempts[0], run, done, wanted)
        else:
            self._scheduler.submit(run, done)

    def _commit_alone(
        self,
        attempt: TransactionAttempt,
        run: Callable[..., GroupReport],
        done: Callable[[Future[GroupReport]], None],
        wanted: Callable[[], bool],
    ) -> None:
        """Run a commit whose user code may write elsewhere, when the one before has returned."""
        leave = partial(self._scheduler.post, self._turns.leave)
        permit = CommitPermit(attempt, self._journal, self._scheduler.now, wanted, leave)

        def begin() -> None:
            if wanted():
                self._scheduler.submit(commit, done)
            else:  # it was given up while it waited
                self._turns.leave()

        def commit() -> GroupReport:
            try:
                return run(permit=permit)
            finally:
                permit.give_back()

        self._turns.take(begin)

    def _cancel_commit(self) -> None:
        if self._committing is not None:
            cancel = partial(self._context.carrier.cancel, self._committing.tag)
            self._committing = None
            self._scheduler.submit(cancel, lambda _: None)

    def _commit_ended(self, action: StartCommit, report: GroupReport, started_s: float) -> None:
        committed = action.attempts[: len(report.committed)]
        left = action.attempts[len(committed) :]
        # A commit is never empty: one that failed at once is that of its first batch.
        if (shortened := left if committed else left[1:]) and not action.pinned:
            self.handle(CommitShortened(shortened))
        if (failed := report.failure) is not None:
            failure = failure_of(failed.error, failed.component)
            self.handle(Failed(failed.attempt, failure, unsent=True))
        if committed:
            self._committed(committed, report, started_s)

    def _committed(
        self, attempts: Sequence[TransactionAttempt], report: GroupReport, started_s: float
    ) -> None:
        self._committing = None
        results = [self._jobs.result(each) for each in attempts]  # the next event forgets them
        planner, spouts = self._context.planner, self._context.program.spouts
        for result in results:
            planner.committed(result.attempt.txid, result.outcome.rows_of(spouts))
        commit_s, writes_s = self._scheduler.now() - started_s, tuple(self._writes_s)
        self._writes_s.clear()
        self._expiry.committed(attempts[0].txid, attempts[-1].txid, report.expires)
        self.handle(Committed(tuple(attempts)))
        if self._gathers or self._is_asking:  # the spout may have looked before it
            self.ask_soon()
        for result, each in zip(results, report.committed, strict=True):
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

    def _commit_failed(self, commit: _Commit, failure: Failure) -> None:
        """Give a commit up. A state may hold what was sent, and nothing more is sent."""
        self._cancel_commit()
        if commit.sent and (left := commit.attempts[commit.sent :]):
            self.handle(CommitShortened(left))
        self.handle(Failed(commit.attempts[0], failure, unsent=not commit.sent))

    def _commit_timed_out(self, commit: _Commit, action: StartCommit, limit_s: float) -> None:
        """Fail the batch whose committers hang, or the group if it is a store that hangs."""
        if self._committing is not commit:
            return
        self._cancel_commit()
        at, sent = commit.at, commit.sent
        first = commit.attempts[0 if sent else at].txid
        late = (
            f"the commit of {txids_text(first, first + max(0, sent - 1))} did not end in "
            f"{limit_s:g} s; look for a {'store' if sent else 'committer'} that hangs, or raise "
            "batch_timeout_s"
        )
        failure = Failure(FailureKind.COUNTED, TimeoutError(late))
        if sent:
            self._commit_failed(commit, failure)
            return
        # No state was asked to write anything. What is before the batch is committed without it.
        before = () if action.pinned else commit.attempts[:at]
        if before:
            self.handle(CommitShortened(commit.attempts[at:]))
        self.handle(Failed(commit.attempts[at], failure, unsent=True))
        if before and not self.over:
            self._commit(replace(action, attempts=before))

    def _check_memory(self) -> None:
        try:
            self._jobs.check_memory()
        except DriverMemoryError as error:
            self._end(error)
