"""Undo before redo, with partial aggregates: nothing of an earlier attempt stays."""

from __future__ import annotations

from txtopo.state import State
from txtopo.testing.conformance.assertions import Rule, proves
from txtopo.testing.conformance.driver import whole_ledger
from txtopo.testing.conformance.subject import Drive, Subject


class UndoSuite(Subject):
    """Replays whose batch has changed."""

    @proves(Rule.UNDO)
    def test_a_key_that_a_replay_lacks_is_taken_back(self, counts: State, drive: Drive) -> None:
        """Storm over-counts here: nobody reverts b, and its tuples come again."""
        store = drive(counts)
        store.merge(1, [("a", 1), ("b", 1)])
        store.merge(2, [("a", 1), ("b", 1), ("new", 1)])

        store.merge(2, [("a", 1)], attempt=1)
        assert store.contents() == {"a": 2, "b": 1}
        store.merge(3, [("b", 1)])
        assert store.contents() == {"a": 2, "b": 2}

    @proves(Rule.UNDO)
    def test_an_empty_replay_takes_everything_back(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        store.merge(1, [("old", 5)])
        store.merge(2, [("old", 3), ("new", 1)])

        assert store.merge(2, [], attempt=1) == whole_ledger("topology", 1, 2, 1, 1)
        assert store.contents() == {"old": 5}

    @proves(Rule.UNDO)
    def test_many_replays_count_as_one(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        store.merge(1, [("a", 1), ("b", 1)])

        for attempt in range(6):
            store.merge(2, [("ab"[attempt % 2], 10 + attempt)], attempt)
        assert store.contents() == {"a": 1, "b": 16}
        store.merge(3, [("a", 1)])
        store.merge(3, [("b", 1)], attempt=1)
        assert store.contents() == {"a": 1, "b": 17}

    @proves(Rule.UNDO)
    def test_the_first_txid_is_undone_to_nothing(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        store.merge(1, [("a", 1), ("b", 1)])

        store.merge(1, [("b", 7)], attempt=1)
        assert store.contents() == {"b": 7}
        store.merge(1, [], attempt=2)
        assert store.contents() == {}

    @proves(Rule.UNDO)
    def test_a_successor_undoes_what_its_predecessor_wrote(
        self, counts: State, drive: Drive
    ) -> None:
        """Numbers of attempts start at 0 in each epoch."""
        drive(counts, epoch=1).merge(1, [("a", 7), ("b", 1)], attempt=4)
        new = drive(counts, epoch=2)

        new.merge(1, [("a", 2)])
        assert new.contents() == {"a": 2}
        assert new.held() == whole_ledger("topology", 2, 1, 2, 0)

    @proves(Rule.PREVIOUS)
    def test_an_undo_leads_back_one_txid_and_no_further(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        for txid in (1, 2, 3):
            store.merge(txid, [("a", txid)])
        store.merge(4, [("other", 1)])

        store.merge(4, [("a", 100)], attempt=1)
        assert store.contents() == {"a": 106}
        store.merge(4, [("a", 1)], attempt=2)
        assert store.contents() == {"a": 7}

    @proves(Rule.KEPT)
    def test_partials_of_a_held_txid_are_not_added_again(
        self, kept_counts: State, drive: Drive
    ) -> None:
        store = drive(kept_counts)
        store.merge(1, [("a", 1)])
        store.merge(2, [("a", 2), ("b", 1)])

        store.merge(2, [("a", 2), ("b", 1)], attempt=1)
        assert store.contents() == {"a": 3, "b": 1}
        assert store.held() == whole_ledger("topology", 1, 2, 1, 1)
        store.merge(3, [("b", 1)])
        assert store.contents() == {"a": 3, "b": 2}
