"""Where a new coordinator goes on, given ledgers and ZooKeeper."""

from __future__ import annotations

import pytest

from txtopo.attempt import TransactionAttempt
from txtopo.errors import StoreAheadOfCoordinator, StoreBehindCoordinator
from txtopo.state import Ledger
from txtopo.state.ledger import adopts

STORED = TransactionAttempt(5, 1, 2)


def holding(txid: int, attempt: int = 1, writer_epoch: int = 2) -> Ledger:
    return Ledger("topology", 3, txid, writer_epoch, attempt)


@pytest.mark.row(7)
def test_a_txid_that_all_stores_hold_from_the_stored_attempt_is_adopted() -> None:
    assert adopts({"a": holding(5), "b": holding(5)}, current=5, stored=STORED)


@pytest.mark.parametrize("other", [holding(4), holding(5, attempt=0), holding(5, writer_epoch=1)])
@pytest.mark.row(7)
def test_otherwise_it_is_done_again(other: Ledger) -> None:
    """The cut of another attempt may end elsewhere; going on from there counts twice."""
    assert not adopts({"a": holding(5), "b": other}, current=5, stored=STORED)
    assert not adopts({"b": other}, current=5, stored=STORED)


def test_without_a_state_nothing_is_adopted() -> None:
    assert not adopts({}, current=5, stored=STORED)
    assert not adopts({"a": holding(4)}, current=5, stored=None)
    assert not adopts({"a": Ledger("topology", 1)}, current=1, stored=None)


@pytest.mark.row(8)
def test_a_store_behind_is_an_error_that_names_both() -> None:
    with pytest.raises(StoreBehindCoordinator, match=r"'counts' holds txid 3.* txid 4") as caught:
        adopts({"good": holding(5), "counts": holding(3)}, current=5, stored=STORED)
    assert (caught.value.ledger_txid, caught.value.committed_txid) == (3, 4)


@pytest.mark.parametrize(("txid", "stored"), [(6, STORED), (5, None)])
@pytest.mark.row(51)
def test_a_store_ahead_is_an_error_that_names_both(
    txid: int, stored: TransactionAttempt | None
) -> None:
    with pytest.raises(StoreAheadOfCoordinator, match="ZooKeeper") as caught:
        adopts({"counts": holding(txid)}, current=5, stored=stored)
    assert caught.value.ledger_txid == txid
