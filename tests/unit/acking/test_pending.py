"""What spouts wait for ends once: acked, failed, or after one to two timeouts."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.chance import examples
from txtopo.acking import EndedTrees, Ids, PendingTrees, Xors

TIMEOUT_S = 10


class Owner:
    """Begins trees of one edge each, and writes down how they end."""

    def __init__(self, owners: int = 1) -> None:
        self.trees = PendingTrees(owners, self._note)
        self.ends: list[tuple[Any, str]] = []
        self._ids = Ids(1)
        self.told: dict[Any, Xors] = {}

    def begin(self, message: Any, owner: int = 0, now_s: float = 0.0) -> None:
        self.told[message] = Xors(self._ids.draw(1), self._ids.draw(1))
        self.trees.begin(owner, self.told[message], [message], now_s)

    def rotate(self) -> None:
        timed_out = self.trees.rotate()
        self.ends += [(message, "timed out") for message in timed_out.messages]

    def _note(self, completed: EndedTrees, failed: EndedTrees) -> None:
        self.ends += [(message, "acked") for message in completed.messages]
        self.ends += [(message, "failed") for message in failed.messages]


STEPS = st.lists(
    st.tuples(st.sampled_from(["begin", "ack", "fail", "renew", "second"]), st.integers(0, 20)),
    max_size=60,
)


@pytest.mark.rule("txtopo.acking", "Rules", 3)
@examples(100)
@given(STEPS)
def test_each_tree_ends_once_and_times_out_between_one_and_two_timeouts(
    steps: list[tuple[str, int]],
) -> None:
    owner, second = Owner(), 0
    since: dict[int, int] = {}
    for step, number in steps:
        before = len(owner.ends)
        if step == "begin" and number not in owner.told:
            owner.begin(number)
            since[number] = second
        elif step == "second":
            for _ in range(number):
                second += 1
                if second % TIMEOUT_S == 0:
                    owner.rotate()
                pending = {id: at for id, at in since.items() if id not in dict(owner.ends)}
                assert all(second - at < 2 * TIMEOUT_S for at in pending.values())
            for id, how in owner.ends[before:]:
                assert how == "timed out"
                assert second - since[id] >= TIMEOUT_S
        elif number in owner.told:
            told = owner.told[number]
            if step == "ack":
                owner.trees.ack(told)
            elif step == "fail":
                owner.trees.fail(told.roots)
            elif number not in dict(owner.ends):
                owner.trees.renew(told.roots)
                since[number] = second
    for _ in range(2):
        owner.rotate()

    assert Counter(message for message, _ in owner.ends) == Counter(list(owner.told))
    assert len(owner.trees) == 0
    assert owner.trees.by_owner.tolist() == [0]


def test_renewing_what_has_ended_begins_nothing() -> None:
    owner = Owner()
    owner.begin("a")
    owner.trees.ack(owner.told["a"])

    owner.trees.renew(owner.told["a"].roots)

    assert len(owner.trees) == 0


@pytest.mark.parametrize("message", [(1, 2), [1, 2], {"a": 1}, "word", 0])
def test_a_message_id_is_any_object(message: Any) -> None:
    ends: list[Any] = []
    trees = PendingTrees(1, lambda completed, _: ends.extend(completed.messages))
    told = Xors(Ids(1).draw(2), Ids(2).draw(2))

    trees.begin(0, told, [message, message], 0.0)
    trees.ack(told)

    assert ends == [message, message]


def test_each_owner_has_its_own_trees() -> None:
    owner = Owner(2)
    owner.begin("mine", 0)
    owner.begin("theirs", 1)
    assert owner.trees.by_owner.tolist() == [1, 1]

    owner.trees.ack(owner.told["theirs"])

    assert owner.trees.by_owner.tolist() == [1, 0]


@pytest.mark.rule("txtopo.acking", "Rules", 5)
@pytest.mark.parametrize("slots", [1, 2, 3, 7])
def test_a_root_tells_the_slot_of_its_acker(slots: int) -> None:
    for slot in range(slots):
        roots = Ids(slot).draw_roots(1_000, slot, slots)
        assert set((roots % np.uint64(slots)).tolist()) == {slot}
        assert len(set(roots.tolist())) == 1_000


@pytest.mark.row(58)
def test_a_lost_acker_leaves_its_trees_to_the_timeout() -> None:
    owner = Owner()
    owner.begin("a")
    owner.trees.lose_acker()
    owner.trees.ack(owner.told["a"])
    assert owner.ends == []

    owner.rotate()
    owner.rotate()

    assert owner.ends == [("a", "timed out")]


@pytest.mark.integration
def test_a_million_pending_trees_take_at_most_200_bytes_each() -> None:
    trees, ids, count = PendingTrees(1, lambda *_: None), Ids(1), 1_000_000
    for start in range(0, count, 10_000):
        messages = list(range(start, start + 10_000))
        trees.begin(0, Xors(ids.draw(10_000), ids.draw(10_000)), messages, 0.0)

    assert len(trees) == count
    assert trees.nbytes + count * sys.getsizeof(count) <= 200 * count
    assert np.all(trees.by_owner == count)
