"""What an error of Spark's Delta during a merge means: try again, ask the ledger, or stop."""

from __future__ import annotations

import re

from state_backends.delta.failures import Contended
from state_backends.delta.spark_rows import REFUSED
from txtopo.errors import TxtopoError, UnknownOutcomeError, ValueRefusedError

# Names of Delta's exceptions: the words alone also stand in the stack traces of Java.
_CONTENDED = re.compile(
    r"DELTA_(?:CONCURRENT\w*|METADATA_CHANGED|PROTOCOL_CHANGED)"
    r"|io\.delta\.exceptions\.\w+|\b(?:Concurrent(?:Append|Delete\w*|Transaction|Write)"
    r"|MetadataChanged|ProtocolChanged)Exception"
)
_REFUSED = re.compile(re.escape(REFUSED) + r"([^\n\"]*)")
# SQLSTATE class 22: data exceptions, such as a sum that does not fit.
_DATA = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ([^\n]*?) ?SQLSTATE: 22\w{3}")
# Functions of the user's that failed, and raise_error: a frame is computed when it is merged, if
# commit made it of what it got. It would fail for ever, so it is no lost machine.
_USERS = re.compile(
    r"\[([A-Z][A-Z0-9_.]+)\] ([^\n]*?) ?SQLSTATE: (?:38|39|P0)\w{3}"
    r"|api\.python\.PythonException: ([^\n]*)"
)
# What Python raised stands in the last lines of its traceback.
_RAISED = re.compile(r"^(\w[\w.]*(?:Error|Exception): [^\n]*)$", re.M)


def translated_of_spark(error: Exception, place: str) -> TxtopoError:
    """Return the error of txtopo that *error* amounts to; the merge may have been written.

    Args:
        error: What Spark raised.
        place: Which state where, for the message.
    """
    if isinstance(error, TxtopoError):
        return error
    text = str(error)
    refused = _REFUSED.search(text) or _DATA.search(text)
    if refused is not None:
        said = " ".join(part for part in refused.groups() if part)
        return ValueRefusedError(
            f"{place} cannot store a frame exactly; got {said}; expected distinct keys and values "
            "that fit; nothing of its batch was written"
        )
    users = _USERS.search(text)
    if users is not None and "FailedException" not in text:  # which asks for another try
        raised = _RAISED.search(text)
        said = " ".join(part for part in users.groups() if part)[:300]
        return ValueRefusedError(
            f"{place} was given a frame whose plan failed on its rows; got "
            f"{raised.group(1)[:300] if raised else said}; mend what commit does with the frame; "
            "nothing of its batch was written"
        )
    first = _first_lines(text)
    if _CONTENDED.search(text):
        return Contended(f"{place} was changed by another writer: {first}; try again")
    return UnknownOutcomeError(
        f"it is not known whether {place} was written by Spark: {first}; the ledger tells the rest"
    )


def _first_lines(text: str) -> str:
    """Return what failed: the first line of a Java error seen by Python only names the call."""
    lines = text.strip().split("\n")
    of_call = lines[0].startswith("An error occurred while calling")
    return " ".join(lines[: 2 if of_call else 1])[:300]
