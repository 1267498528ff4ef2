"""Rows that a committer gives as Arrow columns are the rows that it would have put one by one."""

from __future__ import annotations

import datetime
import pickle
from typing import Any

import pyarrow as pa
import pytest

from txtopo import Fields
from txtopo.attempt import GroupAttempt, TransactionAttempt
from txtopo.errors import StateUsageError, ValueRefusedError
from txtopo.state import StateHandle, open_state
from txtopo.state.column_rows import ColumnRows, merged_rows
from txtopo.testing.conformance.driver import StateDriver

ATTEMPT = TransactionAttempt(1, 0, 1)
UTC = pa.timestamp("us", tz="UTC")


def rows_of(*rows: tuple[str, int]) -> pa.Table:
    words, numbers = zip(*rows, strict=True)
    return pa.table({"key": pa.array(words, pa.string()), "n": pa.array(numbers, pa.int64())})


def counts(**more: Any) -> StateDriver:
    state = open_state("memory:", table="counts", **more)
    return StateDriver(state.with_columns(Fields("key string"), Fields("n long")))


def handle_of(store: StateDriver) -> StateHandle:
    return StateHandle("counts", store.state.layout(), store.backend)


def keyed(key: str) -> StateDriver:
    state = open_state("memory:", table="keyed")
    return StateDriver(state.with_columns(Fields(key), Fields("n long, note json, at timestamp")))


def refused(store: StateDriver, **columns: pa.Array) -> None:
    with handle_of(store).transaction(ATTEMPT) as state:
        given = {"note": pa.nulls(1, pa.string()), "at": pa.nulls(1, UTC), "n": pa.array([1])}
        state.put_columns(pa.table(given | columns))


def test_of_rows_with_equal_keys_the_last_one_counts() -> None:
    rows = ColumnRows(rows_of(("b", 1), ("a", 2), ("b", 3), ("a", 4), ("b", 5)), 1)

    assert rows.table.to_pydict() == {"key": ["a", "b"], "n": [4, 5]}
    assert dict(rows) == {("a",): (4,), ("b",): (5,)}
    assert (len(rows), ("a",) in rows, ("c",) in rows) == (2, True, False)
    assert pickle.loads(pickle.dumps(rows)) == rows


def test_keys_of_several_columns_are_equal_in_all_of_them() -> None:
    table = pa.table({"a": [1, 1, 2, 1], "b": ["x", "y", "x", "x"], "n": [1, 2, 3, 4]})

    assert dict(ColumnRows(table, 2)) == {(1, "x"): (4,), (1, "y"): (2,), (2, "x"): (3,)}


def test_of_writes_with_equal_keys_the_last_write_counts() -> None:
    early, late = ColumnRows(rows_of(("a", 9), ("b", 9)), 1), ColumnRows(rows_of(("a", 1)), 1)

    merged = merged_rows([early, {}, late])
    assert isinstance(merged, ColumnRows)
    assert merged == {("a",): (1,), ("b",): (9,)}
    assert merged_rows([early, {("b",): None}]) == {("a",): (9,), ("b",): None}
    assert merged_rows([{("a",): None}, late]) == {("a",): (1,)}
    assert merged_rows([]) == {}


def test_a_transaction_reads_and_changes_what_it_put_as_columns() -> None:
    handle = handle_of(counts())
    with handle.transaction(ATTEMPT) as state:
        state.put("a", 1)
        state.put_columns(rows_of(("a", 2), ("b", 3), ("c", 4)))
        state.put("b", 5)
        state.delete("c")
        assert state.get_all(["a", "b", "c"]) == [2, 5, None]

    assert handle.writes is not None
    assert handle.writes.rows == {("a",): (2,), ("b",): (5,), ("c",): None}
    assert (handle.writes.columns, handle.writes.deletes) == (None, True)


def test_what_is_put_as_columns_alone_leaves_as_columns() -> None:
    handle = handle_of(counts())
    with handle.transaction(ATTEMPT) as state:
        state.put_columns(rows_of(("b", 3), ("a", 2)).select(["n", "key"]))

    assert handle.writes is not None
    assert handle.writes.columns == rows_of(("a", 2), ("b", 3))
    assert not handle.writes.deletes


def test_a_later_txid_of_a_group_reads_what_was_put_as_columns() -> None:
    store, group = counts(), GroupAttempt(2, 0, 1, (0,))
    earlier = [{("a",): (1,)}, ColumnRows(rows_of(("a", 2), ("b", 3)), 1)]
    handle = StateHandle("counts", store.state.layout(), store.backend, group, earlier)
    with handle.transaction(TransactionAttempt(2, 0, 1)) as state:
        assert state.get_all(["a", "b", "c"]) == [2, 3, None]
        assert dict(state.items()) == {"a": 2, "b": 3}


def test_a_transactional_state_that_holds_the_txid_keeps_its_rows() -> None:
    store = counts(kind="transactional")
    store.puts(1, {"a": 1})
    handle = handle_of(store)
    with handle.transaction(TransactionAttempt(1, 1, 1)) as state:
        state.put_columns(rows_of(("a", 9)))
        assert state.get("a") == 1

    assert handle.writes is not None
    assert not handle.writes.rows


def test_a_key_is_never_null_or_nan() -> None:
    with pytest.raises(ValueRefusedError, match=r"field 'k' .*; got None; a key cannot be NULL"):
        refused(keyed("k long"), k=pa.nulls(1, pa.int64()))
    with pytest.raises(ValueRefusedError, match=r"field 'k' .*; got nan; a key cannot be NaN"):
        refused(keyed("k double"), k=pa.array([float("nan")]))


def test_zero_has_no_sign_in_a_key() -> None:
    store = keyed("k double")
    rows = {"k": pa.array([-0.0, 0.0]), "n": pa.array([1, 2])}
    empty = {"note": pa.nulls(2, pa.string()), "at": pa.nulls(2, UTC)}
    store.run(1, lambda state: state.put_columns(pa.table(rows | empty)))

    assert [(str(k), value["n"]) for k, value in store.contents().items()] == [("0.0", 2)]


def test_columns_have_the_declared_types() -> None:
    with pytest.raises(StateUsageError, match=r"got .* with int32 in 'k'; expected int64"):
        refused(keyed("k long"), k=pa.array([1], pa.int32()))
    with pytest.raises(StateUsageError, match="with None in 'k'; expected int64"):
        refused(keyed("k long"))
    with pytest.raises(ValueRefusedError, match=r"'note' .*it is not JSON"):
        refused(keyed("k long"), k=pa.array([1]), note=pa.array(["{ "]))


def test_a_text_of_json_is_stored_as_any_value_of_json() -> None:
    store, texts = keyed("k long"), pa.array(['{"b": [1,  2], "a": null}', "null", None])
    rows = {"k": pa.array([1, 2, 3]), "n": pa.array([1, 2, 3]), "at": pa.nulls(3, UTC)}
    store.run(1, lambda state: state.put_columns(pa.table(rows | {"note": texts})))

    assert [value["note"] for value in store.contents().values()] == [
        {"a": None, "b": [1, 2]},
        None,
        None,
    ]


@pytest.mark.parametrize("years", [-2000, 8030])
def test_a_time_that_python_does_not_have_is_refused(years: int) -> None:
    """Nobody could read it."""
    at = pa.array([years * 31_557_600_000_000], pa.int64()).cast(UTC)
    with pytest.raises(ValueRefusedError, match=r"'at' .*it is outside the years 1 to 9999"):
        refused(keyed("k long"), k=pa.array([1]), at=at)


def test_the_first_and_the_last_time_are_kept() -> None:
    store = keyed("k long")
    ends = [
        end.replace(tzinfo=datetime.UTC) for end in (datetime.datetime.min, datetime.datetime.max)
    ]
    rows = {"k": pa.array([1, 2]), "n": pa.array([1, 2]), "at": pa.array(ends, UTC)}
    store.run(
        1, lambda state: state.put_columns(pa.table(rows | {"note": pa.nulls(2, pa.string())}))
    )

    assert [value["at"] for value in store.contents().values()] == ends
