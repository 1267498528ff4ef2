"""Transactions: their phases, the table of transitions, and the transactions in flight."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from itertools import takewhile

from txtopo.attempt import TransactionAttempt
from txtopo.coordinator.protocol import (
    CommitShortened,
    Committed,
    Event,
    Failed,
    NotReady,
    PlanBatch,
    Planned,
    Processed,
    RunFailed,
    StartCommit,
    StartProcessing,
)
from txtopo.metadata import BatchMetadata


class Phase(Enum):
    """The phase of a transaction."""

    UNPLANNED = "unplanned"
    """The spout has not been asked yet, or was not ready."""
    PLANNING = "planning"
    """The spout has been asked and has not answered yet."""
    PLANNED = "planned"
    """The transaction waits for a job, for the first time or again."""
    PROCESSING = "processing"
    """A job processes the batch."""
    PROCESSED = "processed"
    """The transaction waits for its turn to commit."""
    COMMITTING = "committing"
    """The committers run."""
    GONE = "gone"
    """The transaction is committed."""


# Which event or action leads from which phase to which. A pair that is missing is illegal: such an
# event changes nothing, and such an action is never returned. Two moves have no event of their own:
# a new coordinator enters stored batches as PLANNED, and an ending makes UNPLANNED what it drops.
AFTER: dict[tuple[Phase, type], Phase] = {
    (Phase.UNPLANNED, PlanBatch): Phase.PLANNING,
    (Phase.PLANNING, Planned): Phase.PLANNED,
    (Phase.PLANNING, NotReady): Phase.UNPLANNED,
    (Phase.PLANNING, Failed): Phase.UNPLANNED,
    (Phase.PLANNED, StartProcessing): Phase.PROCESSING,
    (Phase.PROCESSING, Processed): Phase.PROCESSED,
    (Phase.PROCESSING, Failed): Phase.PLANNED,
    (Phase.PROCESSING, RunFailed): Phase.PLANNED,
    (Phase.PROCESSED, StartCommit): Phase.COMMITTING,
    (Phase.PROCESSED, Failed): Phase.PLANNED,
    (Phase.PROCESSED, RunFailed): Phase.PLANNED,
    (Phase.COMMITTING, Committed): Phase.GONE,
    (Phase.COMMITTING, CommitShortened): Phase.PROCESSED,
    (Phase.COMMITTING, Failed): Phase.PLANNED,
    (Phase.COMMITTING, RunFailed): Phase.PLANNED,
}

# Phases in which an attempt has a job or results, so that it can be cancelled. These are tuples,
# because they are looked into for each transaction at each event, and an Enum is slow to hash.
STARTED = (Phase.PROCESSING, Phase.PROCESSED, Phase.COMMITTING)

# Phases after the processing phase.
PROCESSED_PHASES = (Phase.PROCESSED, Phase.COMMITTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """What the protocol needs to know of the topology and its configuration.

    Attributes:
        window_txids: Maximum number of batches in flight (``max_spout_pending``).
        run_txids_max: Maximum number of batches in one run; at most *window_txids*, since a run
            that can still fill waits for it.
        jobs_max: Maximum number of runs that are processed at the same time.
        attempts_max: Number of counted failures of one batch at which the topology stops; None for
            no such number.
        repeatable: Whether a replay brings the same batch (transactional spouts only). Then the
            processed results of later batches are kept when a batch fails.
        cutting_spouts: The spouts whose batch starts where its predecessor ended, which only the
            emitters know (partitioned and opaque partitioned spouts).
        group_txids_max: Maximum number of batches that are committed together.
        repeatable_spouts: The spouts that repeat their share of a batch. Has an effect only if some
            are opaque, so that the batch as a whole is not *repeatable*.
    """

    window_txids: int
    run_txids_max: int = 1
    jobs_max: int = 1
    attempts_max: int | None = 5
    repeatable: bool = True
    cutting_spouts: frozenset[str] = frozenset()
    group_txids_max: int = 1
    repeatable_spouts: frozenset[str] = frozenset()

    @property
    def stores_plans(self) -> bool:
        """Whether a plan is stored before its batch is processed."""
        return self.repeatable or bool(self.repeatable_spouts)


NOTHING_KNOWN = BatchMetadata()


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is known of one txid. It is immutable; the coordinator replaces it.

    Attributes:
        attempt: The current attempt.
        phase: The phase.
        metadata: The metadata of the batch, as far as it is known.
        durable: Whether *metadata* is stored with this attempt.
        failures: Number of counted failures, over all attempts.
        alone: Whether the batch must have a job of its own.
        run: First txid of the run that processes or processed the batch; 0 for none.
    """

    attempt: TransactionAttempt
    phase: Phase = Phase.UNPLANNED
    metadata: BatchMetadata = NOTHING_KNOWN
    durable: bool = False
    failures: int = 0
    alone: bool = False
    run: int = 0

    @property
    def txid(self) -> int:
        """Number of the batch."""
        return self.attempt.txid

    def moved(self, cause: type) -> Transaction:
        """Return a copy in the phase that *cause*, an event or action class, leads to."""
        return replace(self, phase=AFTER[self.phase, cause])

    def with_result(self, result: BatchMetadata) -> Transaction:
        """Return a copy with the cut and content of *result*; not durable if they are new."""
        metadata = replace(self.metadata, spouts=result.spouts, content=result.content)
        return replace(self, metadata=metadata, durable=self.durable and metadata == self.metadata)

    def again(self, settings: CoordinatorSettings) -> Transaction:
        """Return the next attempt. It keeps the plan; only repeatable spouts keep their cut."""
        attempt = replace(self.attempt, attempt=self.attempt.attempt + 1)
        metadata = self.metadata
        if not settings.repeatable:
            metadata = metadata.cut_again(settings.repeatable_spouts)
        # A transaction that waits for a job cannot fail, but is abandoned with earlier ones.
        phase = AFTER.get((self.phase, Failed), self.phase)
        return replace(self, attempt=attempt, phase=phase, metadata=metadata, durable=False, run=0)


class TransactionTable:
    """The transactions in flight, in txid order, and the transaction that is planned next.

    Only the coordinator changes the table, and only through :meth:`put`, :meth:`enter`,
    :meth:`remove_committed` and :meth:`drop_from`.

    Attributes:
        current: The lowest uncommitted txid.
        committed: Metadata of the txid before *current*; None for none.
        unplanned: The transaction that is planned next; the spout may have been asked for it.
    """

    def __init__(
        self, *, epoch: int, term: str = "", current: int, committed: BatchMetadata | None
    ) -> None:
        self.current = current
        self.committed = committed
        self.unplanned = Transaction(TransactionAttempt(current, 0, epoch, term=term))
        self._rows: dict[int, Transaction] = {}
        self._in_order: tuple[Transaction, ...] | None = ()

    @property
    def rows(self) -> tuple[Transaction, ...]:
        """All transactions that have been planned, from the current txid on."""
        if self._in_order is None:
            self._in_order = tuple(self._rows.values())
        return self._in_order

    def attempt_of(self, txid: int) -> TransactionAttempt | None:
        """Return the current attempt of a txid; None if it is not in flight."""
        if txid == self.unplanned.txid:
            return self.unplanned.attempt
        transaction = self._rows.get(txid)
        return None if transaction is None else transaction.attempt

    @property
    def committing(self) -> tuple[Transaction, ...]:
        """The transactions of the group that is being committed."""
        return tuple(takewhile(lambda each: each.phase is Phase.COMMITTING, self.rows))

    def expecting(self, attempt: TransactionAttempt, cause: type[Event]) -> Transaction | None:
        """Return the transaction of *attempt* if the attempt is current and expects the event."""
        transaction = self._rows.get(attempt.txid, self.unplanned)
        if transaction.attempt != attempt or (transaction.phase, cause) not in AFTER:
            return None
        return transaction

    def to_store(self) -> list[Transaction]:
        """Return the processed transactions that are not durable, before any unprocessed one.

        So there is no gap in the stored txids.
        """
        batches = []
        for transaction in self.rows:
            if transaction.phase not in PROCESSED_PHASES:
                break
            if not transaction.durable:
                batches.append(transaction)
        return batches

    def metadata_before(self, txid: int) -> BatchMetadata | None:
        """Return the metadata of the predecessor of *txid*; None for the first txid."""
        return self._rows[txid - 1].metadata if txid > self.current else self.committed

    def newest_known(self, cutting: Collection[str]) -> tuple[int, BatchMetadata | None]:
        """Return the newest txid whose batch is known in full, with its metadata.

        Args:
            cutting: The spouts whose emitters decide where it ends.
        """
        for transaction in reversed(self.rows):
            if transaction.metadata.is_cut(cutting):
                return transaction.txid, transaction.metadata
        return self.current - 1, self.committed

    def put(self, transactions: Iterable[Transaction]) -> None:
        """Replace transactions by their successors."""
        for transaction in transactions:
            if transaction.txid == self.unplanned.txid:
                before, self.unplanned = self.unplanned, transaction
            else:
                before = self._rows[transaction.txid]
                self._rows[transaction.txid] = transaction
                self._in_order = None
            assert before.attempt <= transaction.attempt, "attempts only grow"

    def enter(self, metadata: BatchMetadata) -> None:
        """Enter the planned transaction, and begin the next unplanned one."""
        entered = replace(self.unplanned, phase=Phase.PLANNED, metadata=metadata)
        self._rows[entered.txid] = entered
        self._in_order = None
        self.unplanned = Transaction(replace(entered.attempt, txid=entered.txid + 1, attempt=0))

    def remove_committed(self, through: int) -> None:
        """Remove the transactions up to a txid; the next one becomes current."""
        for txid in range(self.current, through + 1):
            self.committed = self._rows.pop(txid).metadata
        self._in_order = None
        self.current = through + 1

    def drop_from(self, txid: int) -> list[Transaction]:
        """Remove *txid* and all later ones for good."""
        dropped = [each for each in self.rows if each.txid >= txid]
        for transaction in dropped:
            del self._rows[transaction.txid]
        self._in_order = None
        # The spout may still answer; then no transaction may expect it.
        self.unplanned = replace(self.unplanned, phase=Phase.UNPLANNED)
        return dropped
