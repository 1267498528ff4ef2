"""What was restored from a backup is told from what came after it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from txtopo.attempt import GroupAttempt, TransactionAttempt
from txtopo.errors import StoreAheadOfCoordinator, StoreBehindCoordinator, TwoHistoriesError
from txtopo.state import Ledger
from txtopo.state.ledger import RELEASED, Standing, claimed, standing
from txtopo.state.reconciliation import (
    Compared,
    check_claimed_since,
    check_known,
    check_one_moment,
    compared,
)
from txtopo.testing.conformance.driver import claim_of, whole_ledger

HELD = replace(
    whole_ledger("topology", epoch=3, txid=7, writer_epoch=3, attempt=2, earlier=(0,)),
    term="one",
    writer_term="one",
)
"""A state that holds the txids 6 and 7 in one write."""
CLAIM = replace(claim_of(epoch=3), term="one")


def at(txid: int, attempt: int, epoch: int, term: str = "one") -> TransactionAttempt:
    return TransactionAttempt(txid, attempt, epoch, term=term)


@pytest.mark.rule("txtopo.state.ledger", "One epoch, two terms", 1)
def test_a_claim_of_the_same_epoch_but_another_term_is_refused() -> None:
    assert claimed(HELD, CLAIM) == HELD
    with pytest.raises(TwoHistoriesError, match=r"term 'other'.* term 'one'"):
        claimed(HELD, replace(CLAIM, term="other"))
    assert claimed(HELD, replace(CLAIM, epoch=4, term="other")).writer == HELD.writer


@pytest.mark.parametrize("txid", [6, 7, 8])
@pytest.mark.rule("txtopo.state.ledger", "One epoch, two terms", 1)
def test_an_attempt_of_another_term_is_refused_whatever_its_numbers(txid: int) -> None:
    with pytest.raises(TwoHistoriesError, match="term 'other'"):
        standing(HELD, at(txid, 2, 3, "other"), CLAIM)


@pytest.mark.rule("txtopo.state.ledger", "One epoch, two terms", 1)
def test_a_state_does_not_hold_an_attempt_of_another_term() -> None:
    """A later epoch has claimed the state; what it holds was written before."""
    held = replace(HELD, writer_term="other")
    attempt = GroupAttempt(7, 2, 3, (0,), term="one")

    assert standing(HELD, attempt, CLAIM) is Standing.HELD
    with pytest.raises(
        TwoHistoriesError, match=r"6-7:2@3 of term 'one' .* 6-7:2@3 of term 'other'"
    ):
        standing(held, attempt, CLAIM)


def test_a_store_that_has_lost_its_term_is_not_taken_for_another() -> None:
    lost = replace(HELD, term="", writer_epoch=0, writer_term="", attempt=0)

    assert standing(lost, GroupAttempt(7, 2, 3, (0,), term="one"), CLAIM) is Standing.REDO
    check_known({"a": lost}, "topology", "ensemble", {3: "one"})
    assert compared({"a": lost}, 8, {7: at(7, 2, 3)}) == Compared()


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        ({2: "zero"}, "epoch 2 is the newest"),
        ({}, "epoch 0 is the newest"),
        ({2: "zero", 3: "other"}, "that epoch of 'other'"),
        ({2: "zero", 3: "other", 4: "four", 5: "five"}, "that epoch of 'other'"),
        ({2: "zero", 5: "five"}, "epoch 5 is the newest"),
    ],
)
@pytest.mark.row(51)
@pytest.mark.rule("txtopo.state.reconciliation", "A past that was restored", 1)
def test_an_epoch_that_zookeeper_does_not_know_is_an_error(
    terms: dict[int, str], told: str
) -> None:
    with pytest.raises(StoreAheadOfCoordinator, match=rf"'a' .* term 'one'.*{told}"):
        check_known({"empty": None, "a": HELD}, "topology", "ensemble", terms)


@pytest.mark.parametrize(
    "ledger",
    [
        HELD,
        replace(HELD, ensemble="another"),  # the claim says what is wrong
        replace(HELD, topology=RELEASED, epoch=9),
        replace(HELD, topology="another", epoch=9),
        replace(HELD, epoch=1, term="forgotten"),  # older than what is kept
    ],
)
def test_what_zookeeper_knows_or_cannot_know_is_no_error(ledger: Ledger) -> None:
    check_known({"a": ledger}, "topology", "ensemble", {2: "two", 3: "one", 4: "four"})


@pytest.mark.parametrize(
    "committed", [at(7, 2, 3, "other"), at(7, 1, 3), at(7, 2, 2, "zero"), at(7, 0, 4, "four")]
)
@pytest.mark.rule("txtopo.state.reconciliation", "A past that was restored", 2)
@pytest.mark.rule("txtopo.runtime.takeover", "Order", 4)
def test_a_state_that_holds_the_last_txid_of_another_history_is_refused(
    committed: TransactionAttempt,
) -> None:
    """It was restored from a backup, and the txid was committed again since."""
    with pytest.raises(TwoHistoriesError, match=r"'a' holds txid 7 from attempt 7:2@3") as told:
        compared({"a": HELD}, 8, {7: committed})
    assert (told.value.attempt, told.value.holder) == (committed, at(7, 2, 3))


def test_the_last_member_of_a_group_is_what_was_committed() -> None:
    assert compared({"a": HELD}, 8, {7: at(7, 2, 3)}) == Compared()


def test_a_state_that_begins_has_nothing_to_compare() -> None:
    begun = claimed(None, replace(CLAIM, begins=7))
    assert compared({"a": HELD, "new": begun}, 8, {7: at(7, 2, 3)}, added=["new"]) == Compared()
    # So it is if the note is gone by then, since an operator has rewound the txid.
    assert compared({"a": HELD, "new": begun}, 8, {7: at(7, 2, 3)}) == Compared()


@pytest.mark.parametrize("committed", [at(5, 0, 4, "four"), at(5, 0, 3, "other")])
@pytest.mark.rule("txtopo.state.reconciliation", "A past that was restored", 2)
def test_what_is_not_committed_yet_was_written_after_what_is(committed: TransactionAttempt) -> None:
    stored = {5: committed, 6: at(6, 0, 5, "five"), 7: at(7, 0, 5, "five")}
    with pytest.raises(TwoHistoriesError, match="txid 5 was committed by attempt"):
        compared({"a": HELD}, 6, stored)


@pytest.mark.parametrize(
    ("six", "seven"),
    [(at(6, 0, 3), at(7, 1, 3)), (at(6, 0, 2, "zero"), at(7, 2, 3)), (at(6, 0, 3), at(7, 9, 2))],
)
@pytest.mark.rule("txtopo.state.reconciliation", "A past that was restored", 3)
def test_metadata_that_is_older_than_what_a_state_holds_was_set_back(
    six: TransactionAttempt, seven: TransactionAttempt
) -> None:
    with pytest.raises(StoreAheadOfCoordinator, match="which is earlier"):
        compared({"a": HELD}, 6, {6: six, 7: seven})


def test_metadata_of_a_later_attempt_or_of_an_operator_is_done_again() -> None:
    later = {6: at(6, 0, 4, "four"), 7: at(7, 0, 4, "four")}
    of_rebuild = {txid: TransactionAttempt(txid) for txid in (6, 7)}

    assert compared({"a": HELD}, 6, later) == Compared(pinned=7)
    assert compared({"a": HELD}, 6, of_rebuild) == Compared(pinned=7)


@pytest.mark.rule("txtopo.state.reconciliation", "A past that was restored", 4)
def test_a_state_that_was_not_claimed_by_who_planned_its_txid_was_restored() -> None:
    stored = {6: at(6, 0, 4, "four"), 7: at(7, 0, 4, "four")}

    check_claimed_since({"a": replace(HELD, epoch=4, term="four"), "empty": None}, 6, stored)
    check_claimed_since({"a": HELD}, 8, {7: at(7, 0, 4, "four")})  # that is compared
    with pytest.raises(StoreBehindCoordinator, match=r"'a' was claimed by epoch 3 .* epoch 4"):
        check_claimed_since({"a": HELD}, 6, stored)


@pytest.mark.rule("txtopo.state.reconciliation", "A past that was restored", 5)
@pytest.mark.parametrize(
    ("claim", "wrote", "right"),
    [
        (3, 3, True),
        (4, 3, True),
        (3, 2, True),
        (2, 2, False),
        (4, 4, False),
        (3, -3, False),
        (-3, 2, False),
    ],
)
def test_states_that_are_apart_by_a_group_are_of_one_moment(
    claim: int, wrote: int, right: bool
) -> None:
    """The one that lacks the txids 6 and 7 was claimed by epoch *claim*, and written by *wrote*.

    A negative epoch is of another term.
    """
    terms = {-3: "other", 3: "one"}
    behind = replace(
        whole_ledger("topology", epoch=abs(claim), txid=5, writer_epoch=abs(wrote), attempt=0),
        term=terms.get(claim, "some"),
        writer_term=terms.get(wrote, "some"),
    )
    ledgers = {"ahead": HELD, "behind": behind, "empty": None}

    if right:
        check_one_moment(ledgers)
        check_one_moment({**ledgers, "behind": replace(behind, term="", writer_term="")})
    else:
        with pytest.raises(TwoHistoriesError, match=r"'ahead' holds txid 7 .*'behind' holds"):
            check_one_moment(ledgers)
