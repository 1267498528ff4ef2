"""What an attempt may do to a state, by its ledger."""

from __future__ import annotations

from dataclasses import replace

import pytest

from txtopo.attempt import TransactionAttempt
from txtopo.errors import FencedError, ForeignStateError, LedgerGapError, StaleBatchError
from txtopo.state.ledger import RELEASED, Ledger, Standing, claimed, standing

HELD = Ledger("topology", epoch=3, txid=7, writer_epoch=3, attempt=2)


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (TransactionAttempt(8, 0, 3), Standing.APPLY),
        (TransactionAttempt(7, 2, 3), Standing.HELD),
        (TransactionAttempt(7, 3, 3), Standing.REDO),
    ],
)
def test_the_ledger_says_what_to_do(attempt: TransactionAttempt, expected: Standing) -> None:
    assert standing(HELD, attempt) is expected


@pytest.mark.parametrize(
    ("attempt", "error"),
    [
        (TransactionAttempt(7, 1, 3), FencedError),
        (TransactionAttempt(8, 0, 2), FencedError),
        (TransactionAttempt(8, 0, 4), LedgerGapError),
        (TransactionAttempt(6, 9, 3), StaleBatchError),
        (TransactionAttempt(9, 0, 3), LedgerGapError),
    ],
)
@pytest.mark.row(29)
def test_what_comes_too_late_or_too_early_is_refused(
    attempt: TransactionAttempt, error: type[Exception]
) -> None:
    with pytest.raises(error):
        standing(HELD, attempt)


def test_a_new_epoch_counts_its_attempts_from_nought() -> None:
    """(epoch, attempt) is the order: attempt 0 of epoch 4 comes after attempt 2 of epoch 3."""
    taken = claimed(HELD, topology="topology", epoch=4)

    assert (taken.txid, taken.writer) == (7, HELD.writer)
    assert standing(taken, TransactionAttempt(7, 0, 4)) is Standing.REDO


@pytest.mark.row(9, 29)
def test_a_claim_of_an_earlier_epoch_or_another_topology_is_refused() -> None:
    assert claimed(HELD, topology="topology", epoch=3) == HELD
    with pytest.raises(FencedError):
        claimed(HELD, topology="topology", epoch=2)
    with pytest.raises(ForeignStateError):
        claimed(HELD, topology="other", epoch=4)


def test_a_released_state_belongs_to_whoever_claims_it_next_with_a_later_epoch() -> None:
    released = claimed(HELD, topology=RELEASED, epoch=4)

    assert released == replace(HELD, topology=RELEASED, epoch=4)
    assert claimed(released, topology="other", epoch=5) == replace(HELD, topology="other", epoch=5)
    with pytest.raises(FencedError):
        claimed(released, topology="other", epoch=3)


def test_an_unclaimed_state_takes_no_writes() -> None:
    assert claimed(None, topology="topology", epoch=1) == Ledger("topology", 1)
    with pytest.raises(LedgerGapError):
        standing(None, TransactionAttempt(1, 0, 1))
