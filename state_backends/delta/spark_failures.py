"""What an error of Spark's Delta during a merge means: try again, ask the ledger, or stop."""

from __future__ import annotations

import re

from state_backends.delta.failures import Contended
from state_backends.delta.spark_rows import REFUSED
from txtopo.errors import (
    AuthError,
    PromiseError,
    SchemaDrift,
    TxtopoError,
    UnknownOutcomeError,
    ValueRefusedError,
)
from txtopo.state.disk_errors import Meaning, meaning_of

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
# SQLSTATE class 42: no such table or column, no right to it; 0A: a feature that Spark lacks.
_STATEMENT = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ([^\n]*?) ?SQLSTATE: (42501|(?:42|0A)\w{3})")
# The names of Java's exceptions for files, with what they say.
_FILE = re.compile(
    r"(?:java\.nio\.file\.\w*Exception|java\.io\.\w*Exception|"
    r"org\.apache\.hadoop\.\S*AccessControlException|AmazonS3Exception|\w*S3Exception): [^\n]*"
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
    lasting = _lasting(text, place)
    if lasting is not None:
        return lasting
    return UnknownOutcomeError(
        f"it is not known whether {place} was written by Spark: {first}; the ledger tells the rest"
    )


def _lasting(text: str, place: str) -> PromiseError | None:
    """Return the error for what would fail each time; other failures may be those of machines."""
    statement = _STATEMENT.search(text)
    if statement is not None:
        name, said, state = statement.groups()
        if state == "42501":
            return AuthError(
                f"{place} may not be written by Spark: {name} {said}; check its rights"
            )
        return SchemaDrift(
            f"{place} cannot be merged into by Spark: {name} {said[:300]}; was the table changed "
            "by hand?"
        )
    file = _FILE.search(text)
    meaning = Meaning.PASSES if file is None else meaning_of(None, file.group())
    if file is not None and meaning is Meaning.REFUSED:
        return AuthError(
            f"{place} may not be written by Spark: {file.group()[:300]}; check the rights to its "
            "folder or bucket on all executors"
        )
    if file is not None and meaning is Meaning.LASTS:
        return PromiseError(
            f"{place} cannot be written by Spark, now or later: {file.group()[:300]}; look at its "
            "disk or bucket"
        )
    return None


def _first_lines(text: str) -> str:
    """Return what failed: the first line of a Java error seen by Python only names the call."""
    lines = text.strip().split("\n")
    of_call = lines[0].startswith("An error occurred while calling")
    return " ".join(lines[: 2 if of_call else 1])[:300]
