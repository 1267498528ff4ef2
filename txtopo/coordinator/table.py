"""TransactionTable: the transactions in flight, and the one that is planned next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from txtopo.attempt import TransactionAttempt
from txtopo.coordinator.events import Event
from txtopo.coordinator.phases import AFTER, PROCESSED_PHASES, Phase
from txtopo.coordinator.transaction import Transaction
from txtopo.metadata import BatchMetadata


class TransactionTable:
    """The transactions in flight, in txid order, and the one that is planned next.

    Only the coordinator changes it, and only through :meth:`put`, :meth:`enter`,
    :meth:`remove_committed` and :meth:`drop_from`.

    Attributes:
        current: The lowest uncommitted txid.
        committed: Metadata of the txid before *current*; None for none.
        unplanned: The lowest txid that was never planned; the spout may have been asked for it.
    """

    def __init__(self, *, epoch: int, current: int, committed: BatchMetadata | None) -> None:
        self.current = current
        self.committed = committed
        self.unplanned = Transaction(TransactionAttempt(current, 0, epoch))
        self._rows: dict[int, Transaction] = {}

    @property
    def rows(self) -> tuple[Transaction, ...]:
        """All that are planned or further, from the current txid on."""
        return tuple(self._rows.values())

    @property
    def first(self) -> Transaction | None:
        """The transaction of the current txid, if it is planned."""
        return self._rows.get(self.current)

    def expecting(self, attempt: TransactionAttempt, cause: type[Event]) -> Transaction | None:
        """Return the transaction of this attempt if it is current and expects such an event."""
        transaction = self._rows.get(attempt.txid, self.unplanned)
        if transaction.attempt != attempt or (transaction.phase, cause) not in AFTER:
            return None
        return transaction

    def to_store(self) -> list[Transaction]:
        """Return what is processed but not durable, up to the first that is not processed.

        That order leaves no gap in what is stored.
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

    def newest_known(self, *, chained: bool) -> tuple[int, BatchMetadata | None]:
        """Return the newest txid whose batch is known in full, with its metadata."""
        for transaction in reversed(self.rows):
            if transaction.metadata.cut is not None or not chained:
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
            assert before.attempt <= transaction.attempt, "attempts only grow"

    def enter(self, metadata: BatchMetadata) -> None:
        """Take in the transaction that was planned, so that the next one can be."""
        entered = replace(self.unplanned, phase=Phase.PLANNED, metadata=metadata)
        self._rows[entered.txid] = entered
        self.unplanned = Transaction(replace(entered.attempt, txid=entered.txid + 1, attempt=0))

    def remove_committed(self) -> None:
        """Remove the current transaction; the next one becomes current."""
        self.committed = self._rows.pop(self.current).metadata
        self.current += 1

    def drop_from(self, txid: int) -> list[Transaction]:
        """Remove *txid* and all later ones for good."""
        dropped = [each for each in self.rows if each.txid >= txid]
        for transaction in dropped:
            del self._rows[transaction.txid]
        # An answer that the spout still owes must find nobody waiting.
        self.unplanned = replace(self.unplanned, phase=Phase.UNPLANNED)
        return dropped
