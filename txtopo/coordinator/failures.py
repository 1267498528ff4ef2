"""Failures: of which kind one is, which batches it abandons, when the topology ends. Pure."""

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
from txtopo.errors import (
    FailedException,
    InfrastructureError,
    PoisonBatchError,
    PromiseError,
    RunLostError,
    TxtopoError,
)


@dataclass(frozen=True, slots=True)
class Ending:
    """The decision to stop the topology once all txids before *txid* are committed.

    Attributes:
        txid: First txid that is not processed.
        error: The error that the topology stops with; None if the user asked for the stop.
        asked: Whether the user asked for the stop. Then a commit that fails is not tried again.
    """

    txid: int
    error: Exception | None
    asked: bool = False


def asked_to_stop(table: TransactionTable, before: Ending | None) -> Ending:
    """Return the ending that finishes the commit that is under way and nothing else."""
    txid = table.current + len(table.committing)
    # If the topology was about to end at this txid anyway, the error says why.
    error = before.error if before is not None and before.txid == txid else None
    return Ending(txid, error, asked=True)


def lost_with(
    failed: Transaction, transactions: Sequence[Transaction], settings: CoordinatorSettings
) -> list[Transaction]:
    """Return the later transactions that a failure abandons: all except results that are kept."""
    later = [each for each in transactions if each.txid > failed.txid]
    return [each for each in later if not (settings.repeatable and each.phase is Phase.PROCESSED)]


def is_final(failure: Failure) -> bool:
    """Return whether a failure ends the topology instead of being tried again."""
    return failure.kind is FailureKind.FATAL or isinstance(failure.error, PromiseError)


def poison(transaction: Transaction, failure: Failure, end: int) -> PoisonBatchError:
    """Return the error for a batch that has failed ``attempts_max`` times.

    Args:
        transaction: The batch.
        failure: Why it failed the last time.
        end: The first txid that is not committed: its own, or the first one of a pinned group.
    """
    cause = failure.error
    where = (
        f"component {failure.component!r}"
        if failure.component
        else "a component that could not be determined"
    )
    error = PoisonBatchError(
        f"batch of txid {transaction.txid} failed {transaction.failures} times; "
        f"the last time in {where}, with {type(cause).__name__}: {cause}; "
        "expected it to succeed before attempts_max is reached; "
        f"inspect it with: txtopo replay MODULE:TOPOLOGY --txid {transaction.txid} --pdb; "
        f"fix the cause and start again: nothing is lost, it continues at txid {end}; or remove "
        "the batch with txtopo.operations.quarantine",
        txid=transaction.txid,
        component=failure.component,
        failures=transaction.failures,
        cause=cause,
    )
    error.__cause__ = cause
    return error


def failure_of(error: BaseException, component: str | None = None) -> Failure:
    """Return an error as a failure of its kind; see :class:`FailureKind`."""
    if not isinstance(error, Exception):
        wrapped = TxtopoError(f"user code raised {error!r}", component=component, got=repr(error))
        wrapped.__cause__ = error
        return Failure(FailureKind.FATAL, wrapped, component)
    if isinstance(error, FailedException):
        return Failure(FailureKind.COUNTED, error, component)
    if isinstance(error, RunLostError) and error.facts.get("counted"):
        return Failure(FailureKind.COUNTED, error, component)
    if isinstance(error, InfrastructureError):
        return Failure(FailureKind.INFRASTRUCTURE, error, component)
    return Failure(FailureKind.FATAL, error, component)
