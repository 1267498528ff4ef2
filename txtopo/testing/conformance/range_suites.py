"""Suites of what committers read without a whole key, and of rows that expire.

* :class:`RangeSuite`: ranges of a column, and prefixes of keys.
* :class:`ExpirySuite`: what ``StateBackend.expire`` deletes and what stays; skipped for a store
  that deletes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from txtopo.errors import PromiseError
from txtopo.state import State, StateTransaction
from txtopo.state.columns import rows_of
from txtopo.testing.conformance.driver import (
    Drive,
    StateDriver,
    StoreFixtures,
    release,
    stored_rows,
)
from txtopo.testing.conformance.pace import Extent
from txtopo.testing.conformance.rules import Rule, proves
from txtopo.tuples import Fields

KEY, VALUE = Fields("shop string, start long"), Fields("ends long, sold long")

Body = Callable[[StateTransaction], Any]

ROWS = {("a", 0): (5, 1), ("a", 5): (10, 2), ("b", 0): (5, 3), ("b", 10): (15, 4)}
"""Windows of two shops: when they end, and what was sold."""


class RangedFixtures(StoreFixtures):
    """States that are read in ranges of their column ``ends``."""

    @pytest.fixture
    def ranged(self, url: str) -> State:
        """An opaque state of windows."""
        return self.declared(url, "windows", KEY, VALUE).ranged("ends")

    @pytest.fixture
    def windows(self, ranged: State, drive: Drive) -> StateDriver:
        """The state, with :data:`ROWS` as of txid 1."""
        store = drive(ranged)
        store.run(1, putting_rows(ROWS))
        return store


class RangeSuite(RangedFixtures):
    """Ranges and prefixes, as of the previous txid, whatever an attempt has written."""

    @proves(Rule.RANGE)
    def test_a_range_is_above_one_end_and_up_to_the_other(self, windows: StateDriver) -> None:
        ranges = {
            (4, 5): [("a", 0), ("b", 0)],
            (5, 10): [("a", 5)],
            (5, None): [("a", 5), ("b", 10)],
            (None, 5): [("a", 0), ("b", 0)],
            (None, None): list(ROWS),
            (15, None): [],
            (10, 5): [],
        }
        bodies = [between(*ends) for ends in ranges]

        assert windows.run(2, lambda state: [body(state) for body in bodies]) == [
            [(*key, ROWS[key][1]) for key in keys] for keys in ranges.values()
        ]

    @proves(Rule.RANGE)
    def test_null_is_in_no_range(self, windows: StateDriver) -> None:
        windows.run(2, putting_rows({("a", 0): (None, 9), ("c", 0): (None, 9)}))

        assert windows.run(3, between(None, 5)) == [("b", 0, 3)]
        assert windows.run(4, between(None, None)) == [("a", 5, 2), ("b", 0, 3), ("b", 10, 4)]

    @proves(Rule.RANGE)
    def test_a_redo_finds_what_was_in_the_range_before(self, windows: StateDriver) -> None:
        """The first attempt has moved, changed, deleted and added rows."""

        def closing(state: StateTransaction) -> Any:
            found = between(None, 5)(state), starting(("a",), ("c",))(state)
            putting_rows({("a", 0): (99, 7), ("b", 10): (3, 8), ("c", 0): (4, 9)})(state)
            state.delete(("b", 0))
            return *found, between(None, 5)(state), starting(("a",), ("c",))(state)

        expected = (
            [("a", 0, 1), ("b", 0, 3)],
            [("a", 0, 1), ("a", 5, 2)],
            [("b", 10, 8), ("c", 0, 9)],
            [("a", 0, 7), ("a", 5, 2), ("c", 0, 9)],
        )
        for attempt in range(3):
            assert windows.run(2, closing, attempt) == expected
        assert windows.run(3, between(None, 5)) == [("b", 10, 8), ("c", 0, 9)]
        assert windows.run(4, starting(("b",))) == [("b", 10, 8)]

    @proves(Rule.RANGE)
    def test_a_deleted_row_is_in_no_range(self, windows: StateDriver) -> None:
        windows.run(2, lambda state: state.delete(("a", 0)))

        assert windows.run(3, between(None, 5)) == [("b", 0, 3)]
        assert windows.run(4, starting(("a",))) == [("a", 5, 2)]

    @proves(Rule.RANGE)
    def test_in_a_group_a_range_has_what_the_txids_before_wrote(self, windows: StateDriver) -> None:
        if not windows.backend.groups:
            pytest.skip("the store takes no groups")

        def moving(state: StateTransaction) -> None:
            putting_rows({("a", 0): (12, 7), ("c", 0): (4, 8)})(state)
            state.delete(("b", 0))

        for attempt in range(2):
            results = windows.run_group(
                4, [moving, between(None, 5), starting(("a",), ("b",))], attempt
            )
            assert results[1:] == [
                [("c", 0, 8)],
                [("a", 0, 7), ("a", 5, 2), ("b", 10, 4)],
            ]
        assert windows.run(5, between(5, 12)) == [("a", 0, 7), ("a", 5, 2)]

    @proves(Rule.RANGE)
    def test_a_redo_of_a_group_starts_from_before_it(self, windows: StateDriver) -> None:
        if not windows.backend.groups:
            pytest.skip("the store takes no groups")
        windows.run_group(3, [putting_rows({("a", 0): (99, 7)}), lambda _: None])

        for attempt in range(1, 3):
            found = windows.run_group(3, [between(None, 5), starting(("a",))], attempt)
            assert found == [[("a", 0, 1), ("b", 0, 3)], [("a", 0, 1), ("a", 5, 2)]]

    @pytest.mark.parametrize("kind", ["byte", "short", "int", "long", "timestamp", "timestamp_ntz"])
    @pytest.mark.parametrize("part", ["key", "value"])
    @proves(Rule.RANGE)
    def test_a_column_of_each_type_is_read_in_ranges(
        self, url: str, drive: Drive, kind: str, part: str
    ) -> None:
        """Bounds may be below zero, before 1970, and exact to the microsecond."""
        fields = [Fields("name string"), Fields(f"at {kind}")]
        key, value = (Fields(f"name string, at {kind}"), Fields("n long"))
        if part == "value":
            key, value = fields
        store = drive(self.declared(url, f"of_{part}_{kind}", key, value).ranged("at"))
        low, middle, high = _samples(kind)
        texts = {"l": low, "m": middle, "h": high}
        rows = {
            (name, at) if part == "key" else name: 1 if part == "key" else at
            for name, at in texts.items()
        }

        store.run(1, putting_rows(rows))

        def names(above: Any, up_to: Any) -> Body:
            return lambda state: [
                key[0] if part == "key" else key for key, _ in state.between("at", above, up_to)
            ]

        assert store.run(2, names(low, middle)) == ["m"]
        assert store.run(3, names(middle, high)) == ["h"]
        assert store.run(4, names(None, low)) == ["l"]
        assert store.run(5, names(high, None)) == []

    @proves(Rule.RANGE)
    def test_the_first_column_of_a_key_is_read_in_ranges(self, url: str, drive: Drive) -> None:
        key, value = Fields("ends long, shop string"), Fields("sold long")
        store = drive(self.declared(url, "by_end", key, value).ranged("ends"))
        store.run(1, putting_rows({(at, "a"): at for at in range(-3, 4)}))

        found = store.run(2, lambda state: list(state.between("ends", -2, 1)))
        assert found == [((at, "a"), at) for at in (-1, 0, 1)]

    @proves(Rule.RANGE)
    def test_prefixes_have_the_first_columns_of_a_key(self, url: str, drive: Drive) -> None:
        key, value = Fields("user string, side int, start long"), Fields("n long")
        store = drive(self.declared(url, "sides", key, value))
        users = ("", "a", "ab", "ä'\"%")
        keys = [(user, side, at) for user in users for side in (0, 1) for at in (1, 2)]
        store.run(1, putting_rows(dict.fromkeys(keys, 1)))

        wanted: list[list[tuple[Any, ...]]] = [
            [("a",)],
            [("",), ("ä'\"%",), ("none",)],
            [("a", 1), ("ab", 0), ("b", 0), ("a", 1)],
            [("ab", 1, 2), ("ab", 1, 3)],
            [],
        ]
        for txid, prefixes in enumerate(wanted, 2):
            assert store.run(txid, starting_keys(key, prefixes)) == sorted(
                key for key in keys if any(key[: len(each)] == each for each in prefixes)
            )

    @proves(Rule.RANGE)
    def test_many_prefixes_are_found(self, url: str, drive: Drive, extent: Extent) -> None:
        """There are more prefixes than fit into one statement, if the store is fast enough."""
        key, value = Fields("user long, start long"), Fields("n long")
        store = drive(self.declared(url, "many", key, value))
        users = max(10, extent.many // 3)
        keys = [(user, at) for user in range(users) for at in (1, 2)]
        store.run(1, putting_rows(dict.fromkeys(keys, 1)))

        asked = [(user,) for user in range(-users, users - 1)]
        assert store.run(2, starting_keys(key, asked)) == keys[:-2]
        pairs = [(user, 2) for user in range(users)]
        assert store.run(3, starting_keys(key, [*pairs, (0, 3)])) == pairs

    @proves(Rule.RANGE)
    def test_a_state_may_be_read_in_ranges_that_was_not_before(
        self, url: str, drive: Drive
    ) -> None:
        """A range column does not change what is stored."""
        state = self.declared(url, "later", KEY, VALUE)
        store = drive(state)
        store.run(1, putting_rows(ROWS))
        store.close()

        for epoch in (2, 3):
            ranged = drive(state.ranged("ends"), epoch)
            assert ranged.run(epoch, between(None, 5)) == [("a", 0, 1), ("b", 0, 3)]
            ranged.close()
        assert drive(state, 4).contents().keys() == ROWS.keys()

    @proves(Rule.RANGE)
    def test_a_transactional_state_is_read_in_ranges(self, url: str, drive: Drive) -> None:
        state = self.declared(url, "kept_windows", KEY, VALUE, "transactional").ranged("ends")
        store = drive(state)
        store.run(1, putting_rows(ROWS))

        assert store.run(2, between(4, 5)) == [("a", 0, 1), ("b", 0, 3)]
        assert store.run(3, starting(("a",))) == [("a", 0, 1), ("a", 5, 2)]


class ExpirySuite(RangedFixtures):
    """Which rows ``StateBackend.expire`` deletes."""

    @pytest.fixture
    def expiring(self, windows: StateDriver) -> StateDriver:
        """The state of :data:`ROWS`, of a store that deletes what expires."""
        if not deletes(windows):
            pytest.skip("StateBackend.expire of the store deletes nothing")
        return windows

    @proves(Rule.EXPIRY)
    def test_rows_expire_that_an_earlier_txid_wrote(self, expiring: StateDriver) -> None:
        expiring.run(2, putting_rows({("c", 0): (5, 9), ("d", 0): (None, 9)}))
        expiring.run(3, lambda _: None)

        assert expire(expiring, 10, 2) == 3
        assert expiring.contents().keys() == {("b", 10), ("c", 0), ("d", 0)}
        held = expiring.held()
        assert held is not None
        assert (held.txid, held.first_txid) == (3, 3)
        expiring.run(4, putting_rows({("a", 0): (7, 1)}))
        assert expiring.contents().keys() == {("a", 0), ("b", 10), ("c", 0), ("d", 0)}
        expiring.run(4, lambda _: None, attempt=1)
        assert expiring.contents().keys() == {("b", 10), ("c", 0), ("d", 0)}

    @proves(Rule.EXPIRY)
    def test_what_the_last_txid_wrote_stays(self, expiring: StateDriver) -> None:
        """The last txid may be undone, so its rows stay whatever bound is requested."""

        def body(state: StateTransaction) -> None:
            putting_rows({("a", 0): (5, 9), ("c", 0): (5, 9)})(state)
            state.delete(("b", 0))

        expiring.run(2, body)

        assert expire(expiring, 100, 99) == 2
        assert stored_rows(expiring).keys() == {("a", 0), ("b", 0), ("c", 0)}
        expiring.run(2, lambda _: None, attempt=1)
        assert {key: row["sold"] for key, row in expiring.contents().items()} == {
            ("a", 0): 1,
            ("b", 0): 3,
        }

    @proves(Rule.EXPIRY)
    def test_what_the_last_group_wrote_stays(self, expiring: StateDriver) -> None:
        if not expiring.backend.groups:
            pytest.skip("the store takes no groups")
        expiring.run_group(3, [putting_rows({("a", 0): (5, 9)}), putting_rows({("c", 0): (5, 9)})])

        assert expire(expiring, 100, 99) == 3
        expiring.run_group(3, [lambda _: None] * 2, attempt=1)
        assert {key: row["sold"] for key, row in expiring.contents().items()} == {("a", 0): 1}

    @proves(Rule.EXPIRY)
    def test_a_deposed_coordinator_deletes_nothing(
        self, ranged: State, expiring: StateDriver, drive: Drive, unfenced: None
    ) -> None:
        expiring.run(2, lambda _: None)
        new = drive(ranged, epoch=2)

        with pytest.raises(PromiseError):
            expiring.backend.expire(100, 2)
        assert new.contents().keys() == ROWS.keys()
        assert expire(new, 100, 2) == len(ROWS)

    @proves(Rule.EXPIRY)
    def test_a_state_that_another_has_taken_over_keeps_its_rows(
        self, ranged: State, expiring: StateDriver, drive: Drive, unfenced: None
    ) -> None:
        expiring.run(2, lambda _: None)
        other = drive(ranged)
        other.backend.claim(release(1))

        with pytest.raises(PromiseError):
            expiring.backend.expire(100, 2)
        assert expiring.contents().keys() == ROWS.keys()

    @proves(Rule.EXPIRY)
    def test_nothing_is_deleted_without_a_claim(self, ranged: State, expiring: StateDriver) -> None:
        expiring.run(2, lambda _: None)
        stranger = ranged.open()

        with pytest.raises(PromiseError):
            stranger.expire(100, 2)
        stranger.close()
        assert expiring.contents().keys() == ROWS.keys()

    @proves(Rule.EXPIRY)
    def test_commits_go_on_after_an_expiry(
        self, ranged: State, expiring: StateDriver, drive: Drive
    ) -> None:
        """The ledger is unchanged, so an earlier committer can continue."""
        for txid in range(2, 7):
            rows = {("a", txid): (txid, txid), ("b", 10): (15, txid)}
            for attempt in range(2):
                expiring.run(txid, putting_rows(rows), attempt)
                expire(expiring, txid - 2, txid - 1)
        new = drive(ranged, epoch=2)  # a store may delete rarely
        expire(new, 4, 5)
        assert new.contents().keys() == {
            *(key for key, (ends, _) in ROWS.items() if ends > 4),
            *(("a", txid) for txid in (5, 6)),
        }

    @proves(Rule.EXPIRY)
    def test_a_row_that_was_given_a_later_time_stays(self, expiring: StateDriver) -> None:
        """Its time counts, not the one of before, to which an undo would lead back."""
        expiring.run(2, putting_rows({("a", 0): (20, 9), ("b", 10): (3, 9)}))
        expiring.run(3, lambda _: None)

        assert expire(expiring, 10, 3) == 3
        assert {key: row["sold"] for key, row in expiring.contents().items()} == {("a", 0): 9}

    @proves(Rule.EXPIRY)
    def test_rows_expire_by_the_first_column_of_their_key(self, url: str, drive: Drive) -> None:
        """As those of an ``Append`` do; ends are inclusive, to the microsecond."""
        key, value = Fields("seen timestamp, batch long, number long"), Fields("n long")
        store = drive(self.declared(url, "appended", key, value).ranged("seen"))
        if not deletes(store):
            pytest.skip("StateBackend.expire of the store deletes nothing")
        start, step = datetime(2026, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
        store.puts(1, {(start + at * step, 1, number): at for at in range(3) for number in (1, 2)})
        store.puts(2, {(start, 2, 1): 9})
        store.puts(3, {})

        assert expire(store, start + step, 2) == 4
        assert store.contents().keys() == {
            (start, 2, 1),
            *((start + 2 * step, 1, number) for number in (1, 2)),
        }

    @proves(Rule.EXPIRY)
    def test_many_rows_expire(self, url: str, drive: Drive, extent: Extent) -> None:
        """A store may delete some at a time, and is called again."""
        key, value = Fields("k long"), Fields("ends timestamp")
        store = drive(self.declared(url, "lasting", key, value).ranged("ends"))
        if not deletes(store):
            pytest.skip("StateBackend.expire of the store deletes nothing")
        start = datetime(2026, 1, 1, tzinfo=UTC)
        count = extent.many
        ends = {at: start + timedelta(seconds=at) for at in range(count)}
        store.puts(1, ends)
        store.puts(2, {})

        assert expire(store, ends[count - 10], 2) == count - 9
        assert store.contents().keys() == set(range(count - 9, count))


def deletes(store: StateDriver) -> bool:
    """Return whether a backend deletes what expires."""
    return store.backend.deletes_expired


def expire(store: StateDriver, up_to: Any, before_txid: int) -> int:
    """Delete what expires, as the runtime does, and return how many rows that were."""
    total = 0
    while count := store.backend.expire(up_to, before_txid):
        total += count
    return total


def putting_rows(rows: Mapping[Any, Any]) -> Body:
    """Return a body that puts values."""

    def body(state: StateTransaction) -> None:
        for key, value in rows.items():
            state.put(key, value)

    return body


def between(above: Any, up_to: Any) -> Body:
    """Return a body that reads a range of ``ends``, as keys and sums."""

    def body(state: StateTransaction) -> list[tuple[Any, ...]]:
        rows = list(_rows(state.between("ends", above, up_to)))
        columns = state.columns_between("ends", above, up_to)
        assert list(rows_of(columns.select(["shop", "start", "sold"]))) == rows
        return rows

    return body


def starting(*prefixes: tuple[Any, ...]) -> Body:
    """Return a body that reads by prefixes, as keys and sums."""
    return lambda state: list(_rows(state.starting(prefixes)))


def starting_keys(key: Fields, prefixes: list[tuple[Any, ...]]) -> Body:
    """Return a body that reads the keys that begin with prefixes."""

    def body(state: StateTransaction) -> list[Any]:
        keys = [key for key, _ in state.starting(prefixes)]
        if prefixes:
            schema = key.select(key.names[: len(prefixes[0])]).arrow_schema()
            columns = [list(column) for column in zip(*prefixes, strict=True)]
            asked = pa.Table.from_arrays(
                [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
            )
            found = state.columns_starting(asked).select(list(key.names))
            assert list(rows_of(found)) == keys
        return keys

    return body


def _rows(found: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Any, ...]]:
    return ((*key, values["sold"]) for key, values in found)


def _samples(kind: str) -> list[Any]:
    if not kind.startswith("timestamp"):
        bits = {"byte": 8, "short": 16, "int": 32, "long": 64}[kind]
        return [-(1 << (bits - 1)), -1, (1 << (bits - 1)) - 1]
    zone = UTC if kind == "timestamp" else None
    noon = datetime(2026, 1, 1, 12, tzinfo=zone)
    return [datetime(1969, 12, 31, 23, tzinfo=zone), noon, noon + timedelta(microseconds=1)]
