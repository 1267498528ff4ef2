"""What a database error means for a topology: try again, ask the ledger, or stop.

Nothing of SQLAlchemy or of a driver leaves the backend. The messages of drivers are passed on, the
URL only without its password.
"""

from __future__ import annotations

import sqlalchemy.exc as sa_exc

from state_backends.sql.mariadb_failures import state_of
from state_backends.sql.meanings import Meaning, meaning_of
from txtopo.errors import (
    AuthError,
    PromiseError,
    SchemaDrift,
    StoreDamagedError,
    StoreUnavailable,
    TxtopoError,
    UnknownOutcomeError,
    ValueRefusedError,
)

# What no page, index or array has room for.
_LIMITS_STATE = "54"
_LIMITS_REMEDY = "; let the spout cut smaller batches, or write shorter keys and values"


class Contended(StoreUnavailable):
    """Another transaction was in the way; the whole transaction may be tried again at once."""


class Duplicate(Contended):
    """A row with this key was there: made by somebody else just now, or it should not be there."""


def translated(error: Exception, place: str, *, during_commit: bool = False) -> TxtopoError:
    """Return the error of txtopo that *error* amounts to.

    Args:
        error: What SQLAlchemy or the driver raised.
        place: Which state where, for the message.
        during_commit: Whether COMMIT had been sent.
    """
    cause = error.orig if isinstance(error, sa_exc.DBAPIError) else error
    if "_pgconn" in vars(cause):
        # psycopg keeps all options of a connection that failed in the error, the password too,
        # and reporters of errors show what is in one.
        vars(cause)["_pgconn"] = None
    text = str(cause).strip().replace("\n", "; ").replace("\t", " ")
    match meaning_of(cause, text):
        case Meaning.VALUE:
            return ValueRefusedError(
                f"{place} cannot store a value exactly: {text}; nothing of its batch was written"
                + _LIMITS_REMEDY * state_of(cause).startswith(_LIMITS_STATE)
            )
        case Meaning.DAMAGED:
            return damaged(place, text)
        case Meaning.CONTENDED:
            return Contended(f"{place} is locked by another transaction: {text}; try again")
        case Meaning.DUPLICATE:
            return Duplicate(f"{place} has a row of this key already: {text}; try again")
        case Meaning.DRIFT:
            return SchemaDrift(
                f"{place} has other columns than the state declares: {text}; nothing was written; "
                "was the table changed by hand?"
            )
        case Meaning.REFUSED:
            return AuthError(
                f"{place} refuses the user of its URL: {text}; nothing was written; check user, "
                "password, database and rights"
            )
        case Meaning.READ_ONLY:
            # A primary that lost its place is one again later, or its URL leads to the new one.
            return StoreUnavailable(
                f"{place} is read-only: {text}; nothing was written; expected a primary; is this a "
                "replica, or default_transaction_read_only on? look at the host and options of the "
                "URL"
            )
        case Meaning.LASTS:
            return _lasting(text, place, during_commit=during_commit)
        case Meaning.PASSES:
            return _passing(text, place, during_commit=during_commit)


def stuck(last: Contended, tries: int) -> TxtopoError:
    """Return the error for what was in the way at each of some tries."""
    if isinstance(last, Duplicate):
        return PromiseError(
            f"{last}; got the same {tries} times; nothing was written; expected the key to be "
            "free, or its row to be seen; was bookkeeping changed by hand, or has a table of yours "
            "another unique index?"
        )
    return StoreUnavailable(f"{last}; gave up after {tries} tries")


def _lasting(text: str, place: str, *, during_commit: bool) -> TxtopoError:
    written = "the ledger tells at the next start" if during_commit else "nothing was written"
    return PromiseError(
        f"{place} refuses a statement: {text}; {written}; it would be refused each time"
    )


def _passing(text: str, place: str, *, during_commit: bool) -> TxtopoError:
    if during_commit:
        return UnknownOutcomeError(
            f"the connection was lost while {place} was written: {text}; the ledger tells the rest"
        )
    return StoreUnavailable(f"cannot use {place}: {text}; nothing was written")


def damaged(place: str, what: str) -> StoreDamagedError:
    """Return the error that says what is wrong with the contents of a database."""
    return StoreDamagedError(
        f"{place} is damaged: {what}; nothing was written; expected what was written there once; "
        "did its disk fail? bring back a copy that is whole"
    )
