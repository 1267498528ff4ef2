"""Aggregates in the store: exact to the ends of 64 bits and 38 digits, or refused whole."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest

from txtopo.errors import ValueRefusedError
from txtopo.state import Count, Fields, Max, Mean, Min, Sum
from txtopo.testing.conformance.assertions import Rule, proves
from txtopo.testing.conformance.driver import StateDriver
from txtopo.testing.conformance.exactly import exactly
from txtopo.testing.conformance.subject import Drive, Subject
from txtopo.testing.conformance.values_suite import LARGEST, VALUES

NINES = 10**38 - 1
_TEXTS = ["é", "z", "Z", "a ", "\N{ELEPHANT}", "\ufb00"]
_ORDERED = [kind for kind in VALUES if kind not in ("binary", "boolean")]


class CombiningSuite(Subject):
    """Count, Sum, Min and Max meet what is stored."""

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
            assert reader.get("a") == _named(fields, 3, 1.5, "Z", late, -cost)
            assert reader.get("b") == _named(fields, 1, 2.0, "x", early, cost)

    @proves(Rule.COMBINE)
    def test_a_mean_is_that_of_all_rows(self, url: str, drive: Drive) -> None:
        """It is kept as sum and count, and shown as a quotient."""
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

    @proves(Rule.COMBINE)
    def test_nan_is_the_largest_number(self, url: str, drive: Drive) -> None:
        """Whatever comes first, and whoever folds it."""
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
        """Text is ordered by its code points, not by a language; NULL is passed over."""
        names = [f"{end}{at}" for end in ("low", "high") for at in range(len(_ORDERED))]
        types = [*_ORDERED, *_ORDERED]
        fields = Fields(", ".join(map(" ".join, zip(names, types, strict=True))))
        extremes = (*[Min("x")] * len(_ORDERED), *[Max("x")] * len(_ORDERED))
        store = drive(self.aggregated(url, "x", Fields("k string"), fields, extremes))
        values = [[*VALUES[kind], *(_TEXTS if kind == "string" else [])] for kind in _ORDERED]
        nothing = [None] * len(types)

        for txid in range(1, 8):
            row = [column[(txid * 5) % len(column)] for column in values]
            store.merge(txid, [("a", *row, *row), ("null", *nothing)])
        for txid in range(8, 20):
            row = [column[txid % len(column)] for column in values]
            store.merge(txid, [("a", *row, *row)])
        store.merge(20, [("a", *nothing), ("null", *row, *nothing[: len(_ORDERED)])])
        low, high = [min(column) for column in values], [max(column) for column in values]
        empty = nothing[: len(_ORDERED)]
        expected = {"a": _named(fields, *low, *high), "null": _named(fields, *row, *empty)}
        assert exactly(store.contents()) == exactly(expected)

    @proves(Rule.COMBINE)
    def test_a_sum_is_exact_up_to_the_ends(self, url: str, drive: Drive) -> None:
        fields = Fields("total long, digits decimal(38,0), cents decimal(38,2)")
        sums = (Sum("x"), Sum("x"), Sum("x"))
        store = drive(self.aggregated(url, "sums", Fields("k string"), fields, sums))
        cents = decimal.Decimal("0.01")
        most = decimal.Decimal(NINES)
        least = decimal.Decimal(-NINES)

        store.merge(
            1,
            [
                ("up", LARGEST - 1, decimal.Decimal(NINES - 1), cents),
                ("down", -LARGEST, least, -cents),
            ],
        )
        store.merge(2, [("up", 1, decimal.Decimal(1), cents), ("down", -1, None, cents)])
        assert exactly(store.contents()) == exactly(
            {
                "up": _named(fields, LARGEST, most, cents * 2),
                "down": _named(fields, -LARGEST - 1, least, decimal.Decimal("0.00")),
            }
        )
        store.merge(3, [("up", -LARGEST, least, -cents), ("down", LARGEST, most, None)])
        assert exactly(store.contents()["up"]) == exactly(
            _named(fields, 0, decimal.Decimal(0), cents)
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
    def test_a_sum_beyond_38_digits_is_refused_whole(self, url: str, drive: Drive) -> None:
        store = drive(self._sums(url, "decimal(38,0)"))
        one = decimal.Decimal(1)
        before = {"up": decimal.Decimal(NINES), "down": decimal.Decimal(-NINES), "b": one}
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

    def _sums(self, url: str, kind: str) -> Any:
        fields = Fields("key string"), Fields(f"total {kind}")
        return self.aggregated(url, "sums", *fields, (Sum("x"),))


def _goes_on(store: StateDriver) -> None:
    held = store.held()
    assert held is not None
    assert held.txid == 1
    assert store.merge(2, [("b", 1)]).txid == 2
    assert store.contents()["b"] == 2


def _named(fields: Fields, *values: Any) -> dict[str, Any]:
    return dict(zip(fields.names, values, strict=True))
