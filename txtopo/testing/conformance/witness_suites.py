"""Suites of the witness: a start notices a table that was restored without its ledger.

A suite cannot restore a table of a store that it does not know. So it shows that the ledger names a
row that is there, through all that happens to a state; every claim in every suite compares the two.
They are skipped for a store that tells by itself, in :meth:`Snapshot.flaw`, who changed its rows.

* :class:`WitnessSuite`: of partial aggregates.
* :class:`PutWitnessSuite`: of final values, deleted ones among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from txtopo.plugins.stores import Row, Snapshot, Witness
from txtopo.state import State
from txtopo.state.row_text import RowText
from txtopo.testing.conformance.driver import Drive, StateDriver, StoreFixtures
from txtopo.testing.conformance.rules import Rule, proves


class WitnessSuite(StoreFixtures):
    """The note of a row that was merged."""

    @proves(Rule.WITNESS)
    def test_the_ledger_names_a_row_of_the_last_change(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        store.merge(1, [("a", 1)])
        store.merge(2, [("b", 1), ("c", 1)])

        assert noted_txid(store) == 2
        store.merge(3, [])
        assert noted_txid(store) == 2
        assert noted_txid(drive(counts, epoch=2)) == 2

    @proves(Rule.WITNESS)
    def test_a_redo_names_a_row_of_its_own(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        store.merge(1, [("a", 1)])
        store.merge(2, [("b", 1)])
        store.merge(2, [("c", 1)], attempt=1)

        assert noted_txid(store) == 2
        drive(counts, epoch=2)

    @proves(Rule.WITNESS)
    def test_what_is_undone_is_not_named(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        store.merge(1, [("a", 1)])
        store.merge(2, [("b", 1)])
        store.merge(2, [], attempt=1)

        successor = drive(counts, epoch=2)
        assert successor.contents() == {"a": 1}
        successor.merge(3, [("a", 1)])
        assert noted_txid(successor) == 3

    @proves(Rule.WITNESS)
    def test_a_group_is_named_by_its_last_txid(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        if not store.backend.groups:
            pytest.skip("the store is given no groups: its StateBackend.groups is False")
        store.merge(3, [("a", 1)], first=1)

        assert noted_txid(store) == 3
        drive(counts, epoch=2)


class PutWitnessSuite(StoreFixtures):
    """The note of a row that was put or deleted."""

    @proves(Rule.WITNESS)
    def test_a_txid_that_only_deletes_names_what_is_gone(self, state: State, drive: Drive) -> None:
        store = drive(state)
        store.puts(1, {"a": 1, "b": 1})
        store.puts(2, {"a": None, "never": None})
        assert noted_txid(store) is None

        successor = drive(state, epoch=2)
        successor.puts(3, {})
        assert noted_txid(successor) is None
        assert drive(state, epoch=3).contents() == {"b": 1}

    @proves(Rule.WITNESS)
    def test_of_what_is_put_and_deleted_the_one_is_named(self, state: State, drive: Drive) -> None:
        store = drive(state)
        store.puts(1, {"a": 1, "b": 1})
        store.puts(2, {"a": None, "b": 2})

        assert noted_txid(store) == 2
        drive(state, epoch=2)

    @proves(Rule.WITNESS)
    def test_a_transactional_state_keeps_what_it_names(self, kept: State, drive: Drive) -> None:
        """A redo keeps the rows of the first attempt, and has none of its own."""
        store = drive(kept)
        store.puts(1, {"a": 1})
        store.puts(1, {}, attempt=1)
        store.puts(1, {"another": 1}, attempt=2)

        assert noted_txid(drive(kept, epoch=2)) == 1


def noted_txid(store: StateDriver) -> int | None:
    """Return the txid of the row that the ledger names; None for one that is gone."""
    with store.backend.snapshot() as snapshot:
        if type(snapshot).flaw is not Snapshot.flaw:
            pytest.skip("the store tells by itself who changed its rows: Snapshot.flaw")
        assert snapshot.ledger is not None
        assert snapshot.ledger.witness, "written_by(attempt, witness_of(…)) notes a row"
        witness = Witness.of(snapshot.ledger.witness)
        if not witness.key:
            return snapshot.last_txid()
        key = RowText(store.state.layout()).key_of(witness.key)
        found: Mapping[Any, Row] = snapshot.rows([key])
    row = found.get(key)
    return None if row is None or row.deleted else row.txid
