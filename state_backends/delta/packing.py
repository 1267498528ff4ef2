"""How a ledger fits into the one number that a Delta transaction has for a version.

Delta keeps for each application id the version of its last transaction, and refuses a commit that
was prepared before another commit of the same id. The id is ``<topology>/<state>``, never with the
epoch in it, so that a claim fences every predecessor; the version packs (epoch, txid, attempt),
which grow in this order.
"""

from __future__ import annotations

from txtopo.errors import ValueRefusedError
from txtopo.state import Ledger

EPOCH_BITS, TXID_BITS, ATTEMPT_BITS = 18, 33, 12
"""63 bits: 262,143 coordinators, 8,589,934,591 batches, 4,095 attempts at a batch in one epoch."""


def application(topology: str, state: str) -> str:
    """Return the id under which the transactions of a state are kept."""
    return f"{topology}/{state}"


def packed(ledger: Ledger) -> int:
    """Return (epoch, txid, attempt) of a ledger as one number.

    Raises:
        ValueRefusedError: One of them does not fit; the message says which, and what to do.
    """
    for name, value, bits, remedy in (
        ("epoch", ledger.epoch, EPOCH_BITS, "begin with a new table"),
        ("txid", ledger.txid, TXID_BITS, "begin with a new table"),
        ("attempt", ledger.attempt, ATTEMPT_BITS, "start the topology again: attempts begin at 0"),
    ):
        if not 0 <= value < 1 << bits:
            raise ValueRefusedError(
                f"{name} {value} does not fit into the version of a Delta transaction; expected at "
                f"most {(1 << bits) - 1}; nothing was written; {remedy}",
                ledger=ledger,
            )
    return ((ledger.epoch << TXID_BITS) | ledger.txid) << ATTEMPT_BITS | ledger.attempt


def unpacked(version: int) -> tuple[int, int, int]:
    """Return (epoch, txid, attempt) of a transaction's version."""
    attempt = version & ((1 << ATTEMPT_BITS) - 1)
    txid = version >> ATTEMPT_BITS & ((1 << TXID_BITS) - 1)
    return version >> (ATTEMPT_BITS + TXID_BITS), txid, attempt
