"""How a ledger fits into the one number that a Delta transaction has for a version.

Delta keeps for each application id the version of its last transaction, and refuses a commit that
was prepared before another commit of the same id. The id is ``<topology>/<state>``, never with the
epoch in it, so that a claim fences every predecessor; the version packs (epoch, txid, number),
which grow in this order. The number of a claim is 0, and that of an attempt in the claim's epoch
its own plus one: Delta for Spark skips a merge without a word if the table has its version or a
later one, so the first attempt after a claim has to come after it.
"""

from __future__ import annotations

from txtopo.errors import ValueRefusedError
from txtopo.state import Ledger

EPOCH_BITS, TXID_BITS, NUMBER_BITS = 18, 33, 12
"""63 bits: 262,143 coordinators, 8,589,934,591 batches, 4,095 attempts at a batch in one epoch."""


def application(topology: str, state: str) -> str:
    """Return the id under which the transactions of a state are kept."""
    return f"{topology}/{state}"


def packed(ledger: Ledger) -> int:
    """Return a ledger as one number: after a claim (epoch, txid, 0), else (epoch, txid, number).

    Raises:
        ValueRefusedError: One of them does not fit; the message says which, and what to do.
    """
    attempts_max = (1 << NUMBER_BITS) - 2
    for name, value, most, remedy in (
        ("epoch", ledger.epoch, (1 << EPOCH_BITS) - 1, "begin with a new table"),
        ("txid", ledger.txid, (1 << TXID_BITS) - 1, "begin with a new table"),
        ("attempt", ledger.attempt, attempts_max, "start the topology again: attempts begin at 0"),
    ):
        if not 0 <= value <= most:
            raise ValueRefusedError(
                f"{name} {value} does not fit into the version of a Delta transaction; expected at "
                f"most {most}; nothing was written; {remedy}",
                ledger=ledger,
            )
    number = ledger.attempt + 1 if ledger.writer_epoch == ledger.epoch else 0
    return ((ledger.epoch << TXID_BITS) | ledger.txid) << NUMBER_BITS | number


def unpacked(version: int) -> tuple[int, int, int]:
    """Return (epoch, txid, number) of a transaction's version."""
    number = version & ((1 << NUMBER_BITS) - 1)
    txid = version >> NUMBER_BITS & ((1 << TXID_BITS) - 1)
    return version >> (NUMBER_BITS + TXID_BITS), txid, number
