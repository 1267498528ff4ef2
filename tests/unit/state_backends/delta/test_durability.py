"""Versions are made durable one by one, also when calls of a backend overlap."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from state_backends.delta import durability
from state_backends.delta.durability import DurableLog, LogChecksums

LIMIT_S = 60.0


def test_overlapping_calls_make_each_version_durable_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call is in the middle of its sync when the second one comes with the next."""
    reached, go_on = threading.Event(), threading.Event()
    synced: list[tuple[int, int]] = []

    def sync(table: str, first: int, last: int) -> None:
        if not reached.is_set():
            reached.set()
            go_on.wait(LIMIT_S)
        synced.append((first, last))

    monkeypatch.setattr(durability, "sync_versions", sync)
    monkeypatch.setattr(LogChecksums, "note", lambda *_: None)
    log = DurableLog("/nowhere", "state 'counts'", local=True)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(log.written, 1)
        assert reached.wait(LIMIT_S)
        second = pool.submit(log.written, 2)
        go_on.set()
        first.result(LIMIT_S)
        second.result(LIMIT_S)

    assert synced == [(0, 1), (2, 2)]


def test_a_version_is_noted_only_when_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note would vouch for an entry that the power cut takes away, or leaves empty."""
    done: list[str] = []

    def fails(table: str, first: int, last: int) -> None:
        done.append("flushed")
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(durability, "sync_versions", fails)
    monkeypatch.setattr(LogChecksums, "note", lambda *_: done.append("noted"))
    log = DurableLog("/nowhere", "state 'counts'", local=True)
    with pytest.raises(OSError, match="Input/output error"):
        log.written(1)
    assert done == ["flushed"]

    monkeypatch.setattr(durability, "sync_versions", lambda *_: done.append("flushed"))
    log.sync()
    log.sync()
    assert done == ["flushed", "flushed", "noted"]


@pytest.mark.rule("state_backends.delta.durability", "Rules", 2)
def test_data_files_come_first_and_the_folders_that_name_them_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the power cut may leave an entry of the log without what it names."""
    table = tmp_path / "table"
    (table / "_delta_log").mkdir(parents=True)
    entry = table / "_delta_log" / f"{0:020}.json"
    entry.write_text('{"add": {"path": "rows.parquet"}}\n')
    synced: list[Path] = []
    monkeypatch.setattr(durability, "_sync", synced.append)

    durability.sync_versions(str(table), 0, 0)

    assert synced == [table / "rows.parquet", entry, entry.parent, table, tmp_path]
