"""States in SQLite files."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.unit.state_backends.extent import OwnExtent
from tests.unit.state_backends.schema_suite import SchemaSuite
from txtopo.errors import (
    StateUsageError,
    StoreUnavailable,
    TopologyError,
)
from txtopo.state import State, open_state
from txtopo.testing.conformance import MillionKeysSuite, StateBackendSuite
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.integration


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/states.db"


@pytest.fixture
def state(url: str) -> State:
    return open_state(url, table="counts")


class TestStateBackend(OwnExtent, StateBackendSuite):
    refused = frozenset({"nan", "negative zero", "surrogates in keys", "surrogates in strings"})
    decimal_digits = 18


@pytest.mark.slow
class TestMillionKeys(MillionKeysSuite):
    pass


class TestSchema(SchemaSuite):
    pass


def test_a_file_in_memory_is_refused() -> None:
    for url in ("sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"):
        with pytest.raises(TopologyError, match="needs a file"):
            open_state(url, table="counts").open()


def test_a_log_is_refused_with_the_reason(url: str) -> None:
    with pytest.raises(
        TopologyError, match="cannot keep a state in mode 'log': it allows only one writer, so"
    ):
        open_state(url, table="log", mode="log").open()


def test_a_reading_of_no_file_makes_none(tmp_path: Path) -> None:
    with (
        pytest.raises(StateUsageError, match="has its topology run yet"),
        open_state(f"sqlite:///{tmp_path}/none.db", table="counts").reader(),
    ):
        pass

    assert list(tmp_path.iterdir()) == []


def test_a_connection_that_is_made_ahead_makes_no_file(tmp_path: Path) -> None:
    backend = open_state(f"sqlite:///{tmp_path}/none.db", table="counts").open()
    backend.connect()
    backend.close()

    assert list(tmp_path.iterdir()) == []


def test_a_relative_path_is_fixed_when_the_state_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks and later runs may be in another folder."""
    monkeypatch.chdir(tmp_path)

    assert open_state("sqlite:///counts.db").url == f"sqlite:///{tmp_path}/counts.db"


@pytest.mark.row(30)
def test_a_lock_that_stays_is_an_unavailable_store(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state_backends.sql.sqlite._BUSY_TIMEOUT_S", 0.01)
    store = StateDriver(state)
    other = sqlite3.connect(tmp_path / "states.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailable, match="locked"):
        store.puts(1, {"a": 1})
    other.execute("ROLLBACK")
    assert store.puts(1, {"a": 1}).txid == 1


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "states.db").write_bytes(b"not a database at all" * 100)

    with pytest.raises(Exception, match="not a database"):
        StateDriver(open_state(f"sqlite:///{tmp_path}/states.db", table="counts"))
