"""Each tree ends once, and never as complete while an edge is open."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.chance import examples
from txtopo.reliable.acking import Acker, Column, Ended, RootXors, joined, merged
from txtopo.reliable.anchoring.ids import Ids

ROOT = 9


def roots(*ids: int) -> Column:
    return np.array(ids, dtype=np.uint64)


def xors(root: int, *ids: int) -> RootXors:
    return merged(roots(*([root] * len(ids))), roots(*ids))


def shown(*ended: Ended) -> list[str]:
    return [
        word
        for each in ended
        for word in ["completed"] * len(each.completed) + ["failed"] * len(each.failed)
    ]


def test_check_71_an_ack_before_its_init_ends_the_tree_at_the_init() -> None:
    acker = Acker()

    assert shown(acker.ack(xors(ROOT, 5))) == []
    assert shown(acker.init(xors(ROOT, 5))) == ["completed"]
    assert len(acker) == 0


@pytest.mark.rule("txtopo.reliable.acking", "Rules", 1)
def test_check_71_a_fail_before_its_init_ends_the_tree_at_the_init() -> None:
    acker = Acker()

    assert shown(acker.fail(roots(ROOT))) == []
    assert shown(acker.init(xors(ROOT, 5))) == ["failed"]
    assert shown(acker.ack(xors(ROOT, 5))) == []
    assert shown(acker.fail(roots(ROOT))) == []


@pytest.mark.rule("txtopo.reliable.acking", "Rules", 1)
def test_a_tree_that_is_begun_twice_is_not_complete() -> None:
    acker = Acker()

    assert shown(acker.init(xors(ROOT, 5)), acker.init(xors(ROOT, 5))) == []
    assert shown(acker.ack(xors(ROOT, 5))) == ["completed"]


def test_check_71_a_tuple_that_is_its_own_second_anchor_changes_nothing() -> None:
    """Two edges to one copy, anchored to one input: both ids are in its ack and in the copy's."""
    acker = Acker()
    acker.init(xors(ROOT, 5))

    assert shown(acker.ack(xors(ROOT, 5, 6, 7))) == []
    assert shown(acker.ack(xors(ROOT, 6, 7))) == ["completed"]


def test_a_spout_tuple_that_reaches_no_task_is_complete_at_once() -> None:
    assert shown(Acker().init(RootXors(roots(ROOT), roots(0)))) == ["completed"]


@pytest.mark.rule("txtopo.reliable.acking", "Rules", 2)
def test_a_tree_that_is_complete_and_failed_is_complete() -> None:
    acker = Acker()
    acker.fail(roots(ROOT))
    acker.ack(xors(ROOT, 5))

    assert shown(acker.init(xors(ROOT, 5))) == ["completed"]


@pytest.mark.rule("txtopo.reliable.acking", "Rules", 3)
def test_acks_do_not_make_a_tree_younger_and_resets_do() -> None:
    acker = Acker()
    acker.init(RootXors(roots(1, 2), roots(5, 5)))
    for _ in range(2):
        acker.rotate()
        acker.ack(xors(1, 8))
        acker.reset(roots(2, 2))
    acker.rotate()

    assert shown(acker.ack(xors(2, 5))) == ["completed"]
    assert shown(acker.ack(xors(1, 5))) == []


@pytest.mark.rule("txtopo.reliable.acking", "Rules", 4)
def test_what_comes_after_the_end_of_a_tree_is_forgotten() -> None:
    acker = Acker()
    acker.init(xors(ROOT, 5))
    acker.ack(xors(ROOT, 5))
    acker.ack(xors(ROOT, 6))
    acker.fail(roots(ROOT, 8))
    acker.init(xors(7, 5))
    assert len(acker) == 3

    for _ in range(3):
        acker.rotate()

    assert len(acker) == 0


@dataclass
class Tree:
    """A tree that grows at random: what each of its inputs tells the acker."""

    root: int
    first: list[int]
    acks: list[list[int]] = field(default_factory=list)


@st.composite
def trees(draw: st.DrawFn) -> list[Tree]:
    """Return trees of which some tuples are anchored to several inputs, also of several trees."""
    ids = iter(Ids(draw(st.integers(0, 2**32))).draw(5000).tolist())
    grown = []
    for _ in range(draw(st.integers(1, 4))):
        tree = Tree(next(ids), [next(ids) for _ in range(draw(st.integers(0, 3)))])
        waiting = [[edge] for edge in tree.first]
        while waiting:
            inputs = [waiting.pop() for _ in range(min(len(waiting), draw(st.integers(1, 3))))]
            # A child is anchored to all inputs, perhaps twice to one: it has an id for each anchor.
            anchors = inputs + inputs[: draw(st.integers(0, 1))]
            children = draw(st.integers(0, 2)) if len(tree.acks) < 12 else 0
            acks = [list(each) for each in inputs]
            for _ in range(children):
                made = [next(ids) for _ in anchors]
                for at, id in enumerate(made):
                    acks[at % len(inputs)].append(id)
                waiting.append(made)
            tree.acks += acks
        grown.append(tree)
    return grown


@pytest.mark.integration
@pytest.mark.rule("txtopo.reliable.acking", "Rules", 2)
@examples(200)
@given(trees(), st.randoms(use_true_random=False), st.data())
def test_any_order_ends_each_tree_once_and_never_early(
    grown: list[Tree], chance: object, data: st.DataObject
) -> None:
    acker = Acker()
    messages = [("init", tree.root, tree.first) for tree in grown]
    messages += [("ack", tree.root, ids) for tree in grown for ids in tree.acks]
    open_messages = Counter(root for _, root, _ in messages)
    ended: Counter[int] = Counter()
    order = data.draw(st.permutations(messages))
    while order:
        portion = order[: data.draw(st.integers(1, 3))]
        order = order[len(portion) :]
        for kind in ("init", "ack"):
            told = joined(xors(root, *ids) for k, root, ids in portion if k == kind and ids)
            empty = [root for k, root, ids in portion if k == kind == "init" and not ids]
            told = joined([told, RootXors(roots(*empty), roots(*[0] * len(empty)))])
            for _, root, _ in (each for each in portion if each[0] == kind):
                open_messages[root] -= 1
            done = acker.init(told) if kind == "init" else acker.ack(told)
            for root in done.completed.tolist():
                assert open_messages[root] == 0
                ended[root] += 1
            assert not len(done.failed)

    assert ended == Counter({tree.root: 1 for tree in grown})
    assert len(acker) == 0


@examples(100)
@given(trees(), st.data())
def test_a_tree_with_a_lost_or_failed_message_is_never_complete(
    grown: list[Tree], data: st.DataObject
) -> None:
    acker = Acker()
    messages = [(tree.root, ids) for tree in grown for ids in tree.acks]
    lost = data.draw(st.sampled_from(messages)) if messages else None
    failing = data.draw(st.sampled_from(grown)).root
    ended: Counter[int] = Counter()
    steps = [("init", tree.root, tree.first) for tree in grown]
    steps += [("ack", *message) for message in messages if message is not lost]
    steps.append(("fail", failing, []))
    for kind, root, ids in data.draw(st.permutations(steps)):
        told = xors(root, *ids) if ids else RootXors(roots(root), roots(0))
        if kind == "fail":
            done = acker.fail(roots(root))
        else:
            done = acker.init(told) if kind == "init" else acker.ack(told)
        assert lost is None or lost[0] not in done.completed.tolist()
        ended.update(done.completed.tolist() + done.failed.tolist())

    assert max(ended.values()) == 1
    assert ended[failing] == 1
