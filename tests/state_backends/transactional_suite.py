"""What every backend does with a transactional state. Subclasses say where the state is."""

from __future__ import annotations

import pytest

from tests.state_backends.driver import StateDriver, adding
from txtopo.errors import FencedError, StaleBatchError
from txtopo.state import Count, Fields, Ledger, State, StateTransaction, open_state


class TransactionalSuite:
    """Subclasses have a fixture ``url``: a store of the test's own."""

    @pytest.fixture
    def kept(self, url: str) -> State:
        return open_state(url, kind="transactional", table="kept")

    def test_check_40_a_replay_finds_its_own_values(self, kept: State) -> None:
        store = StateDriver(kept)

        assert store.run(1, adding(("a", 1), ("a", 2))) == [1, 3]
        assert store.run(1, adding(("a", 1), ("a", 2)), attempt=1) == [3, 3]
        assert store.run(1, lambda s: s.get("a"), attempt=2) == 3
        assert store.run(2, adding(("a", 3), ("a", 1))) == [6, 7]

    def test_check_42_the_example_of_the_documentation(self, kept: State) -> None:
        store = StateDriver(kept)
        store.puts(1, {"man": 3})
        store.puts(2, {"apple": 10})
        store.puts(3, {"dog": 4, "man": 5})

        store.run(3, adding(("man", 2), ("dog", 1)), attempt=1)

        assert store.contents() == {"man": 5, "dog": 4, "apple": 10}

    def test_writes_of_a_held_txid_are_discarded(self, kept: State) -> None:
        store = StateDriver(kept)
        store.puts(1, {"a": 1})

        def body(state: StateTransaction) -> object:
            state.put("a", 9)
            state.delete("b")
            return state.get("a"), state.update("new", lambda old: 1)

        assert store.run(1, body, attempt=1) == (1, None)
        assert store.contents() == {"a": 1}
        assert store.held() == Ledger("topology", 1, 1, 1, 1)

    def test_partials_of_a_held_txid_are_not_added_again(self, url: str) -> None:
        state = open_state(url, kind="transactional", table="aggregated").with_columns(
            Fields("key string"), Fields("count long"), (Count(),)
        )
        store = StateDriver(state)
        store.merge(1, [("a", 1)])
        store.merge(2, [("a", 2), ("b", 1)])

        store.merge(2, [("a", 2), ("b", 1)], attempt=1)

        assert store.contents() == {"a": 3, "b": 1}

    def test_the_same_attempt_commits_once(self, url: str) -> None:
        state = open_state(url, kind="transactional", table="aggregated").with_columns(
            Fields("key string"), Fields("count long"), (Count(),)
        )
        store = StateDriver(state)
        store.merge(1, [("a", 1)])

        assert store.merge(1, [("a", 1)]) == Ledger("topology", 1, 1, 1, 0)
        assert store.contents() == {"a": 1}

    def test_a_removal_is_a_removal(self, kept: State) -> None:
        store = StateDriver(kept)
        store.puts(1, {"a": 1, "b": 1})
        store.puts(2, {"a": None, "never there": None})

        assert store.contents() == {"b": 1}

    def test_r4_a_late_commit_changes_nothing(self, kept: State) -> None:
        store = StateDriver(kept)
        store.puts(1, {"a": 1})
        store.puts(2, {"a": 2}, attempt=1)

        with pytest.raises(StaleBatchError):
            store.puts(1, {"new": 9})
        with pytest.raises(FencedError):
            store.puts(2, {"new": 9}, attempt=0)
        assert store.contents() == {"a": 2}
