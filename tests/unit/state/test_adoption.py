"""Where a new coordinator continues, given ledgers and ZooKeeper."""

from __future__ import annotations

from dataclasses import replace

import pytest

from txtopo.attempt import TransactionAttempt
from txtopo.errors import StoreAheadOfCoordinator, StoreBehindCoordinator
from txtopo.state import Ledger
from txtopo.state.reconciliation import Compared, compared

STORED = {5: TransactionAttempt(5, 1, 2)}
GROUP = {txid: TransactionAttempt(txid, txid - 4, 2) for txid in (5, 6, 7)}


def holding(txid: int, attempt: int = 1, writer_epoch: int = 2) -> Ledger:
    return Ledger("topology", 3, txid, writer_epoch, attempt)


@pytest.mark.row(7)
def test_a_txid_that_all_stores_hold_from_the_stored_attempt_is_adopted() -> None:
    assert compared({"a": holding(5), "b": holding(5)}, 5, STORED) == Compared(adopted=5)


@pytest.mark.parametrize("other", [holding(4), holding(5, attempt=0), holding(5, writer_epoch=1)])
@pytest.mark.row(7)
@pytest.mark.rule("txtopo.state.reconciliation", "Adoption", 1)
@pytest.mark.rule("txtopo.runtime.takeover", "Order", 4)
def test_otherwise_it_is_done_again(other: Ledger) -> None:
    """The cut of another attempt may end elsewhere; continuing from there counts twice."""
    assert compared({"a": holding(5), "b": other}, 5, STORED) == Compared(pinned=5)
    assert compared({"b": other}, 5, STORED).adopted is None


def test_without_a_state_nothing_is_adopted() -> None:
    assert compared({}, 5, STORED) == Compared()
    assert compared({"a": holding(4)}, 5, {}) == Compared()
    assert compared({"a": Ledger("topology", 1)}, 1, {}) == Compared()


@pytest.mark.row(8)
def test_a_store_behind_is_an_error_that_names_both() -> None:
    with pytest.raises(StoreBehindCoordinator, match=r"'counts' holds txid 3.* txid 4") as caught:
        compared({"good": holding(5), "counts": holding(3)}, 5, STORED)
    assert (caught.value.ledger_txid, caught.value.committed_txid) == (3, 4)


@pytest.mark.parametrize(("txid", "stored"), [(6, STORED), (5, {})])
@pytest.mark.row(51)
def test_a_store_ahead_is_an_error_that_names_both(
    txid: int, stored: dict[int, TransactionAttempt]
) -> None:
    with pytest.raises(StoreAheadOfCoordinator, match="ZooKeeper") as caught:
        compared({"counts": holding(txid)}, 5, stored)
    assert caught.value.ledger_txid == txid


def grouped(first: int, last: int, **changes: object) -> Ledger:
    attempts = tuple(txid - 4 for txid in range(first, last + 1))
    ledger = Ledger("topology", 3, last, 2, attempts[-1], first_txid=first, attempts=attempts)
    return replace(ledger, **changes)  # type: ignore[arg-type]


def test_a_group_that_all_stores_hold_from_the_stored_attempts_is_adopted() -> None:
    assert compared({"a": grouped(5, 7), "b": grouped(5, 7)}, 5, GROUP) == Compared(adopted=7)
    assert compared({"a": grouped(5, 6)}, 5, GROUP) == Compared(adopted=6)


@pytest.mark.parametrize(
    "other", [holding(4), grouped(5, 7, writer_epoch=1), grouped(5, 7, attempts=(1, 1, 3))]
)
@pytest.mark.rule("txtopo.state.reconciliation", "Adoption", 1)
def test_otherwise_the_group_is_pinned(other: Ledger) -> None:
    """Its bounds stay, wherever its members end now."""
    assert compared({"a": grouped(5, 7), "b": other}, 5, GROUP) == Compared(pinned=7)


def test_a_member_of_another_epoch_was_not_written_with_the_group() -> None:
    stored = {**GROUP, 6: replace(GROUP[6], epoch=3)}
    assert compared({"a": grouped(5, 7)}, 5, stored) == Compared(pinned=7)


@pytest.mark.parametrize(
    ("ledgers", "stored"),
    [
        ([grouped(5, 7), grouped(5, 6)], GROUP),  # groups that end at different txids
        ([grouped(4, 7)], GROUP),  # one that begins before what is committed
        ([grouped(6, 7)], GROUP),  # one that begins later
        ([grouped(5, 7), holding(5)], GROUP),
        ([grouped(5, 7)], {txid: GROUP[txid] for txid in (5, 7)}),  # a member was never stored
        ([grouped(5, 7)], {txid: GROUP[txid] for txid in (5, 6)}),
    ],
)
def test_a_group_that_zookeeper_cannot_explain_is_an_error(
    ledgers: list[Ledger], stored: dict[int, TransactionAttempt]
) -> None:
    with pytest.raises(StoreAheadOfCoordinator, match="ZooKeeper txid 4"):
        compared({str(at): each for at, each in enumerate(ledgers)}, 5, stored)


AROUND = {4: TransactionAttempt(4, 1, 2), 5: TransactionAttempt(5, 1, 2)}
BEGUN = Ledger("topology", 3, 4, first_txid=4)


@pytest.mark.parametrize(
    "held", [BEGUN, holding(4), holding(5), holding(5, attempt=0)], ids=["begun", "4", "5", "other"]
)
def test_a_state_that_was_added_and_lacks_nothing_goes_on(held: Ledger) -> None:
    others = {"old": holding(4), "new": held}

    assert compared(others, 5, AROUND, added=["new"]) == compared(others, 5, AROUND)


@pytest.mark.rule("txtopo.state.reconciliation", "A state that comes back", 2)
def test_a_group_that_a_state_which_was_added_lacks_is_redone_and_not_adopted() -> None:
    assert compared({"old": holding(5), "new": BEGUN}, 5, AROUND, added=["new"]) == Compared(
        pinned=5
    )


@pytest.mark.parametrize(
    "held",
    [
        holding(3),
        holding(4, attempt=0),
        holding(4, writer_epoch=1),
        # A backing map that died in a redo has no writer, but the attempts of before.
        Ledger("topology", 3, 4, first_txid=4, attempts=(1,)),
    ],
)
@pytest.mark.rule("txtopo.state.reconciliation", "A state that comes back", 1)
def test_a_state_that_comes_back_without_what_was_committed_is_refused(held: Ledger) -> None:
    """The number alone does not say so: the others may have the txid from another attempt."""
    with pytest.raises(StoreBehindCoordinator, match=r"'new' was taken out .* comes back") as told:
        compared({"old": holding(4), "new": held}, 5, AROUND, added=["new"])
    assert (told.value.ledger_txid, told.value.committed_txid) == (held.txid, 4)
