"""What a database error means for a topology: try again, ask the ledger, or stop.

No exception of SQLAlchemy or of a driver leaves the backend. The messages of drivers are passed on,
URLs without their password. What an error means is in :mod:`txtopo.database_errors`.
"""

from __future__ import annotations

import sqlalchemy.exc as sa_exc

from txtopo.database_errors import meaning_of, state_of
from txtopo.errors import (
    AuthError,
    ErrorMeaning,
    PromiseError,
    SchemaDrift,
    StoreContended,
    StoreDamagedError,
    StoreUnavailable,
    TxtopoError,
    UnknownOutcomeError,
    ValueRefusedError,
)

# Too large for a page, an index or an array.
_LIMITS_STATE = "54"

# SQLite reports this for a missing folder, and for a file that it may not open.
_NO_FILE = "unable to open database file"

_LIMITS_REMEDY = "; let the spout cut smaller batches, or write shorter keys and values"


class Duplicate(StoreContended):
    """A row with this key exists: another writer has just created it, or it is there by mistake."""


def translated(error: Exception, label: str, *, during_commit: bool = False) -> TxtopoError:
    """Return the error of txtopo for an error of the database.

    Args:
        error: The exception of SQLAlchemy or the driver.
        label: The state and its store, for the message.
        during_commit: Whether COMMIT had been sent.
    """
    cause = error.orig if isinstance(error, sa_exc.DBAPIError) else error
    if "_pgconn" in vars(cause):
        # psycopg keeps all options of a failed connection in the error, including the password, and
        # reporters of errors show what is in one.
        vars(cause)["_pgconn"] = None
    text = str(cause).strip().replace("\n", "; ").replace("\t", " ")
    match meaning_of(cause, text):
        case ErrorMeaning.VALUE:
            return ValueRefusedError(
                f"{label} cannot store a value exactly: {text}; nothing of its batch was written"
                + _LIMITS_REMEDY * state_of(cause).startswith(_LIMITS_STATE),
                store=label,
                got=text,
            )
        case ErrorMeaning.DAMAGED:
            return damaged(label, text)
        case ErrorMeaning.CONTENDED:
            return StoreContended(
                f"{label} is locked by another transaction: {text}; try again",
                store=label,
                got=text,
            )
        case ErrorMeaning.DUPLICATE:
            return Duplicate(
                f"{label} already has a row of this key: {text}; try again", store=label, got=text
            )
        case ErrorMeaning.DRIFT:
            return SchemaDrift(
                f"{label} is not as it was created: {text}; nothing was written; expected the "
                "tables and columns of the first start; was one dropped or changed by hand, or "
                "does the URL lead to another database?",
                store=label,
                got=text,
            )
        case ErrorMeaning.REFUSED:
            return AuthError(
                f"{label} cannot be used with this URL: {text}; nothing was written; check the "
                "user, password, database and permissions",
                store=label,
                got=text,
            )
        case ErrorMeaning.READ_ONLY:
            # A former primary may become the primary again, or its URL may lead to the new one.
            return StoreUnavailable(
                f"{label} is read-only: {text}; nothing was written; expected a primary; is this "
                "a replica, or default_transaction_read_only on? check the host and options of "
                "the URL",
                store=label,
                got=text,
            )
        case ErrorMeaning.LASTS:
            written = (
                "the ledger will show at the next start whether it was written"
                if during_commit
                else "nothing was written"
            )
            hint = "; does its folder exist, and is this process allowed to write there?" * (
                _NO_FILE in text
            )
            return PromiseError(
                f"{label} refuses a statement: {text}; {written}; it would be refused every "
                f"time{hint}",
                store=label,
                got=text,
            )
        case _ if during_commit:
            return UnknownOutcomeError(
                f"the connection was lost while {label} was written: {text}; the ledger will show "
                "whether it was",
                store=label,
                got=text,
            )
        case _:
            return StoreUnavailable(
                f"cannot use {label}: {text}; nothing was written", store=label, got=text
            )


def paused(last: TxtopoError, limit_s: float, next_s: float) -> StoreUnavailable:
    """Return the error to raise after the server has ended a transaction that paused.

    Args:
        last: What the statement behind the pause met.
        limit_s: For how long the transaction was allowed to pause.
        next_s: For how long the next one may.
    """
    return StoreUnavailable(
        f"cannot use {last.facts['store']}: the server ended the transaction, because it received "
        f"no statement for {limit_s:g} s: {last.got}; nothing was written; expected the values of "
        f"the batch to be combined and encoded by then; the next attempt may pause for {next_s:g} "
        "s; unless this process was suspended, let the spout cut smaller batches, or make "
        "combine() of your own aggregates faster",
        timeout_s=limit_s,
        **last.facts,
    )


def stuck(last: StoreContended, tries: int) -> TxtopoError:
    """Return the error to raise after *tries* tries that all met another writer."""
    if isinstance(last, Duplicate):
        return PromiseError(
            f"{last}; the same happened {tries} times; nothing was written; expected the key to "
            "be free, or its row to be visible; were bookkeeping columns changed by hand, or "
            "does your own table have another unique index?",
            tries=tries,
            **last.facts,
        )
    return StoreUnavailable(f"{last}; gave up after {tries} tries", tries=tries, **last.facts)


def damaged(label: str, what: str) -> StoreDamagedError:
    """Return the error for damaged contents of a database."""
    return StoreDamagedError(
        f"{label} is damaged: {what}; nothing was written; expected the data that was written "
        "there; did its disk fail? restore an undamaged copy",
        store=label,
        got=what,
    )
