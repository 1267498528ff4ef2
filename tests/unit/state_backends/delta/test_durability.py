"""Versions are made durable one by one, also when calls of a backend overlap."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

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
