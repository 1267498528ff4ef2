"""An SQLite file is removed or replaced while it is open: no batch is lost, no reader lies."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from txtopo.errors import StoreDamagedError, StoreUnavailable
from txtopo.plugins.stores import StateBackend
from txtopo.state import State, open_state
from txtopo.testing.conformance.driver import StateDriver

Harm = Callable[[Path], object]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "states.db"


@pytest.fixture
def state(file: Path) -> State:
    return open_state(f"sqlite:///{file}", table="counts")


def backup(file: Path) -> Path:
    """Return a copy of a database that others have open."""
    copy = file.with_suffix(".backup")
    with sqlite3.connect(file) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    source.close()
    target.close()
    return copy


def beside(file: Path, end: str) -> Path:
    return file.with_name(file.name + end)


def put_back(file: Path) -> None:
    """Move the backup over the file, as someone would who does not know that it is open."""
    for end in ("-wal", "-shm"):
        beside(file, end).unlink()
    file.with_suffix(".backup").rename(file)


def replaced(file: Path) -> None:
    """Put a copy of a file in its place."""
    copy = file.with_suffix(".copy")
    shutil.copy(file, copy)
    copy.rename(file)


HARMS: dict[str, Harm] = {
    "removed": Path.unlink,
    "backup moved over it": put_back,
    "moved away": lambda file: file.rename(file.with_suffix(".old")),
    "its folder moved away": lambda file: file.parent.rename(file.parent.with_name("away")),
    "log removed": lambda file: beside(file, "-wal").unlink(),
    "index of the log removed": lambda file: beside(file, "-shm").unlink(),
    "log replaced": lambda file: replaced(beside(file, "-wal")),
}


@pytest.mark.rule("state_backends.sql.sqlite_file", "Rules", 1)
@pytest.mark.parametrize("harm", HARMS)
def test_a_batch_is_not_written_into_a_file_that_nobody_finds(
    file: Path, state: State, harm: str
) -> None:
    writer = StateDriver(state)
    writer.puts(1, {"a": 1})
    backup(file)
    HARMS[harm](file)

    with pytest.raises(StoreDamagedError, match="removed or replaced while it was open"):
        writer.puts(2, {"a": 2})
    writer.close()


@pytest.mark.rule("state_backends.sql.sqlite_file", "Rules", 1)
@pytest.mark.parametrize("step", ["rows.after", "write.before"])
def test_a_file_that_goes_while_a_batch_is_written_keeps_nothing_of_it(
    file: Path, state: State, step: str
) -> None:
    writer = StateDriver(state)
    writer.puts(1, {"a": 1})
    away = file.with_suffix(".old")
    writer.backend.point = lambda name: move_once(file, away) if name == step else None

    with pytest.raises(StoreDamagedError):
        writer.puts(2, {"a": 2})
    writer.close()

    for end in ("-wal", "-shm"):
        if beside(file, end).exists():
            beside(file, end).rename(beside(away, end))
    with open_state(f"sqlite:///{away}", table="counts").reader() as reader:
        assert dict(reader.items()) == {"a": 1}


@pytest.mark.rule("state_backends.sql.sqlite_file", "Rules", 1)
def test_a_batch_whose_file_went_during_the_commit_is_not_known_as_written(
    file: Path, state: State
) -> None:
    writer = StateDriver(state)
    writer.puts(1, {"a": 1})
    dialect = writer.backend._dialect  # type: ignore[attr-defined]
    check = dialect.check_place

    def check_and_lose(connection: object) -> None:
        check(connection)
        file.unlink(missing_ok=True)

    dialect.check_place = check_and_lose

    with pytest.raises(StoreDamagedError, match="is gone"):
        writer.puts(2, {"a": 2})
    writer.close()


@pytest.mark.rule("state_backends.sql.sqlite_file", "Rules", 2)
@pytest.mark.parametrize("harm", ["removed", "backup moved over it"])
def test_a_writer_that_connects_again_takes_no_other_file(
    file: Path, state: State, harm: str
) -> None:
    writer = StateDriver(state)
    writer.puts(1, {"a": 1})
    backup(file)
    writer.close()
    writer.puts(2, {"a": 2})
    HARMS[harm](file)
    writer.close()

    with pytest.raises(StoreDamagedError):
        writer.puts(3, {"a": 3})
    assert file.exists() is (harm != "removed")
    writer.close()


@pytest.mark.rule("state_backends.sql.sqlite_file", "Rules", 3)
def test_who_only_reads_reads_what_is_there_now(file: Path, state: State) -> None:
    """As a task does, which opens a state once and reads it in each txid."""
    writer = StateDriver(state)
    writer.puts(1, {"a": 1})
    backup(file)
    writer.puts(2, {"a": 2})
    reader = state.open()
    assert values(reader) == [(2,)]
    put_back(file)

    assert values(reader) == [(1,)]
    reader.close()
    writer.close()


@pytest.mark.rule("state_backends.sql.sqlite_file", "Rules", 3)
def test_who_only_reads_is_told_that_the_file_is_gone_and_makes_none(
    file: Path, state: State
) -> None:
    writer = StateDriver(state)
    writer.puts(1, {"a": 1})
    writer.close()
    reader = state.open()
    assert values(reader) == [(1,)]
    file.unlink()

    with pytest.raises(StoreUnavailable, match="was removed"):
        values(reader)
    assert not file.exists()
    reader.close()


def test_what_others_do_to_a_file_that_is_in_its_place_harms_nobody(
    file: Path, state: State
) -> None:
    """Other connections come and go, fold the log into the file, and tidy it."""
    writer = StateDriver(state)
    writer.puts(1, {"a": 1})
    other = sqlite3.connect(file)
    other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.execute("VACUUM")
    other.close()
    writer.puts(2, {"a": 2})
    writer.close()
    assert not beside(file, "-wal").exists()
    writer.puts(3, {"a": 3})

    assert writer.contents() == {"a": 3}
    writer.close()


def test_a_link_to_a_file_is_followed(tmp_path: Path, file: Path, state: State) -> None:
    """Whoever opens the link finds what it leads to now."""
    link = tmp_path / "link.db"
    link.symlink_to(file)
    writer = StateDriver(open_state(f"sqlite:///{link}", table="counts"))
    writer.puts(1, {"a": 1})
    writer.puts(2, {"a": 2})
    other = shutil.copy(backup(file), tmp_path / "other.db")
    link.unlink()
    link.symlink_to(other)

    with pytest.raises(StoreDamagedError, match="is now another file"):
        writer.puts(3, {"a": 3})
    writer.close()


def test_a_uri_is_watched_as_well(file: Path) -> None:
    writer = StateDriver(open_state(f"sqlite:///file:{file}?uri=true", table="counts"))
    writer.puts(1, {"a": 1})
    os.remove(file)

    with pytest.raises(StoreDamagedError, match="is gone"):
        writer.puts(2, {"a": 2})
    writer.close()


def values(backend: StateBackend) -> list[object]:
    with backend.snapshot() as snapshot:
        return [row.current for _, row in snapshot.items()]


def move_once(file: Path, away: Path) -> None:
    if file.exists():
        file.rename(away)
