"""The file for progress beside what the suite of ensembles shows: its rules, and its errors."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from txtopo import Config, ZooKeeper
from txtopo.ensemble import Put
from txtopo.ensemble.progress_file import FileDirectory, FileTransactionalState
from txtopo.errors import ConfigError, CorruptNodeError, PromiseError
from txtopo.operations.ensemble import Ensemble

LEADS = """
import os, sys
from txtopo import ZooKeeper
from txtopo.ensemble.progress_file import FileTransactionalState

leads = FileTransactionalState(ZooKeeper(sys.argv[1]), "t")
assert leads.lead("process", timeout_s=0, on_lost=print)
child = os.fork()
if child:
    print("leads", flush=True)
sys.stdin.read()
"""


def nothing() -> None:
    """Ignore a lost leadership."""


@pytest.mark.rule("txtopo.ensemble.progress_file", "Rules", 1)
def test_what_is_written_is_on_disk(tmp_path: Path) -> None:
    """A test cannot turn off the power, so it asks SQLite."""
    with closing(opened(tmp_path)) as state, state._file.reading() as execute:
        assert execute("PRAGMA synchronous").fetchone() == (2,)
        assert execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.integration
@pytest.mark.rule("txtopo.ensemble.progress_file", "Rules", 2)
def test_a_suspended_leader_keeps_its_place_and_a_killed_one_loses_it(tmp_path: Path) -> None:
    """Also while a process that it has forked lives on."""
    with (
        closing(opened(tmp_path)) as state,
        subprocess.Popen(
            [sys.executable, "-c", LEADS, f"file:{tmp_path}/progress.db"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as leader,
    ):
        assert leader.stdout is not None
        assert leader.stdout.readline() == b"leads\n"
        leader.send_signal(signal.SIGSTOP)
        try:
            assert state.lead("standby", timeout_s=0.1, on_lost=nothing) is None
            assert state.candidates() == ["process", "standby"]
        finally:
            leader.kill()

        assert state.lead("standby", timeout_s=60, on_lost=nothing)
        assert state.leader() == "standby"


@pytest.mark.parametrize(
    "change", [Path.unlink, lambda path: path.rename(path.with_name("x"))], ids=["gone", "moved"]
)
@pytest.mark.rule("txtopo.ensemble.progress_file", "Rules", 3)
def test_a_file_that_is_not_in_place_is_not_written(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    with closing(opened(tmp_path)) as state:
        state.apply([Put("/a", 1)])
        change(state.path)
        opened(tmp_path).close()

        with pytest.raises(CorruptNodeError, match="was deleted or replaced while this process"):
            state.apply([Put("/a", 2)])


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-lock"])
@pytest.mark.rule("txtopo.ensemble.progress_file", "Rules", 3)
def test_who_has_lost_its_files_neither_confirms_nor_writes(tmp_path: Path, end: str) -> None:
    """Before each commit to a store of its own a leader synchronizes."""
    with closing(opened(tmp_path)) as state:
        state.apply([Put("/a", 1)])
        (tmp_path / f"progress.db{end}").unlink()

        with pytest.raises(CorruptNodeError, match=f"progress.db{end} was deleted"):
            state.synchronize()
        with pytest.raises(CorruptNodeError, match=f"progress.db{end} was deleted"):
            state.apply([Put("/a", 2)])


@pytest.mark.rule("txtopo.ensemble.progress_file", "Rules", 3)
def test_a_file_with_two_names_is_refused(tmp_path: Path) -> None:
    """Each name would have a lock and a log of its own."""
    with closing(opened(tmp_path)) as state:
        (tmp_path / "other.db").hardlink_to(state.path)
        with pytest.raises(ConfigError, match="has another name, a hard link"):
            opened(tmp_path, name="other.db")


@pytest.mark.rule("txtopo.ensemble.progress_file", "Rules", 4)
def test_a_database_of_something_else_is_not_changed(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.execute("CREATE TABLE rows (row)")
    before = (tmp_path / "shop.db").read_bytes()

    with pytest.raises(ConfigError, match="of something else"):
        opened(tmp_path, name="shop.db")

    assert [file.name for file in tmp_path.iterdir()] == ["shop.db"]
    assert (tmp_path / "shop.db").read_bytes() == before


def test_a_new_file_begins_without_what_its_predecessor_left_in_its_log(tmp_path: Path) -> None:
    """A killed process leaves the log of SQLite, and a user deletes the file alone."""
    state = opened(tmp_path)
    state.apply([Put("/a", 1)])
    log = state.path.with_name("progress.db-wal").read_bytes()
    state.close()
    state.path.unlink()
    state.path.with_name("progress.db-wal").write_bytes(log)

    with closing(opened(tmp_path)) as anew:
        assert anew.get("/a") is None


def test_the_topologies_of_a_file_are_listed_with_who_leads_and_who_waits(tmp_path: Path) -> None:
    config = Config(zookeeper=f"file:{tmp_path}/progress.db")
    with closing(opened(tmp_path, "one")) as leads, closing(opened(tmp_path, "one")) as waits:
        assert leads.lead("leads", timeout_s=0, on_lost=nothing)
        leads.announce({"rows": 3})
        assert waits.lead("waits", timeout_s=0, on_lost=nothing) is None
        with closing(opened(tmp_path, "two")) as two:
            two.apply([Put("/epoch", {"epoch": 1}), Put("/current", {"current": 5})])

        with Ensemble.open(config) as ensemble:
            one, other = ensemble.topologies()

    assert (one.id, one.leader, one.standbys, one.summary) == (
        "one",
        "leads",
        ("waits",),
        {"rows": 3},
    )
    assert (other.id, other.leader, other.current) == ("two", None, 5)


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ("file:", "it names no file"),
        ("file://progress.db", "it names no file"),
        ("file:.", "is a folder"),
        ("file:none/progress.db", "/none does not exist; create it"),
        ("file:text.db", "it is not an SQLite database"),
        ("file:rows.db", "it is an SQLite database of something else"),
        ("file:newer.db", "a newer txtopo has written it"),
        ("file:mine.db", "this user may not read and write"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, _: path.name != "mine.db")
    Path("text.db").write_text("This is a text of more than a hundred bytes. " * 5)
    Path("mine.db").touch()
    opened(tmp_path, name="newer.db").close()
    with closing(sqlite3.connect("rows.db")) as rows, closing(sqlite3.connect("newer.db")) as newer:
        rows.execute("CREATE TABLE rows (row)")
        newer.execute("PRAGMA user_version=99")

    with pytest.raises(ConfigError, match=message) as error:
        FileTransactionalState(ZooKeeper(hosts), "t")
    assert f"zookeeper={hosts!r} cannot be used" in str(error.value)


def test_only_a_start_creates_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not exist; a topology creates it when it starts"):
        FileDirectory(ZooKeeper(f"file:{tmp_path}/progress.db"))
    assert not list(tmp_path.iterdir())


def test_credentials_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper.auth is for a ZooKeeper; .* leave it out"):
        FileTransactionalState(ZooKeeper(f"file:{tmp_path}/a.db", auth="user:password"), "t")


def test_a_damaged_file_ends_the_run(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.apply([Put("/a", "x" * 10_000)])
    state.close()
    damaged = bytearray(state.path.read_bytes())
    damaged[4096 * 2 :] = b"\xff" * (len(damaged) - 4096 * 2)
    state.path.write_bytes(damaged)

    with (
        closing(opened(tmp_path)) as state,
        pytest.raises(PromiseError, match="cannot be read or written"),
    ):
        state.get("/a")


def opened(
    folder: Path, topology_id: str = "t", name: str = "progress.db"
) -> FileTransactionalState:
    """Open one more client."""
    return FileTransactionalState(ZooKeeper(f"file:{folder}/{name}"), topology_id)
