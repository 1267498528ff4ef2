"""Suite of states that keep keys alone: they have no value columns.

* :class:`KeysAloneSuite`: such keys are put, deleted and undone; they are read one by one, as
  columns, by a range, and from outside; a table of them takes value columns later.
"""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa
import pytest

from txtopo.errors import StateUsageError
from txtopo.plugins.stores import Key, Puts, Values
from txtopo.state import StateTransaction, open_state
from txtopo.testing.conformance.driver import (
    Drive,
    StateDriver,
    StoreFixtures,
    putting,
    stored_rows,
)
from txtopo.testing.conformance.pace import Extent
from txtopo.testing.conformance.rules import Rule, proves
from txtopo.tuples import Fields

_ALONE = Fields()


class KeysAloneSuite(StoreFixtures):
    """States without value columns; the value of each key is True."""

    @proves(Rule.UNDO)
    def test_keys_alone_are_put_and_deleted_and_undone(self, url: str, drive: Drive) -> None:
        store = drive(self.declared(url, "alone", value=_ALONE))

        store.run(1, putting(dict.fromkeys(("a", "b", "c"), True)))
        assert store.contents() == dict.fromkeys("abc", True)
        store.commit(2, _puts(put="bd", gone="a"))
        assert store.contents() == dict.fromkeys("bcd", True)
        # Another batch: "a" is there again, and "d" is not.
        store.commit(2, _puts(put="e", gone="c"), 1)
        assert store.contents() == dict.fromkeys("abe", True)
        # "b" existed before it was put again, so that no undo may remove it.
        store.commit(2, _puts(), 2)
        assert store.contents() == dict.fromkeys("abc", True)
        assert {row.txid for row in stored_rows(store).values()} == {1}

    @proves(Rule.TOMBSTONE)
    def test_a_key_alone_that_is_deleted_and_put_again_is_there_once(
        self, url: str, drive: Drive
    ) -> None:
        store = drive(self.declared(url, "alone", value=_ALONE))

        store.commit(1, _puts(put="ab"))
        store.commit(2, _puts(gone="ab"))
        assert store.contents() == {}
        store.commit(3, _puts(put="a"))
        assert store.contents() == {"a": True}
        store.commit(3, _puts(put="b"), 1)
        assert store.contents() == {"b": True}
        store.commit(4, _puts())
        assert len(stored_rows(store)) == 1

    @proves(Rule.KEPT)
    def test_a_transactional_state_keeps_keys_alone(self, url: str, drive: Drive) -> None:
        store = drive(self.declared(url, "alone", value=_ALONE, kind="transactional"))

        store.run(1, putting({"a": True, "b": True}))
        store.commit(2, _puts(put="bc", gone="a"))
        store.commit(2, _puts(put="z", gone="b"), 1)
        assert store.contents() == {"b": True, "c": True}
        assert store.run(3, lambda state: state.get_all(["a", "b"])) == [None, True]

    @proves(Rule.EXACT)
    def test_keys_alone_are_read_in_each_way(self, url: str, drive: Drive) -> None:
        key = Fields("word string, n long")
        store = drive(self.declared(url, "alone", key, _ALONE).ranged("n"))
        first, second, third = ("a", 1), ("a", 2), ("b", 3)

        def body(state: StateTransaction) -> None:
            assert state.get(first, False) is True
            assert state.get(third, False) is False
            assert state.update(third, lambda there: there is None) is True
            state.delete(first)
            assert sorted(state.items()) == [(second, True), (third, True)]
            assert list(state.starting([("a",)])) == [(second, True)]
            assert list(state.between("n", 2, None)) == [(third, True)]
            columns = state.get_columns(_table(key, first, second, third))
            assert sorted(columns.to_pylist(), key=repr) == _named(second, third)
            assert state.columns_between("n", None, 2).to_pylist() == _named(second)

        store.run(1, putting({first: True, second: True}))
        for attempt in (0, 1):
            store.run(2, body, attempt)
        with store.state.reader() as reader:
            assert dict(reader.items()) == {second: True, third: True}
            assert reader.get(third) is True
            assert reader.get(first) is None
            assert sorted(reader.to_arrow().to_pylist(), key=repr) == _named(second, third)

    @proves(Rule.GROUP)
    def test_a_group_writes_keys_alone_like_its_last_txid(self, url: str, drive: Drive) -> None:
        store = drive(self.declared(url, "alone", value=_ALONE))
        if not store.backend.groups:
            pytest.skip("the store commits no groups: groups = False")

        def second(state: StateTransaction) -> bool:
            state.delete("a")
            state.put("c", True)
            return bool(state.get("b", False))

        store.run(1, putting({"a": True}))
        assert store.run_group(3, [putting({"b": True}), second]) == [None, True]
        assert store.contents() == {"b": True, "c": True}
        store.run_group(3, [putting({}), putting({"d": True})], 1)
        assert store.contents() == {"a": True, "d": True}

    @proves(Rule.EXACT)
    def test_many_keys_alone_are_kept_like_few(
        self, url: str, drive: Drive, extent: Extent
    ) -> None:
        """Some stores write them in different ways."""
        key = Fields("n long")
        store = drive(self.declared(url, "alone", key, _ALONE))
        many = extent.many

        store.run(1, lambda state: state.put_columns(_table(key, *((n,) for n in range(many)))))
        assert store.contents() == dict.fromkeys(range(many), True)

        def change(state: StateTransaction) -> None:
            state.delete_columns(_table(key, *((n,) for n in range(0, many, 2))))
            state.put_columns(_table(key, (many,)))

        store.run(2, change)
        assert store.contents() == dict.fromkeys([*range(1, many, 2), many], True)
        store.run(2, putting({}), attempt=1)
        assert store.contents() == dict.fromkeys(range(many), True)

    @proves(Rule.EXACT)
    def test_another_value_of_a_key_alone_is_refused_by_name(self, url: str, drive: Drive) -> None:
        store = drive(self.declared(url, "alone", value=_ALONE))

        for value in (None, False, 1, "a"):
            with pytest.raises(StateUsageError, match="keeps only keys"):
                store.run(1, putting({"a": value}))
        assert store.contents() == {}

    @proves(Rule.EVOLVES)
    def test_a_table_of_keys_alone_takes_value_columns(self, url: str, drive: Drive) -> None:
        store = drive(self.declared(url, "alone", value=_ALONE))
        if not store.backend.evolves:
            pytest.skip("the store changes no columns: evolves = False")
        store.commit(1, _puts(put="ab"))
        store.commit(2, _puts(put="a", gone="b"))
        wider = open_state(url, "opaque", "alone", value=Fields("n long"), defaults={"n": 7})

        with closing(StateDriver(wider, epoch=2, changes_table=True)) as changed:
            assert changed.contents() == {"a": 7}
            changed.puts(2, {"c": 1}, 1)
            assert changed.contents() == {"a": 7, "b": 7, "c": 1}


def _puts(*, put: str = "", gone: str = "") -> Puts:
    """Return writes of keys with one letter each."""
    rows: dict[Key, Values | None] = {(key,): () for key in put}
    return Puts(rows | {(key,): None for key in gone})


def _table(key: Fields, *keys: tuple[object, ...]) -> pa.Table:
    """Return keys as columns."""
    columns = zip(zip(*keys, strict=True), key.arrow_schema(), strict=True)
    return pa.table([pa.array(part, f.type) for part, f in columns], schema=key.arrow_schema())


def _named(*keys: tuple[str, int]) -> list[dict[str, object]]:
    return [{"word": word, "n": n} for word, n in keys]
