"""What a transaction reads as columns is what it reads as Python values, whatever was written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from txtopo import Fields
from txtopo.attempt import TransactionAttempt
from txtopo.errors import StaleBatchError, StateUsageError, ValueRefusedError
from txtopo.plugins.stores import Key, Puts, Values
from txtopo.state import StateHandle, StateTransaction, open_state
from txtopo.state.column_rows import ColumnRows, merged_rows
from txtopo.state.columns import rows_of
from txtopo.testing.conformance.driver import StateDriver

KEY, VALUE = Fields("shop string, n long"), Fields("ends long, note json")
KEYS = [(shop, n) for shop in "abc" for n in range(3)]
NOTES = ["1", '{"a":[1,2]}', "null", '"x"', None]
Rows = Mapping[Any, "tuple[int | None, str | None] | None"]
"""Values by key, json as text; None deletes a key."""


def opened(kind: Any = "opaque", url: str = "memory:") -> StateDriver:
    state = open_state(url, table="windows", kind=kind).with_columns(KEY, VALUE)
    return StateDriver(state.ranged("ends"))


def drawn(chance: Random, deletes: bool = True) -> Rows:
    return {
        key: None
        if deletes and chance.random() < 0.3
        else (chance.choice([None, *range(6)]), chance.choice(NOTES))
        for key in chance.sample(KEYS, chance.randint(0, 4))
    }


def keys_table(keys: Iterable[Any], names: Sequence[str] = KEY.names) -> pa.Table:
    columns = zip(*keys, strict=True)
    schema = KEY.select(names).arrow_schema()
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], names)


def put_rows(state: StateTransaction, rows: Rows) -> None:
    """Write rows as Python values."""
    for key, value in rows.items():
        if value is None:
            state.delete(key)
        else:
            ends, note = value
            state.put(key, (ends, None if note is None else json.loads(note)))


def putting(rows: Rows) -> Callable[[StateTransaction], None]:
    return lambda state: put_rows(state, rows)


def put_columns(state: StateTransaction, rows: Rows) -> None:
    """Write rows as columns."""
    if kept := {key: value for key, value in rows.items() if value is not None}:
        table = keys_table(kept)
        ends, notes = zip(*kept.values(), strict=True)
        table = table.append_column("note", pa.array(notes, pa.string()))
        state.put_columns(table.append_column("ends", pa.array(ends, pa.int64())))
    if gone := [key for key, value in rows.items() if value is None]:
        state.delete_columns(keys_table(gone))


def shown(columns: pa.Table) -> dict[Any, Any]:
    rows = list(rows_of(columns.select([*KEY.names, *VALUE.names])))
    found = {row[:2]: (row[2], None if row[3] is None else json.loads(row[3])) for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def plainly(rows: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    return {key: (value["ends"], value["note"]) for key, value in rows if value is not None}


def assert_same_reads(state: StateTransaction, chance: Random) -> dict[Any, Any]:
    """Check that all reads are the same as columns; return all rows."""
    asked = chance.choices(KEYS, k=chance.randint(1, 6))
    assert shown(state.get_columns(keys_table(asked))) == plainly(
        zip(asked, state.get_all(asked), strict=True)
    )
    above, up_to = (chance.choice([None, *range(6)]) for _ in range(2))
    between = state.columns_between("ends", above, up_to)
    expected = plainly(state.between("ends", above, up_to))
    assert list(shown(between).items()) == list(expected.items())
    for prefixes in ([("b",), ("a",), ("b",)], asked):
        found = state.columns_starting(keys_table(prefixes, KEY.names[: len(prefixes[0])]))
        assert list(shown(found).items()) == list(plainly(state.starting(prefixes)).items())
    every = shown(state.get_columns(keys_table(KEYS)))
    assert every == plainly(state.items())
    return every


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
@pytest.mark.parametrize("redo", [False, True])
def test_reads_as_columns_are_those_of_python_values(kind: str, redo: bool) -> None:
    """After random txids, in a random member of a group, between random writes."""
    for seed in range(15):
        chance = Random(seed)
        store = opened(kind)
        for txid in (1, 2):
            store.run(txid, putting(drawn(chance)))
        if redo:
            store.run_group(5, [putting(drawn(chance)) for _ in range(3)])
        group = store.attempt(5, 1, first=3)
        earlier: list[Mapping[Key, Values | None]] = []
        for txid in range(3, 6):
            layout = store.state.layout()
            handle = StateHandle("windows", layout, store.backend, group, list(earlier))
            with handle.transaction(store.attempt(txid, 1)) as state:
                for _ in range(chance.randint(0, 3)):
                    assert_same_reads(state, chance)
                    chance.choice([put_rows, put_columns])(state, drawn(chance))
                left = assert_same_reads(state, chance)
            assert handle.writes is not None
            earlier.append(handle.writes.rows)
            if chance.random() < 0.4:  # as a Python committer would leave them
                earlier[-1] = dict(earlier[-1])
        if kind == "opaque" or not redo:
            store.commit(5, Puts(merged_rows(earlier)), 1, first=3)
        held = {key: (row["ends"], row["note"]) for key, row in store.contents().items()}
        assert held == left


def test_a_redo_reads_as_columns_what_was_there_before_its_txid() -> None:
    store = opened()
    store.run(1, lambda state: put_rows(state, {("a", 0): (1, None), ("b", 0): (2, "5")}))
    before = {("a", 0): (1, None), ("b", 0): (2, 5)}

    def changing(state: StateTransaction) -> list[dict[Any, Any]]:
        found = [
            shown(state.get_columns(keys_table(KEYS))),
            shown(state.columns_between("ends", None, None)),
            shown(state.columns_starting(keys_table([("a",), ("b",)], ["shop"]))),
        ]
        put_columns(state, {("a", 0): (9, "9"), ("b", 0): None, ("c", 0): (3, None)})
        return found

    assert store.run(2, changing) == [before] * 3
    assert store.run(2, changing, attempt=1) == [before] * 3
    assert store.run(3, changing) == [{("a", 0): (9, 9), ("c", 0): (3, None)}] * 2 + [
        {("a", 0): (9, 9)}
    ]


def test_a_transactional_state_that_holds_the_txid_shows_what_it_left() -> None:
    store = opened("transactional")
    store.run(1, lambda state: put_rows(state, {("a", 0): (1, None)}))

    def moving(state: StateTransaction) -> Any:
        put_columns(state, {("a", 0): (7, None)})
        state.delete_columns(keys_table([("b", 0)]))
        return shown(state.get_columns(keys_table(KEYS)))

    assert store.run(1, moving, attempt=1) == {("a", 0): (1, None)}
    assert store.run(2, moving) == {("a", 0): (7, None)}


@pytest.mark.parametrize(
    "read",
    [
        lambda state: state.get_columns(keys_table([("a", 0)])),
        lambda state: state.columns_between("ends", None, None),
        lambda state: state.columns_starting(keys_table([("a",)], ["shop"])),
    ],
    ids=["get", "between", "starting"],
)
def test_a_row_of_a_later_txid_is_no_base(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No store returns one: the ledger is as old as the rows. So this store lies about it."""
    store = opened()
    store.run(1, lambda state: put_rows(state, {("a", 0): (1, None)}))
    store.run(2, lambda state: put_rows(state, {("a", 0): (2, None)}))
    before = store.attempt(1)
    handle = StateHandle("windows", store.state.layout(), store.backend)
    with handle.transaction(store.attempt(3)) as state:
        monkeypatch.setattr(state, "_attempt", before)
        with pytest.raises(StaleBatchError):
            read(state)


def test_keys_that_no_state_has_are_refused() -> None:
    store = opened()
    bad = pa.table({"shop": pa.array(["a", None]), "n": pa.array([1, 2])})
    narrow = bad.select(["shop"]).slice(0, 1)
    for call in ("delete_columns", "get_columns"):
        with pytest.raises(ValueRefusedError, match=r"'shop' .*a key cannot be NULL"):
            store.run(1, partial(getattr(StateTransaction, call), keys=bad))
        with pytest.raises(StateUsageError, match="with None in 'n'; expected int64"):
            store.run(1, partial(getattr(StateTransaction, call), keys=narrow))


def test_prefixes_are_the_first_key_columns_in_any_order() -> None:
    store = opened()
    store.run(1, putting({("a", 0): (1, None), ("b", 1): (2, None)}))

    swapped = keys_table([("a", 0), ("b", 0)]).select(["n", "shop"])
    found = store.run(2, lambda state: state.columns_starting(swapped))
    assert list(shown(found)) == [("a", 0)]
    wrong = [swapped.select(["n"]), swapped.append_column("v", swapped.column(0)), pa.table({})]

    def refused(state: StateTransaction) -> None:
        for columns in wrong:
            with pytest.raises(StateUsageError, match=r"the first one or more of \(shop, n\)"):
                state.columns_starting(columns)

    store.run(3, refused)


def test_what_is_deleted_as_columns_leaves_as_columns_and_comes_back() -> None:
    """Of a key that is written and deleted, the last one counts, in each order."""
    store = opened()
    handle = StateHandle("windows", store.state.layout(), store.backend)
    with handle.transaction(store.attempt(1)) as state:
        put_columns(state, {("a", 0): (1, None), ("b", 0): (1, None)})
        state.delete_columns(keys_table([("a", 0), ("b", 0), ("c", 0)]))
        put_columns(state, {("a", 0): (2, None)})

    writes = handle.writes
    assert writes is not None
    assert isinstance(writes.rows, ColumnRows)
    assert writes.deletes
    assert dict(writes.rows) == {("a", 0): (2, None), ("b", 0): None, ("c", 0): None}
    store.commit(1, writes)
    assert list(store.contents()) == [("a", 0)]


def test_a_transaction_that_has_ended_reads_no_columns() -> None:
    store = opened()
    handle = StateHandle("windows", store.state.layout(), store.backend)
    with handle.transaction(TransactionAttempt(1, 0, 1)) as state:
        pass
    for call in (state.get_columns, state.delete_columns, state.columns_starting):
        with pytest.raises(StateUsageError, match="not open"):
            call(keys_table([("a", 0)]))
    with pytest.raises(StateUsageError, match="not open"):
        state.columns_between("ends", None, None)
