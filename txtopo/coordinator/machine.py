"""The coordinator: decides which batch is planned, processed and committed, and when.

Rules
-----
1. Only this file changes the standing of a transaction, as the table in
   :mod:`txtopo.coordinator.transactions` allows. The runtime never edits it.
2. No I/O, clock, thread or random number is used here. Events go in, actions come out, and equal
   events give equal actions. That is what lets a simulator replay a failure from its seed.
3. An event of another attempt than the current one of its txid, or one that its phase does not
   expect, changes nothing. Compare first, then mutate.
4. Each event is handled to the end: afterwards nothing is left that could be done without another
   event. So an event that changes nothing asks for nothing.

Theory of operation
-------------------
Batches overlap, commits do not. Up to ``window_txids`` transactions are in flight; only
``current``, the one that follows the last committed one, may commit. A failure of transaction *t*
abandons *t* and every later one, because a later batch may begin where *t* ended. What was planned
stays; a repeatable spout keeps its cut too, an opaque one cuts anew. ::

    UNPLANNED --ask--> PLANNING --Planned--> PLANNED --job--> PROCESSING --Processed--> PROCESSED
        ^--- NotReady, Failed ---+              ^                 |                         | turn
                                                |                 v                         v
                                                +--- Failed --- (any) <-- Failed --- COMMITTING
                                                                                            |
                                                                                       Committed

Never-seen txids are asked for in order, one at a time, while the window has room; the first that
is not ready ends the scan until the next tick. Planned ones are processed in runs of consecutive
txids. A run waits to be full only while an event is sure to come soon: an answer of the spout,
until a tick finds it slow, or, with a full window, the end of a transaction before it. There is one
before it then, since the window is larger than a run. So there is always an event to wait for, and
nothing gets stuck.

Order of durability
-------------------
Actions are done in the order given, and one that writes is durable before the next one starts; a
crash in between leaves a prefix, never a gap.

1. Repeatable: what was planned, with its attempt, before the batch is processed.
2. The cut and what it brought, with its attempt, after processing and in txid order, before any
   commit work. A replay is compared with what was brought before; see
   :mod:`txtopo.stages.replays`.
3. ``current = t + 1`` after every committer of *t* has written, in one write with the deletion of
   what is before *t*. The metadata of *t* stays: *t + 1* starts from it.

So the stored txids have no gap, and reach back to ``current - 1``.

The actions that name several transactions. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from txtopo.coordinator.failures import Ending, asked_to_stop, ends_the_run, lost_with, poison
from txtopo.coordinator.invariants import check_invariants
from txtopo.coordinator.protocol import (
    Action,
    Activated,
    Advance,
    Backoff,
    Cancel,
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
from txtopo.coordinator.runs import next_run
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

    Who calls it: one loop of the runtime: :meth:`start` once, then :meth:`handle` for one event
    after the other, each when the actions before it are done or queued in order.

    Args:
        settings: What the protocol has to know of the topology.
        epoch: Number of this coordinator, above all before it.
        current: The lowest txid that is not known to be committed.
        stored: The durable metadata of txids from *current* - 1 on.

    Raises:
        CorruptNodeError: Metadata is missing; restore it.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        *,
        epoch: int,
        current: int,
        stored: Mapping[int, BatchMetadata],
    ) -> None:
        committed, recovered = recover(stored, current=current, settings=settings)
        self._settings = settings
        self._epoch, self._recovered = epoch, recovered
        self._table = TransactionTable(epoch=epoch, current=current, committed=committed)
        self._ready = self._activated = True
        self._pausing, self._slow, self._faults = False, False, 0
        self._ending: Ending | None = None

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
        """Every transaction in flight, from the current one on."""
        return self._table.rows

    @property
    def unplanned(self) -> Transaction:
        """The lowest txid that was never planned; the spout may have been asked for it."""
        return self._table.unplanned

    def start(self) -> list[Action]:
        """Return the first actions: replays of what was in flight, and the first plan."""
        return self._settled([])

    def handle(self, event: Event) -> list[Action]:
        """Take note of an event and return what to do, in order."""
        if self._over:
            return []
        return self._settled(self._changed_by(event))

    def _changed_by(self, event: Event) -> list[Action]:
        match event:
            case Planned() if self._table.expecting(event.attempt, Planned):
                self._table.enter(BatchMetadata(event.planned))
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
            case Failed():
                if transaction := self._table.expecting(event.attempt, Failed):
                    counts = event.failure.kind is FailureKind.COUNTED
                    return self._fail(transaction, event.failure, counts=counts)
            case RunFailed():
                return self._run_failed(event)
            case Tick():
                self._ready = self._ready or self._activated
                self._slow = self._table.unplanned.phase is Phase.PLANNING
            case Activated() | Deactivated():
                self._activated = self._ready = isinstance(event, Activated)
            case Resumed():
                self._pausing = False
            case StopRequested():
                return self._end(asked_to_stop(self._table, self._ending))
        return []

    def _committed(self, event: Committed) -> list[Action]:
        if not self._table.expecting(event.attempt, Committed):
            return []
        self._table.remove_committed()
        self._faults = 0
        return [Advance(current=self.current, drop_before=event.attempt.txid)]

    def _run_failed(self, event: RunFailed) -> list[Action]:
        found = [self._table.expecting(attempt, RunFailed) for attempt in event.attempts]
        if not any(found):
            return []
        run = [transaction for transaction in found if transaction is not None]
        # What it reported as processed before it failed is not in doubt.
        run = [each for each in run if each.phase is Phase.PROCESSING] or run
        counts = event.failure.kind is FailureKind.COUNTED
        if counts and len(event.attempts) > 1:
            # Nobody knows which batch it was; with a job of their own they will tell.
            run = [replace(each, alone=True) for each in run]
            self._table.put(run)
            counts = False
        return self._fail(run[0], event.failure, counts=counts)

    def _fail(self, failed: Transaction, failure: Failure, *, counts: bool) -> list[Action]:
        if ends_the_run(failure):
            return self._end(Ending(failed.txid, failure.error))
        if self._ending and self._ending.asked:
            return self._end(Ending(failed.txid, None, asked=True))
        failed = replace(failed, failures=failed.failures + counts)
        if counts and failed.failures >= self._settings.attempts_max:
            return self._end(Ending(failed.txid, poison(failed, failure)))
        return [*self._abandon(failed), *self._back_off(failure)]

    def _abandon(self, failed: Transaction) -> list[Action]:
        """Give *failed* and every later transaction a new attempt, except kept results."""
        abandoned = (failed, *lost_with(failed, self._table.rows, self._settings))
        self._table.put(each.again(repeatable=self._settings.repeatable) for each in abandoned)
        return cancel(abandoned)

    def _back_off(self, failure: Failure) -> list[Action]:
        if self._pausing or failure.kind is not FailureKind.INFRASTRUCTURE:
            return []
        self._pausing = True
        self._faults += 1
        return [Backoff(self._faults)]

    def _end(self, ending: Ending) -> list[Action]:
        """Drop all from the ending on. Endings only come nearer, since what is later is gone."""
        self._ending = ending
        return cancel(self._table.drop_from(ending.txid))

    def _settled(self, actions: list[Action]) -> list[Action]:
        """Append all that can be done without another event, and check the invariants."""
        if self._ending and self._over:
            actions = [*actions, Stop(self._ending.error)]
        else:
            self._restore()
            actions = [*actions, *self._store(self._table.to_store())]
            if not self._pausing:
                actions += [*self._start_commit(), *self._start_runs(), *self._plan()]
        check_invariants(self._table, self._settings, epoch=self._epoch, end=self._end_txid)
        return actions

    @property
    def _over(self) -> bool:
        return self._ending is not None and self._ending.txid == self.current

    @property
    def _asks(self) -> bool:
        return self._ready and self._activated and not self._ending

    @property
    def _end_txid(self) -> int:
        window_end = self.current + self._settings.window_txids
        return min(window_end, self._ending.txid) if self._ending else window_end

    @property
    def _room(self) -> bool:
        return self._table.unplanned.txid < self._end_txid

    def _restore(self) -> None:
        """Take in what was planned before a restart."""
        while self._room and self._table.unplanned.txid in self._recovered:
            self._table.enter(self._recovered.pop(self._table.unplanned.txid))

    def _store(self, batches: Sequence[Transaction]) -> list[Action]:
        self._table.put(replace(each, durable=True) for each in batches)
        return store_batches(batches)

    def _start_commit(self) -> list[Action]:
        first = self._table.first
        if first is None or first.phase is not Phase.PROCESSED:
            return []
        self._table.put([first.moved(StartCommit)])
        return [StartCommit(first.attempt, first.metadata)]

    def _start_runs(self) -> list[Action]:
        # Planning that has failed before or is slow may take long: what is planned does not wait.
        asks = self._asks and self._table.unplanned.attempt.attempt == 0 and not self._slow
        committed = self._table.committed
        actions: list[Action] = []
        while run := next_run(self.transactions, self._settings, committed=committed, asks=asks):
            run = tuple(replace(t.moved(StartProcessing), run=run[0].txid) for t in run)
            self._table.put(run)
            if self._settings.repeatable:
                actions += self._store(run)
            actions += [start_processing(run, self._table.metadata_before(run[0].txid))]
        return actions

    def _plan(self) -> list[Action]:
        unplanned = self._table.unplanned
        if unplanned.phase is Phase.PLANNING or not (self._asks and self._room):
            return []
        self._table.put([unplanned.moved(PlanBatch)])
        known = self._table.newest_known(chained=self._settings.chained)
        return [PlanBatch(unplanned.attempt, *known)]


def store_batches(batches: Sequence[Transaction]) -> list[Action]:
    """Return the one write that makes these durable; empty for none."""
    if not batches:
        return []
    attempts = tuple(each.attempt for each in batches)
    return [StoreBatches(attempts, tuple(each.metadata for each in batches))]


def start_processing(run: Sequence[Transaction], previous: BatchMetadata | None) -> Action:
    """Return the start of a run."""
    attempts = tuple(each.attempt for each in run)
    return StartProcessing(attempts, tuple(each.metadata for each in run), previous)


def cancel(abandoned: Iterable[Transaction]) -> list[Action]:
    """Return the end of what works at these; empty if nothing was started."""
    attempts = tuple(each.attempt for each in abandoned if each.phase in STARTED)
    return [Cancel(attempts)] if attempts else []
