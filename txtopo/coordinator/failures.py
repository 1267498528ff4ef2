"""What a failure leads to: what is lost with a batch, and how a run ends. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txtopo.coordinator.protocol import Failure, FailureKind
from txtopo.coordinator.transactions import (
    CoordinatorSettings,
    Phase,
    Transaction,
    TransactionTable,
)
from txtopo.errors import PoisonBatchError, PromiseError


@dataclass(frozen=True, slots=True)
class Ending:
    """The run stops once all txids before this one are committed.

    Attributes:
        txid: First txid that is not processed any more.
        error: What the run stops with; None if it was asked for.
        asked: The user asked for it: a commit in hand that fails is not tried again.
    """

    txid: int
    error: Exception | None
    asked: bool = False


def asked_to_stop(table: TransactionTable, before: Ending | None) -> Ending:
    """Return the ending that finishes the commit in hand and nothing else."""
    first = table.first
    committing = first is not None and first.phase is Phase.COMMITTING
    txid = table.current + 1 if committing else table.current
    # A run that ends just here anyway tells why.
    error = before.error if before is not None and before.txid == txid else None
    return Ending(txid, error, asked=True)


def lost_with(
    failed: Transaction, transactions: Sequence[Transaction], settings: CoordinatorSettings
) -> list[Transaction]:
    """Return the later transactions that a failure abandons: all but results that may be kept."""
    keeps = settings.keep_processed and settings.repeatable
    later = [each for each in transactions if each.txid > failed.txid]
    return [each for each in later if not (keeps and each.phase is Phase.PROCESSED)]


def ends_the_run(failure: Failure) -> bool:
    """Return whether trying again is no answer to this failure."""
    return failure.kind is FailureKind.FATAL or isinstance(failure.error, PromiseError)


def poison(transaction: Transaction, failure: Failure) -> PoisonBatchError:
    """Return the error of a batch that has failed too often."""
    cause = failure.error
    where = (
        f"component {failure.component!r}" if failure.component else "no component in particular"
    )
    error = PoisonBatchError(
        f"batch of txid {transaction.txid} failed {transaction.failures} times; "
        f"the last time in {where}, with {type(cause).__name__}: {cause}; "
        "expected it to pass before attempts_max is reached; "
        "mend the cause and start again: nothing is lost, it goes on at this txid; or take the "
        "batch out of the order with txtopo.operations.quarantine",
        txid=transaction.txid,
        component=failure.component,
        attempts=transaction.failures,
        cause=cause,
    )
    error.__cause__ = cause
    return error
