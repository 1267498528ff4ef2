"""Rows with their txid: Storm's rules for one key."""

from __future__ import annotations

import pytest

from txtopo.errors import StaleBatchError
from txtopo.state.values import Row, first_row

STORED = Row(8, ("v1",), ("v0",), 7)


def test_check_38_reads() -> None:
    assert STORED.visible() == ("v1",)
    assert STORED.before(9) == STORED.before(100) == ("v1",)
    assert STORED.before(8) == ("v0",)
    with pytest.raises(StaleBatchError) as caught:
        STORED.before(7)
    assert caught.value.stored_txid == 8


def test_check_38_updates() -> None:
    again = STORED.undone(8)
    assert again is not None

    same, later = again.after(8, ("v2",)), STORED.after(9, ("v2",))
    assert (same.current, same.previous) == (("v2",), ("v0",))
    assert (later.current, later.previous) == (("v2",), ("v1",))


def test_check_42_the_opaque_value() -> None:
    """Value 4, previous 1, txid 2, partial 2: txid 3 gives 6 and 4, txid 2 again 3 and 1."""
    stored = Row(2, (4,), (1,), 1)

    assert stored.after(3, (4 + 2,)) == Row(3, (6,), (4,), 2)
    base = stored.before(2)
    again = stored.undone(2)
    assert base == (1,)
    assert again is not None
    assert again.after(2, (1 + 2,)) == Row(2, (3,), (1,), 1)


def test_a_row_that_did_not_exist_goes_away() -> None:
    assert first_row(5, (1,)).undone(5) is None
    assert first_row(5, (1,)).before(5) is None


def test_a_row_of_an_earlier_txid_is_not_undone() -> None:
    assert STORED.undone(9) is STORED


def test_null_before_is_a_value() -> None:
    row = first_row(1, (None,)).after(2, (5,))

    assert row.before(2) == (None,)
    assert row.undone(2) == Row(1, (None,), (None,), 1)


def test_a_removal_keeps_what_undo_needs() -> None:
    removed = STORED.after(9, None)

    assert removed.visible() is None
    assert removed.before(9) == ("v1",)
    restored = removed.undone(9)
    assert restored is not None
    assert restored.visible() == ("v1",)


def test_a_row_put_over_a_tombstone_did_not_exist_before() -> None:
    put = STORED.after(9, None).after(10, ("v3",))

    assert put.before(10) is None
    assert put.undone(10) is None
