"""What an SQLite connection must be when it commits: nothing but a power cut shows it else."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.unit.state_backends.watching import statements_said, work
from txtopo.errors import TopologyError
from txtopo.state import State, open_state
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.integration
FULL = 2
Settings = dict[str, object]


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(f"sqlite:///{tmp_path}/states.db", table="counts")


@pytest.fixture
def at_commit() -> Iterator[list[Settings]]:
    """The settings of each connection of this process, in the moment in which it commits."""
    seen: list[Settings] = []

    def look(connection: sa.Connection) -> None:
        names = ("synchronous", "journal_mode", "fullfsync")
        asked = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names}
        seen.append(asked)

    sa.event.listen(sa.Engine, "commit", look)
    yield seen
    sa.event.remove(sa.Engine, "commit", look)


def test_each_connection_that_commits_waits_for_the_disk(
    state: State, at_commit: list[Settings]
) -> None:
    """Those that make the tables, that claim, that write and that write again."""
    work(state)

    assert len(at_commit) == 8
    assert [each for each in at_commit if each["synchronous"] != FULL] == []
    assert [each for each in at_commit if each["journal_mode"] != "wal"] == []
    assert [each for each in at_commit if each["fullfsync"] != 1] == []


@pytest.mark.rule("state_backends.sql.backend", "Rules", 1)
def test_a_write_takes_the_lock_before_it_reads_the_ledger(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two coordinators read it, and the second has to give up, or is lucky."""
    store = StateDriver(state)
    with statements_said() as said:
        store.puts(1, {"a": 1})

    assert said[0] == "BEGIN IMMEDIATE"


def test_a_reading_does_not_keep_a_batch_waiting(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is WAL; without it the batch would find the file locked."""
    monkeypatch.setattr("state_backends.sql.sqlite._BUSY_TIMEOUT_S", 0.01)
    store = StateDriver(state)
    store.puts(1, {"a": 1})
    with state.reader() as reader:
        before = reader.get("a")
        store.puts(2, {"a": 2})

        assert (before, reader.get("a")) == (1, 1)
    assert store.contents() == {"a": 2}


@pytest.mark.parametrize("option", ["nolock=1", "vfs=unix-none", "vfs=unix-dotfile"])
def test_a_file_that_cannot_have_a_log_is_refused(tmp_path: Path, option: str) -> None:
    """SQLite says so in its answer alone, and continues without."""
    path = tmp_path / "states.db"
    sqlite3.connect(path).close()
    state = open_state(f"sqlite:///file:{path}?uri=true&{option}", table="counts")

    with pytest.raises(TopologyError, match="its journal mode is 'delete', so a power cut may"):
        StateDriver(state)


def test_options_of_the_url_leave_a_batch_as_durable(
    state: State, at_commit: list[Settings]
) -> None:
    careless = open_state(f"{state.url}?isolation_level=DEFERRED&timeout=9", table="counts")
    StateDriver(careless).puts(1, {"a": 1})

    assert {each["synchronous"] for each in at_commit} == {FULL}
    assert {each["journal_mode"] for each in at_commit} == {"wal"}
