"""Odd files and folders: what was never read is read, or said; what was read is not read again."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.sources.driving import Planner, context, emit
from tests.unit.sources.test_files_order import read, spout, write
from txtopo import AtLeastOnceConfig, Config
from txtopo import clock as real_clock
from txtopo.errors import PromiseError
from txtopo.metadata import Json
from txtopo.sources.files import planning
from txtopo.sources.files.planning import Cursor
from txtopo.sources.files.source import SourceFile
from txtopo.spouts import FileSpout

YEAR_S = 365 * 86_400
NAMES = [f"f{at}" for at in range(9)]


class Clock:
    """The clock of the driver. The files of a test are written now, on the clock of the disk."""

    def __init__(self) -> None:
        self.ahead_s = 60.0

    def wall_clock(self) -> float:
        return self.now_s + self.ahead_s

    @property
    def now_s(self) -> float:
        return real_clock.wall_clock()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock by which each listing is long after all files of a test have come."""
    made = Clock()
    monkeypatch.setattr(planning, "clock", SimpleNamespace(wall_clock=made.wall_clock))
    monkeypatch.setattr(planning, "RECENT_FILES_MAX", 3)
    return made


def filled(folder: Path) -> Json:
    """Return the position behind nine files, of which six were pruned."""
    for at, name in enumerate(NAMES):
        write(folder, name, 1000 + at)
    *_, last = Planner(spout(folder)).all()
    return last


def read_on(folder: Path, last: Json, config: Config | None = None) -> list[str]:
    made = spout(folder)
    planner = Planner(made, stored=last)
    planner.coordinator = made.coordinator(config or Config(), context())
    return read(made, planner.all())


def remove(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).unlink()


@pytest.mark.parametrize("gone", [[], NAMES, ["f1", "f4"]])
@pytest.mark.rule("txtopo.sources.files.planning", "Rules", 1)
def test_a_late_file_before_all_that_were_read_is_read_however_old_it_is(
    tmp_path: Path, clock: Clock, gone: list[str]
) -> None:
    """As of a backfill that keeps the times of its files."""
    last = filled(tmp_path)
    remove(tmp_path, *gone)
    write(tmp_path, "e", 5)

    assert read_on(tmp_path, last) == ["e"]


@pytest.mark.rule("txtopo.sources.files.planning", "Rules", 2)
def test_files_that_came_again_with_new_times_of_their_names_were_read(
    tmp_path: Path, clock: Clock
) -> None:
    """As of a folder that was restored, or whose rights were changed."""
    clock.ahead_s = -YEAR_S
    last = filled(tmp_path)

    assert read_on(tmp_path, last) == []


@pytest.mark.rule("txtopo.sources.files.planning", "Rules", 3)
def test_files_that_went_while_nobody_looked_make_no_doubt_of_those_that_stay(
    tmp_path: Path, clock: Clock
) -> None:
    last = filled(tmp_path)
    remove(tmp_path, "f1", "f4", "f8")
    write(tmp_path, "g", 500)

    assert read_on(tmp_path, last) == ["g"]


@pytest.mark.rule("txtopo.sources.files.planning", "Rules", 3)
def test_a_file_whose_turn_had_not_come_was_not_read(clock: Clock) -> None:
    """A late file waits behind others in the listing that found it; its process ends then."""
    files = [SourceFile(name, 1, 1000 + at) for at, name in enumerate(NAMES)]
    late = [SourceFile(name, 1, 1001) for name in ("f2a", "f4a", "f4b")]
    came_s = {**dict.fromkeys(files, 10.0), **dict.fromkeys(late, 30.0)}
    cursor = Cursor("name")
    cursor.list(files, 20.0)
    cursor.take(len(files))
    cursor.list([*files, *late], 40.0)
    cursor.take(1)

    again = Cursor("name", cursor.stored(), came_at=came_s.get, may_change=True)
    again.list([*files[1:], *late], 50.0)

    assert [file.name for file in again.ahead()] == ["f4a", "f4b"]


def test_a_listing_by_a_clock_that_was_ahead_says_nothing(tmp_path: Path, clock: Clock) -> None:
    clock.ahead_s = YEAR_S
    last = filled(tmp_path)
    clock.ahead_s = 60.0
    remove(tmp_path, "f0")

    with pytest.raises(PromiseError, match="cannot tell which files were read; got 5 files"):
        read_on(tmp_path, last)


@pytest.mark.rule("txtopo.sources.files.planning", "Rules", 4)
def test_a_late_file_among_those_that_were_read_is_an_error_with_ways_out(
    tmp_path: Path, clock: Clock
) -> None:
    """It may be one of them that was brought back."""
    clock.ahead_s = 0.0
    last = filled(tmp_path)
    remove(tmp_path, *NAMES)
    write(tmp_path, "f2a", 1001)

    with pytest.raises(PromiseError, match=r"got 1 files that came .*f2a'.*touch them") as caught:
        read_on(tmp_path, last)
    assert caught.value.facts["count"] == 1
    assert read_on(tmp_path, last, Config(allow_change=True)) == ["f2a"]
    os.utime(tmp_path / "f2a")
    assert read_on(tmp_path, last) == ["f2a"]


@pytest.mark.parametrize("order", ["name", "time"])
@pytest.mark.rule("txtopo.sources.files.planning", "Rules", 5)
def test_a_file_whose_time_is_in_the_future_is_read_and_hides_no_file_of_the_present(
    tmp_path: Path, clock: Clock, order: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At no start after it, and if it is touched it is not read again while it is recent."""
    made = spout(tmp_path, order=order)
    write(tmp_path, "f5x", int(clock.now_s) + YEAR_S)
    for at, name in enumerate(NAMES):
        write(tmp_path, name, 1000 + at)
    batches = Planner(made).all()
    assert sorted(read(made, batches)) == sorted([*NAMES, "f5x"])
    assert len([text for text in caplog.messages if "have a time in the future, such as" in text])

    for day in range(5):
        write(tmp_path, f"a{day}")
        planner = Planner(made, stored=batches[-1])
        found = planner.all()
        assert read(made, found) == [f"a{day}"]
        batches += found


def link_to(folder: Path, target: str, name: str) -> None:
    os.symlink(target, folder / name)


@pytest.mark.parametrize("target", [".", "..", "../in", "sub/../../in"])
def test_a_link_that_leads_to_its_own_folder_or_above_is_not_followed(
    tmp_path: Path, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    write(folder, "a")
    write(folder / "sub", "b")
    made = spout(folder)
    planner = Planner(made)
    found = read(made, [planner.plan()])

    link_to(folder, target, "latest")
    link_to(folder / "sub", "..", "up")
    found += read(made, planner.all())
    write(folder, "c")
    found += read(made, planner.all())

    assert found == ["a", "b", "c"]
    assert "leads to a folder above it, so it is not followed" in str(
        planner.coordinator.held_back()
    )
    told = [text for text in caplog.messages if "does not follow link" in text]
    assert len(told) == len(set(told)) >= 2


def test_two_names_of_one_folder_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "day").mkdir()
    write(tmp_path / "day", "a")
    link_to(tmp_path, "day", "latest")
    link_to(tmp_path, "nowhere", "broken")
    made = spout(tmp_path)
    planner = Planner(made)

    assert read(made, planner.all()) == ["a", "a"]
    planner.all()
    (told,) = [text for text in caplog.messages if "reads its files under both names" in text]
    assert f"'{tmp_path}/day' and, by a link, as '{tmp_path}/latest'" in told


@pytest.mark.parametrize("limit", [{}, {"batch_rows_max": 1}, {"batch_bytes_max": 3}])
def test_a_file_whose_name_is_not_utf_8_is_read_once(tmp_path: Path, limit: Any) -> None:
    odd = os.fsencode(tmp_path) + b"/b\xff\xfe.txt"
    Path(os.fsdecode(odd)).write_text("odd\nagain\n")
    write(tmp_path, "a")
    made = spout(tmp_path, **limit)
    planner = Planner(made)
    batches = [planner.plan()]
    batches += Planner(made, stored=batches[0]).all()

    assert read(made, batches) == ["a", "odd", "again"]
    assert Planner(made, stored=batches[-1]).plan() is None


def test_a_file_of_lines_whose_name_is_not_utf_8_is_emitted_with_a_name_that_is(
    tmp_path: Path,
) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xff")).write_text("odd\n")
    emitted: list[Any] = []
    made = FileSpout(str(tmp_path / "*"))
    collector: Any = SimpleNamespace(emit=lambda row, id: emitted.append((row, id)))
    made.open(AtLeastOnceConfig(), context(), collector)

    made.next_tuple()

    ((row, id),) = emitted
    assert row == ["odd", f"{tmp_path}/b\\udcff", 1]
    made.fail(id)
    made.next_tuple()
    made.ack(id)
    assert emitted[1] == (row, id)


def test_a_shares_name_that_is_not_utf_8_travels_in_the_metadata(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xff")).write_text("odd\n")
    made = spout(tmp_path)
    (batch,) = Planner(made).all()

    assert emit(made, batch) == [("odd",)]
