"""Suites of writers that die in the middle of a write, and of writes that raise there.

A separate process opens the store and dies (:mod:`~txtopo.testing.conformance.deaths`). After each
death the store is opened again, as by the next coordinator. It must hold the whole write or nothing
of it, and the next writes must have the right results.

* :class:`DyingSuite`: commits of partial aggregates, groups, and the first start.
* :class:`DyingPutsSuite`: commits of final values; redos; a table that gets new columns.
* :class:`RaisingSuite`: rows that raise when they are read. The same object continues.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import pytest

from txtopo.errors import StoreUnavailable
from txtopo.plugins.stores import Key, Ledger, Merges, Puts, Row, RowBackend, StateBackend
from txtopo.state import State, open_state
from txtopo.testing.conformance.deaths import Deaths, Work, dies_at, done, spread, steps_of
from txtopo.testing.conformance.driver import (
    Drive,
    StateDriver,
    StoreFixtures,
    packed,
    partials,
    patiently,
)
from txtopo.testing.conformance.evolution_suites import NEW, OLD
from txtopo.testing.conformance.pace import Extent
from txtopo.testing.conformance.rules import Rule, proves

Value = TypeVar("Value")

Counts = dict[str, int]

Writes = Puts | Merges


@dataclass(frozen=True)
class Commit(Work):
    """A coordinator that opens a state, claims it and dies in its first commit."""

    state: State
    epoch: int
    txid: int
    writes: Writes
    first: int | None = None

    def prepare(self) -> Callable[[], object]:
        """Open and claim the state."""
        store = _opened(self.state, self.epoch)
        return partial(store.commit, self.txid, self.writes, first=self.first)


@dataclass(frozen=True)
class FirstStart(Work):
    """A first coordinator, which creates the table, claims the state and commits txid 1."""

    state: State
    writes: Writes

    def prepare(self) -> Callable[[], object]:
        """Prepare nothing."""
        return self._start

    def _start(self) -> object:
        return StateDriver(self.state).commit(1, self.writes)


@dataclass(frozen=True)
class ChangingClaim(Work):
    """A coordinator that claims a state and adds columns to its table."""

    state: State
    epoch: int

    def prepare(self) -> Callable[[], object]:
        """Prepare nothing."""
        return partial(StateDriver, self.state, self.epoch, changes_table=True)


class Batches:
    """What successive txids write; a subclass defines its form and its effect on a state.

    The state has the same keys whenever :meth:`another` was committed, so that writes of the same
    batch have the same steps.

    Args:
        rows: How many further rows each batch writes.
    """

    def __init__(self, state: State, rows: int = 0) -> None:
        self.state = state
        self.rows = rows

    def of(self, txid: int) -> tuple[Writes, Callable[[Counts], Counts]]:
        """Return a batch, and the contents of the state after it."""
        raise NotImplementedError

    def another(self, txid: int) -> tuple[Writes, Callable[[Counts], Counts]]:
        """Return another batch, with other keys."""
        raise NotImplementedError


class AddedCounts(Batches):
    """Counts that are added to those of the keys."""

    def of(self, txid: int) -> tuple[Writes, Callable[[Counts], Counts]]:
        further = [(f"many {n}", txid) for n in range(self.rows)]
        return self._packed([("a", txid), ("b", 2), ("c", 1), *further])

    def another(self, txid: int) -> tuple[Writes, Callable[[Counts], Counts]]:
        return self._packed([("a", 7), ("d", txid)])

    def _packed(self, rows: list[tuple[str, int]]) -> tuple[Writes, Callable[[Counts], Counts]]:
        def after(contents: Counts) -> Counts:
            return {**contents, **{key: contents.get(key, 0) + count for key, count in rows}}

        return partials(self.state, rows), after


class _Finals(Batches):
    def of(self, txid: int) -> tuple[Writes, Callable[[Counts], Counts]]:
        further = {f"many {n}": txid for n in range(self.rows)}
        return self._packed({"a": txid, "b": None, "c": -txid, "new": txid, **further})

    def another(self, txid: int) -> tuple[Writes, Callable[[Counts], Counts]]:
        return self._packed({"a": -txid, "b": txid, "new": None})

    def _packed(self, rows: Mapping[str, int | None]) -> tuple[Writes, Callable[[Counts], Counts]]:
        def after(contents: Counts) -> Counts:
            merged = {**contents, **rows}
            return {key: value for key, value in merged.items() if value is not None}

        return packed(rows), after


@dataclass
class Survivor:
    """The expected state while one coordinator after the other dies in a write to it.

    Attributes:
        suite: What the store declares.
        batches: What they commit.
        members: How many txids they commit in one write.
        redo: Whether they die in a redo: an earlier attempt has written another batch.
        txid: The last txid in the state.
        contents: The contents of the state after that txid.
    """

    suite: StoreFixtures
    batches: Batches
    members: int = 1
    redo: bool = False
    txid: int = 0
    contents: Counts = field(default_factory=dict)
    epoch: int = 0

    def begin(self) -> None:
        """Commit two txids, after which every key that :attr:`batches` leave exists."""
        with self._next() as store:
            self._commit(store, *self.batches.of(1), members=1)
            self._commit(store, *self.batches.another(2), members=1)

    def deaths(self) -> Deaths:
        """Begin the state, and return the object that lets writers die in it."""
        self.begin()
        return Deaths(self.dying, self.check, self.check_done)

    def dying(self) -> Commit:
        """Return the work of a coordinator that dies in the next commit."""
        last = self.txid + self.members
        if self.redo:
            with self._next() as store:
                store.commit(last, self.batches.another(last)[0], first=self.txid + 1)
        self.epoch += 1
        writes, _ = self.batches.of(last)
        return Commit(self.batches.state, self.epoch, last, writes, self.txid + 1)

    def check_done(self) -> None:
        """Check that the write of a process that has ended exists."""
        last = self.txid + self.members
        with self._next() as store:
            assert (store.ledger.txid, store.ledger.writer_epoch) == (last, self.epoch - 1), (
                "the write of another process is missing; a factory whose stores are in the "
                "memory of a process must declare shared_by_processes = False"
            )
            self.txid, self.contents = last, self.batches.of(last)[1](self.contents)
            assert store.contents() == self.contents
            self._commit(store, *self.batches.another(last + 1), members=1)

    def check(self, death: str) -> bool:
        """Check the state after a death, and that the next writes have the right results.

        Returns:
            Whether the write took effect.
        """
        last = self.txid + self.members
        before = self.contents
        if self.redo:
            before = self.batches.another(last)[1](before)
        whole = self.batches.of(last)[1](self.contents)
        with self._next() as store:
            landed = store.ledger.writer_epoch == self.epoch - 1
            right = whole if landed else before
            if self.suite.atomic_reader:
                found = store.contents()
                assert found == right, (
                    f"{death}; the ledger says that txid {last} was "
                    f"{'written' if landed else 'not written'} by it, and the rows say otherwise"
                )
            transactional = self.batches.state.kind == "transactional"
            redo = self.batches.of if transactional else self.batches.another
            self._commit(store, *redo(last), members=self.members)
            assert store.contents() == self.contents, f"after a redo: {death}"
            self._commit(store, *self.batches.another(last + 1), members=1)
            assert store.contents() == self.contents, f"after a redo and a txid: {death}"
        return landed

    def _commit(
        self, store: StateDriver, writes: Writes, after: Callable[[Counts], Counts], members: int
    ) -> None:
        last = self.txid + members
        patiently(partial(store.commit, last, writes, first=self.txid + 1))
        self.txid, self.contents = last, after(self.contents)

    def _next(self) -> closing[StateDriver]:
        self.epoch += 1
        return closing(patiently(partial(StateDriver, self.batches.state, self.epoch)))


class DeathFixtures(StoreFixtures):
    """What the suites of deaths have in common."""

    @pytest.fixture
    def most(self, extent: Extent, url: str) -> int:
        """How many deaths are spread over a kind of write."""
        if not self.forks:
            pytest.skip("no other process opens the store as this one does: forks = False")
        if not open_state(url, "opaque", "any").shared_by_processes:
            pytest.skip("the store is in the memory of a process, and dies with it")
        return extent.deaths


class DyingSuite(DeathFixtures):
    """Coordinators that die in commits of partial aggregates, or in their first start."""

    @proves(Rule.ONE_WRITE)
    def test_a_merge_whose_writer_dies_is_there_whole_or_not_at_all(
        self, counts: State, most: int
    ) -> None:
        Survivor(self, AddedCounts(counts)).deaths().at_each_step(most)

    @proves(Rule.UNDO)
    def test_a_redo_whose_writer_dies_leaves_one_of_both_attempts(
        self, counts: State, most: int
    ) -> None:
        """The write of the second attempt also undoes the first attempt."""
        Survivor(self, AddedCounts(counts), redo=True).deaths().at_each_step(0)

    @proves(Rule.KEPT)
    def test_a_transactional_merge_whose_writer_dies_is_added_once(
        self, kept_counts: State, most: int
    ) -> None:
        Survivor(self, AddedCounts(kept_counts)).deaths().at_each_step(0)

    @proves(Rule.GROUP)
    def test_a_group_whose_writer_dies_is_there_whole_or_not_at_all(
        self, counts: State, most: int
    ) -> None:
        if not _backend_of(counts).groups:
            pytest.skip("the store is given no groups: its StateBackend.groups is False")
        Survivor(self, AddedCounts(counts), members=3).deaths().at_each_step(0)

    @proves(Rule.ONE_WRITE)
    def test_a_large_merge_whose_writer_dies_at_any_time_is_there_whole_or_not_at_all(
        self, counts: State, extent: Extent, most: int
    ) -> None:
        """The writer may die even in the middle of one call that writes all rows."""
        Survivor(self, AddedCounts(counts, rows=extent.many)).deaths().at_any_time()

    @proves(Rule.DURABLE)
    def test_a_first_start_that_dies_is_no_hindrance(self, url: str, most: int) -> None:
        """The next one creates what is missing."""
        names = (f"first{n}" for n in itertools.count())

        def start() -> FirstStart:
            state = self.counted(url, next(names))
            return FirstStart(state, AddedCounts(state).of(1)[0])

        done(start())
        steps = steps_of(start())
        for step in spread(steps.calls_apart, 2 * most):
            first = start()
            dies_at(first, step)
            batch = AddedCounts(first.state).of(1)[1]({})
            with closing(patiently(partial(StateDriver, first.state, 2))) as store:
                if self.atomic_reader:
                    assert store.contents() == (batch if store.ledger.txid else {}), steps.places[
                        step
                    ]
                store.commit(1, first.writes)
                assert store.contents() == batch, f"the first start died {steps.places[step]}"


class DyingPutsSuite(DeathFixtures):
    """Coordinators that die in commits of final values, or while they change a table."""

    @proves(Rule.ONE_WRITE)
    def test_a_put_whose_writer_dies_is_there_whole_or_not_at_all(
        self, state: State, most: int
    ) -> None:
        Survivor(self, _Finals(state)).deaths().at_each_step(most)

    @proves(Rule.UNDO)
    def test_a_redo_of_puts_whose_writer_dies_leaves_one_of_both_attempts(
        self, state: State, most: int
    ) -> None:
        Survivor(self, _Finals(state), redo=True).deaths().at_each_step(0)

    @proves(Rule.ONE_WRITE)
    def test_a_large_put_whose_writer_dies_at_any_time_is_there_whole_or_not_at_all(
        self, state: State, extent: Extent, most: int
    ) -> None:
        Survivor(self, _Finals(state, rows=extent.many)).deaths().at_any_time()

    @proves(Rule.EVOLVES)
    def test_a_change_of_a_table_whose_claim_dies_is_made_by_the_next_one(
        self, url: str, most: int
    ) -> None:
        if not _backend_of(self.declared(url, "any")).evolves:
            pytest.skip("the store changes no columns: evolves = False")
        names = (f"changing{n}" for n in itertools.count())

        def claim() -> ChangingClaim:
            table = next(names)
            with closing(StateDriver(self.declared(url, table, value=OLD))) as store:
                store.puts(1, {"a": 1, "gone": 5})
                store.puts(2, {"a": 2, "gone": None})
            defaults = {"refunds": 7, "note": None}
            return ChangingClaim(open_state(url, table=table, value=NEW, defaults=defaults), 2)

        done(claim())
        steps = steps_of(claim())
        for step in spread(steps.calls_apart, 2 * most):
            dead = claim()
            dies_at(dead, step)
            with closing(_opened(dead.state, 3, changes_table=True)) as store:
                assert store.ledger.txid == 2
                assert store.contents() == {"a": _paid(2)}, f"a claim died {steps.places[step]}"
                store.commit(2, Puts({}))
                assert store.contents() == {"a": _paid(1), "gone": _paid(5)}, steps.places[step]


class RaisingSuite(StoreFixtures):
    """Rows that raise in the middle of a write, like a store that becomes unreachable."""

    @proves(Rule.ONE_WRITE)
    def test_a_write_whose_rows_raise_writes_nothing_and_is_tried_again(
        self, state: State, drive: Drive
    ) -> None:
        """The runtime tries again with the same object after ``StoreUnavailable``."""
        store, contents = drive(state), {"a": 0, "b": 0}
        store.puts(1, contents)
        for accesses in range(_ACCESSES_MAX):
            txid = accesses + 2
            batch = {"a": txid, "b": None if txid % 2 else txid, f"new {txid}": 1, "c": txid}
            if not _raises(store, txid, packed(batch), accesses):
                return
            whole = {k: v for k, v in {**contents, **batch}.items() if v is not None}
            if self.atomic_reader:
                assert _held(state) in ((txid - 1, contents), (txid, whole)), (
                    f"the rows raised at access {accesses}, and a part of them was written"
                )
            patiently(partial(store.puts, txid, batch))
            contents = whole
            assert (store.contents(), _held(state)) == (contents, (txid, contents)), (
                f"after another try, since the rows raised at access {accesses}"
            )
        raise AssertionError(f"a batch of four rows was read more than {_ACCESSES_MAX} times")


_ACCESSES_MAX = 200


class RaisingRows(Mapping[Key, Value]):
    """Rows that raise ``StoreUnavailable`` when they are read too often.

    Args:
        rows: The rows.
        accesses: How many accesses are answered.
    """

    def __init__(self, rows: Mapping[Key, Value], accesses: int) -> None:
        self._rows = rows
        self._left = accesses
        self.raised = False

    def __getitem__(self, key: Key) -> Value:
        """Return a row."""
        self._access()
        return self._rows[key]

    def __iter__(self) -> Iterator[Key]:
        """Yield the keys."""
        for key in self._rows:
            self._access()
            yield key

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self._rows)

    def _access(self) -> None:
        self._left -= 1
        if self._left < 0:
            self.raised = True
            raise StoreUnavailable("the rows raise here, as the test wanted; nothing was written")


def _raises(store: StateDriver, txid: int, batch: Puts, accesses: int) -> bool:
    """Commit a batch whose rows raise; return False if they were read to the end first."""
    given: list[RaisingRows[Any]] = []

    def raising(rows: Mapping[Key, Value]) -> RaisingRows[Value]:
        given.append(RaisingRows(rows, accesses))
        return given[-1]

    backend = store.backend
    if isinstance(backend, RowBackend):
        replace_rows = backend.replace

        def replaced(
            expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
        ) -> bool:
            return replace_rows(expected, ledger, raising(changes))

        backend.replace = replaced  # type: ignore[method-assign]
    else:
        batch = replace(batch, rows=raising(batch.rows))
    try:
        backend.commit(store.attempt(txid), batch)
    except Exception:  # noqa: BLE001 - a store may turn the error into one of its own
        assert any(rows.raised for rows in given), "it raised before the rows did"
        return True
    finally:
        if isinstance(backend, RowBackend):
            del backend.replace
    assert not any(rows.raised for rows in given), "the rows raised, and the commit did not"
    return False


def _held(state: State) -> tuple[int | None, dict[Any, Any]]:
    """Return the txid that the state holds, and its contents, read by another object."""
    with closing(state.open()) as other, other.snapshot() as snapshot:
        rows = {key[0]: row.visible() for key, row in snapshot.items()}
        contents = {key: values[0] for key, values in rows.items() if values is not None}
        return snapshot.ledger.txid if snapshot.ledger else None, contents


def _backend_of(state: State) -> StateBackend:
    """Return a closed backend of the store, since some stores allow only one process."""
    backend = state.open()
    backend.close()
    return backend


def _opened(state: State, epoch: int, *, changes_table: bool = False) -> StateDriver:
    """Open and claim a state, even if a dead process's locks are not released at once."""
    return patiently(partial(StateDriver, state, epoch, changes_table=changes_table))


def _paid(paid: int) -> dict[str, object]:
    return {"paid": paid, "refunds": 7, "note": None}
