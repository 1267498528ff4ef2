"""What the ledger notes of a row, and what a claim finds wrong by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from state_backends.memory import MemoryBackend
from txtopo.attempt import TransactionAttempt
from txtopo.errors import PlugInError, StoreDamagedError
from txtopo.plugins.stores import (
    Contents,
    Key,
    Ledger,
    Merges,
    Puts,
    Row,
    Snapshot,
    Standing,
    Witness,
    witness_of,
)
from txtopo.state import Count, State, open_state
from txtopo.state.commit import claim_state
from txtopo.state.witness import Left, check_none_later
from txtopo.testing.conformance.driver import StateDriver, claim_of, partials
from txtopo.tuples import Fields

KEY, VALUE = Fields("key string"), Fields("value long")
ATTEMPT = TransactionAttempt(4, 0, 1)
HELD = Ledger("t", 1, 3, witness=Witness(2, Left.THERE, '["b"]').text())


@pytest.fixture
def state() -> State:
    return open_state("memory:", table="counts").with_columns(KEY, VALUE)


def noted(state: State, writes: Puts | Merges, found: Standing = Standing.APPLY) -> str:
    return witness_of(state.layout(), HELD, ATTEMPT, writes, found)


def restored(store: StateDriver, contents: Contents) -> None:
    """Bring back the rows of a state, and not its ledger."""
    backend = store.backend
    assert isinstance(backend, MemoryBackend)
    held = backend.load()
    backend._store.tables["counts"] = (backend.table, replace(contents, ledger=held.ledger))


def contents(store: StateDriver) -> Contents:
    assert isinstance(store.backend, MemoryBackend)
    return store.backend.load()


@pytest.mark.rule("txtopo.state.witness", "Rules", 1)
def test_one_row_of_a_write_is_noted_and_no_row_changes_nothing(state: State) -> None:
    counts = replace(state, aggregates=(Count(),))

    assert Witness.of(noted(state, Puts({("a",): (1,)}))) == Witness(4, Left.THERE, '["a"]')
    deletes_first = Puts({("a",): None, ("b",): (1,)})
    assert Witness.of(noted(state, deletes_first)) == Witness(4, Left.THERE, '["b"]')
    assert Witness.of(noted(state, Puts({("a",): None}))) == Witness(4, Left.GONE, '["a"]')
    assert Witness.of(noted(counts, partials(counts, [("c", 1)]))).key == '["c"]'
    assert noted(state, Puts({})) == HELD.witness
    assert noted(counts, partials(counts, [])) == HELD.witness


@pytest.mark.rule("txtopo.state.witness", "Rules", 2)
def test_a_redo_without_rows_drops_the_note_of_what_it_undoes(state: State) -> None:
    redone = TransactionAttempt(2, 1, 1)
    none = Puts({})

    assert witness_of(state.layout(), HELD, redone, none, Standing.REDO) == ""
    assert noted(state, none, Standing.REDO) == HELD.witness
    kept = replace(state, kind="transactional").layout()
    assert witness_of(kept, HELD, redone, Puts({("z",): (1,)}), Standing.REDO) == HELD.witness


def test_what_the_store_refuses_is_not_noted(state: State) -> None:
    counts = replace(state, aggregates=(Count(),))
    wrong = Merges(pa.table({"key": pa.array([None], pa.string()), "value": [1]}))

    assert noted(counts, wrong) == HELD.witness


@pytest.mark.rule("txtopo.state.witness", "Rules", 3)
def test_rows_of_an_earlier_txid_are_refused_and_name_both(state: State) -> None:
    store = StateDriver(state)
    store.puts(1, {"a": 1})
    before = contents(store)
    store.puts(2, {"a": 2})
    store.puts(3, {})
    restored(store, before)

    with pytest.raises(StoreDamagedError, match="the table restored from a backup") as caught:
        StateDriver(state, epoch=2)
    error = caught.value
    assert (error.ledger_txid, error.expected_txid, error.row_txid) == (3, 2, 1)


def test_rows_of_later_txids_than_the_ledger_are_found_in_all_rows(state: State) -> None:
    store = StateDriver(state)
    store.puts(1, {"a": 1})
    rows = {**contents(store).rows, ("b",): Row(7, (1,))}
    restored(store, Contents(None, rows))

    with store.backend.snapshot() as snapshot, pytest.raises(StoreDamagedError, match="txid 7"):
        check_none_later(snapshot, "counts")


class Forgets(MemoryBackend):
    """Does not read the note of its ledger back."""

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        with super().snapshot() as snapshot:
            assert snapshot.ledger is not None
            yield _Read(replace(snapshot.ledger, witness=""))


class _Read(Snapshot):
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        return {}

    def items(self) -> Iterator[tuple[Key, Row]]:
        return iter(())


def test_a_plug_in_that_drops_the_note_is_refused(state: State) -> None:
    store = StateDriver(state)
    store.puts(1, {"a": 1})
    assert isinstance(store.backend, MemoryBackend)
    backend = Forgets(store.backend._store, state.layout())

    with pytest.raises(PlugInError, match="these differ: witness"):
        claim_state(backend, claim_of("topology", 2), "counts", state.layout())
