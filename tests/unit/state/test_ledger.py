"""What an attempt may do to a state, by its ledger."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from txtopo.attempt import CopyAttempt, GroupAttempt, TransactionAttempt
from txtopo.errors import (
    FencedError,
    ForeignEnsembleError,
    ForeignStateError,
    GroupBoundsError,
    LedgerGapError,
    SchemaVersionError,
    StaleBatchError,
)
from txtopo.state.ledger import LEDGER_SCHEMA, RELEASED, Ledger, Standing, claimed, standing
from txtopo.testing.conformance.driver import claim_of, release, whole_ledger

HELD = whole_ledger("topology", epoch=3, txid=7, writer_epoch=3, attempt=2)
CLAIM = claim_of(epoch=3)


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (TransactionAttempt(8, 0, 3), Standing.APPLY),
        (TransactionAttempt(7, 2, 3), Standing.HELD),
        (TransactionAttempt(7, 3, 3), Standing.REDO),
    ],
)
@pytest.mark.rule("txtopo.state.ledger", "Rules", 3)
def test_the_ledger_says_what_to_do(attempt: TransactionAttempt, expected: Standing) -> None:
    assert standing(HELD, attempt, CLAIM) is expected


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
@pytest.mark.rule("txtopo.state.ledger", "Rules", 1, 2, 3)
def test_what_comes_too_late_or_too_early_is_refused(
    attempt: TransactionAttempt, error: type[Exception]
) -> None:
    with pytest.raises(error):
        standing(HELD, attempt, CLAIM)


GROUP = whole_ledger("topology", epoch=3, txid=7, writer_epoch=3, attempt=2, earlier=(0, 4))
"""A ledger that holds the txids 5 to 7 in one write."""


@pytest.mark.parametrize(
    ("ledger", "attempt", "expected"),
    [
        (GROUP, GroupAttempt(7, 2, 3, (0, 4)), Standing.HELD),
        (GROUP, GroupAttempt(7, 2, 3, (0, 5)), Standing.REDO),
        (GROUP, GroupAttempt(7, 3, 3, (0, 4)), Standing.REDO),
        (GROUP, GroupAttempt(9, 0, 3, (0,)), Standing.APPLY),
        (GROUP, TransactionAttempt(8, 0, 3), Standing.APPLY),
        (HELD, GroupAttempt(9, 0, 3, (0,)), Standing.APPLY),
        (HELD, GroupAttempt(12, 5, 3, (1, 2, 3, 4)), Standing.APPLY),
    ],
)
def test_the_ledger_says_what_to_do_with_a_group(
    ledger: Ledger, attempt: TransactionAttempt, expected: Standing
) -> None:
    assert standing(ledger, attempt, CLAIM) is expected


@pytest.mark.parametrize(
    ("ledger", "attempt", "error"),
    [
        (GROUP, GroupAttempt(7, 1, 3, (0, 4)), FencedError),
        (GROUP, GroupAttempt(9, 0, 2, (0,)), FencedError),
        (GROUP, GroupAttempt(9, 0, 4, (0,)), LedgerGapError),
        (GROUP, GroupAttempt(10, 0, 3, (0,)), LedgerGapError),
        (GROUP, GroupAttempt(6, 9, 3, (9,)), StaleBatchError),
        (GROUP, TransactionAttempt(5, 9, 3), StaleBatchError),
        # A part of the group that is held, more than it, and one that only overlaps with it.
        (GROUP, TransactionAttempt(7, 9, 3), GroupBoundsError),
        (GROUP, GroupAttempt(7, 9, 3, (9,)), GroupBoundsError),
        (GROUP, GroupAttempt(7, 9, 3, (9, 9, 9)), GroupBoundsError),
        (GROUP, GroupAttempt(8, 9, 3, (9, 9, 9)), GroupBoundsError),
        (GROUP, GroupAttempt(8, 9, 3, (9,)), GroupBoundsError),
        (GROUP, GroupAttempt(9, 9, 3, (9, 9, 9, 9, 9)), GroupBoundsError),
        (HELD, GroupAttempt(8, 9, 3, (9,)), GroupBoundsError),
        (HELD, GroupAttempt(7, 9, 3, (9,)), GroupBoundsError),
    ],
)
@pytest.mark.rule("txtopo.state.ledger", "Groups", 2)
def test_a_group_that_comes_too_late_or_early_or_with_other_bounds_is_refused(
    ledger: Ledger, attempt: TransactionAttempt, error: type[Exception]
) -> None:
    with pytest.raises(error):
        standing(ledger, attempt, CLAIM)


def test_a_refusal_of_bounds_names_both_groups() -> None:
    with pytest.raises(GroupBoundsError, match=r"txids 6 to 8 meets .* txids 5 to 7") as caught:
        standing(GROUP, GroupAttempt(8, 0, 3, (0, 0)), CLAIM)
    assert caught.value.facts["holder"] == GROUP.writer


@pytest.mark.rule("txtopo.state.ledger", "Groups", 1)
def test_a_ledger_names_the_group_that_wrote_it() -> None:
    attempt = GroupAttempt(9, 6, 3, (5,))
    written = GROUP.written_by(attempt)

    assert written.writer == attempt
    assert (written.first_txid, written.attempts) == (8, (5, 6))
    again = written.written_by(TransactionAttempt(10, 0, 3))
    assert (again.writer, again.first_txid) == (TransactionAttempt(10, 0, 3), 10)
    assert claimed(written, claim_of(epoch=4)).writer == attempt


@pytest.mark.rule("txtopo.state.ledger", "Rules", 4)
def test_a_new_epoch_counts_its_attempts_from_nought() -> None:
    """(epoch, attempt) is the order: attempt 0 of epoch 4 comes after attempt 2 of epoch 3."""
    taken = claimed(HELD, claim_of(epoch=4))

    assert (taken.txid, taken.writer) == (7, HELD.writer)
    assert standing(taken, TransactionAttempt(7, 0, 4)) is Standing.REDO


@pytest.mark.row(9, 29)
@pytest.mark.rule("txtopo.state.ledger", "Two coordinators that know nothing of each other", 1)
@pytest.mark.rule("txtopo.state.ledger", "Rules", 1)
def test_a_claim_of_an_earlier_epoch_or_another_topology_is_refused() -> None:
    assert claimed(HELD, claim_of(epoch=3)) == HELD
    with pytest.raises(FencedError):
        claimed(HELD, claim_of(epoch=2))
    with pytest.raises(ForeignStateError):
        claimed(HELD, claim_of("other", 4))


def test_a_released_state_belongs_to_whoever_claims_it_next_with_a_later_epoch() -> None:
    released = claimed(HELD, release(4))

    assert released == whole_ledger(RELEASED, 4, 7, 3, 2)
    assert claimed(released, claim_of("other", 5)) == whole_ledger("other", 5, 7, 3, 2)
    with pytest.raises(FencedError):
        claimed(released, claim_of("other", 3))


def test_an_unclaimed_state_takes_no_writes() -> None:
    assert claimed(None, claim_of()) == whole_ledger("topology", 1)
    with pytest.raises(LedgerGapError):
        standing(None, TransactionAttempt(1, 0, 1), claim_of())


@pytest.mark.parametrize("txid", [0, 7])
def test_a_second_state_of_the_topology_is_refused_by_name(txid: int) -> None:
    """The first one may have been reached by another URL, which no comparison of texts finds."""
    held = whole_ledger("topology", 3, txid, 3, 2)

    with pytest.raises(ForeignStateError) as caught:
        claimed(held, claim_of(epoch=3, component="other"))
    assert "'component'" in str(caught.value)
    assert "'other'" in str(caught.value)


@pytest.mark.rule("txtopo.state.ledger", "Two coordinators that know nothing of each other", 2)
def test_another_ensemble_is_refused_once_a_txid_is_held() -> None:
    with pytest.raises(ForeignEnsembleError) as caught:
        claimed(HELD, claim_of(epoch=9, ensemble="second"))
    assert caught.value.stored_ensemble == "ensemble"
    assert "'second'" in str(caught.value)


def test_the_error_of_another_ensemble_says_what_a_beginner_has_done() -> None:
    """Most often one of the two was deleted, or a first program was started twice in memory."""
    with pytest.raises(ForeignEnsembleError) as caught:
        claimed(HELD, claim_of(epoch=9, ensemble="second"))
    assert "is not in this ensemble: it was lost, or is elsewhere" in str(caught.value)
    assert "to start over, delete the table of the state" in str(caught.value)
    assert "zookeeper='memory' keeps nothing" in str(caught.value)


@pytest.mark.parametrize("epoch", [1, 3, 5])
@pytest.mark.rule("txtopo.state.ledger", "Two coordinators that know nothing of each other", 2, 3)
def test_another_ensemble_takes_an_empty_state_over_and_the_first_is_refused(epoch: int) -> None:
    """Its epochs count for nothing here: whichever claimed last may write."""
    empty = whole_ledger("topology", 3)
    taken = claimed(empty, claim_of(epoch=epoch, ensemble="second"))

    assert (taken.ensemble, taken.epoch) == ("second", epoch)
    with pytest.raises(ForeignEnsembleError):
        standing(taken, TransactionAttempt(1, 0, 3), CLAIM)


def test_the_attempt_of_another_ensemble_is_not_taken_for_ones_own() -> None:
    """Both count epochs, txids and attempts from the same numbers."""
    with pytest.raises(ForeignEnsembleError):
        standing(HELD, HELD.writer, claim_of(epoch=3, ensemble="second"))
    with pytest.raises(ForeignStateError):
        standing(HELD, HELD.writer, claim_of(epoch=3, component="other"))


@pytest.mark.rule("txtopo.state.ledger", "Two coordinators that know nothing of each other", 4)
def test_a_claim_replaces_what_it_names_and_nothing_else() -> None:
    claim = replace(claim_of(epoch=9, component="new", ensemble="second"), replaces=HELD)

    taken = claimed(HELD, claim)
    assert (taken.owner, taken.ensemble, taken.txid) == (claim.owner, "second", 7)
    assert claimed(taken, claim) == taken
    for other in (replace(HELD, component="third"), replace(HELD, topology="third")):
        with pytest.raises(ForeignStateError):
            claimed(other, claim)
    with pytest.raises(ForeignEnsembleError):
        claimed(replace(taken, ensemble="third"), claim)


def test_a_group_that_is_lost_counts_as_one_txid_from_the_next_claim_on() -> None:
    lost = replace(HELD, writer_epoch=0, attempt=0, first_txid=0, attempts=())

    assert claimed(lost, CLAIM) == replace(lost, epoch=3, first_txid=7, attempts=(0,))


def test_a_ledger_survives_json() -> None:
    group = replace(HELD, first_txid=5, attempts=(0, 3, 2))

    assert Ledger.of(json.loads(json.dumps(asdict(group)))) == group


def test_a_ledger_of_a_newer_schema_is_refused() -> None:
    with pytest.raises(SchemaVersionError, match="upgrade"):
        Ledger.of({**asdict(HELD), "schema": LEDGER_SCHEMA + 1, "unheard_of": 1})


def test_a_claim_replaces_no_writer_that_went_on_meanwhile() -> None:
    """Who takes over from another ensemble has seen what it held; what came since would go."""
    claim = replace(claim_of("new", 9, ensemble="second"), replaces=HELD)

    with pytest.raises(ForeignStateError):
        claimed(HELD.written_by(TransactionAttempt(8, 0, 3)), claim)


def test_a_state_that_was_released_empty_may_be_claimed_by_any_epoch() -> None:
    released = claimed(whole_ledger("topology", 7), release(8))

    assert claimed(released, claim_of("other", 1)) == whole_ledger("other", 1)


BEGINS = replace(CLAIM, begins=7)


@pytest.mark.rule("txtopo.state.ledger", "A state that is added", 1)
def test_a_state_that_is_added_begins_after_the_txid_of_its_claim() -> None:
    """Nothing of the txid is in it, so it has no writer that could be adopted or redone."""
    for empty in (None, claimed(None, claim_of(epoch=2))):
        begun = claimed(empty, BEGINS)
        assert (begun.txid, begun.writer_epoch, begun.attempts) == (7, 0, ())
        assert standing(begun, TransactionAttempt(8, 0, 3), CLAIM) is Standing.APPLY
        with pytest.raises(LedgerGapError):
            standing(begun, TransactionAttempt(9, 0, 3), CLAIM)
        with pytest.raises(StaleBatchError):
            standing(begun, TransactionAttempt(6, 0, 3), CLAIM)
    assert claimed(begun, replace(CLAIM, epoch=4)) == replace(begun, epoch=4)


@pytest.mark.rule("txtopo.state.ledger", "A state that is added", 1)
def test_a_state_that_has_begun_and_taken_nothing_may_begin_later() -> None:
    """It was taken out of the topology before its first txid, and is added again."""
    begun = claimed(None, BEGINS)

    assert claimed(begun, replace(BEGINS, begins=9)) == replace(begun, txid=9, first_txid=9)


def test_a_state_that_holds_a_txid_begins_nowhere_else() -> None:
    assert claimed(HELD, replace(CLAIM, begins=9)) == HELD


def test_a_state_that_another_topology_has_released_is_none_that_is_added() -> None:
    released = claimed(HELD, release(4))

    with pytest.raises(ForeignStateError, match=r"it holds txid 7 of the state's former owner"):
        claimed(released, replace(BEGINS, epoch=5))
    assert claimed(released, claim_of(epoch=5)).txid == 7


COPY = CopyAttempt(0, 0, 3, 7)


@pytest.mark.rule("txtopo.state.ledger", "A state that is a copy", 1, 2)
def test_a_copy_is_at_rest_and_held_by_nobody_at_the_copied_txid() -> None:
    empty = claimed(None, CLAIM)

    assert standing(empty, COPY, CLAIM) is Standing.APPLY
    held = empty.written_by(COPY, "witness")

    assert COPY.txid == 0, "the tag of the rows, which no undo looks for"
    assert (held.txid, held.writer, held.witness) == (7, TransactionAttempt(7), "witness")
    assert held.is_copy
    assert not held.is_empty
    later = replace(BEGINS, begins=9, epoch=4)
    assert claimed(held, later) == replace(held, epoch=4), "it is not moved to another txid"
    assert standing(held, TransactionAttempt(8, 0, 3), CLAIM) is Standing.APPLY


@pytest.mark.rule("txtopo.state.ledger", "A state that is a copy", 3)
def test_only_an_empty_state_or_a_copy_takes_a_copy() -> None:
    held = claimed(None, CLAIM).written_by(COPY)

    assert standing(held, COPY, CLAIM) is Standing.HELD
    assert standing(held, replace(COPY, copied_txid=9), CLAIM) is Standing.APPLY
    for other in (HELD, claimed(None, BEGINS), held.written_by(TransactionAttempt(8, 0, 3))):
        with pytest.raises(StaleBatchError, match="expected a state to which no txid was written"):
            standing(other, COPY, CLAIM)
    with pytest.raises(FencedError):
        standing(replace(held, epoch=4), COPY, CLAIM)
