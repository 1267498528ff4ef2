"""The ledger is locked, checked and written by one statement, and what that may not hide.

Who has committed knows the ledger, and that the state has no tombstones, until another one writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.unit.state_backends.watching import statements_said
from txtopo.errors import FencedError, ForeignStateError
from txtopo.state import State, open_state
from txtopo.state.commit import commit_all_resolved
from txtopo.testing.conformance.driver import StateDriver, claim_of, packed, whole_ledger


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(f"sqlite:///{tmp_path}/states.db", table="counts")


@pytest.fixture
def writer(state: State) -> Iterator[StateDriver]:
    """A coordinator that has committed two txids."""
    writer = StateDriver(state)
    writer.puts(1, {"a": 1})
    writer.puts(2, {"a": 2})
    yield writer
    writer.backend.close()


def verbs(said: list[str]) -> list[str]:
    return [statement.split()[0] for statement in said]


def rows(writer: StateDriver) -> dict[tuple[object, ...], bool]:
    """Return whether each row is a tombstone."""
    with writer.backend.snapshot() as snapshot:
        return {key: row.deleted for key, row in snapshot.items()}


def test_who_goes_on_reads_no_ledger_and_looks_for_no_tombstone(writer: StateDriver) -> None:
    with statements_said() as said:
        writer.puts(3, {"a": 3})

    assert "SELECT" not in verbs(said)
    assert "DELETE" not in verbs(said)
    assert writer.contents() == {"a": 3}


@pytest.mark.rule("state_backends.sql.backend", "Rules", 1)
def test_who_left_another_ledger_is_refused(state: State, writer: StateDriver) -> None:
    """Its epoch was deposed, or it is behind: the row is not what it left."""
    successor = StateDriver(state, epoch=2)

    with pytest.raises(FencedError):
        writer.puts(3, {"a": 30})

    assert successor.puts(3, {"b": 3}).txid == 3
    with pytest.raises(FencedError):
        writer.puts(3, {"a": 30})
    assert successor.contents() == {"a": 2, "b": 3}


@pytest.mark.rule("state_backends.sql.backend", "Rules", 1)
def test_who_left_the_ledger_of_another_owner_is_refused(state: State, writer: StateDriver) -> None:
    """An operator gave the state away within the epoch: nothing else differs."""
    meant = replace(claim_of(component="another"), replaces=writer.held())
    beside = state.open()
    beside.claim(meant)

    with pytest.raises(ForeignStateError):
        writer.puts(3, {"a": 30})

    assert writer.contents() == {"a": 2}
    beside.close()


def test_a_redo_is_not_taken_for_the_next_txid(writer: StateDriver) -> None:
    writer.puts(2, {"b": 2}, attempt=1)

    assert writer.contents() == {"a": 1, "b": 2}
    assert writer.puts(5, {"b": 5}, first=3).txid == 5
    assert writer.puts(6, {"a": 6}).txid == 6
    assert writer.contents() == {"a": 6, "b": 5}


def test_tombstones_that_a_commit_left_are_removed_by_the_next(writer: StateDriver) -> None:
    writer.puts(3, {"a": None})
    assert rows(writer) == {("a",): True}

    writer.puts(4, {"b": 4})

    assert rows(writer) == {("b",): False}


def test_tombstones_that_another_one_left_are_removed(state: State, writer: StateDriver) -> None:
    beside = StateDriver(state)
    beside.puts(3, {"a": None})

    writer.puts(4, {"b": 4})

    assert rows(writer) == {("b",): False}
    beside.backend.close()


@pytest.mark.rule("state_backends.sql.backend", "Rules", 5)
def test_the_ledgers_of_a_transaction_are_locked_in_the_order_of_their_names(
    tmp_path: Path,
) -> None:
    """Whatever order they are given in; else two transactions could block each other."""
    url = f"sqlite:///{tmp_path}/states.db"
    given = [StateDriver(open_state(url, table=name), component=name) for name in "cab"]
    locked: list[object] = []

    def executed(connection: object, cursor: object, statement: str, given: Any, *_: Any) -> None:
        if statement.startswith("UPDATE txtopo_ledger"):
            rows = given if isinstance(given, list) else [given]
            locked.extend(name for row in rows for name in row if name in ("a", "b", "c"))

    sa.event.listen(sa.Engine, "before_cursor_execute", executed)
    try:
        # At first each ledger is read; then all are replaced as they were left.
        for txid in (1, 2):
            locked.clear()
            writes = [(each.backend, packed({"k": txid})) for each in given]
            commit_all_resolved(given[0].attempt(txid), writes)
            assert [name for name, _ in itertools.groupby(locked)] == ["a", "b", "c"]
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", executed)
        for each in given:
            each.close()


def test_a_ledger_that_is_not_as_it_was_left_takes_back_those_that_are(tmp_path: Path) -> None:
    """Another writer was here between two shared transactions: all begins again, with locks."""
    url = f"sqlite:///{tmp_path}/states.db"
    given = [StateDriver(open_state(url, table=name), component=name) for name in "ab"]
    other = StateDriver(open_state(url, table="b"), component="b")
    writes = [(each.backend, packed({"k": 1})) for each in given]
    commit_all_resolved(given[0].attempt(1), writes)
    other.puts(2, {"k": 2})

    commit_all_resolved(
        given[0].attempt(2, 1), [(each.backend, packed({"k": 3})) for each in given]
    )

    assert [each.contents() for each in given] == [{"k": 3}, {"k": 3}]
    assert [each.held() for each in given] == [
        replace(whole_ledger("topology", 1, 2, 1, 1), component=name) for name in "ab"
    ]
    for each in (*given, other):
        each.close()
