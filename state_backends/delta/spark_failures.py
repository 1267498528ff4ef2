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
    first = text.strip().partition("\n")[0][:300]
    if _CONTENDED.search(text):
        return Contended(f"{place} was changed by another writer: {first}; try again")
    return UnknownOutcomeError(
        f"it is not known whether {place} was written by Spark: {first}; the ledger tells the rest"
    )
