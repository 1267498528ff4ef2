"""Adoption: where a new coordinator goes on, given what stores and ZooKeeper hold.

A crash between the write of the stores and the advance in ZooKeeper leaves a txid that the stores
hold and ZooKeeper does not know as committed. It is taken over as it is only if every ledger holds
it from one attempt and the stored metadata is of that attempt: the cut of another attempt may end
elsewhere, and going on from there would count twice. Otherwise it is undone and redone.

Every ledger is read after it was claimed, so that the predecessor cannot write any more.
"""

from __future__ import annotations

from collections.abc import Mapping

from txtopo.attempt import TransactionAttempt
from txtopo.errors import StoreAheadOfCoordinator, StoreBehindCoordinator
from txtopo.state.ledger import Ledger


def adopts(ledgers: Mapping[str, Ledger], current: int, stored: TransactionAttempt | None) -> bool:
    """Decide whether *current* is committed already and need not be done again.

    Args:
        ledgers: The claimed ledgers by the name of their state; may be empty.
        current: The lowest txid that ZooKeeper does not know as committed.
        stored: The attempt of the metadata that ZooKeeper has for *current*, if any.

    Raises:
        StoreBehindCoordinator: A store lacks txids that were committed.
        StoreAheadOfCoordinator: A store holds txids that ZooKeeper cannot explain.
    """
    for name, ledger in ledgers.items():
        _check(name, ledger, current, stored)
    return bool(ledgers) and all(
        ledger.txid == current and ledger.writer == stored for ledger in ledgers.values()
    )


def _check(name: str, ledger: Ledger, current: int, stored: TransactionAttempt | None) -> None:
    if ledger.txid < current - 1:
        raise StoreBehindCoordinator(
            f"state {name!r} holds txid {ledger.txid}, but ZooKeeper says that txid {current - 1} "
            "is committed; expected the same; was the store restored from a backup, or its table "
            "dropped? bring back the newer data, or call txtopo.operations.rebuild, which takes "
            f"ZooKeeper back to txid {ledger.txid}, and the source with it",
            state=name,
            ledger_txid=ledger.txid,
            committed_txid=current - 1,
        )
    # Metadata is durable before the commit of its txid starts, so a txid that a store holds and
    # ZooKeeper has no metadata for was written under another history.
    if ledger.txid > current or (ledger.txid == current and stored is None):
        raise StoreAheadOfCoordinator(
            f"state {name!r} holds txid {ledger.txid}, but ZooKeeper knows txid {current - 1} as "
            f"committed and {'nothing' if stored is None else 'the metadata'} of txid {current}; "
            "was ZooKeeper's data wiped, or is this another ensemble? point to the right one, or "
            "call txtopo.operations.rebuild, which fits ZooKeeper to the states",
            state=name,
            ledger_txid=ledger.txid,
            committed_txid=current - 1,
        )
