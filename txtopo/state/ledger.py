"""The ledger: which (epoch, txid, attempt) a state holds, and which epoch may write.

Every write to a state happens in one store transaction that reads the ledger, asks
:func:`standing` what the attempt may do, and writes the ledger together with the data. That one
rule gives the fence (a deposed coordinator changes nothing), the order (no gap, no step back) and
the redo (an attempt that comes after another of the same txid).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from txtopo.attempt import TransactionAttempt
from txtopo.errors import FencedError, ForeignStateError, LedgerGapError, StaleBatchError

RELEASED = ""
"""What a ledger names as its topology when an operator has released the state: whoever comes next
may claim it. A topology's id is never empty."""


class Standing(Enum):
    """What an attempt may do to a state."""

    APPLY = "apply"
    """The state holds txid - 1: apply the writes."""
    REDO = "redo"
    """The state holds this txid from an earlier attempt: undo that (opaque) or keep it
    (transactional), then set the ledger to this attempt."""
    HELD = "held"
    """The state holds this very attempt already: change nothing."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a state holds, and who may write to it.

    Attributes:
        topology: Id of the topology that owns the state; :data:`RELEASED` for none any more.
        epoch: The epoch that may write; only grows.
        txid: The last txid that the state holds; 0 for none.
        writer_epoch: Epoch of the attempt that wrote *txid*; 0 for none.
        attempt: Number of the attempt that wrote *txid*; 0 for none.
    """

    topology: str
    epoch: int
    txid: int = 0
    writer_epoch: int = 0
    attempt: int = 0

    @property
    def writer(self) -> TransactionAttempt:
        """The attempt whose writes the state holds."""
        return TransactionAttempt(self.txid, self.attempt, self.writer_epoch)

    def written_by(self, attempt: TransactionAttempt) -> Ledger:
        """Return the ledger after the write of *attempt*."""
        return replace(self, txid=attempt.txid, writer_epoch=attempt.epoch, attempt=attempt.attempt)


def claimed(ledger: Ledger | None, *, topology: str, epoch: int) -> Ledger:
    """Return the ledger after *epoch* of *topology* claims it; the txid is left unchanged.

    Claiming it for :data:`RELEASED` gives it up; whoever does that has claimed it for its owner
    before.

    Raises:
        ForeignStateError: Another topology owns the state; give this one a table of its own.
        FencedError: A later epoch has claimed it; this coordinator must stop.
    """
    if ledger is None:
        return Ledger(topology, epoch)
    if ledger.topology != topology and RELEASED not in (ledger.topology, topology):
        raise ForeignStateError(
            f"the state belongs to another topology; got {topology!r}; its ledger names "
            f"{ledger.topology!r}; give each topology a table of its own, or release this one with "
            f"txtopo.operations.forget of {ledger.topology!r}",
            topology=topology,
            owner=ledger.topology,
        )
    if ledger.epoch > epoch:
        raise _fenced(ledger, epoch)
    return replace(ledger, topology=topology, epoch=epoch)


def standing(ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
    """Decide what *attempt* may do to a state with this ledger.

    Raises:
        FencedError: Another epoch may write, or a later attempt of the same txid has written.
        StaleBatchError: The state holds a later txid.
        LedgerGapError: The state lacks txids before this one.
    """
    if ledger is None or ledger.epoch < attempt.epoch:
        raise LedgerGapError(
            f"attempt {attempt} writes to a state that its epoch has not claimed; "
            f"its ledger is {ledger}; was the state's table dropped during the run?",
            attempt=attempt,
            ledger=ledger,
        )
    if ledger.epoch > attempt.epoch:
        raise _fenced(ledger, attempt.epoch)
    if ledger.txid == attempt.txid - 1:
        return Standing.APPLY
    if ledger.txid > attempt.txid:
        raise StaleBatchError(
            f"batch of txid {attempt.txid} is behind the stored txid {ledger.txid}; commits must "
            "reach a state in txid order; do two running topologies share one state?",
            txid=attempt.txid,
            stored_txid=ledger.txid,
        )
    if ledger.txid < attempt.txid:
        raise LedgerGapError(
            f"batch of txid {attempt.txid} does not follow the stored txid {ledger.txid}; "
            f"expected txid {ledger.txid + 1}; was the store restored from a backup?",
            txid=attempt.txid,
            stored_txid=ledger.txid,
        )
    if ledger.writer == attempt:
        return Standing.HELD
    if attempt < ledger.writer:
        raise FencedError(
            f"attempt {attempt} is older than {ledger.writer}, which the state holds; "
            "it was abandoned and must not write",
            attempt=attempt,
            holder=ledger.writer,
        )
    return Standing.REDO


def _fenced(ledger: Ledger, epoch: int) -> FencedError:
    return FencedError(
        f"epoch {epoch} of topology {ledger.topology!r} was deposed; "
        f"epoch {ledger.epoch} may write now; stop this coordinator",
        epoch=epoch,
        successor=ledger.epoch,
    )
