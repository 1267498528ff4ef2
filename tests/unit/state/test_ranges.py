"""What a committer reads in ranges and by prefixes, and what it says is needed no more."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from txtopo import Fields
from txtopo.errors import StateUsageError, TopologyError, ValueRefusedError
from txtopo.plugins.stores import StateTable, declaration
from txtopo.state import Count, State, StateHandle, StateTransaction, open_state
from txtopo.testing.conformance.driver import StateDriver


def windows() -> State:
    """A state of windows by their end."""
    key, value = Fields("start long, shop string"), Fields("window_end long, sold long")
    return open_state("memory:", table="windows").with_columns(key, value).ranged("window_end")


def sold(*rows: tuple[int, str, int, int]) -> Any:
    """Return a body that writes windows: start, shop, end, sold."""

    def body(state: StateTransaction) -> None:
        for start, shop, end, number in rows:
            state.put((start, shop), (end, number))

    return body


def due(above: int | None, up_to: int | None) -> Any:
    """Return a body that reads a range, as keys and sums."""

    def body(state: StateTransaction) -> list[Any]:
        found = state.between("window_end", above, up_to)
        return [(*key, values["sold"]) for key, values in found]

    return body


@pytest.fixture
def store() -> StateDriver:
    driver = StateDriver(windows())
    driver.run(1, sold((0, "b", 5, 1), (0, "a", 5, 2), (5, "a", 10, 3), (10, "a", 15, 4)))
    return driver


def test_a_range_is_above_one_end_and_up_to_the_other_sorted_by_key(store: StateDriver) -> None:
    assert store.run(2, due(4, 10)) == [(0, "a", 2), (0, "b", 1), (5, "a", 3)]
    assert store.run(3, due(5, None)) == [(5, "a", 3), (10, "a", 4)]
    assert store.run(4, due(None, 5)) == [(0, "a", 2), (0, "b", 1)]
    assert store.run(5, due(15, None)) == []


def test_a_range_has_own_writes_and_not_what_they_replace(store: StateDriver) -> None:
    def body(state: StateTransaction) -> Any:
        state.put((0, "a"), (20, 9))
        state.put((10, "a"), (5, 8))
        state.delete((0, "b"))
        state.put((1, "new"), (None, 7))
        return due(None, 10)(state), due(10, None)(state)

    low, high = store.run(2, body)
    assert low == [(5, "a", 3), (10, "a", 8)]
    assert high == [(0, "a", 9)]


def test_a_redo_reads_the_range_as_it_was_before_its_txid(store: StateDriver) -> None:
    """What the first attempt moved out of the range is in it again, and what came is not."""

    def moving(state: StateTransaction) -> Any:
        found = due(None, 5)(state)
        state.put((0, "a"), (20, 9))
        state.delete((0, "b"))
        state.put((2, "c"), (4, 1))
        return found

    assert store.run(2, moving) == store.run(2, moving, attempt=1) == [(0, "a", 2), (0, "b", 1)]
    assert store.run(3, due(None, 5)) == [(2, "c", 1)]


def test_in_a_group_a_range_has_what_earlier_txids_wrote(store: StateDriver) -> None:
    def first(state: StateTransaction) -> Any:
        sold((0, "a", 12, 7), (3, "c", 4, 1))(state)
        state.delete((0, "b"))

    results = store.run_group(3, [first, due(None, 5)])
    assert results[1] == [(3, "c", 1)]
    assert store.run_group(3, [due(None, 5), due(5, 12)], attempt=1) == [
        [(0, "a", 2), (0, "b", 1)],
        [(5, "a", 3)],
    ]


def test_prefixes_find_keys_that_begin_with_them(store: StateDriver) -> None:
    def body(state: StateTransaction) -> Any:
        state.put((7, "z"), (1, 1))
        state.delete((0, "b"))
        return (
            [key for key, _ in state.starting([(0,), (7,), (99,), (0,)])],
            [key for key, _ in state.starting([(5, "a"), (5, "b")])],
            list(state.starting([])),
        )

    assert store.run(2, body) == ([(0, "a"), (7, "z")], [(5, "a")], [])


def test_rows_that_were_read_in_a_range_are_not_read_again(store: StateDriver) -> None:
    def body(state: StateTransaction) -> Any:
        list(state.between("window_end", None, 5))
        state._opened().rows = None  # type: ignore[method-assign,assignment]
        return state.get((0, "a"))["sold"]

    assert store.run(2, body) == 2


def test_a_timestamp_is_a_range_column_in_any_time_zone() -> None:
    state = open_state("memory:", table="t").with_columns(Fields("end timestamp"), Fields("n long"))
    store = StateDriver(state.ranged("end"))
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    store.puts(1, {noon: 1})

    assert store.run(2, lambda s: list(s.between("end", None, noon))) == [(noon, 1)]
    with pytest.raises(StateUsageError, match="time zone"):
        store.run(3, lambda s: list(s.between("end", None, noon.replace(tzinfo=None))))


def test_what_expires_is_told_with_the_writes_and_is_the_largest(store: StateDriver) -> None:
    def body(state: StateTransaction) -> None:
        for end in (5, 7, 3):
            state.expire(end)

    handle = StateHandle("windows", store.state.layout(), store.backend)
    with handle.transaction(store.attempt(2)) as state:
        body(state)
    assert handle.writes is not None
    assert handle.writes.expires == 7
    assert pickle.loads(pickle.dumps(handle.writes)) == handle.writes


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: s.between("sold", 1, 2), "'sold'; expected 'window_end'"),
        (lambda s: s.between("window_end", "a", 2), "expected long"),
        (lambda s: s.between("window_end", None, 2.5), "expected long"),
        (lambda s: s.starting([("0",)]), "expected long"),
        (lambda s: s.starting([0]), "bad prefix"),
        (lambda s: s.starting(["ab"]), "bad prefix"),
        (lambda s: s.starting([()]), "bad prefix"),
        (lambda s: s.starting([(0,), (0, "a")]), "bad prefix"),
        (lambda s: s.starting([(0, "a", 1)]), "bad prefix"),
        (lambda s: s.expire("soon"), "expected long"),
        (lambda s: s.expire(None), "got None"),
    ],
)
def test_a_bad_range_says_what_is_wrong(store: StateDriver, call: Any, words: str) -> None:
    with pytest.raises(StateUsageError, match=words):
        store.run(2, call)


def test_a_bound_that_no_column_holds_is_refused(store: StateDriver) -> None:
    with pytest.raises(ValueRefusedError, match="a long holds"):
        store.run(2, lambda s: s.between("window_end", 0, 2**63))


def test_a_state_without_a_range_column_says_how_to_declare_one() -> None:
    store = StateDriver(open_state("memory:", table="t"))
    for call in (lambda s: s.between("value", 1, 2), lambda s: s.expire(1)):
        with pytest.raises(StateUsageError, match=r"\.ranged\("):
            store.run(1, call)


def test_a_range_column_is_a_timestamp_or_a_whole_number_of_the_state() -> None:
    state = open_state("memory:", table="t", value=Fields("n long, text string, at timestamp"))
    for good in ("n", "at"):
        assert state.ranged(good).layout().range_by == good
        assert pickle.loads(pickle.dumps(state.ranged(good))).range_by == good
    for bad in ("text", "key", "none", "", "N", 5, ["n"]):
        with pytest.raises(TopologyError, match="cannot be read by ranges"):
            state.ranged(bad)  # type: ignore[arg-type]
    key, value = Fields("k string"), Fields("n long")
    with pytest.raises(TopologyError, match="mode 'log'"):
        StateTable("t", "opaque", key, value, (Count(),), "log", range_by="n")


def test_a_range_column_changes_nothing_of_what_is_stored_and_compared() -> None:
    state = windows()
    plain = open_state("memory:", table="windows").with_columns(state.key, state.value)
    assert declaration(state.layout()) == declaration(plain.layout())


def test_rows_expire_by_their_column_if_an_earlier_txid_wrote_them(store: StateDriver) -> None:
    store.run(2, sold((0, "a", 5, 20)))
    store.run(3, lambda s: None)

    assert store.backend.expire(10, 2) == 2
    assert sorted(store.contents()) == [(0, "a"), (10, "a")]
    assert store.backend.expire(10, 3) == 1
    assert store.backend.expire(10, 3) == 0
    assert sorted(store.contents()) == [(10, "a")]


def test_what_the_last_group_wrote_stays_whatever_is_asked_for(store: StateDriver) -> None:
    store.run_group(3, [sold((0, "a", 5, 20)), sold((20, "a", 6, 1))])

    assert store.backend.expire(100, 99) == 3
    store.run_group(3, [lambda s: None, lambda s: None], attempt=1)
    assert {key: each["sold"] for key, each in store.contents().items()} == {(0, "a"): 2}
