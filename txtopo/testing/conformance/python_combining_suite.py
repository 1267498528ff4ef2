"""Aggregates that no store combines itself: First, Last, TopN, CountDistinct, and a user's own."""

from __future__ import annotations

from typing import Any

import pytest

from txtopo.errors import ValueRefusedError
from txtopo.state import (
    Aggregate,
    Count,
    CountDistinct,
    Fields,
    First,
    Last,
    Max,
    OwnAggregate,
    State,
    StateKind,
    TopN,
)
from txtopo.testing.conformance.assertions import Rule, proves
from txtopo.testing.conformance.driver import StateDriver
from txtopo.testing.conformance.history import Contents, Draw
from txtopo.testing.conformance.history_suite import Histories
from txtopo.testing.conformance.subject import Drive, Subject
from txtopo.testing.conformance.values_suite import LARGEST

_PRIME = 1_000_003
_ALL: dict[str, tuple[str, Aggregate]] = {
    "n": ("long", Count()),
    "first": ("string", First("x", order="at")),
    "last": ("string", Last("x", order="at")),
    "top": ("json", TopN("x", 3)),
    "most": ("long", Max("x")),
}


class Product(OwnAggregate):
    """A product: whatever is taken twice, or left out, shows."""

    type = "long"

    def zero(self) -> int:
        """Return the product of nothing."""
        return 1

    def add(self, value: int, item: int) -> int:
        """Multiply by one more."""
        return value * item

    def combine(self, left: int, right: int) -> int:
        """Multiply both."""
        return left * right


class Remainder(Product):
    """A product that stays small."""

    def combine(self, left: int, right: int) -> int:
        """Multiply both."""
        return left * right % _PRIME


class PythonCombiningSuite(Subject):
    """What is stored is read, combined and written in the transaction of the txid."""

    @proves(Rule.COMBINE)
    def test_what_combines_in_python_meets_what_is_stored(self, url: str, drive: Drive) -> None:
        store = drive(self._every(url))

        store.merge(1, [("a", 2, "one", "two", "[7,5]", 1), ("b", 1, None, None, "[]", None)])
        store.merge(2, [("a", 3, "3", "4", "[9,6,1]", 5), ("b", 0, "x", "x", "[1]", 0)])
        store.merge(3, [("a", 0, None, None, "[]", None), ("c", 1, "c", "c", "[2]", 2)])
        assert store.contents() == {
            "a": _named(5, "one", "4", [9, 7, 6], 5),
            "b": _named(1, "x", "x", [1], 0),
            "c": _named(1, "c", "c", [2], 2),
        }

    @proves(Rule.UNDO)
    def test_a_replay_is_combined_with_what_was_before_it(self, url: str, drive: Drive) -> None:
        store = drive(self._every(url))
        store.merge(1, [("a", 1, "a", "a", "[5]", 5)])
        before = store.contents()

        store.merge(2, [("a", 1, "b", "b", "[9]", 9), ("new", 1, "n", "n", "[1]", 1)])
        store.merge(2, [("a", 1, "c", "c", "[7]", 7), ("other", 1, "o", "o", "[2]", 2)], 1)
        again = {"a": _named(2, "a", "c", [7, 5], 7), "other": _named(1, "o", "o", [2], 2)}
        assert store.contents() == again
        store.merge(2, [], 2)
        assert store.contents() == before

    @proves(Rule.KEPT)
    def test_a_transactional_replay_is_not_combined_again(self, url: str, drive: Drive) -> None:
        """Not even to see whether it would fit: combined twice, one of them is too large."""
        store = drive(self._product(url, Product("x"), kind="transactional"))
        store.merge(1, [("a", 2), ("large", 2**31)])

        for attempt in (0, 1):
            store.merge(2, [("a", 3), ("b", 5), ("large", 2**31)], attempt)
            assert store.contents() == {"a": 6, "b": 5, "large": 2**62}
        store.merge(3, [("a", 7)])
        assert store.contents() == {"a": 42, "b": 5, "large": 2**62}

    @proves(Rule.EXACT)
    def test_a_value_that_does_not_fit_is_refused_whole(self, url: str, drive: Drive) -> None:
        store = drive(self._product(url, Product("x")))
        store.merge(1, [("a", LARGEST), ("b", 2)])

        with pytest.raises(ValueRefusedError):
            store.merge(2, [("a", 2), ("b", 3), ("new", 1)])
        assert store.contents() == {"a": LARGEST, "b": 2}
        store.merge(2, [("a", -1), ("b", 3)])
        assert store.contents() == {"a": -LARGEST, "b": 6}

    @proves(Rule.COMBINE)
    def test_a_sketch_counts_what_both_have_once(self, url: str, drive: Drive) -> None:
        pytest.importorskip("datasketches", reason="CountDistinct needs txtopo[sketches]")
        one = CountDistinct("x")
        state = self.aggregated(url, "seen", Fields("k string"), Fields("n binary"), (one,))
        store = drive(state)

        for txid, values in enumerate((range(10), range(5, 20), range(20)), 1):
            store.merge(txid, [("a", *one.folded([(value,) for value in values]))])
        store.merge(3, [("a", *one.folded([(1,), (100,)]))], 1)
        with state.reader() as reader:
            assert reader.get("a") == 21

    @proves(Rule.COMBINE)
    def test_many_keys_are_combined(self, url: str, drive: Drive) -> None:
        """Reading them takes several questions in some stores."""
        store = drive(self._product(url, Product("x")))
        keys = [f"key {at}" for at in range(self.many)]

        for txid, factor in enumerate((3, 5), 1):
            store.merge(txid, [(key, factor) for key in keys])
        store.merge(3, [(key, 7) for key in keys[::2]])
        assert store.contents() == {key: 15 if at % 2 else 105 for at, key in enumerate(keys)}

    def _every(self, url: str) -> State:
        fields = Fields(", ".join(f"{name} {kind}" for name, (kind, _) in _ALL.items()))
        aggregates = tuple(aggregate for _, aggregate in _ALL.values())
        return self.aggregated(url, "every", Fields("k string"), fields, aggregates)

    def _product(self, url: str, one: Aggregate, kind: StateKind = "opaque") -> State:
        fields = Fields("k string"), Fields("value long")
        return self.aggregated(url, "products", *fields, (one,), kind)


class PythonHistorySuite(Histories):
    """Histories of partials that are combined in Python."""

    @proves(Rule.UNDO)
    def test_random_histories_of_an_own_aggregate_end_as_the_oracle_says(
        self, url: str, drive: Drive
    ) -> None:
        fields = Fields("key string"), Fields("value long")

        def make(table: str) -> State:
            return self.aggregated(url, table, *fields, (Remainder("x"),))

        self.play(url, drive, _combining, make)


def _combining(
    store: StateDriver, txid: int, attempt: int, draw: Draw, before: Contents
) -> tuple[str, Contents]:
    """Commit partial products."""
    batch = {key: draw.randint(2, 9) for key in draw.keys if draw.random() < 0.4}
    store.merge(txid, list(batch.items()), attempt)
    found = Remainder("x").combine_values
    return f"merge {batch}", before | {key: found(before.get(key), n) for key, n in batch.items()}


def _named(*values: Any) -> dict[str, Any]:
    return dict(zip(_ALL, values, strict=True))
