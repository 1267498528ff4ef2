"""How attempts are named, ordered and compared, alone and in groups."""

from __future__ import annotations

import pickle

import pytest

from txtopo.attempt import GroupAttempt, TransactionAttempt, group_of
from txtopo.errors import TwoHistoriesError

GROUP = GroupAttempt(7, 2, 3, (0, 4))


def test_a_group_names_its_txids_and_their_attempts() -> None:
    assert (GROUP.first_txid, GROUP.txid) == (5, 7)
    assert GROUP.attempts == (0, 4, 2)
    assert str(GROUP) == "5-7:2@3"


def test_an_attempt_at_one_batch_is_its_own_group() -> None:
    alone = TransactionAttempt(7, 2, 3)

    assert (alone.first_txid, alone.attempts, str(alone)) == (7, (2,), "7:2@3")
    assert group_of([alone]) is alone


def test_attempts_at_consecutive_batches_make_a_group() -> None:
    members = [
        TransactionAttempt(5, 0, 3),
        TransactionAttempt(6, 4, 3),
        TransactionAttempt(7, 2, 3),
    ]

    assert group_of(members) == GROUP


@pytest.mark.parametrize(
    "other",
    [
        GroupAttempt(7, 2, 3, (4,)),
        GroupAttempt(7, 2, 3, (1, 4)),
        GroupAttempt(7, 2, 3, (9, 0, 4)),
        GroupAttempt(7, 3, 3, (0, 4)),
        GroupAttempt(7, 2, 4, (0, 4)),
        TransactionAttempt(7, 2, 3),
    ],
)
def test_a_group_equals_only_the_same_attempts_at_the_same_batches(
    other: TransactionAttempt,
) -> None:
    assert other != GROUP
    assert GroupAttempt(7, 2, 3, (0, 4)) == GROUP
    assert len({GROUP, GroupAttempt(7, 2, 3, (0, 4)), other}) == 2


def test_groups_are_ordered_by_epoch_txid_and_attempt_of_the_last() -> None:
    """Within an epoch an attempt at the last txid is later than one at it before, in any group."""
    ordered = [
        GroupAttempt(7, 9, 2, (9, 9)),
        TransactionAttempt(6, 9, 3),
        GroupAttempt(7, 1, 3, (8, 8)),
        GROUP,
        TransactionAttempt(7, 3, 3),
        GroupAttempt(8, 0, 3, (0,)),
        TransactionAttempt(1, 0, 4),
    ]

    for at, attempt in enumerate(ordered):
        assert attempt <= attempt
        assert not attempt < attempt
        assert all(attempt < later and not later <= attempt for later in ordered[at + 1 :])


def test_a_group_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(GROUP)) == GROUP


def test_attempts_of_one_epoch_and_two_terms_are_not_compared() -> None:
    """Neither is older, and the one must not pass for the other."""
    one = TransactionAttempt(7, 2, 3, term="one")
    other = TransactionAttempt(7, 2, 3, term="other")

    assert one != other
    for later in (other, TransactionAttempt(9, 0, 3, term="other")):
        with pytest.raises(TwoHistoriesError, match="7:2@3 of term 'one'") as told:
            assert one < later
        assert (told.value.attempt, told.value.holder) == (one, later)
        with pytest.raises(TwoHistoriesError):
            assert one <= later
    assert one < TransactionAttempt(1, 0, 4, term="other")
    group = group_of([TransactionAttempt(6, 0, 3, term="one"), one])
    assert (group.term, str(group)) == ("one", "6-7:2@3")
