"""Final values in a transactional state: what holds the txid already is left as it is."""

from __future__ import annotations

import pytest

from txtopo.errors import FencedError, StaleBatchError
from txtopo.state import State, StateTransaction
from txtopo.testing.conformance.assertions import Rule, proves
from txtopo.testing.conformance.driver import adding, whole_ledger
from txtopo.testing.conformance.subject import Drive, Subject


class TransactionalSuite(Subject):
    """What committers write where the batch of a txid is always the same."""

    @proves(Rule.KEPT)
    def test_check_40_a_replay_finds_its_own_values(self, kept: State, drive: Drive) -> None:
        store = drive(kept)

        assert store.run(1, adding(("a", 1), ("a", 2))) == [1, 3]
        assert store.run(1, adding(("a", 1), ("a", 2)), attempt=1) == [3, 3]
        assert store.run(1, lambda s: s.get("a"), attempt=2) == 3
        assert store.run(2, adding(("a", 3), ("a", 1))) == [6, 7]

    @proves(Rule.KEPT)
    def test_check_42_the_transactional_example_of_the_documentation(
        self, kept: State, drive: Drive
    ) -> None:
        store = drive(kept)
        store.puts(1, {"man": 3})
        store.puts(2, {"apple": 10})
        store.puts(3, {"dog": 4, "man": 5})

        store.run(3, adding(("man", 2), ("dog", 1)), attempt=1)
        assert store.contents() == {"man": 5, "dog": 4, "apple": 10}

    @proves(Rule.KEPT)
    def test_writes_of_a_held_txid_are_discarded(self, kept: State, drive: Drive) -> None:
        store = drive(kept)
        store.puts(1, {"a": 1})

        def body(state: StateTransaction) -> object:
            state.put("a", 9)
            state.delete("b")
            return state.get("a"), state.update("new", lambda old: 1)

        assert store.run(1, body, attempt=1) == (1, None)
        assert store.puts(1, {"a": 9}, attempt=2).attempt == 2
        assert store.contents() == {"a": 1}
        assert store.held() == whole_ledger("topology", 1, 1, 1, 2)

    @proves(Rule.KEPT)
    def test_a_successor_keeps_what_its_predecessor_wrote(self, kept: State, drive: Drive) -> None:
        drive(kept, epoch=1).puts(1, {"a": 1})
        new = drive(kept, epoch=2)

        assert new.puts(1, {"a": 1}) == whole_ledger("topology", 2, 1, 2, 0)
        assert new.run(2, adding(("a", 1))) == [2]

    @proves(Rule.ORDER)
    def test_a_held_attempt_is_not_written_again(self, kept_counts: State, drive: Drive) -> None:
        store = drive(kept_counts)
        store.merge(1, [("a", 1)])

        assert store.merge(1, [("a", 1)]) == whole_ledger("topology", 1, 1, 1, 0)
        assert store.contents() == {"a": 1}

    @proves(Rule.TOMBSTONE)
    def test_a_transactional_removal_leaves_nothing(self, kept: State, drive: Drive) -> None:
        store = drive(kept)
        store.puts(1, {"a": 1, "b": 1})
        store.puts(2, {"a": None, "never there": None})

        assert store.contents() == {"b": 1}
        store.puts(2, {"a": None}, attempt=1)
        store.puts(3, {"a": 3})
        assert store.contents() == {"a": 3, "b": 1}

    @proves(Rule.ORDER)
    def test_a_late_transactional_commit_changes_nothing(self, kept: State, drive: Drive) -> None:
        store = drive(kept)
        store.puts(1, {"a": 1})
        store.puts(2, {"a": 2}, attempt=1)

        with pytest.raises(StaleBatchError):
            store.puts(1, {"new": 9})
        with pytest.raises(FencedError):
            store.puts(2, {"new": 9}, attempt=0)
        assert store.contents() == {"a": 2}
