"""A piece of work dies in a process of its own, at the step or the time that it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from txtopo.testing.conformance.deaths import dies_after, dies_at, done, spread, steps_of

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Writes:
    """Writes three files; ``finally`` would write a fourth."""

    folder: Path
    lock: object = None

    def prepare(self) -> Callable[[], object]:
        return partial(write, self.folder)


def write(folder: Path) -> None:
    try:
        for name in ("a", "b", "c"):
            (folder / name).write_text("x" * 100)
    finally:
        (folder / "end").touch()


def found(folder: Path) -> list[str]:
    """Return which files are there whole, and remove all."""
    whole = sorted(path.name for path in folder.iterdir() if path.stat().st_size == 100)
    ended = (folder / "end").exists()
    for path in folder.iterdir():
        path.unlink()
    return [*whole, "end"] if ended else whole


@pytest.mark.parametrize("lock", [None, threading.Lock()])
def test_after_a_death_nothing_runs_any_more(tmp_path: Path, lock: object) -> None:
    """Also if the work cannot be pickled, as with a lock: then this process is forked."""
    work = Writes(tmp_path, lock)
    done(work)
    assert found(tmp_path) == ["a", "b", "c", "end"]
    steps = steps_of(work)
    found(tmp_path)

    seen = []
    for step in spread(steps.calls, 12):
        assert dies_at(work, step)
        left = found(tmp_path)
        if left not in seen:
            seen.append(left)
    assert seen[0] == []
    assert ["a"] in seen or ["a", "b"] in seen, "it died between two files"
    assert all("end" not in left for left in seen[:-1])


def test_a_step_that_is_not_reached_kills_nobody(tmp_path: Path) -> None:
    work = Writes(tmp_path)

    assert not dies_at(work, len(steps_of(work).places) + 10)
    assert found(tmp_path) == ["a", "b", "c", "end"]


@dataclass(frozen=True)
class Waits:
    """Never ends by itself."""

    def prepare(self) -> Callable[[], object]:
        return threading.Event().wait


def test_the_clock_ends_one_call(tmp_path: Path) -> None:
    assert dies_after(Waits(), 0.01)


@dataclass(frozen=True)
class Fails:
    """Raises."""

    def prepare(self) -> Callable[[], object]:
        raise OSError("no such store")


def test_an_error_of_the_process_is_told() -> None:
    with pytest.raises(AssertionError, match="no such store"):
        done(Fails())
