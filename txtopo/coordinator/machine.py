"""The coordinator: decides which batch is planned, processed and committed, and when.

Rules
-----
1. Only this file changes the phase of a transaction, as the table in
   :mod:`txtopo.coordinator.transactions` allows. What the runtime gets cannot be changed.
2. No I/O, clock, thread or random number is used here. Events go in, actions come out, and equal
   events give equal actions. So a simulator can replay a failure from its seed.
3. An event changes nothing if its attempt is not the current one of its txid, or if the phase does
   not expect it. Compare first, then mutate.
4. Each event is handled completely: afterwards nothing is left to do until the next event. So an
   event that changes nothing asks for nothing.

Theory of operation
-------------------
Batches overlap, commits do not. Up to ``window_txids`` transactions are in flight. Only a *group*
may commit: ``current``, the txid after the last committed one, with those after it that wait
processed, up to ``group_txids_max``. Nothing waits for a group to fill. A failure of transaction
*t* abandons *t* and every later one, because a later batch may begin where *t* ended. If all spouts
are repeatable, a replay of *t* ends where *t* ended: then later ones that wait processed are kept.
The plan of an abandoned batch stays. A repeatable spout keeps its cut too; an opaque spout cuts the
batch again. Of several spouts in one txid each does as its kind does (:mod:`txtopo.metadata`).

The table, as a diagram. A test compares the two. ::

    UNPLANNED                         --PlanBatch--> PLANNING
    PLANNING                          --Planned--> PLANNED
    PLANNING                          --NotReady, Failed--> UNPLANNED
    PLANNED                           --StartProcessing--> PROCESSING
    PROCESSING                        --Processed--> PROCESSED
    PROCESSING, PROCESSED, COMMITTING --Failed, RunFailed--> PLANNED
    PROCESSED                         --StartCommit--> COMMITTING
    COMMITTING                        --Committed--> GONE
    COMMITTING                        --CommitShortened--> PROCESSED

The spout is asked for new txids in order, one at a time, while the window has room. When it is not
ready it is asked again after the next tick. Planned transactions are processed in runs of
consecutive txids, at most ``jobs_max`` runs at a time. A run starts only when its start is known:
that is the cut of its predecessor, which the predecessor may still be computing. A run waits to be
full only while an event is sure to come soon: an answer of the spout, until a tick finds it slow,
and not in a pause or after a plan that failed; or, if the window is full, the end of an earlier
transaction. There is an earlier one, because a run that is not full is smaller than the window. So
there is always an event to wait for, and nothing gets stuck. Only a pinned group, see below, may
end with the run that waits: then no earlier transaction ends before it. So with a full window and a
pinned group no run waits.

A failure that does not end the topology is followed by a pause (``Backoff``), in which nothing of
the failed txid or a later one is planned, processed or committed. Earlier ones continue. The pause
grows with the counted failures of the txid, or, after infrastructure faults, with their number
since the last commit. A run whose failure is not counted, because any of its batches may be the
cause, is divided at once. A pause ends with ``Resumed``; and with ``Deactivated``, because then
what is in flight is to be committed soon.

Endings
-------
An ending names the first txid that is not committed any more. All txids before it are committed,
all from it on are dropped, and then the topology stops. A later ending can only be nearer.

* A stop was asked for: the ending is the txid after the current commit. If that commit fails, the
  ending is its first txid.
* A txid fails in a way that a repetition cannot cure, or ``attempts_max`` times counted: the ending
  is that txid, or the first one of its pinned group. The topology stops with the error.

Their plans and cuts stay. A new coordinator starts from them and from ``current``, with higher
attempts, before it asks the spout for a new txid.

Groups
------
A state takes a group [t..L] in one write, as if it were one txid L, and keeps what was before t. So
a group that a state may hold is *pinned*: until it is committed it is written again with the same
bounds, or not at all. With others, a state would not have what it needs to undo it.

1. A group is pinned when its commit fails or takes too long, unless no state was asked to write
   (``Failed.unsent``). A new coordinator pins what the states hold.
2. A failure of a pinned group abandons it whole, and it is done again whole: nothing of it is
   committed alone, not even before the topology ends with an error.
3. A group that is not pinned may be shortened while it is committed: what is before a batch that
   fails is committed, and so is the first batch alone if a state of the first transaction refuses
   the sum of all.

Order of durability
-------------------
Actions are done in the order given, and one that writes is durable before the next one starts. So
a crash leaves a prefix, never a gap.

1. If any spout is repeatable: the plan of a batch, with its attempt, before it is processed.
2. The cut and the content of a batch, with its attempt, after processing and in txid order, before
   any commit work. A replay is compared with the stored content; see
   :mod:`txtopo.stages.replays`. What one event makes due of 1 and 2 is one write, before all that
   needs it.
3. ``current = L + 1`` after every state has written the group that ends with *L*, in one write
   with the deletion of all metadata before *L*. That of *L* stays, because *L + 1* starts from it.

So the stored txids have no gap, and reach back to ``current - 1``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice, takewhile

from txtopo.attempt import TransactionAttempt
from txtopo.coordinator.failures import Ending, asked_to_stop, is_final, lost_with, poison
from txtopo.coordinator.invariants import check_invariants
from txtopo.coordinator.protocol import (
    Action,
    Activated,
    Advance,
    Backoff,
    Cancel,
    CommitShortened,
    Committed,
    Deactivated,
    Event,
    Failed,
    Failure,
    FailureKind,
    NotReady,
    PlanBatch,
    Planned,
    Processed,
    Resumed,
    RunFailed,
    StartCommit,
    StartProcessing,
    Stop,
    StopRequested,
    StoreBatches,
    Tick,
)
from txtopo.coordinator.recovery import recover
from txtopo.coordinator.runs import Run, next_run
from txtopo.coordinator.transactions import (
    STARTED,
    CoordinatorSettings,
    Phase,
    Transaction,
    TransactionTable,
)
from txtopo.metadata import BatchMetadata


class Coordinator:
    """The state machine of one topology in one epoch.

    Who calls it: one loop of the runtime. It calls :meth:`start` once and then :meth:`handle` for
    each event, when the actions of the event before are done or queued in order.

    Args:
        settings: What the protocol needs to know of the topology.
        epoch: Number of this coordinator, above those of all earlier ones.
        term: Its term id, which its attempts carry.
        current: The lowest txid that is not known to be committed.
        stored: The durable metadata of txids from *current* - 1 on.
        pinned: The last txid of the group that some state holds already; None for none.

    Raises:
        CorruptNodeError: Metadata is missing; restore it.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        *,
        epoch: int,
        term: str = "",
        current: int,
        stored: Mapping[int, BatchMetadata],
        pinned: int | None = None,
    ) -> None:
        committed, recovered = recover(stored, current=current, settings=settings)
        self._settings = settings
        self._epoch, self._recovered = epoch, recovered
        self._table = TransactionTable(epoch=epoch, term=term, current=current, committed=committed)
        self._ready = self._activated = True
        self._slow, self._faults = False, 0
        self._pauses: set[int] = set()
        self._ending: Ending | None = None
        self._pinned = pinned

    @property
    def current(self) -> int:
        """The lowest uncommitted txid."""
        return self._table.current

    @property
    def epoch(self) -> int:
        """Number of this coordinator."""
        return self._epoch

    @property
    def transactions(self) -> tuple[Transaction, ...]:
        """All transactions in flight, from the current txid on."""
        return self._table.rows

    @property
    def activated(self) -> bool:
        """Whether new batches may be planned."""
        return self._activated

    def is_current(self, attempt: TransactionAttempt) -> bool:
        """Return whether *attempt* is the current one of its txid."""
        return self._table.attempt_of(attempt.txid) == attempt

    def is_replaced(self, attempt: TransactionAttempt) -> bool:
        """Return whether a later attempt of the same txid is the current one."""
        current = self._table.attempt_of(attempt.txid)
        return current is not None and attempt < current

    @property
    def unplanned(self) -> Transaction:
        """The transaction that is planned next; the spout may have been asked for it already."""
        return self._table.unplanned

    def start(self) -> list[Action]:
        """Return the first actions: replays of batches that were in flight, and the first plan."""
        return self._settled([])

    def handle(self, event: Event) -> list[Action]:
        """Handle an event and return the actions that it leads to, in order."""
        if self._over:
            return []
        return self._settled(self._changed_by(event))

    def _changed_by(self, event: Event) -> list[Action]:
        match event:
            case Planned() if self._table.expecting(event.attempt, Planned):
                self._table.enter(event.metadata)
                self._slow = False
            case NotReady():
                if transaction := self._table.expecting(event.attempt, NotReady):
                    self._table.put([transaction.moved(NotReady)])
                    self._ready = self._slow = False
            case Processed():
                for attempt, metadata in zip(event.attempts, event.metadata, strict=True):
                    if transaction := self._table.expecting(attempt, Processed):
                        self._table.put([transaction.moved(Processed).with_result(metadata)])
            case Committed():
                return self._committed(event)
            case CommitShortened():
                for attempt in event.attempts:
                    if transaction := self._table.expecting(attempt, CommitShortened):
                        assert self._pinned is None, "a pinned group is never shortened"
                        self._table.put([transaction.moved(CommitShortened)])
            case Failed():
                if transaction := self._table.expecting(event.attempt, Failed):
                    counts = event.failure.kind is FailureKind.COUNTED
                    return self._fail(
                        transaction, event.failure, counts=counts, unsent=event.unsent
                    )
            case RunFailed():
                return self._run_failed(event)
            case Tick():
                self._ready = self._ready or self._activated
                self._slow = self._table.unplanned.phase is Phase.PLANNING
            case Activated() | Deactivated():
                self._activated = self._ready = isinstance(event, Activated)
                if not self._activated:
                    self._pauses.clear()
            case Resumed():
                self._pauses.discard(event.txid)
            case StopRequested():
                return self._end(asked_to_stop(self._table, self._ending))
        return []

    def _committed(self, event: Committed) -> list[Action]:
        if not self._table.expecting(event.attempts[0], Committed):
            return []
        group = tuple(each.attempt for each in self._table.committing)
        assert event.attempts == group, "what was taken out of the group was told before"
        self._table.remove_committed(event.attempts[-1].txid)
        self._pinned, self._faults = None, 0
        return [Advance(self.current)]

    def _run_failed(self, event: RunFailed) -> list[Action]:
        found = [self._table.expecting(attempt, RunFailed) for attempt in event.attempts]
        if not any(found):
            return []
        run = [transaction for transaction in found if transaction is not None]
        # Batches that the run reported as processed before it failed are not in doubt.
        run = [each for each in run if each.phase is Phase.PROCESSING] or run
        counts = event.failure.kind is FailureKind.COUNTED
        if counts and len(event.attempts) > 1:
            # Any of the batches may be the cause. A job for each will show which.
            run = [replace(each, alone=True) for each in run]
            self._table.put(run)
            counts = False
        return self._fail(run[0], event.failure, counts=counts)

    def _fail(
        self, failed: Transaction, failure: Failure, *, counts: bool, unsent: bool = False
    ) -> list[Action]:
        if failed.phase is Phase.COMMITTING and not unsent:
            self._pinned = self._table.committing[-1].txid
        # Of a pinned group nothing is committed alone.
        end = self.current if self._is_pinned(failed.txid) else failed.txid
        if is_final(failure):
            return self._end(Ending(end, failure.error))
        if self._ending and self._ending.asked:
            return self._end(Ending(end, None, asked=True))
        failed = replace(failed, failures=failed.failures + counts)
        attempts_max = self._settings.attempts_max
        if counts and attempts_max is not None and failed.failures >= attempts_max:
            return self._end(Ending(end, poison(failed, failure, end)))
        return [*self._abandon(failed), *self._back_off(failed, failure, counts=counts)]

    def _is_pinned(self, txid: int) -> bool:
        return self._pinned is not None and txid <= self._pinned

    def _abandon(self, failed: Transaction) -> list[Action]:
        """Give *failed* and every later transaction a new attempt, except kept results.

        A group that was being committed is abandoned from its first transaction on.
        """
        self._table.put([failed])
        group = self._table.committing
        first = group[0] if failed.phase is Phase.COMMITTING else failed
        abandoned = (first, *lost_with(first, self._table.rows, self._settings))
        self._table.put(each.again(self._settings) for each in abandoned)
        return cancel(abandoned)

    def _back_off(self, failed: Transaction, failure: Failure, *, counts: bool) -> list[Action]:
        faulty = failure.kind is FailureKind.INFRASTRUCTURE
        if not (counts or faulty):
            return []
        self._pauses.add(failed.txid)
        self._faults += faulty
        return [Backoff(failed.txid, failed.failures if counts else self._faults)]

    def _end(self, ending: Ending) -> list[Action]:
        """Drop all transactions from the ending on. A later ending can only drop more."""
        self._ending = ending
        return cancel(self._table.drop_from(ending.txid))

    def _settled(self, actions: list[Action]) -> list[Action]:
        """Append all actions that need no further event, and check the invariants."""
        if self._ending and self._over:
            actions = [*actions, Stop(self._ending.error)]
        else:
            self._restore()
            stored = self._durable(self._table.to_store())
            commit, runs = self._start_commit(), self._next_runs()
            if self._settings.stores_plans:
                stored += self._durable([each for run in runs for each in run])
            actions = [*actions, *store_batches(stored), *commit]
            actions += [*self._start_runs(runs), *self._plan()]
        check_invariants(
            self._table,
            self._settings,
            epoch=self._epoch,
            end=self._end_txid,
            pinned=self._pinned,
        )
        return actions

    @property
    def _over(self) -> bool:
        return self._ending is not None and self._ending.txid == self.current

    @property
    def _going_on(self) -> tuple[Transaction, ...]:
        """All transactions before those that pause."""
        if not self._pauses:
            return self.transactions
        return tuple(each for each in self.transactions if not self._pausing(each.txid))

    def _pausing(self, txid: int) -> bool:
        return any(paused <= txid for paused in self._pauses)

    @property
    def _asks(self) -> bool:
        return self._ready and self._activated and not self._ending

    @property
    def _end_txid(self) -> int:
        window_end = self.current + self._settings.window_txids
        if self._pinned is not None:  # perhaps of a coordinator with a larger window
            window_end = max(window_end, self._pinned + 1)
        return min(window_end, self._ending.txid) if self._ending else window_end

    @property
    def has_room(self) -> bool:
        """Whether one more batch may be planned beside those in flight."""
        return self._table.unplanned.txid < self._end_txid

    def _restore(self) -> None:
        """Enter the batches that an earlier coordinator has planned."""
        while self.has_room and self._table.unplanned.txid in self._recovered:
            self._table.enter(self._recovered.pop(self._table.unplanned.txid))

    def _durable(self, batches: Sequence[Transaction]) -> list[Transaction]:
        """Record that these batches will be durable before the actions that follow."""
        batches = [replace(each, durable=True) for each in batches]
        self._table.put(batches)
        return batches

    @property
    def _group_size(self) -> int:
        if self._pinned is not None:
            return self._pinned - self.current + 1
        return self._settings.group_txids_max

    def _start_commit(self) -> list[Action]:
        waiting = takewhile(lambda each: each.phase is Phase.PROCESSED, self._going_on)
        group = tuple(islice(waiting, self._group_size))
        whole = self._pinned is None or (group and group[-1].txid == self._pinned)
        if not (group and whole):
            return []
        self._table.put(each.moved(StartCommit) for each in group)
        return [StartCommit(tuple(each.attempt for each in group), self._pinned is not None)]

    def _next_runs(self) -> list[Run]:
        """Return the runs that start now, with the phase that they have then."""
        # Planning may take long if it is slow or has failed before. Then planned batches start.
        asks = self._asks and self._table.unplanned.attempt.attempt == 0 and not self._slow
        asks = asks and not self._pauses
        # Of a pinned group nothing is committed, so that no room is made, until all of it is there.
        asks = asks and (self._pinned is None or self.has_room)
        committed = self._table.committed
        runs: list[Run] = []
        while run := next_run(self._going_on, self._settings, committed=committed, asks=asks):
            run = tuple(replace(t.moved(StartProcessing), run=run[0].txid) for t in run)
            self._table.put(run)
            runs.append(run)
        return runs

    def _start_runs(self, runs: Sequence[Run]) -> list[Action]:
        before = self._table.metadata_before
        return [start_processing(run, before(run[0].txid)) for run in runs]

    def _plan(self) -> list[Action]:
        unplanned = self._table.unplanned
        if unplanned.phase is Phase.PLANNING or not (self._asks and self.has_room):
            return []
        if self._pausing(unplanned.txid):
            return []
        self._table.put([unplanned.moved(PlanBatch)])
        known = self._table.newest_known(self._settings.cutting_spouts)
        newer = known[0] < unplanned.txid - 1
        previous = self._table.metadata_before(unplanned.txid) if newer else None
        return [PlanBatch(unplanned.attempt, *known, previous)]


def store_batches(batches: Sequence[Transaction]) -> list[Action]:
    """Return the one write that makes *batches* durable; an empty list if there are none."""
    if not batches:
        return []
    attempts = tuple(each.attempt for each in batches)
    return [StoreBatches(attempts, tuple(each.metadata for each in batches))]


def start_processing(run: Sequence[Transaction], previous: BatchMetadata | None) -> Action:
    """Return the action that starts a run."""
    attempts = tuple(each.attempt for each in run)
    return StartProcessing(attempts, tuple(each.metadata for each in run), previous)


def cancel(abandoned: Iterable[Transaction]) -> list[Action]:
    """Return the action that cancels these; an empty list if none has a job or a result."""
    attempts = tuple(each.attempt for each in abandoned if each.phase in STARTED)
    return [Cancel(attempts)] if attempts else []
