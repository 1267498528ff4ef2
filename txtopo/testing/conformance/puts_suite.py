"""Final values in an opaque state: undo, deletes and NULL before, in and after an undo."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from txtopo.state import State, StateTransaction
from txtopo.testing.conformance.assertions import Rule, proves
from txtopo.testing.conformance.driver import adding, putting, whole_ledger
from txtopo.testing.conformance.subject import Drive, Subject, stored_rows


class PutsSuite(Subject):
    """What committers write one by one."""

    @proves(Rule.UNDO)
    def test_check_39_a_replay_starts_from_before_its_txid(
        self, state: State, drive: Drive
    ) -> None:
        store = drive(state)

        def once(get: list[object], *amounts: int) -> Callable[[StateTransaction], object]:
            def body(transaction: StateTransaction) -> object:
                get.append(transaction.get("a"))
                for amount in amounts:
                    adding(("a", amount))(transaction)
                    get.append(transaction.get("a"))
                return get

            return body

        assert store.run(1, once([], 1, 2)) == [None, 1, 3]
        assert store.run(1, once([], 2), attempt=1) == [None, 2]
        assert store.run(2, once([], 3, 1)) == [2, 5, 6]

    @proves(Rule.TOMBSTONE)
    def test_check_41_a_removal_is_undone_and_redone(self, state: State, drive: Drive) -> None:
        store = drive(state)
        store.run(1, putting({"a": 1, "b": 2}))

        def remove(transaction: StateTransaction) -> tuple[object, ...]:
            before = transaction.get("a"), transaction.get("b")
            transaction.delete("a")
            return *before, transaction.get("a"), transaction.get("b")

        assert store.run(2, remove) == (1, 2, None, 2)
        assert store.contents() == {"b": 2}
        assert store.run(2, remove, attempt=1) == (1, 2, None, 2)
        assert store.run(3, lambda s: (s.get("a"), s.get("b"))) == (None, 2)

    @proves(Rule.UNDO)
    def test_check_42_the_example_of_the_documentation(self, state: State, drive: Drive) -> None:
        store = drive(state)
        store.puts(1, {"apple": 1})
        store.puts(2, {"apple": 4})

        assert store.run(2, adding(("apple", 2)), attempt=1) == [3]
        store.puts(2, {"apple": 4}, attempt=2)
        assert store.run(3, adding(("apple", 2))) == [6]

    @proves(Rule.UNDO)
    def test_a_put_that_a_replay_lacks_is_taken_back(self, state: State, drive: Drive) -> None:
        store = drive(state)
        store.puts(1, {"a": 1, "b": 1})
        store.puts(2, {"a": 2, "b": 2, "new": 2})

        store.puts(2, {"a": 3}, attempt=1)
        assert store.contents() == {"a": 3, "b": 1}

    @proves(Rule.ONE_WRITE)
    def test_an_empty_write_set_moves_the_ledger(self, state: State, drive: Drive) -> None:
        store = drive(state)

        assert store.puts(1, {}).txid == 1
        assert store.run(2, adding()) == []
        assert store.held() == whole_ledger("topology", 1, 2, 1, 0)
        assert store.contents() == {}

    @pytest.mark.parametrize("before", [None, 1], ids=["null", "one"])
    @proves(Rule.PREVIOUS)
    def test_what_was_null_or_not_comes_back_as_it_was(
        self, state: State, drive: Drive, before: int | None
    ) -> None:
        """NULL in prev is a value; NULL in prev_txid means that there was no row."""
        store = drive(state)
        store.run(1, putting({"to value": before, "to null": before, "gone": before}))

        def change(transaction: StateTransaction) -> None:
            putting({"to value": 5, "to null": None, "new": None})(transaction)
            transaction.delete("gone")

        store.run(2, change)
        assert store.contents() == {"to value": 5, "to null": None, "new": None}
        store.run(2, lambda _: None, attempt=1)
        assert store.contents() == {"to value": before, "to null": before, "gone": before}
        store.run(3, change)
        assert store.contents() == {"to value": 5, "to null": None, "new": None}

    @proves(Rule.EXACT)
    def test_a_null_is_a_value_and_not_a_removal(self, state: State, drive: Drive) -> None:
        store = drive(state)

        store.run(1, putting({"a": None, "b": 1}))
        store.run(2, putting({"b": None}))
        assert store.contents() == {"a": None, "b": None}
        assert store.run(3, lambda s: sorted(s.items())) == [("a", None), ("b", None)]

    @proves(Rule.TOMBSTONE)
    def test_a_tombstone_is_hidden_and_then_gone(self, state: State, drive: Drive) -> None:
        store = drive(state)
        store.puts(1, {"a": 1, "b": 1})
        store.puts(2, {"a": None, "never there": None})

        assert stored_rows(store)["a",].deleted
        assert store.contents() == {"b": 1}
        with state.reader() as reader:
            assert reader.get("a", "none") == "none"
        store.puts(3, {})
        assert list(stored_rows(store)) == [("b",)]

    @proves(Rule.TOMBSTONE)
    def test_a_tombstone_is_swept_by_the_txid_that_follows(
        self, state: State, drive: Drive
    ) -> None:
        """Its key is not among those of that txid, and may not come back with its undo."""
        store = drive(state)
        store.puts(1, {"a": 1, "b": 1})
        store.puts(2, {"a": None})

        store.puts(3, {"b": 3})
        store.puts(3, {"b": 4}, attempt=1)
        assert store.contents() == {"b": 4}
        assert set(stored_rows(store)) == {("b",)}

    @proves(Rule.TOMBSTONE)
    def test_a_key_comes_back_after_its_removal(self, state: State, drive: Drive) -> None:
        store = drive(state)
        store.puts(1, {"a": 1})
        store.puts(2, {"a": None})

        store.puts(3, {"a": 3})
        assert store.contents() == {"a": 3}
        store.puts(3, {}, attempt=1)
        assert store.contents() == {}

    @proves(Rule.TOMBSTONE)
    def test_a_removal_that_a_replay_lacks_is_taken_back(self, state: State, drive: Drive) -> None:
        store = drive(state)
        store.puts(1, {"a": 1, "b": 1})
        store.puts(2, {"a": None, "b": None})

        store.puts(2, {"b": None}, attempt=1)
        assert store.contents() == {"a": 1}
        store.puts(3, {"a": None})
        store.puts(3, {"a": 7}, attempt=1)
        assert store.contents() == {"a": 7}

    @proves(Rule.PREVIOUS)
    def test_a_row_says_what_was_before_its_txid(self, state: State, drive: Drive) -> None:
        store = drive(state)
        store.puts(1, {"a": 1, "b": 1})
        store.puts(2, {"a": 2})

        rows = stored_rows(store)
        assert (rows["a",].txid, rows["a",].current) == (2, (2,))
        assert rows["a",].before(2) == (1,)
        assert rows["b",].before(2) == (1,)
        assert rows["b",].before(1) is None
        with store.backend.snapshot() as snapshot:
            assert snapshot.rows([("a",), ("none",)]) == {("a",): rows["a",]}
            assert snapshot.rows([]) == {}
