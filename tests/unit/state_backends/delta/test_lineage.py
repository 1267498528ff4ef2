"""A Delta state whose rows others have changed is refused, at rest and while it is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from txtopo import Fields
from txtopo.errors import StoreDamagedError
from txtopo.state import Count, State, open_state
from txtopo.testing.conformance.driver import StateDriver

NOT_THOSE = "do not match its ledger: version"


@pytest.fixture(params=["table", "log"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> State:
    opened = open_state(f"delta://{tmp_path}/states", table="counts", mode=request.param)
    return opened.with_columns(Fields("key string"), Fields("value long"), aggregates=(Count(),))


def table(tmp_path: Path) -> DeltaTable:
    return DeltaTable(f"{tmp_path}/states/counts")


def written(state: State, txids: int = 4) -> StateDriver:
    store = StateDriver(state)
    for txid in range(1, txids + 1):
        store.merge(txid, [("a", 1), ("b", 1)])
    return store


def restore(found: DeltaTable) -> None:
    found.restore(found.version() - 2)


def append(found: DeltaTable) -> None:
    rows = pa.table({"key": ["c"], "value": [1], "txid": [9]})
    write_deltalake(found, rows, mode="append", schema_mode="merge")


CHANGES: dict[str, Callable[[DeltaTable], object]] = {
    "restored": restore,
    "deleted": lambda found: found.delete("key = 'a'"),
    "updated": lambda found: found.update({"value": "7"}, predicate="key = 'a'"),
    "appended": append,
}


@pytest.mark.rule("state_backends.delta.lineage", "Rules", 1)
@pytest.mark.parametrize("change", CHANGES)
def test_who_changes_rows_and_not_the_ledger_is_noticed_by_a_start(
    tmp_path: Path, state: State, change: str
) -> None:
    written(state).close()
    CHANGES[change](table(tmp_path))

    for epoch in (2, 3):
        with pytest.raises(StoreDamagedError, match=NOT_THOSE):
            StateDriver(state, epoch=epoch)


@pytest.mark.rule("state_backends.delta.backend", "Rules", 7)
@pytest.mark.rule("state_backends.delta.lineage", "Rules", 2, 3)
@pytest.mark.parametrize("change", ["restored", "appended"])
def test_who_changes_rows_while_they_are_written_is_noticed_by_the_next_commit(
    tmp_path: Path, state: State, change: str
) -> None:
    """Also where the commit meets no conflict, as two appends do, and by each start afterwards."""
    store = written(state)
    CHANGES[change](table(tmp_path))

    with pytest.raises(StoreDamagedError, match=NOT_THOSE):
        store.merge(5, [("a", 1)])
    store.close()
    with pytest.raises(StoreDamagedError, match=NOT_THOSE):
        StateDriver(state, epoch=2)


@pytest.mark.rule("state_backends.delta.lineage", "Rules", 1)
def test_who_brings_the_rows_back_is_let_in(tmp_path: Path, state: State) -> None:
    written(state).close()
    found = table(tmp_path)
    right = found.version()
    restore(found)
    with pytest.raises(StoreDamagedError, match=f"expected the files of version {right}"):
        StateDriver(state, epoch=2)
    table(tmp_path).restore(right)

    successor = StateDriver(state, epoch=3)
    successor.merge(5, [("a", 1)])
    assert successor.contents() == {"a": 5, "b": 4}
    successor.close()


@pytest.mark.rule("state_backends.delta.lineage", "Rules", 1)
def test_who_changes_no_rows_does_no_harm(tmp_path: Path, state: State) -> None:
    store = written(state)
    found = table(tmp_path)
    found.optimize.compact()
    found.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    found.alter.set_table_properties({"custom.note": "tidied"}, raise_if_not_exists=False)
    store.merge(5, [("a", 1)])
    table(tmp_path).optimize.compact()
    store.close()

    successor = StateDriver(state, epoch=2)
    assert successor.contents() == {"a": 5, "b": 4}
    successor.merge(6, [])
    successor.close()
    StateDriver(state, epoch=3).close()


@pytest.mark.rule("state_backends.delta.lineage", "Rules", 1)
def test_who_takes_an_optimize_back_does_no_harm(tmp_path: Path, state: State) -> None:
    """The rows are the same, in the files of the version before."""
    written(state).close()
    found = table(tmp_path)
    version = found.version()
    found.optimize.z_order(["key"])
    table(tmp_path).restore(version)
    assert table(tmp_path).version() > version + 1

    StateDriver(state, epoch=2).close()
    table(tmp_path).restore(version - 1)
    with pytest.raises(StoreDamagedError, match=NOT_THOSE):
        StateDriver(state, epoch=3)


@pytest.mark.integration
def test_folds_and_upkeep_of_many_txids_do_no_harm(tmp_path: Path, state: State) -> None:
    store = written(state, 60)
    store.close()

    assert StateDriver(state, epoch=2).contents() == {"a": 60, "b": 60}
