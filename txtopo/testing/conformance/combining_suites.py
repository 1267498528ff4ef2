"""Suites of aggregates, and random histories that compare a state with plain Python.

* :class:`CombiningSuite`: aggregates in the store are exact up to 64 bits and the digits of its
  decimals, or refused as a whole.
* :class:`PythonCombiningSuite`: aggregates that no store combines: First, Last, TopN,
  CountDistinct, and a user's own.
* :class:`HistorySuite`, :class:`PutHistorySuite`, :class:`PythonHistorySuite`: a
  :class:`RandomHistory` of changed replays, removals, groups, restarts and zombies, checked after
  each step.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from txtopo.errors import PromiseError, ValueRefusedError
from txtopo.state import (
    Aggregate,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    OwnAggregate,
    State,
    StateKind,
    StateTransaction,
    Sum,
    TopN,
)
from txtopo.testing.conformance.driver import (
    Drive,
    StateDriver,
    StoreFixtures,
    adding,
    named,
    stored_rows,
)
from txtopo.testing.conformance.pace import PARTS, Extent
from txtopo.testing.conformance.rules import Rule, exactly, proves
from txtopo.testing.conformance.value_suites import LARGEST, VALUES
from txtopo.tuples import Fields

_TEXTS = ["é", "z", "Z", "a ", "\N{ELEPHANT}", "\ufb00"]

_ORDERED = [kind for kind in VALUES if kind not in ("binary", "boolean")]


class CombiningSuite(StoreFixtures):
    """Count, Sum, Min, Max and Mean are combined with what is stored."""

    @proves(Rule.COMBINE)
    def test_aggregates_meet_what_is_stored(self, url: str, drive: Drive) -> None:
        fields = Fields("n long, total double, low string, high timestamp, cost decimal(38,2)")
        aggregates = (Count(), Sum("x"), Min("x"), Max("x"), Sum("x"))
        state = self.aggregated(url, "every", Fields("key string"), fields, aggregates)
        store = drive(state)
        early, late = (datetime.datetime(y, 1, 1, tzinfo=datetime.UTC) for y in (2013, 2014))
        cost = decimal.Decimal("9.10")

        store.merge(1, [("a", 1, 0.5, "b", early, cost), ("b", 0, None, None, None, None)])
        store.merge(2, [("a", 2, 1.0, "Z", late, -cost * 2), ("b", 1, 2.0, "x", early, cost)])
        store.merge(3, [("a", 0, None, None, None, None)])
        with state.reader() as reader:
            assert reader.get("a") == named(fields, 3, 1.5, "Z", late, -cost)
            assert reader.get("b") == named(fields, 1, 2.0, "x", early, cost)

    @proves(Rule.COMBINE)
    def test_a_mean_is_that_of_all_rows(self, url: str, drive: Drive) -> None:
        """A mean is stored as sum and count, and read as their quotient."""
        columns = [*Mean("x").columns("whole").values(), *Mean("x").columns("digits").values()]
        fields = Fields("n_sum long, n_count long, d_sum decimal(38,2), d_count long")
        key = Fields("key string")
        store = drive(self.aggregated(url, "means", key, fields, tuple(columns)))
        cost = decimal.Decimal("0.10")

        store.merge(1, [("a", 1, 2, cost, 1), ("b", None, 0, None, 0)])
        store.merge(2, [("a", 2**53, 1, cost, 2), ("b", None, 0, cost, 1)])
        with store.state.reader() as reader:
            thirds = (2**53 + 1) / 3
            assert exactly(reader.get("a")["n"]) == exactly(thirds)
            assert reader.get("a")["d"] * 3 == cost * 2 - decimal.Decimal("2E-38")
            assert reader.get("b") == {"n": None, "d": cost}
            table = reader.to_arrow()
        assert table.schema.names == ["key", "n", "d"]
        assert [str(kind) for kind in table.schema.types] == [
            "string",
            "double",
            "decimal128(38, 6)",
        ]
        assert sorted(table.to_pylist(), key=lambda row: row["key"]) == [
            {"key": "a", "n": thirds, "d": decimal.Decimal("0.066667")},
            {"key": "b", "n": None, "d": cost},
        ]

    @proves(Rule.COMBINE)
    def test_nan_is_the_largest_number(self, url: str, drive: Drive) -> None:
        """NaN wins in any order of the values."""
        if "nan" in self.refused:
            pytest.skip("the store refuses NaN")
        fields, extremes = Fields("low double, high double"), (Min("x"), Max("x"))
        store = drive(self.aggregated(url, "x", Fields("k string"), fields, extremes))
        nan = float("nan")

        store.merge(1, [("a", 5.0, 5.0), ("b", nan, nan), ("c", nan, nan)])
        store.merge(2, [("a", nan, nan), ("b", 5.0, 5.0), ("c", nan, nan), ("d", None, None)])
        found = {key: (value["low"], value["high"]) for key, value in store.contents().items()}
        expected = {"a": (5.0, nan), "b": (5.0, nan), "c": (nan, nan), "d": (None, None)}
        assert exactly(found) == exactly(expected)

    @proves(Rule.COMBINE)
    def test_extremes_of_each_type_are_pythons(self, url: str, drive: Drive) -> None:
        """Text is ordered by code points, not by a language. NULL is ignored."""
        ordered = [kind for kind in _ORDERED if self.keeps(kind)]
        names = [f"{end}{at}" for end in ("low", "high") for at in range(len(ordered))]
        types = [*ordered, *ordered]
        fields = Fields(", ".join(map(" ".join, zip(names, types, strict=True))))
        extremes = (*[Min("x")] * len(ordered), *[Max("x")] * len(ordered))
        store = drive(self.aggregated(url, "x", Fields("k string"), fields, extremes))
        values = [[*VALUES[kind], *(_TEXTS if kind == "string" else [])] for kind in ordered]
        nothing = [None] * len(types)

        for txid in range(1, 8):
            row = [column[(txid * 5) % len(column)] for column in values]
            store.merge(txid, [("a", *row, *row), ("null", *nothing)])
        for txid in range(8, 20):
            row = [column[txid % len(column)] for column in values]
            store.merge(txid, [("a", *row, *row)])
        store.merge(20, [("a", *nothing), ("null", *row, *nothing[: len(ordered)])])
        low, high = [min(column) for column in values], [max(column) for column in values]
        empty = nothing[: len(ordered)]
        expected = {"a": named(fields, *low, *high), "null": named(fields, *row, *empty)}
        assert exactly(store.contents()) == exactly(expected)

    @proves(Rule.COMBINE)
    def test_a_sum_is_exact_up_to_the_ends(self, url: str, drive: Drive) -> None:
        fields = Fields("total long, digits decimal(38,0), cents decimal(38,2)")
        sums = (Sum("x"), Sum("x"), Sum("x"))
        store = drive(self.aggregated(url, "sums", Fields("k string"), fields, sums))
        cents = decimal.Decimal("0.01")
        nines = 10**self.decimal_digits - 1
        most, least = decimal.Decimal(nines), decimal.Decimal(-nines)

        store.merge(
            1,
            [
                ("up", LARGEST - 1, decimal.Decimal(nines - 1), cents),
                ("down", -LARGEST, least, -cents),
            ],
        )
        store.merge(2, [("up", 1, decimal.Decimal(1), cents), ("down", -1, None, cents)])
        assert exactly(store.contents()) == exactly(
            {
                "up": named(fields, LARGEST, most, cents * 2),
                "down": named(fields, -LARGEST - 1, least, decimal.Decimal("0.00")),
            }
        )
        store.merge(3, [("up", -LARGEST, least, -cents), ("down", LARGEST, most, None)])
        assert exactly(store.contents()["up"]) == exactly(
            named(fields, 0, decimal.Decimal(0), cents)
        )

    @proves(Rule.EXACT)
    def test_a_sum_beyond_a_long_is_refused_whole(self, url: str, drive: Drive) -> None:
        store = drive(self._sums(url, "long"))
        before = {"up": LARGEST, "down": -LARGEST, "b": 1}
        store.merge(1, list(before.items()))

        for beyond in (2, 3, 1000, LARGEST):
            for key, amount in (("up", beyond - 1), ("down", -beyond)):
                with pytest.raises(ValueRefusedError):
                    store.merge(2, [(key, amount), ("b", 1), ("new", 1)])
                assert store.contents() == before
        _goes_on(store)

    @proves(Rule.EXACT)
    def test_a_sum_beyond_the_digits_of_decimals_is_refused_whole(
        self, url: str, drive: Drive
    ) -> None:
        store = drive(self._sums(url, "decimal(38,0)"))
        one = decimal.Decimal(1)
        nines = 10**self.decimal_digits - 1
        before = {"up": decimal.Decimal(nines), "down": decimal.Decimal(-nines), "b": one}
        store.merge(1, list(before.items()))

        for key, amount in (("up", one), ("down", -one), ("up", before["up"])):
            with pytest.raises(ValueRefusedError):
                store.merge(2, [(key, amount), ("b", one)])
            assert store.contents() == before
        _goes_on(store)

    @proves(Rule.COMBINE)
    def test_a_sum_of_floats_is_that_of_python(self, url: str, drive: Drive) -> None:
        store = drive(self._sums(url, "double"))
        expected = 0.0

        for txid, amount in enumerate((0.1, 0.2, 1e16, -1e16, 5e-324, -0.3), 1):
            store.merge(txid, [("a", amount)])
            expected += amount
        assert store.contents() == {"a": expected}

    @pytest.mark.parametrize("kind", ["double", "float"])
    @proves(Rule.EXACT)
    def test_a_sum_that_is_no_number_is_kept_or_refused(
        self, url: str, drive: Drive, kind: str
    ) -> None:
        """The sum of both infinities is never stored with one of them left out."""
        if "infinity" in self.refused:
            pytest.skip("the store refuses infinity, so no sum of two is NaN")
        store = drive(self._sums(url, kind))
        store.merge(1, [("a", math.inf), ("b", 1.0), ("c", None)])

        if "nan" in self.refused:
            with pytest.raises(ValueRefusedError):
                store.merge(2, [("a", -math.inf), ("b", 2.0)])
            assert store.contents() == {"a": math.inf, "b": 1.0, "c": None}
        else:
            store.merge(2, [("a", -math.inf), ("b", 2.0)])
            expected = {"a": math.nan, "b": 3.0, "c": None}
            assert exactly(store.contents()) == exactly(expected)
        store.merge(2, [("a", None), ("c", -math.inf)], attempt=1)
        assert store.contents() == {"a": math.inf, "b": 1.0, "c": -math.inf}

    def _sums(self, url: str, kind: str) -> Any:
        fields = Fields("key string"), Fields(f"total {kind}")
        return self.aggregated(url, "sums", *fields, (Sum("x"),))


def _goes_on(store: StateDriver) -> None:
    held = store.held()
    assert held is not None
    assert held.txid == 1
    assert store.merge(2, [("b", 1)]).txid == 2
    assert store.contents()["b"] == 2


_PRIME = 1_000_003

_ALL: dict[str, tuple[str, Aggregate]] = {
    "n": ("long", Count()),
    "first": ("string", First("x", order="at")),
    "last": ("string", Last("x", order="at")),
    "top": ("json", TopN("x", 3)),
    "most": ("long", Max("x")),
}


class Product(OwnAggregate):
    """A product, which reveals a value that is used twice or left out."""

    type = "long"

    def zero(self) -> int:
        """Return the empty product."""
        return 1

    def add(self, value: int, item: int) -> int:
        """Multiply the product by one more value."""
        return value * item

    def combine(self, left: int, right: int) -> int:
        """Multiply both products."""
        return left * right


class Remainder(Product):
    """A product modulo a prime, which stays small."""

    def combine(self, left: int, right: int) -> int:
        """Multiply both products."""
        return left * right % _PRIME


class PythonCombiningSuite(StoreFixtures):
    """Stored values are read, combined in Python and written, in the transaction of the txid."""

    @proves(Rule.COMBINE)
    def test_what_combines_in_python_meets_what_is_stored(self, url: str, drive: Drive) -> None:
        store = drive(self._every(url))

        store.merge(1, [("a", 2, "one", "two", "[7,5]", 1), ("b", 1, None, None, "[]", None)])
        store.merge(2, [("a", 3, "3", "4", "[9,6,1]", 5), ("b", 0, "x", "x", "[1]", 0)])
        store.merge(3, [("a", 0, None, None, "[]", None), ("c", 1, "c", "c", "[2]", 2)])
        assert store.contents() == {
            "a": _all_named(5, "one", "4", [9, 7, 6], 5),
            "b": _all_named(1, "x", "x", [1], 0),
            "c": _all_named(1, "c", "c", [2], 2),
        }

    @proves(Rule.UNDO)
    def test_a_replay_is_combined_with_what_was_before_it(self, url: str, drive: Drive) -> None:
        store = drive(self._every(url))
        store.merge(1, [("a", 1, "a", "a", "[5]", 5)])
        before = store.contents()

        store.merge(2, [("a", 1, "b", "b", "[9]", 9), ("new", 1, "n", "n", "[1]", 1)])
        store.merge(2, [("a", 1, "c", "c", "[7]", 7), ("other", 1, "o", "o", "[2]", 2)], 1)
        again = {"a": _all_named(2, "a", "c", [7, 5], 7), "other": _all_named(1, "o", "o", [2], 2)}
        assert store.contents() == again
        store.merge(2, [], 2)
        assert store.contents() == before

    @proves(Rule.KEPT)
    def test_a_transactional_replay_is_not_combined_again(self, url: str, drive: Drive) -> None:
        """Combined twice, one of the values would be too large; that must not be an error."""
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
    def test_many_keys_are_combined(self, url: str, drive: Drive, extent: Extent) -> None:
        """Some stores need several queries to read them."""
        store = drive(self._product(url, Product("x")))
        keys = [f"key {at}" for at in range(extent.many)]

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


class RandomHistorySuite(StoreFixtures):
    """What the suites of random histories have in common."""

    def play(self, state: State, drive: Drive, commit: Commit, seeds: Sequence[int]) -> None:
        """Play a history for each seed, one after the other in one state; fail if any is wrong."""
        if not seeds:
            pytest.skip("the other parts have all the histories that are wanted of this store")
        store, contents = drive(state), Contents()
        for at, seed in enumerate(seeds):
            history = RandomHistory(store, drive, seed, contents, fenced=self.fenced)
            history.run(1 + at * TXIDS, commit)
            store, contents = history.store, history.contents
        store.close()


def seeds_of(part: int, extent: Extent) -> Sequence[int]:
    """Return the seeds of the histories of one test; each history has its own keys."""
    return range(extent.histories // 2)[part::PARTS]


class PythonHistorySuite(RandomHistorySuite):
    """Random histories of aggregates that Python combines."""

    @pytest.mark.parametrize("part", range(PARTS))
    @proves(Rule.UNDO)
    def test_random_histories_of_an_own_aggregate_end_as_the_oracle_says(
        self, url: str, drive: Drive, extent: Extent, part: int
    ) -> None:
        fields = Fields("key string"), Fields("value long")
        state = self.aggregated(url, "history", *fields, (Remainder("x"),))

        self.play(state, drive, _combining, seeds_of(part, extent))


def _combining(
    store: StateDriver, txids: range, attempt: int, draw: HistoryRandom, before: Contents
) -> tuple[str, Contents]:
    """Commit partial products."""
    batch = {key: draw.randint(2, 9) for key in draw.keys if draw.random() < 0.4}
    store.merge(txids[-1], list(batch.items()), attempt, first=txids[0])
    found = Remainder("x").combine_values
    return f"merge {batch}", before | {key: found(before.get(key), n) for key, n in batch.items()}


def _all_named(*values: Any) -> dict[str, Any]:
    return dict(zip(_ALL, values, strict=True))


TXIDS = 3

Contents = dict[str, int | None]

Commit = Callable[[StateDriver, range, int, "HistoryRandom", Contents], tuple[str, Contents]]
"""A function: (store, txids, attempt, random, contents before) -> (what it did, contents after)."""


class HistoryRandom(random.Random):
    """The random generator of one history, and the keys of this history."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.keys = [f"{letter}{seed}" for letter in "abcde"]


class RandomHistory:
    """A few txids, each with one to three attempts, whose batches differ.

    If the store supports groups, some of the txids are committed together.

    Between attempts the coordinator may be deposed: a successor opens the state again and claims
    it, and the old one tries to write once more.

    Args:
        store: The state, opened by the first coordinator.
        drive: Opens it for the next coordinator.
        seed: Seed of the history.
        contents: What the state holds now.
        fenced: Whether a zombie must be refused.

    Attributes:
        store: The state, opened by the last coordinator.
        contents: What the state holds.
    """

    def __init__(
        self, store: StateDriver, drive: Drive, seed: int, contents: Contents, *, fenced: bool
    ) -> None:
        self.store = store
        self.contents = contents
        self._drive = drive
        self._draw = HistoryRandom(seed)
        self._fenced = fenced
        self._steps = [f"history {seed}:"]

    def run(self, txid: int, commit: Commit) -> None:
        """Play the history from *txid* on; fail if the state is not as expected."""
        at, end = txid, txid + TXIDS
        while at < end:
            last = self._draw.randrange(at, end) if self.store.backend.groups else at
            txids, before = range(at, last + 1), self.contents
            for attempt in range(self._draw.choice([1, 1, 2, 3])):
                if self._draw.random() < 0.06:
                    self._take_over(txids, commit)
                step, self.contents = commit(self.store, txids, attempt, self._draw, before)
                self._check(f"{_named(txids)} attempt {attempt}: {step}")
            at = last + 1

    def _take_over(self, txids: range, commit: Commit) -> None:
        old = self.store
        self.store = self._drive(old.state, old.epoch + 1)
        self._check(f"epoch {self.store.epoch} takes over")
        if self._fenced:
            try:
                commit(old, txids, 9, self._draw, self.contents)
                step = f"the commit of {_named(txids)} by epoch {old.epoch} was accepted"
                self._steps.append(step)
            except PromiseError:
                pass
            self._check(f"epoch {old.epoch} was a zombie")
        old.close()

    def _check(self, step: str) -> None:
        self._steps.append(step)
        rows = {key: row.visible() for (key,), row in stored_rows(self.store).items()}
        seen = {key: values[0] for key, values in rows.items() if values is not None}
        assert seen == self.contents, "\n".join(
            [*self._steps, f"expected {self.contents}", f"got      {seen}"]
        )


def _named(txids: range) -> str:
    return f"txid {txids[0]}" if len(txids) == 1 else f"txids {txids[0]} to {txids[-1]}"


def merging(
    store: StateDriver, txids: range, attempt: int, draw: HistoryRandom, before: Contents
) -> tuple[str, Contents]:
    """Commit partial counts."""
    batch = {key: draw.randint(1, 9) for key in draw.keys if draw.random() < 0.4}
    store.merge(txids[-1], list(batch.items()), attempt, first=txids[0])
    return f"merge {batch}", before | {key: (before.get(key) or 0) + n for key, n in batch.items()}


def writing(
    store: StateDriver, txids: range, attempt: int, draw: HistoryRandom, before: Contents
) -> tuple[str, Contents]:
    """Commit random updates, NULLs and removals, some of them of the same key."""
    after = dict(before)
    script: list[tuple[str, str, int]] = [
        (draw.choice(["add", "add", "null", "delete"]), draw.choice(draw.keys), draw.randint(1, 9))
        for _ in range(draw.randint(0, 6))
    ]
    for what, key, amount in script:
        if what == "delete":
            after.pop(key, None)
        else:
            after[key] = None if what == "null" else (after.get(key) or 0) + amount

    def body(steps: Sequence[tuple[str, str, int]], state: StateTransaction) -> Any:
        for what, key, amount in steps:
            if what == "delete":
                state.delete(key)
            elif what == "null":
                state.put(key, None)
            else:
                adding((key, amount))(state)
        return dict(state.items())

    cuts = sorted(draw.randint(0, len(script)) for _ in txids[1:])
    parts = itertools.pairwise([0, *cuts, len(script)])
    bodies = [partial(body, script[start:end]) for start, end in parts]
    seen = store.run_group(txids[-1], bodies, attempt)[-1]
    assert seen == after, f"a transaction sees {seen} after {script} on {before}"
    return f"write {script}, cut at {cuts}", after


class HistorySuite(RandomHistorySuite):
    """Random histories of partial aggregates."""

    @pytest.mark.parametrize("part", range(PARTS))
    @proves(Rule.UNDO)
    def test_random_histories_of_partials_end_as_the_oracle_says(
        self, url: str, drive: Drive, extent: Extent, part: int
    ) -> None:
        self.play(self.counted(url, "history"), drive, merging, seeds_of(part, extent))


class PutHistorySuite(RandomHistorySuite):
    """Random histories of final values."""

    @pytest.mark.parametrize("part", range(PARTS))
    @proves(Rule.UNDO)
    def test_random_histories_of_writes_end_as_the_oracle_says(
        self, url: str, drive: Drive, extent: Extent, part: int
    ) -> None:
        self.play(self.declared(url, "history"), drive, writing, seeds_of(part, extent))
