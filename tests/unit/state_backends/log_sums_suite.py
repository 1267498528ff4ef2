"""Sums of states in mode ``log``: what does not fit is refused, and no fold goes wrong."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pytest
import sqlalchemy as sa

from tests.unit.state_backends.logs import fold, summed
from txtopo.errors import StoreUnavailable, ValueRefusedError
from txtopo.testing.conformance.driver import StateDriver


class SumsSuite:
    """To be subclassed, with a fixture ``url``: an empty store of the test's own."""

    def test_sums_are_watched_over_folds_and_restarts(self, url: str) -> None:
        state = summed(url, "long")
        store = StateDriver(state)
        half = 2**62
        store.merge(1, [("a", half)])
        store.merge(2, [("b", -half)])  # the bound is reached; the sums are not
        store.merge(3, [("a", half - 1)])

        again = StateDriver(state, epoch=2)
        with pytest.raises(ValueRefusedError):
            again.merge(4, [("a", 1)])
        again.merge(4, [("b", -half)])
        with pytest.raises(ValueRefusedError):
            again.merge(5, [("b", -1)])
        assert again.contents() == {"a": 2**63 - 1, "b": -(2**63)}

    def test_a_sum_is_watched_after_what_made_it_smaller_is_taken_back(self, url: str) -> None:
        """By a redo, or since its transaction failed."""
        state = summed(url, "long")
        store = StateDriver(state)
        store.merge(1, [("a", 2**63 - 1)])
        store.merge(2, [("a", -(2**62))])
        store.merge(2, [("b", 1)], attempt=1)
        with pytest.raises(ValueRefusedError):
            store.merge(3, [("a", 1)])

        store.backend.point = lost
        with pytest.raises(StoreUnavailable):
            store.merge(3, [("a", -(2**62))])
        store.backend.point = lambda step: None
        with pytest.raises(ValueRefusedError):
            store.merge(3, [("a", 1)])
        assert store.contents() == {"a": 2**63 - 1, "b": 1}

    def test_sums_of_decimals_reach_both_ends(self, url: str) -> None:
        store = StateDriver(summed(url, "decimal(38,2)"))
        end = Decimal("9" * 36 + ".99")
        least = end.copy_negate()
        store.merge(1, [("a", end), ("b", least), ("c", end)])

        for key, amount in (("a", "0.01"), ("b", "-0.01")):
            with pytest.raises(ValueRefusedError):
                store.merge(2, [(key, Decimal(amount))])
        store.merge(2, [("c", Decimal("-0.01"))])
        assert store.contents() == {"a": end, "b": least, "c": Decimal("9" * 36 + ".98")}


class LogSumsSuite(SumsSuite):
    """The same for databases: ``url`` is an empty one, or a schema, of the test's own."""

    def test_a_part_whose_sum_does_not_fit_is_not_folded(self, url: str) -> None:
        """The sum of all does."""
        state = summed(url, "long")
        store = StateDriver(state)
        for txid, amount in enumerate((-(2**63), 2**62, 2**62, 2**62, 1), 1):
            store.merge(txid, [("a", amount), ("b", 1)])

        with pytest.raises(sa.exc.DBAPIError):
            fold(state, 2, 4)
        assert store.contents() == {"a": 2**62 + 1, "b": 5}
        assert fold(state, 1, 4) == 2
        assert store.contents() == {"a": 2**62 + 1, "b": 5}

    def test_a_start_adds_up_each_key_only_near_a_limit(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        state = summed(url, "long")
        StateDriver(state).merge(1, [("a", 2**61), ("b", 2**61)])

        with monkeypatch.context() as patch:
            patch.setattr("state_backends.sql.log.LogSums._exact_bounds", None)
            StateDriver(state, epoch=2).merge(2, [("a", 2**61)])
        with pytest.raises(ValueRefusedError, match="a sum of state 'log'"):
            StateDriver(state, epoch=3).merge(3, [("a", 2**62)])

    def test_a_sum_of_floats_beyond_their_range_is_refused_before_it_is_there(
        self, url: str
    ) -> None:
        """PostgreSQL has no infinity for it, MariaDB has 0: every reading would fail, or be odd."""
        store = StateDriver(summed(url, "double"))
        store.merge(1, [("a", 1.7e308), ("b", 1.0)])

        with pytest.raises(ValueRefusedError):
            store.merge(2, [("a", 1.7e308)])
        store.merge(2, [("a", -1.0), ("b", 2.0)])
        assert store.contents() == {"a": 1.7e308, "b": 3.0}

    def test_floats_fit_in_whatever_order_they_are_added_up(self, url: str) -> None:
        """Folds change the order: a part of a sum must not be what no reading can get through."""
        store = StateDriver(summed(url, "double"))
        txid = 0
        for amount in (1.7e308, -1e308, -0.7e308, 1.7e308, -1.7e308):
            with suppress(ValueRefusedError):
                txid = store.merge(txid + 1, [("a", amount), ("b", 1.0)]).txid
            fold(store.state, 2, 3)
            assert store.contents().keys() == {"a", "b"}
        assert fold(store.state, 1, txid) == 2


def lost(step: str) -> None:
    """Lose the store after the rows and the ledger were written, before the commit."""
    if step == "write.before":
        raise StoreUnavailable("lost")
