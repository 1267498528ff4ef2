"""What an error of Redis means for a topology: try again, ask the ledger, or stop.

This file lists the transient errors and those that mean missing rights. Any other error of Redis is
permanent, since the same command would get it again.
"""

from __future__ import annotations

from redis import exceptions as redis_errors

from txtopo.errors import (
    AuthError,
    PromiseError,
    SchemaDrift,
    StoreUnavailable,
    TxtopoError,
    UnknownOutcomeError,
)

FAILURES = (redis_errors.RedisError, UnicodeDecodeError)
"""The exceptions of redis-py; UnicodeDecodeError if a value is not text."""
_LOST = (redis_errors.ConnectionError, redis_errors.TimeoutError)
_REFUSED = (
    redis_errors.AuthenticationError,
    redis_errors.AuthorizationError,
    redis_errors.AuthenticationWrongNumberOfArgsError,
    redis_errors.NoPermissionError,
)
_REFUSED_TEXTS = (
    *("WRONGPASS", "NOAUTH", "NOPERM", "DENIED", "invalid username-password", "ERR AUTH"),
    "certificate verify failed",
)
# These are transient: memory is short, a disk is full (or fails: Redis only says MISCONF), the
# server is a replica, a script runs, data is being loaded, a master is being elected.
_PASSING_TEXTS = (
    *("OOM", "MISCONF", "READONLY", "BUSY", "LOADING", "MASTERDOWN", "NOREPLICAS", "TRYAGAIN"),
    *("CLUSTERDOWN", "NOGOODSLAVE", "ERR max number of clients"),
)
_PASSING = (
    redis_errors.OutOfMemoryError,
    redis_errors.ReadOnlyError,
    redis_errors.BusyLoadingError,
    redis_errors.ClusterDownError,
    redis_errors.MasterDownError,
    redis_errors.TryAgainError,
)


def translated(
    error: redis_errors.RedisError | UnicodeDecodeError, label: str, *, during_write: bool = False
) -> TxtopoError:
    """Return the error of txtopo for an error of Redis.

    Args:
        error: The exception of redis-py.
        label: The state and its store, without a password, for the message.
        during_write: Whether EXEC had been sent.
    """
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, _REFUSED) or any(part in str(error) for part in _REFUSED_TEXTS):
        return AuthError(
            f"{label} cannot be used with this URL: {text}; nothing was written; check the user, "
            "password and permissions (including CONFIG GET)",
            store=label,
            got=text,
        )
    passing = isinstance(error, _PASSING) or str(error).startswith(_PASSING_TEXTS)
    if isinstance(error, _LOST) and not passing and during_write:
        return UnknownOutcomeError(
            f"the connection was lost while {label} was written: {text}; the ledger will show it",
            store=label,
            got=text,
        )
    if isinstance(error, _LOST) or passing:
        return StoreUnavailable(
            f"cannot use {label}: {text}; nothing was written; try again", store=label, got=text
        )
    if isinstance(error, UnicodeDecodeError):
        return SchemaDrift(
            f"{label} holds a value that is not text: {text}; nothing was written; was it changed "
            "by hand, or by another program?",
            store=label,
            got=text,
        )
    if "WRONGTYPE" in str(error):
        return SchemaDrift(
            f"{label} has a key of the wrong type: {text}; nothing was written; does another "
            "program use names that begin with 'txtopo:'?",
            store=label,
            got=text,
        )
    return PromiseError(
        f"{label} refuses a command: {text}; nothing was written", store=label, got=text
    )


def lost_while_watching(error: redis_errors.WatchError) -> bool:
    """Return whether a WatchError means that redis-py lost the connection."""
    return isinstance(error.__context__, _LOST)
