"""What a committer's transaction gives and refuses."""

from __future__ import annotations

import pickle

import pytest

from txtopo import Fields
from txtopo.attempt import GroupAttempt, TransactionAttempt
from txtopo.errors import (
    FencedError,
    GroupBoundsError,
    LedgerGapError,
    StaleBatchError,
    StateUsageError,
    ValueRefusedError,
)
from txtopo.plugins.stores import Key, Puts, StateTable, Values
from txtopo.state import Count, State, StateHandle, open_state
from txtopo.testing.conformance.driver import StateDriver

ATTEMPT = TransactionAttempt(2, 0, 1)


@pytest.fixture
def store() -> StateDriver:
    driver = StateDriver(open_state("memory:", table="counts"))
    driver.puts(1, {"a": 1, "b": 2})
    return driver


def handle_of(store: StateDriver) -> StateHandle:
    return StateHandle("counts", store.state.layout(), store.backend)


def test_reads_see_own_writes(store: StateDriver) -> None:
    with handle_of(store).transaction(ATTEMPT) as state:
        state.put("a", 5)
        state.delete("b")
        state.put("c", None)

        assert state.get("a") == 5
        assert state.get("b", default=7) == 7
        assert state.get("c", default=7) is None
        assert state.get("none", default=7) == 7
        assert state.get_all(["a", "b", "none"]) == [5, None, None]
        assert dict(state.items()) == {"a": 5, "c": None}


def test_a_column_of_nulls_is_a_value_and_no_key(store: StateDriver) -> None:
    """Many values are checked by columns, and NULL fits every type of one."""
    with handle_of(store).transaction(ATTEMPT) as state:
        state.put_all([("a", None), ("b", None)])
        assert state.get_all(["a", "b"]) == [None, None]

        with pytest.raises(ValueRefusedError, match="a key cannot be NULL"):
            state.put_all([(None, 1), (None, 2)])


def test_two_updates_of_a_key_build_on_each_other(store: StateDriver) -> None:
    with handle_of(store).transaction(ATTEMPT) as state:
        state.update("a", lambda old: old + 2)
        assert state.update("a", lambda old: old + 3) == 6


def test_nothing_reaches_the_store_before_the_commit(store: StateDriver) -> None:
    handle = handle_of(store)

    with handle.transaction(ATTEMPT) as state:
        state.put("a", 5)
        assert handle.writes is None

    assert handle.writes == Puts({("a",): (5,)})
    assert pickle.loads(pickle.dumps(handle.writes)) == handle.writes
    assert store.contents() == {"a": 1, "b": 2}


def test_an_exception_discards_the_writes(store: StateDriver) -> None:
    handle = handle_of(store)

    with pytest.raises(KeyError), handle.transaction(ATTEMPT) as state:
        state.update("a", {}.__getitem__)
    assert handle.writes is None


def test_a_second_transaction_of_an_attempt_is_refused(store: StateDriver) -> None:
    handle = handle_of(store)
    with handle.transaction(ATTEMPT):
        pass

    with pytest.raises(StateUsageError, match="a second transaction"):
        handle.transaction(ATTEMPT)


def test_a_transaction_ends_with_its_block(store: StateDriver) -> None:
    transaction = handle_of(store).transaction(ATTEMPT)

    with pytest.raises(StateUsageError, match="not open"):
        transaction.get("a")
    with transaction as state:
        state.put("a", 5)
    with pytest.raises(StateUsageError, match="not open"):
        transaction.put("a", 6)


@pytest.mark.parametrize(
    ("attempt", "error"),
    [
        (TransactionAttempt(3, 0, 1), LedgerGapError),
        (TransactionAttempt(2, 0, 2), LedgerGapError),
        (TransactionAttempt(2, 0, 0), FencedError),
    ],
)
def test_a_transaction_out_of_turn_is_refused(
    store: StateDriver, attempt: TransactionAttempt, error: type[Exception]
) -> None:
    with pytest.raises(error), handle_of(store).transaction(attempt):
        pass


def test_a_late_transaction_is_refused(store: StateDriver) -> None:
    store.puts(2, {})

    with pytest.raises(StaleBatchError), handle_of(store).transaction(TransactionAttempt(1, 9, 1)):
        pass


def test_several_fields_are_tuples_and_dicts() -> None:
    state: State = open_state(
        "memory:",
        table="flights",
        key=Fields("carrier string, hour int"),
        value=Fields("flights long, delay long"),
    )
    store = StateDriver(state)
    handle = StateHandle("flights", state.layout(), store.backend)

    with handle.transaction(store.attempt(1)) as flights:
        flights.put(("UA", 5), {"delay": 10, "flights": 1})
        flights.put(["UA", 6], (2, 20))
        assert flights.get(("UA", 5)) == {"flights": 1, "delay": 10}
        assert dict(flights.items()) == {
            ("UA", 5): {"flights": 1, "delay": 10},
            ("UA", 6): {"flights": 2, "delay": 20},
        }
        for key in ("UA", ("UA",), ("UA", 5, 6), ("UA", "5"), {"carrier": "UA", "hour": 5}):
            with pytest.raises(StateUsageError):
                flights.get(key)
        for value in (1, (1,), {"flights": 1}, {"flights": 1, "other": 2}):
            with pytest.raises(StateUsageError, match="flights, delay"):
                flights.put(("UA", 5), value)


def test_in_a_replay_a_transactional_state_repeats_updates_and_an_opaque_one_all_reads() -> None:
    """Hence a transactional state may not feed another one: the topology is refused."""
    for kind, total, read in (("opaque", 3, 1), ("transactional", 3, 3)):
        store = StateDriver(open_state("memory:", table="counts", kind=kind))  # type: ignore[arg-type]
        store.puts(1, {"a": 1})
        store.puts(2, {"a": 3})

        with handle_of(store).transaction(TransactionAttempt(2, 1, 1)) as state:
            assert state.get("a") == read
            assert state.update("a", lambda old: old + 2) == total


def test_a_log_has_no_transaction(store: StateDriver) -> None:
    table = StateTable(
        "counts", "opaque", Fields("key string"), Fields("n long"), (Count(),), "log"
    )
    handle = StateHandle("counts", table, store.backend)

    with pytest.raises(StateUsageError, match="mode 'log'"):
        handle.transaction(TransactionAttempt(1, 0, 1))


GROUP = GroupAttempt(4, 0, 1, (0, 0))

EARLIER: dict[Key, Values | None] = {("a",): (10,), ("b",): None, ("new",): (30,)}
"""What txids 2 and 3 have written, when txid 4 begins."""


def in_group(store: StateDriver, group: TransactionAttempt = GROUP) -> StateHandle:
    """Return the handle of txid 4, the last of the group of 2 to 4."""
    return StateHandle("counts", store.state.layout(), store.backend, group, [EARLIER])


def test_a_txid_of_a_group_reads_what_those_before_it_wrote(store: StateDriver) -> None:
    store.puts(1, {"a": 1, "b": 2, "c": 3}, attempt=1)

    with in_group(store).transaction(TransactionAttempt(4, 0, 1)) as state:
        assert [state.get(key, 7) for key in ("a", "b", "c", "new", "none")] == [10, 7, 3, 30, 7]
        assert state.get_all(["a", "b", "c", "new", "none"]) == [10, None, 3, 30, None]
        assert dict(state.items()) == {"a": 10, "c": 3, "new": 30}
        assert state.update("a", lambda old: old + 1) == 11
        assert state.update("b", lambda old: (old or 0) + 1) == 1
        state.delete("new")
        state.delete("c")
        assert state.get_all(["a", "b", "c", "new"]) == [11, 1, None, None]
        assert dict(state.items()) == {"a": 11, "b": 1}


def test_a_txid_of_a_group_ends_with_its_own_writes_only(store: StateDriver) -> None:
    """Those of the txids before it were collected before."""
    handle = in_group(store)

    with handle.transaction(TransactionAttempt(4, 0, 1)) as state:
        state.update("a", lambda old: old + 1)
        state.get_all(["b", "new"])
    assert handle.writes == Puts({("a",): (11,)})
    assert EARLIER == {("a",): (10,), ("b",): None, ("new",): (30,)}


@pytest.mark.parametrize("txid", [2, 3, 4])
def test_in_the_redo_of_a_group_each_txid_starts_from_before_the_group(
    store: StateDriver, txid: int
) -> None:
    """Not from before itself, nor from what the first attempt wrote."""
    store.puts(4, {"a": 99, "b": None, "stray": 99}, first=2)
    redo = GroupAttempt(4, 1, 1, (1, 1))
    handle = StateHandle("counts", store.state.layout(), store.backend, redo)

    with handle.transaction(TransactionAttempt(txid, 1, 1)) as state:
        assert state.get_all(["a", "b", "stray"]) == [1, 2, None]
        assert state.update("a", lambda old: old + 1) == 2
        assert dict(state.items()) == {"a": 2, "b": 2}


def test_in_the_redo_of_a_group_a_txid_reads_what_those_before_it_wrote(
    store: StateDriver,
) -> None:
    store.puts(4, {"a": 99, "b": 99, "stray": 99}, first=2)

    handle = in_group(store, GroupAttempt(4, 1, 1, (1, 1)))
    with handle.transaction(TransactionAttempt(4, 1, 1)) as state:
        assert state.get_all(["a", "b", "new", "stray"]) == [10, None, 30, None]
        assert dict(state.items()) == {"a": 10, "new": 30}


def test_a_group_with_other_bounds_does_not_even_read(store: StateDriver) -> None:
    store.puts(4, {"a": 99}, first=2)
    handle = in_group(store, GroupAttempt(4, 1, 1, (1,)))

    with pytest.raises(GroupBoundsError), handle.transaction(TransactionAttempt(3, 1, 1)):
        pass
