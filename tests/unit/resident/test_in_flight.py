from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txtopo.resident.in_flight import InFlightCounts

LIVES = st.sampled_from([1, 2])


@given(st.lists(st.tuples(LIVES, LIVES, st.integers(1, 9)), max_size=20), st.data())
def test_reports_in_any_order_leave_nothing_and_never_less(
    envelopes: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """Each envelope is reported by who sent it and by who consumed it, over two connections. A
    spout also sends to its own slot."""
    accounts = InFlightCounts()
    accounts.begin(1)
    accounts.begin(2)
    told = [(what, *each) for each in envelopes for what in ("sent", "consumed")]

    backlog: Counter[int] = Counter()
    for what, sender, receiver, tuples in data.draw(st.permutations(told)):
        if what == "sent":
            backlog[receiver] += accounts.sent(sender, receiver, tuples)
        else:
            backlog[receiver] -= accounts.consumed(sender, receiver, tuples)
        assert backlog[receiver] >= 0
    assert not any(backlog.values())


def test_what_a_lost_life_had_sent_is_taken_for_consumed() -> None:
    accounts = InFlightCounts()
    for life in (1, 2):
        accounts.begin(life)
    accounts.sent(1, 2, 10)
    accounts.consumed(1, 2, 4)

    assert accounts.end(1) == Counter({2: 6})
    assert accounts.consumed(1, 2, 6) == 0


@pytest.mark.rule("txtopo.reliable.carrier", "Rules", 4)
def test_what_is_sent_to_a_lost_life_is_not_told() -> None:
    accounts = InFlightCounts()
    for life in (1, 2):
        accounts.begin(life)

    assert accounts.end(2) == Counter()
    assert accounts.sent(1, 2, 10) == 0


def test_what_a_lost_life_had_sent_to_itself_is_forgotten() -> None:
    accounts = InFlightCounts()
    for life in (1, 2):
        accounts.begin(life)
    accounts.sent(1, 1, 10)

    assert accounts.end(1)[2] == 0
    assert accounts.consumed(1, 1, 10) == 0
