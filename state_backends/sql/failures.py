"""What a database error means for a topology: try again, ask the ledger, or stop.

Nothing of SQLAlchemy or of a driver leaves the backend. The messages of drivers are passed on, the
URL only without its password.
"""

from __future__ import annotations

import sqlalchemy.exc as sa_exc

from state_backends.sql.mariadb_failures import state_of
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

# What tells a refused login from a server that is not there: libpq gives no SQLSTATE for either.
_REFUSED = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "permission denied",
    "readonly database",
    "does not exist",
)
_CONTENDED_STATES = ("40001", "40P01", "55P03", "23505")
_CONTENDED_TEXTS = ("database is locked", "database table is locked")
_DRIFT_TEXTS = ("no such table", "no such column", "has no column named", "not a database")
# What PostgreSQL's checksums and SQLite find; MariaDB refuses to start.
_DAMAGED_STATES = ("XX001", "XX002")
_DAMAGED_TEXT = "is malformed"
# What no page, index or array has room for.
_LIMIT_STATE = "54"
# Data exceptions, a row merged twice, and what a user's own table does not take: NULL, a key of no
# other table, what a CHECK or an exclusion forbids.
_VALUE_STATES = ("22", "21000", "23502", "23503", "23514", "23P01")
_VALUE_TEXTS = (
    "cannot store",
    "user-defined function raised exception",
    "integer overflow",
    "constraint failed",
)


class Contended(StoreUnavailable):
    """Another transaction was in the way; the whole transaction may be tried again at once."""


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
    found = _by_value(cause, text, place) or _by_state(cause, text, place)
    if found is not None:
        return found
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


def _by_value(cause: BaseException | None, text: str, place: str) -> TxtopoError | None:
    state = state_of(cause)
    kind = type(cause).__name__
    if state.startswith(_LIMIT_STATE):
        return ValueRefusedError(
            f"{place} cannot store a value exactly: {text}; nothing of its batch was written; let "
            "the spout cut smaller batches, or write shorter keys and values"
        )
    refused = state.startswith(_VALUE_STATES) or any(part in text for part in _VALUE_TEXTS)
    if refused or kind == "DataError" or isinstance(cause, UnicodeError | OverflowError):
        return ValueRefusedError(
            f"{place} cannot store a value exactly: {text}; nothing of its batch was written"
        )
    return None


def _by_state(cause: BaseException | None, text: str, place: str) -> TxtopoError | None:
    state = state_of(cause)
    if state in _DAMAGED_STATES or _DAMAGED_TEXT in text:
        return damaged(place, text)
    if state in _CONTENDED_STATES or any(part in text for part in _CONTENDED_TEXTS):
        return Contended(f"{place} is locked by another transaction: {text}; try again")
    if state in ("42P01", "42703", "42804", "42P10") or any(part in text for part in _DRIFT_TEXTS):
        return SchemaDrift(
            f"{place} has other columns than the state declares: {text}; nothing was written; "
            "was the table changed by hand?"
        )
    if state in ("42501", "28000", "28P01", "3D000") or any(part in text for part in _REFUSED):
        return AuthError(
            f"{place} refuses the user of its URL: {text}; nothing was written; check user, "
            "password, database and rights"
        )
    if state == "25006":
        # A primary that lost its place is one again later, or its URL leads to the new one.
        return StoreUnavailable(
            f"{place} is read-only: {text}; nothing was written; expected a primary; is this a "
            "replica, or default_transaction_read_only on? look at the host and options of the URL"
        )
    if state.startswith("42") or type(cause).__name__ == "ProgrammingError":
        return PromiseError(f"{place} refuses a statement: {text}; nothing was written")
    return None
