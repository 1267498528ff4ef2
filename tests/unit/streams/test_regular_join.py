"""The join without a bound in time: what it emits, keeps, and refuses."""

from __future__ import annotations

import math
from collections import Counter
from random import Random
from typing import Any

import pytest

from tests.unit.streams.plain_regular_joins import Change, joined, remaining
from tests.unit.streams.regular_txids import Regular, put, taken_back
from tests.unit.streams.txids import second
from txtopo.errors import EmitError
from txtopo.state.transaction import StateTransaction
from txtopo.streams.regular_join import digest_of

HOWS = ["inner", "left", "right", "full"]
each_how = pytest.mark.parametrize("how", HOWS)
ANN, BOB = ("a", "ann"), ("b", "bob")


@each_how
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.rule("txtopo.streams.regular_join", "Rules", 1, 2, 3)
def test_what_was_emitted_and_not_taken_back_is_the_join(seed: int, how: str) -> None:
    """Of few keys and values, so that rows are equal, come again, and lose their last match."""
    chance, join = Random(f"{seed}/{how}"), Regular(how, right="key string, r double, s string")
    live: list[list[Any]] = [[], []]
    for _ in range(6):
        left, right = (changes_of(chance, at, live[at]) for at in (0, 1))
        join.run(left, right)

        sides = [Counter(rows) for rows in live]
        assert +join.live == joined(sides[0], sides[1], how, (1, 2))
        assert all(times >= 0 for times in join.live.values())


def changes_of(chance: Random, at: int, live: list[Any]) -> list[Change]:
    """Return the changes of a side in a txid, in any order, and make them to what is there."""
    found: list[Change] = []
    for _ in range(chance.randrange(5)):
        if live and chance.random() < 0.4:
            found += taken_back(live.pop(chance.randrange(len(live))))
            continue
        key = None if chance.random() < 0.1 else chance.choice("ab")
        others: tuple[Any, ...] = (chance.choice(["x", "y", None]),)
        live.append((key, *((chance.choice([0.5, -0.0, None]),) if at else ()), *others))
        found += put(live[-1])
    chance.shuffle(found)
    return found


@pytest.mark.rule("txtopo.streams.regular_join", "Rules", 2)
def test_a_row_without_a_match_goes_with_its_first_and_comes_with_its_last() -> None:
    join = Regular("left")

    assert join.run(put(ANN)) == put(("a", "ann", None))
    assert join.run((), put(("a", "x"))) == taken_back(("a", "ann", None)) + put(("a", "ann", "x"))
    assert join.run((), put(("a", "y"))) == put(("a", "ann", "y"))
    assert join.run((), taken_back(("a", "x"))) == taken_back(("a", "ann", "x"))
    assert join.run((), taken_back(("a", "y"))) == (
        taken_back(("a", "ann", "y")) + put(("a", "ann", None))
    )


@each_how
@pytest.mark.rule("txtopo.streams.regular_join", "Rules", 2)
def test_null_and_nan_equal_nothing_and_need_no_state(how: str) -> None:
    join = Regular(how, "key double, l string", "key double, r string")
    left, right = [(None, "l"), (math.nan, "l")], [(None, "r"), (math.nan, "r")]

    emitted = join.run(put(*left), put(*right))

    alone = {"inner": 0, "left": 2, "right": 2, "full": 4}[how]
    assert len(emitted) == alone
    assert str(sorted(map(str, join.run(taken_back(*left), taken_back(*right))))) == str(
        sorted(str((row, True)) for row, _ in emitted)
    )
    assert join.held() == {}


@pytest.mark.rule("txtopo.streams.regular_join", "Rules", 3)
def test_what_is_put_and_taken_back_in_a_txid_does_not_count_in_whatever_order() -> None:
    join = Regular("full")
    join.run(put(ANN))

    assert join.run(taken_back(BOB) + put(BOB), taken_back(("a", "x")) + put(("a", "x"))) == []
    assert join.run(taken_back(ANN) + put(("a", "eve")) + put(ANN) + taken_back(("a", "eve"))) == []
    assert join.held() == {("a", "left", '["ann"]'): 1, ("a", "left", None): 1}


@each_how
@pytest.mark.parametrize(
    ("left", "right", "side"),
    [([BOB], [], "left"), ([("a", "eve")], [], "left"), ([], [("a", "x"), ("a", "x")], "right")],
)
@pytest.mark.rule("txtopo.streams.regular_join", "Rules", 3)
def test_a_row_that_is_taken_back_must_be_there(left: Any, right: Any, side: str, how: str) -> None:
    join = Regular(how)
    join.run(put(ANN), put(("a", "x")))

    told = rf"the {side} side of 'join' takes back a row that does not exist; got \{{'key': '"
    with pytest.raises(EmitError, match=told):
        join.run(taken_back(*left), taken_back(*right))


@pytest.mark.rule("txtopo.streams.regular_join", "Rules", 4)
def test_the_state_has_each_distinct_row_once() -> None:
    join = Regular("inner")
    join.run(put(ANN, ANN, BOB), put(("a", "x")))
    join.run(put(ANN), taken_back(("a", "x")))

    assert join.held() == {("a", "left", '["ann"]'): 3, ("b", "left", '["bob"]'): 1}


@pytest.mark.rule("txtopo.streams.regular_join", "Rules", 4)
def test_both_zeros_are_one_value() -> None:
    join = Regular("inner", "key double, l double", "key double, r double")
    join.run(put((-0.0, -0.0)), put((0.0, 0.0)))

    assert join.run(taken_back((0.0, 0.0))) == taken_back((0.0, 0.0, 0.0))
    assert join.held() == {(0.0, "right", "[0.0]"): 1}


def test_digests_do_not_change() -> None:
    """Else a later version would not find the rows of an earlier one."""
    assert digest_of('["ann",7]') == "2b1217f971060d3f85d67fed7608d048"


@pytest.mark.parametrize(("how", "lines"), [("inner", 1), ("left", 1), ("right", 2), ("full", 2)])
@pytest.mark.rule("txtopo.streams.regular_join", "Rules", 5)
def test_a_new_order_reads_its_customer_and_no_other_order(
    how: str, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where customers without orders are in the result, it reads how many orders there are."""
    join, read = Regular(how), Counter[str]()
    join.run(put(*(("a", f"order {number}") for number in range(50))), put(("a", "customer")))
    for name in ("columns_starting", "get_columns"):
        monkeypatch.setattr(StateTransaction, name, counting(getattr(StateTransaction, name), read))

    join.run(put(("a", "another order")))

    assert sum(read.values()) <= lines + (how in ("left", "full"))
    read.clear()
    join.run((), taken_back(("a", "customer")))
    assert sum(read.values()) >= 51


def counting(method: Any, read: Counter[str]) -> Any:
    def counted(self: Any, asked: Any) -> Any:
        found = method(self, asked)
        read[method.__name__] += found.num_rows
        return found

    return counted


@pytest.mark.rule("txtopo.streams.regular_join", "Rules", 5)
def test_only_changed_rows_are_written() -> None:
    join = Regular("full")
    join.run(put(*(("a", f"order {number}") for number in range(5))), put(("a", "x")))
    before = versions(join)

    join.run(taken_back(("a", "order 3")), put(("b", "y")))

    after = versions(join)
    changed = {key for key in before | after if before.get(key) != after.get(key)}
    assert {(key[0], key[1], row) for key, row in changed} == {
        ("a", "left", '["order 3"]'), ("a", "left", None), ("b", "right", '["y"]'),
        ("b", "right", None),
    }  # fmt: skip


def versions(join: Regular) -> dict[Any, Any]:
    """Return the txid of each line that is there."""
    with join.txids._backends["join"].snapshot() as snapshot:
        return {(key, row.current[1]): row.txid for key, row in snapshot.items() if not row.deleted}


@each_how
@pytest.mark.rule("txtopo.streams.regular_join", "Rules", 6)
def test_the_order_of_what_is_emitted_depends_on_the_rows_alone(how: str) -> None:
    chance, found = Random(3), []
    left = [(key, name) for key in ("b", "a", None) for name in ("x", "y", "z")]
    right = [(key, name) for key in (None, "c", "a") for name in ("u", "v")]
    for _ in range(3):
        join, txids = Regular(how), []
        for rows in ((put(*left), put(*right)), (taken_back(*left[1:5]), taken_back(*right[1:]))):
            lefts, rights = (chance.sample(side, len(side)) for side in rows)
            txids.append(join.run(lefts, rights))
        found.append(txids)

    assert found[1:] == found[:-1]
    for emitted in found[0]:
        keys = [
            (row[0] is None, row[0] or "", not retracted) for row, retracted in emitted if row[0]
        ]
        assert keys == sorted(keys)
        assert [row[0] for row, _ in emitted if row[0] is None] == [
            row[0] for row, _ in emitted[len(keys) :]
        ]


def test_a_row_as_often_as_both_sides_have_it() -> None:
    join = Regular()

    assert join.run(put(ANN, ANN), put(("a", "x"), ("a", "x"), ("a", "x"))) == put(
        *[("a", "ann", "x")] * 6
    )
    assert join.run(taken_back(ANN)) == taken_back(*[("a", "ann", "x")] * 3)


def test_a_pair_that_changes_on_both_sides_is_emitted_once() -> None:
    join = Regular()
    join.run(put(ANN), put(("a", "x")))

    emitted = join.run(
        taken_back(ANN) + put(("a", "eve")), taken_back(("a", "x")) + put(("a", "y"))
    )

    assert emitted == taken_back(("a", "ann", "x")) + put(("a", "eve", "y"))


def test_sides_of_keys_alone_and_of_all_types() -> None:
    types = "b boolean, i int, f float, d decimal(10,2), t timestamp, day date, bin binary"
    join = Regular("left", f"key long, {types}", "key long")
    row = (1, True, 3, math.nan, None, None, None, b"\xff")

    join.run(put(row, (2, *[None] * 7)), put((1,), (1,)))
    emitted = join.run(taken_back(row))

    assert len(emitted) == 2
    assert str(emitted[0]) == str((row, True))


def test_keys_of_several_columns_with_other_names_on_the_right() -> None:
    join = Regular(
        "full", "x long, l string, y string", "v string, r string, u long", {"x": "u", "y": "v"}
    )

    emitted = join.run(put((1, "l", "a")), put(("a", "r", 1), ("b", "s", 1)))

    assert join.fields.names == ("x", "l", "y", "r", "retracted")
    assert emitted == put((1, "l", "a", "r"), (1, None, "b", "s"))


def at(minute: float) -> Any:
    return second(60 * minute)


@pytest.mark.rule("txtopo.streams.regular_join", "Rules", 7)
def test_a_row_expires_when_it_was_not_changed_for_so_long_by_planned_time() -> None:
    join = Regular("left", expire_after="10 minutes")
    join.run(put(ANN, BOB), put(("a", "x")), at(0))

    assert join.run((), put(("a", "y")), at(5)) == put(("a", "ann", "y"))
    assert join.run(put(ANN), (), at(9)) == put(("a", "ann", "x"), ("a", "ann", "y"))
    assert join.run((), (), at(10)) == taken_back(*[("a", "ann", "x")] * 2, ("b", "bob", None))
    assert join.run((), (), at(16)) == (
        taken_back(*[("a", "ann", "y")] * 2) + put(*[("a", "ann", None)] * 2)
    )
    assert join.run((), (), at(19)) == taken_back(*[("a", "ann", None)] * 2)
    assert join.held() == {}
    assert not +join.live


@pytest.mark.rule("txtopo.streams.regular_join", "Rules", 7)
def test_a_row_that_is_taken_back_after_it_expired_changes_nothing() -> None:
    join = Regular("full", expire_after="10 minutes")
    join.run(put(ANN), put(("a", "x")), at(0))
    join.run((), (), at(20))

    assert join.run(taken_back(ANN), put(("a", "y")), at(21)) == put(("a", None, "y"))
    assert join.run(put(ANN), (), at(22)) == (taken_back(("a", None, "y")) + put(("a", "ann", "y")))


@pytest.mark.rule("txtopo.streams.regular_join", "Rules", 7)
def test_with_event_time_a_row_expires_by_the_watermark() -> None:
    fields = "key string, l string, ts timestamp", "key string, r string, at timestamp"
    join = Regular("inner", *fields, expire_after="10 minutes")
    join.run(put(("a", "ann", at(30))), put(("a", "x", at(0)), ("a", "y", at(5))), at(0))

    assert join.run((), (), at(9)) == []
    assert join.run((), (), at(10)) == taken_back(("a", "ann", at(30), "x", at(0)))
    assert join.run((), put(("a", "z", at(2))), at(12)) == []
    assert join.run((), (), at(40)) == taken_back(("a", "ann", at(30), "y", at(5)))
    assert join.held() == {}


@each_how
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.rule("txtopo.streams.regular_join", "Rules", 7)
def test_after_rows_expired_the_result_is_the_join_of_those_that_are_left(
    seed: int, how: str
) -> None:
    chance, join = Random(f"{seed}/{how}"), Regular(how, expire_after="3 minutes")
    seen: list[dict[Any, int]] = [{}, {}]
    there: list[Counter[Any]] = [Counter(), Counter()]
    for minute in range(12):
        batches = []
        for side, last, prefix in zip(there, seen, ("l", "r"), strict=True):
            rows = [(chance.choice("ab"), f"{prefix}{chance.randrange(3)}") for _ in range(2)]
            rows = rows if chance.random() < 0.5 else []
            batches.append(put(*rows))
            side.update(rows)
            last.update(dict.fromkeys(rows, minute))
            for row in [row for row in side if last[row] + 3 <= minute]:
                del side[row]
        join.run(batches[0], batches[1], at(minute))

        assert +join.live == joined(there[0], there[1], how, (1, 1))


def test_a_model_that_is_wrong_would_be_seen() -> None:
    assert remaining(put(ANN, BOB) + taken_back(ANN)) == {BOB: 1}
    assert joined(Counter([ANN]), Counter([("a", "x")]), "full", (1, 1)) == {("a", "ann", "x"): 1}
