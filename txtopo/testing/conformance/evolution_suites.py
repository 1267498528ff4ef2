"""Suites of a topology that changes: a state is added, and columns are added.

* :class:`BeginningSuite`: a state may begin after any txid.
* :class:`EvolutionSuite`: a table with rows takes further columns, with their defaults.
"""

from __future__ import annotations

from contextlib import closing

import pytest

from txtopo.errors import LedgerGapError, PromiseError, SchemaDrift, StaleBatchError
from txtopo.plugins.stores import Puts
from txtopo.state import State, open_state
from txtopo.testing.conformance.driver import Drive, StateDriver, StoreFixtures, putting
from txtopo.testing.conformance.rules import Rule, proves
from txtopo.tuples import Fields


class BeginningSuite(StoreFixtures):
    """Claims that name the txid after which a state begins."""

    @proves(Rule.CLAIM)
    def test_a_state_that_is_added_begins_after_the_txid_of_its_claim(self, counts: State) -> None:
        with closing(StateDriver(counts, epoch=3, begins=6)) as store:
            assert store.ledger == store.held()
            assert (store.ledger.txid, store.ledger.writer_epoch) == (6, 0)
            assert store.contents() == {}
            with pytest.raises(LedgerGapError):
                store.merge(8, [("a", 5)])
            with pytest.raises(StaleBatchError):
                store.merge(5, [("a", 5)])
            store.merge(7, [("a", 1)])
            assert store.contents() == {"a": 1}

    @proves(Rule.CLAIM)
    def test_the_beginning_of_a_state_stays_until_its_first_txid(self, counts: State) -> None:
        for epoch in (3, 4):
            with closing(StateDriver(counts, epoch=epoch, begins=6)) as store:
                assert store.held() == store.ledger
        with closing(StateDriver(counts, epoch=5)) as store:
            assert (store.ledger.txid, store.ledger.attempts) == (6, ())
            store.merge(7, [("a", 1)])
        with closing(StateDriver(counts, epoch=6, begins=9)) as store:
            assert store.ledger.txid == 7
            assert store.contents() == {"a": 1}


OLD, NEW = Fields("paid long"), Fields("paid long, refunds long, note string")


class EvolutionSuite(StoreFixtures):
    """Claims of a table that lacks columns; skipped if the store does not add columns."""

    @pytest.fixture
    def old(self, url: str, drive: Drive) -> StateDriver:
        """The state before the change, with a row of txid 1 and of txid 2."""
        store = drive(self.declared(url, "evolving", value=OLD))
        if not store.backend.evolves:
            pytest.skip("the store changes no columns: evolves = False")
        store.puts(1, {"a": 1, "gone": 5})
        store.puts(2, {"a": 2, "b": 3, "gone": None})
        return store

    def _new(self, url: str) -> State:
        defaults = {"refunds": 7, "note": None}
        return open_state(url, "opaque", "evolving", value=NEW, defaults=defaults)

    @proves(Rule.EVOLVES)
    def test_old_rows_get_the_defaults(self, url: str, old: StateDriver) -> None:
        with closing(StateDriver(self._new(url), epoch=2, changes_table=True)) as store:
            assert store.ledger.txid == 2
            assert store.contents() == {"a": _row(2), "b": _row(3)}
            store.run(3, putting({"a": _row(9, 1, "x")}))
            assert store.contents() == {"a": _row(9, 1, "x"), "b": _row(3)}

    @proves(Rule.EVOLVES)
    def test_an_undo_of_what_was_written_before_leaves_the_defaults(
        self, url: str, old: StateDriver
    ) -> None:
        with closing(StateDriver(self._new(url), epoch=2, changes_table=True)) as store:
            store.commit(2, Puts({}))
            assert store.contents() == {"a": _row(1), "gone": _row(5)}

    @proves(Rule.EVOLVES)
    def test_a_claim_that_may_not_change_the_table_changes_nothing(
        self, url: str, old: StateDriver
    ) -> None:
        with pytest.raises(SchemaDrift):
            StateDriver(self._new(url), epoch=2)
        assert old.contents() == {"a": 2, "b": 3}
        old.puts(3, {"b": 4})
        assert old.contents() == {"a": 2, "b": 4}

    @proves(Rule.EVOLVES)
    def test_a_writer_of_before_writes_nothing_after_the_change(
        self, url: str, old: StateDriver
    ) -> None:
        with closing(StateDriver(self._new(url), epoch=2, changes_table=True)) as store:
            with pytest.raises(PromiseError):
                old.puts(3, {"a": 99})
            assert store.contents() == {"a": _row(2), "b": _row(3)}

    @proves(Rule.EVOLVES)
    def test_a_change_is_made_once(self, url: str, old: StateDriver) -> None:
        for epoch in (2, 3):
            with closing(StateDriver(self._new(url), epoch=epoch, changes_table=True)) as store:
                store.run(epoch + 1, putting({"b": _row(epoch, epoch)}))
                assert store.contents() == {"a": _row(2), "b": _row(epoch, epoch)}

    @proves(Rule.EVOLVES)
    def test_what_a_row_means_does_not_change(self, url: str, old: StateDriver) -> None:
        others = (
            open_state(url, "opaque", "evolving", value=Fields("paid string")),
            open_state(url, "opaque", "evolving", key=Fields("other string"), value=OLD),
            open_state(url, "opaque", "evolving", value=Fields("paid long, more long")),
        )
        for other in others:
            with pytest.raises(SchemaDrift):
                StateDriver(other, epoch=2, changes_table=True)
        assert old.contents() == {"a": 2, "b": 3}


def _row(paid: int, refunds: int = 7, note: str | None = None) -> dict[str, object]:
    return {"paid": paid, "refunds": refunds, "note": note}
