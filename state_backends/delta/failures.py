"""What an error of delta-rs means for a topology: try again, ask the ledger, or stop."""

from __future__ import annotations

import json
import re

from state_backends.delta.library import (
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)
from txtopo.disk_errors import meaning_of, number_in
from txtopo.errors import (
    AuthError,
    ErrorMeaning,
    LedgerGapError,
    PromiseError,
    SchemaDrift,
    StoreContended,
    StoreDamagedError,
    StoreUnavailable,
    TxtopoError,
    UnknownOutcomeError,
    ValueRefusedError,
)

# Messages of JSON and Parquet readers about files that were truncated or changed.
_DAMAGED = (
    "Json error",
    "whilst parsing",
    "whilst reading",
    "whilst decoding",
    "magic bytes",
    "orrupt",
    "Invalid JSON",
    "valid UTF-8",
    "file size is 0 bytes",
    "data page",
)
FAILURES = (DeltaError, OSError, UnicodeError, OverflowError, ValueError)
"""The exceptions of delta-rs and pyarrow."""
# What our own code raises when it reads a log. Arrow's errors are other, derived classes.
_UNREADABLE = (ValueError, UnicodeDecodeError, json.JSONDecodeError)
# Another commit came after the snapshot, so delta-rs has written nothing visible.
_CONTENDED = (
    "oncurrent",
    "conflict",
    "Metadata changed",
    "Protocol changed",
    "already exists",
    "commit attempts",
)
# What follows a message of delta-rs if RUST_BACKTRACE is set.
_BACKTRACE = re.compile(r"\s*\n\s*0: ")
_VALUES = ("Cast error", "overflow", "Invalid argument error", "too large to store", "Arithmetic")


def translated(
    error: Exception, label: str, *, uri: str = "", writing: bool = False
) -> TxtopoError:
    """Return the error of txtopo for an error of delta-rs.

    Args:
        error: The exception of delta-rs.
        label: The state and its store, for the message.
        uri: The URI of the table.
        writing: Whether a commit was running, so that it may have taken effect.
    """
    if isinstance(error, TxtopoError):
        return error
    text = _BACKTRACE.split(str(error).strip())[0].replace("\n", "; ")
    # A path may contain any word, and a disk failure says nothing about a value.
    said = "" if isinstance(error, OSError) else text.replace(uri, "")
    if "ffset overflow" in said:
        return ValueRefusedError(
            f"{label} cannot take a batch: the rows that it is merged with have more than 2 GiB "
            f"in one column: {text}; nothing of the batch was written; let the spout cut smaller "
            "batches, or write shorter values",
            store=label,
            got=text,
        )
    unreadable = type(error) in _UNREADABLE
    if (isinstance(error, UnicodeError | OverflowError) and not unreadable) or any(
        part in said for part in _VALUES
    ):
        return ValueRefusedError(
            f"{label} cannot store a value exactly: {text}; nothing of its batch was written",
            store=label,
            got=text,
        )
    lasting = _lasting(error, text, label, uri, writing=writing)
    if lasting is not None:
        return lasting
    if unreadable or any(part in text for part in _DAMAGED):
        return StoreDamagedError(
            f"{label} is damaged: {text}; expected the files that were written there; did its "
            "disk fail? restore an undamaged copy",
            store=label,
            got=text,
        )
    if writing and any(part in said for part in _CONTENDED):
        return StoreContended(
            f"{label} was changed by another writer: {text}; try again", store=label, got=text
        )
    if isinstance(error, TableNotFoundError):
        return LedgerGapError(
            f"{label} no longer exists: {text}; was its folder removed during the run?",
            store=label,
            got=text,
        )
    if writing:
        return UnknownOutcomeError(
            f"it is unknown whether {label} was written: {text}; the ledger will show it",
            store=label,
            got=text,
        )
    return StoreUnavailable(
        f"cannot use {label}: {text}; nothing was written", store=label, got=text
    )


def _lasting(
    error: Exception, text: str, label: str, uri: str, *, writing: bool
) -> PromiseError | None:
    """Return the error for a failure that would recur each time, or None."""
    if isinstance(error, SchemaMismatchError):
        return SchemaDrift(
            f"{label} does not have the columns that the state declares: {text}; nothing was "
            "written; was the table changed by hand?",
            store=label,
            got=text,
        )
    number = error.errno if isinstance(error, OSError) else None
    if writing and number is not None and meaning_of(number) is ErrorMeaning.LASTS:
        # Our own sync failed after the version was written. So the ledger is read, and the
        # version is synced again.
        return None
    if number is None:
        number = number_in(text)
    meaning = meaning_of(number, text.replace(uri, "") if uri else text)
    if meaning is ErrorMeaning.REFUSED or isinstance(error, PermissionError):
        return AuthError(
            f"{label} cannot be accessed: {text}; nothing was written; check the permissions of "
            "its folder or bucket, the credentials, and whether its file system is read-only",
            store=label,
            got=text,
        )
    if meaning is ErrorMeaning.LASTS or isinstance(error, DeltaProtocolError):
        return PromiseError(
            f"{label} cannot be used, and a retry will not help: {text}; check its disk, its "
            "folder and the features of the table",
            store=label,
            got=text,
        )
    return None
