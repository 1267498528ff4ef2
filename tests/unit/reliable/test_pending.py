"""What spouts wait for ends once: acked, failed, or after one to two timeouts."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.chance import examples
from tests.harness.processes import ROOT
from txtopo.reliable.acking import Acker, Ackers, Column, Ended, PendingTrees, RootXors
from txtopo.reliable.anchoring.ids import Ids

TIMEOUT_S = 10


class Owner:
    """Begins trees of one edge each, and writes down how they end."""

    def __init__(self, owners: int = 1) -> None:
        self.trees = PendingTrees(owners)
        self.acker = Acker()
        self.ends: list[tuple[Any, str]] = []
        self._ids = Ids(1)
        self.told: dict[Any, RootXors] = {}

    def begin(self, message: Any, owner: int = 0, now_s: float = 0.0) -> None:
        self.told[message] = RootXors(self._ids.draw(1), self._ids.draw(1))
        self.trees.begin(owner, self.told[message].roots, [message], now_s)
        self._end(self.acker.init(self.told[message]))

    def ack(self, told: RootXors) -> None:
        self._end(self.acker.ack(told))

    def fail(self, roots: Column) -> None:
        self._end(self.acker.fail(roots))

    def renew(self, roots: Column) -> None:
        self.acker.reset(roots)
        self.trees.renew(roots)

    def rotate(self) -> None:
        self.acker.rotate()
        timed_out = self.trees.rotate()
        self.ends += [(message, "timed out") for message in timed_out.messages]

    def _end(self, ended: Ended) -> None:
        for roots, how in ((ended.completed, "acked"), (ended.failed, "failed")):
            self.ends += [(message, how) for message in self.trees.end(roots).messages]


STEPS = st.lists(
    st.tuples(st.sampled_from(["begin", "ack", "fail", "renew", "second"]), st.integers(0, 20)),
    max_size=60,
)


@pytest.mark.rule("txtopo.reliable.acking", "Rules", 3)
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
                owner.ack(told)
            elif step == "fail":
                owner.fail(told.roots)
            elif number not in dict(owner.ends):
                owner.renew(told.roots)
                since[number] = second
    for _ in range(2):
        owner.rotate()

    assert Counter(message for message, _ in owner.ends) == Counter(list(owner.told))
    assert len(owner.trees) == 0
    assert owner.trees.by_owner.tolist() == [0]


def test_renewing_what_has_ended_begins_nothing() -> None:
    owner = Owner()
    owner.begin("a")
    owner.ack(owner.told["a"])

    owner.renew(owner.told["a"].roots)

    assert len(owner.trees) == 0


@pytest.mark.parametrize("message", [(1, 2), [1, 2], {"a": 1}, "word", 0])
def test_a_message_id_is_any_object(message: Any) -> None:
    trees, roots = PendingTrees(1), Ids(1).draw(2)

    trees.begin(0, roots, [message, message], 0.0)

    assert trees.end(roots).messages == [message, message]


def test_each_owner_has_its_own_trees() -> None:
    owner = Owner(2)
    owner.begin("mine", 0)
    owner.begin("theirs", 1)
    assert owner.trees.by_owner.tolist() == [1, 1]

    owner.ack(owner.told["theirs"])

    assert owner.trees.by_owner.tolist() == [1, 0]


@pytest.mark.rule("txtopo.reliable.acking", "Rules", 5)
@pytest.mark.parametrize("wanted", [None, 1, 2, 7])
@pytest.mark.parametrize(("slots", "spout_slots"), [(1, 1), (3, 2), (7, 7)])
def test_a_root_tells_its_spout_its_acker_and_the_slot_of_that(
    slots: int, spout_slots: int, wanted: int | None
) -> None:
    ackers = Ackers(slots, spout_slots, wanted)
    for slot in range(spout_slots):
        roots = Ids(slot).draw_roots(1_000, slot, slots)
        assert len(set(roots.tolist())) == 1_000
        assert set(ackers.spouts_of(roots).tolist()) == {slot}
        numbers, homes = ackers.of(roots).tolist(), ackers.slots_of(roots).tolist()
        # With None those of a slot's spouts are one acker's; otherwise all ackers share them.
        assert set(numbers) == ({slot} if wanted is None else set(range(wanted)))
        for acker, home in set(zip(numbers, homes, strict=True)):
            assert (home, acker in ackers.in_slot(home)) == (ackers.slot_of(acker), True)


@pytest.mark.parametrize("wanted", [None, 0, 1, 5])
def test_each_acker_is_in_one_slot_with_spouts(wanted: int | None) -> None:
    ackers = Ackers(4, 2, wanted)

    placed = [acker for slot in range(4) for acker in ackers.in_slot(slot)]

    assert sorted(placed) == list(range(2 if wanted is None else wanted))
    assert [*ackers.in_slot(2), *ackers.in_slot(3)] == []


@pytest.mark.row(57)
def test_a_lost_acker_leaves_its_trees_to_the_timeout() -> None:
    owner = Owner()
    owner.begin("a")
    owner.acker = Acker()
    owner.ack(owner.told["a"])
    assert owner.ends == []

    owner.rotate()
    owner.rotate()

    assert owner.ends == [("a", "timed out")]


def test_the_page_says_how_many_bytes_a_pending_tree_takes() -> None:
    trees, acker, ids, count = PendingTrees(1), Acker(), Ids(1), 0
    acker_bytes, all_bytes = [], []
    while count < 200_000:
        begun = RootXors(ids.draw(1_000), ids.draw(1_000))
        trees.begin(0, begun.roots, [None] * 1_000, 0.0)
        acker.init(begun)
        count += 1_000
        if count >= 50_000:
            acker_bytes.append(acker.nbytes / count)
            all_bytes.append((acker.nbytes + trees.nbytes) / count)

    page = (ROOT / "docs" / "how-to" / "at-least-once.md").read_text()
    rows = re.findall(
        r"^\| (?:in the acker|with the list).* \| (\d+) to (\d+) \|", page, re.MULTILINE
    )
    measured = [(min(each), max(each)) for each in (acker_bytes, all_bytes)]
    assert [(int(low), int(high)) for low, high in rows] == [
        (round(low), round(high)) for low, high in measured
    ]


@pytest.mark.integration
def test_a_million_pending_trees_take_at_most_200_bytes_each() -> None:
    trees, acker, ids, count = PendingTrees(1), Acker(), Ids(1), 1_000_000
    for start in range(0, count, 10_000):
        messages = list(range(start, start + 10_000))
        begun = RootXors(ids.draw(10_000), ids.draw(10_000))
        trees.begin(0, begun.roots, messages, 0.0)
        acker.init(begun)

    assert (len(trees), len(acker)) == (count, count)
    assert trees.nbytes + acker.nbytes + count * sys.getsizeof(count) <= 200 * count
    assert np.all(trees.by_owner == count)
