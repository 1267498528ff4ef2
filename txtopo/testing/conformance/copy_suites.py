"""Suites of copies: a state that is filled with what another one held, as a fork does.

* :class:`CopySuite`: copies of partial aggregates: the ledger, the undo, restarts, what is refused.
* :class:`PutCopySuite`: copies of final values, and a copy in place of another.
"""

from __future__ import annotations

import pytest

from txtopo.attempt import CopyAttempt, TransactionAttempt
from txtopo.errors import FencedError, StaleBatchError
from txtopo.plugins.stores import Ledger, Puts, Writes
from txtopo.state import State, StateKind
from txtopo.state.commit import commit_resolved
from txtopo.testing.conformance.driver import (
    Drive,
    StateDriver,
    StoreFixtures,
    packed,
    partials,
    stored_rows,
)
from txtopo.testing.conformance.rules import Rule, proves

COPIED = 7
"""The txid whose result is copied."""


class CopySuite(StoreFixtures):
    """Copies of partial aggregates, each of them of the state that ``counts`` declares."""

    @proves(Rule.COPY)
    def test_a_copy_is_held_and_nobody_wrote_it(self, counts: State, drive: Drive) -> None:
        store = drive(counts)

        held = copied(store, partials(counts, [("a", 1), ("b", 2)]))

        assert held == store.held()
        assert (held.txid, held.writer) == (COPIED, TransactionAttempt(COPIED))
        assert held.is_copy
        assert not held.is_empty
        assert store.contents() == {"a": 1, "b": 2}
        assert {row.txid for row in stored_rows(store).values()} == {0}

    @proves(Rule.COPY)
    def test_no_undo_reaches_a_copy(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        copied(store, partials(counts, [("a", 1), ("b", 2)]))

        store.merge(COPIED + 1, [("a", 10), ("new", 5)])
        store.merge(COPIED + 1, [("b", 20)], attempt=1)
        assert store.contents() == {"a": 1, "b": 22}
        store.merge(COPIED + 1, [], attempt=2)
        assert store.contents() == {"a": 1, "b": 2}

    @proves(Rule.COPY)
    def test_a_redo_of_the_copied_txid_takes_nothing_back(
        self, counts: State, drive: Drive
    ) -> None:
        store = drive(counts)
        copied(store, partials(counts, [("a", 1)]))

        store.merge(COPIED, [])

        assert store.contents() == {"a": 1}

    @pytest.mark.parametrize("kind", ["opaque", "transactional"])
    @proves(Rule.COPY)
    def test_a_copy_that_is_made_again_counts_once(
        self, url: str, drive: Drive, kind: StateKind
    ) -> None:
        counts = self.counted(url, "copied_again", kind)
        store = drive(counts)
        copied(store, partials(counts, [("a", 1)]))
        later = drive(counts, epoch=2)

        copied(later, partials(counts, [("a", 1)]))

        assert later.contents() == {"a": 1}
        later.merge(COPIED + 1, [("a", 1)])
        assert later.contents() == {"a": 2}

    @pytest.mark.parametrize("txid", [1, COPIED])
    @proves(Rule.COPY)
    def test_an_empty_copy_moves_the_ledger(self, counts: State, drive: Drive, txid: int) -> None:
        store = drive(counts)

        assert copied(store, partials(counts, []), txid).txid == txid
        store.merge(txid + 1, [("a", 1)])
        store.merge(txid + 1, [("a", 2)], attempt=1)
        assert drive(counts, epoch=2).contents() == {"a": 2}

    @proves(Rule.COPY)
    def test_a_state_that_holds_a_txid_of_its_own_takes_no_copy(
        self, counts: State, drive: Drive
    ) -> None:
        store = drive(counts)
        store.merge(1, [("a", 1)])

        with pytest.raises(StaleBatchError, match="copy of txid 7 meets a state that holds txid 1"):
            copied(store, partials(counts, [("a", 5)]))
        assert store.contents() == {"a": 1}

    @pytest.mark.usefixtures("unfenced")
    @proves(Rule.COPY)
    def test_a_deposed_epoch_copies_nothing(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        drive(counts, epoch=2)

        with pytest.raises(FencedError):
            copied(store, partials(counts, [("a", 5)]))


class PutCopySuite(StoreFixtures):
    """Copies of final values, in states of both kinds."""

    @pytest.mark.parametrize("kind", ["opaque", "transactional"])
    @proves(Rule.COPY)
    def test_a_copy_takes_the_place_of_another(
        self, url: str, drive: Drive, kind: StateKind
    ) -> None:
        """As if an earlier call had died before it copied the other states."""
        state = self.declared(url, "copied", kind=kind)
        store = drive(state)
        copied(store, packed({"a": 1, "gone": 2}), COPIED)

        held = copied(drive(state, epoch=2), packed({"a": 5, "b": 6, "gone": None}), COPIED + 3)

        assert held.txid == COPIED + 3
        assert held.is_copy
        again = drive(state, epoch=3)
        assert again.contents() == {"a": 5, "b": 6}
        again.puts(COPIED + 4, {"b": 7, "gone": 8})
        assert again.contents() == {"a": 5, "b": 7, "gone": 8}
        assert drive(state, epoch=4).contents() == {"a": 5, "b": 7, "gone": 8}

    @proves(Rule.COPY)
    def test_values_of_a_copy_come_back_as_they_were(self, state: State, drive: Drive) -> None:
        store = drive(state)
        rows = {("null",): (None,), ("one",): (1,)}
        copied(store, Puts(rows))

        store.puts(COPIED + 1, {"null": 5, "one": None, "new": 1})
        store.puts(COPIED + 1, {}, attempt=1)

        assert store.contents() == {"null": None, "one": 1}


def copied(store: StateDriver, writes: Writes, txid: int = COPIED) -> Ledger:
    """Copy into a state, as a fork does; return its ledger."""
    return commit_resolved(store.backend, CopyAttempt(0, 0, store.epoch, txid), writes)
