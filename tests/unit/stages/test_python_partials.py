"""Partial results that Arrow does not combine: by senders and in the driver, in Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.chance import examples
from tests.unit.stages.running import Row
from tests.unit.stages.test_partials import totals
from txtopo.errors import StateUsageError, ValueRefusedError
from txtopo.stages import partials
from txtopo.state import Aggregate, Count, CountDistinct, First, Last, OwnAggregate, Sum, TopN

FIELDS = "word string, n long, at double"


class Longest(OwnAggregate):
    """The longest words, and how many rows there were."""

    def __init__(self, *fields: str, most: int = 2) -> None:
        super().__init__(*fields)
        self.most = most

    def zero(self) -> dict[str, Any]:
        return {"rows": 0, "words": []}

    def add(self, value: dict[str, Any], *items: Any) -> dict[str, Any]:
        value["rows"] += 1
        value["words"] = self._longest([*value["words"], *(f"{item}" for item in items)])
        return value

    def combine(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        left["rows"] += right["rows"]
        left["words"] = self._longest([*left["words"], *right["words"]])
        return left

    def _longest(self, words: list[str]) -> list[str]:
        return sorted(set(words), key=lambda word: (-len(word), word))[: self.most]


class Rows(OwnAggregate):
    type = "long"

    def zero(self) -> int:
        return 0

    def add(self, value: int) -> int:
        return value + 1

    def combine(self, left: int, right: int) -> int:
        return left + right


class Wrong(Rows):
    def add(self, value: int) -> Any:
        return "text"


ALL: dict[str, Aggregate] = {
    "rows": Count(),
    "first": First("n", order="at"),
    "total": Sum("n"),
    "last": Last("n", order="at"),
    "top": TopN("n", 2, labels=("at",)),
    "own": Longest("n", "at"),
    "none": Rows(),
}


def fold(rows: Sequence[Row]) -> dict[Any, Any]:
    folded: dict[Any, Any] = {}
    for word in {row[0] for row in rows}:
        mine = [(n, at) for w, n, at in rows if w == word]
        known = [n for n, _ in mine if n is not None]
        placed = sorted((at, n) for n, at in mine if n is not None and at is not None)
        top = sorted(
            ([n, at] for n, at in mine if n is not None),
            key=lambda entry: (entry[0], json.dumps(entry[1:])),
        )
        words = sorted({f"{part}" for pair in mine for part in pair}, key=lambda w: (-len(w), w))
        folded[(word,)] = (
            len(mine),
            placed[0][1] if placed else None,
            sum(known) if known else None,
            placed[-1][1] if placed else None,
            top[:-3:-1],
            {"rows": len(mine), "words": words[:2]},
            len(mine),
        )
    return folded


@examples(40)
@given(
    rows=st.lists(
        st.tuples(
            st.none() | st.sampled_from("ab"),
            st.none() | st.integers(-2, 2),
            st.none() | st.sampled_from([0.5, 1.0, 7.25]),
        ),
        max_size=30,
    ),
    tasks=st.integers(1, 4),
    slots=st.integers(1, 3),
    waiting=st.sampled_from([1, 3, 1000]),
)
def test_partials_in_python_are_the_plain_fold(
    rows: list[Row], tasks: int, slots: int, waiting: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partials, "WAITING_ROWS_MAX", waiting)

        found = totals(rows, FIELDS, "word", ALL, tasks=tasks, slots=slots)

    opened = {
        key: (*row[:4], json.loads(row[4]), json.loads(row[5]), row[6])
        for key, row in found.items()
    }
    assert opened == fold(rows)


@pytest.mark.parametrize(("tasks", "slots"), [(1, 1), (4, 1), (4, 3), (7, 2)])
def test_a_count_of_distinct_values_does_not_depend_on_tasks(tasks: int, slots: int) -> None:
    rows = [[f"value {n % 3000}"] for n in range(4000)]

    found = totals(rows, "x string", (), CountDistinct("x"), tasks=tasks, slots=slots)
    whole = CountDistinct("x").folded([(value,) for (value,) in reversed(rows)])
    shown = CountDistinct("x").shown
    assert shown(found[("global",)][0]) == shown(whole[0])


def test_a_value_of_another_type_than_declared_is_told() -> None:
    with pytest.raises(StateUsageError, match=r"wrong type in field 'n'.*got 'text'"):
        totals([[1]], "x long", (), {"n": Wrong()})


@pytest.mark.parametrize("tasks", [1, 2], ids=["in a worker", "in the driver"])
def test_a_value_that_does_not_fit_is_refused(tasks: int) -> None:
    class Product(Rows):
        def add(self, value: int, item: int = 0) -> int:
            return max(value, 1) * item

        def combine(self, left: int, right: int) -> int:
            return left * right

    with pytest.raises(ValueRefusedError, match=r"'total'.*a long holds"):
        totals([[2**40], [2**40]], "x long", (), {"n": Product("x")}, tasks=tasks)


def test_a_number_that_json_does_not_hold_is_refused() -> None:
    with pytest.raises(ValueRefusedError, match=r"'total'.*TopN\('x'\) keeps no nan"):
        totals([[float("nan")]], "x double", (), TopN("x", 2))


@pytest.mark.parametrize("waiting", [1, 1000], ids=["while rows come", "at the end"])
def test_an_own_aggregate_that_raises_fails_its_batch_under_its_name(
    waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Raises(Rows):
        def combine(self, left: int, right: int) -> int:
            raise LookupError("no idea")

    monkeypatch.setattr(partials, "WAITING_ROWS_MAX", waiting)
    with pytest.raises(LookupError, match="no idea") as caught:
        totals([[1]] * 20_001, "x long", (), {"n": Raises()})
    assert "PersistentAggregate 'total'" in "".join(caught.value.__notes__)


def test_an_own_sum_of_floats_does_not_depend_on_slots() -> None:
    class FloatSum(OwnAggregate):
        type = "double"

        def zero(self) -> float:
            return 0.0

        def add(self, value: float, item: float) -> float:
            return value + item

        def combine(self, left: float, right: float) -> float:
            return left + right

    rows = [[x] for x in (1e16, 1.0, -1e16, 1.0, 1.0)]
    sums = {
        totals(rows, "x double", (), {"n": FloatSum("x")}, tasks=5, slots=slots)[("global",)]
        for slots in (1, 2, 3)
    }

    assert len(sums) == 1
