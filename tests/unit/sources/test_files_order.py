"""New files are picked up in a fixed order, each exactly once, whatever was restarted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.sources.driving import Planner, emit
from txtopo import Fields
from txtopo.errors import InfrastructureError, PromiseError, TopologyChanged
from txtopo.metadata import Json
from txtopo.sources.files import planning
from txtopo.sources.files.planning import FilesCoordinator, Limits
from txtopo.sources.files.source import FileFormat, FileSource, SourceFile
from txtopo.spouts import FilesTransactionalSpout


def spout(folder: Path, **options: Any) -> FilesTransactionalSpout:
    options = {"batch_files_max": 1, "partitions": 1, **options}
    return FilesTransactionalSpout(folder, Fields("line string"), "text", **options)


def write(folder: Path, name: str, time: int = 0) -> None:
    (folder / name).write_text(name)
    if time:
        os.utime(folder / name, (time, time))


def read(made: FilesTransactionalSpout, batches: list[Json]) -> list[str]:
    return [row[0] for metadata in batches for row in emit(made, metadata)]


def test_files_are_read_by_name_and_late_ones_after_them(tmp_path: Path) -> None:
    for name in ("c", "b", "d"):
        write(tmp_path, name)
    made = spout(tmp_path)
    planner = Planner(made)
    first = planner.plan()
    write(tmp_path, "a")

    assert read(made, [first, *planner.all()]) == ["b", "c", "d", "a"]


def test_files_can_be_read_by_time(tmp_path: Path) -> None:
    for name, time in (("a", 30), ("b", 10), ("c", 20)):
        write(tmp_path, name, time)
    made = spout(tmp_path, order="time")

    assert read(made, Planner(made).all()) == ["b", "c", "a"]


def test_a_restart_at_any_batch_reads_each_file_once(tmp_path: Path) -> None:
    for at in range(6):
        (tmp_path / f"f{at}").write_text("".join(f"{at}{line}\n" for line in range(5)))
    made = spout(tmp_path, batch_bytes_max=7, batch_files_max=None, partitions=2)
    planner = Planner(made)
    batches: list[Json] = []
    while (metadata := planner.plan()) is not None:
        batches.append(metadata)
        planner = Planner(made, stored=metadata)

    assert len(batches) > 12
    assert read(made, batches) == [f"{at}{line}" for at in range(6) for line in range(5)]


def test_an_idle_spout_lists_once_a_poll_and_a_busy_one_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(5):
        write(tmp_path, f"f{at}")
    planner = Planner(spout(tmp_path))
    source: FileSource = planner.coordinator._source  # type: ignore[attr-defined]
    listings = []

    def files() -> list[SourceFile]:
        listings.append(1)
        return listed()

    listed = source.files
    monkeypatch.setattr(source, "files", files)

    assert len([planner.plan() for _ in range(5)]) == 5
    assert len(listings) == 1
    assert (planner.plan(), planner.plan()) == (None, None)
    assert len(listings) == 3


def test_a_file_that_is_planned_twice_is_planned_the_same(tmp_path: Path) -> None:
    """The metadata was not stored: the same coordinator is asked again for the same txid."""
    for at in range(4):
        write(tmp_path, f"f{at}")
    planner = Planner(spout(tmp_path))
    first = planner.plan()
    again = planner.coordinator.initialize_transaction(2, first)

    other = planner.coordinator.initialize_transaction(2, first)
    for each in (again, other):
        del each["cursor"]["listed"]  # type: ignore[index,call-overload,union-attr,arg-type]
    assert other == again


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Keep so few files by themselves that pruning begins at once."""
    monkeypatch.setattr(planning, "RECENT_FILES_MAX", 3)
    return 3


@pytest.mark.parametrize("order", ["name", "time"])
@pytest.mark.parametrize("restarts", [False, True])
def test_pruned_files_are_not_read_again(
    tmp_path: Path, few: int, order: str, restarts: bool
) -> None:
    made = spout(tmp_path, order=order)
    for at in range(9):
        write(tmp_path, f"f{at}", 1000 + at)
    batches: list[Json] = []
    planner = Planner(made)
    for round in range(3):
        while (metadata := planner.plan()) is not None:
            batches.append(metadata)
            if restarts:
                planner = Planner(made, stored=metadata)
        for at in range(2):
            write(tmp_path, f"g{round}{at}", 2000 + 10 * round + at)

    names = [f"f{at}" for at in range(9)] + ["g00", "g01", "g10", "g11"]
    assert read(made, batches) == names


def test_a_late_file_below_the_mark_is_new_when_it_is_newer(tmp_path: Path, few: int) -> None:
    for at in range(9):
        write(tmp_path, f"f{at}", 1000 + at)
    made = spout(tmp_path)
    *_, last = Planner(made).all()
    write(tmp_path, "a", 5000)

    assert read(made, Planner(made, stored=last).all()) == ["a"]


def test_a_late_file_below_the_mark_that_is_old_is_read_by_a_process_that_lives(
    tmp_path: Path, few: int
) -> None:
    for at in range(9):
        write(tmp_path, f"f{at}", 1000 + at)
    made = spout(tmp_path)
    planner = Planner(made)
    planner.all()
    write(tmp_path, "a", 1001)

    assert read(made, planner.all()) == ["a"]
    assert Planner(made, stored=planner.metadata).all() == []


def test_a_late_file_below_the_mark_that_is_old_is_an_error_after_a_restart(
    tmp_path: Path, few: int
) -> None:
    """Never a silent skip, never a second reading."""
    for at in range(9):
        write(tmp_path, f"f{at}", 1000 + at)
    made = spout(tmp_path)
    *_, last = Planner(made).all()
    write(tmp_path, "f0a", 1001)
    (tmp_path / "f0").unlink()

    with pytest.raises(PromiseError, match=r"cannot tell which files were read; got .*f0a'"):
        Planner(made, stored=last).all()


@pytest.mark.parametrize(("before", "after"), [("name", "time"), ("time", "name")])
def test_another_order_is_refused_once_files_were_pruned(
    tmp_path: Path, few: int, before: str, after: str
) -> None:
    """The mark of the pruned ones is a place in the earlier order; they would be read again."""
    for at in range(9):
        write(tmp_path, f"f{at}", 1000 + at)
    *_, last = Planner(spout(tmp_path, order=before)).all()

    message = rf"got order='{after}'; expected order='{before}', in which 6 earlier files were read"
    with pytest.raises(TopologyChanged, match=message):
        Planner(spout(tmp_path, order=after), stored=last).plan()
    assert Planner(spout(tmp_path, order=before), stored=last).all() == []


@pytest.mark.parametrize(("before", "after"), [("name", "time"), ("time", "name")])
def test_the_order_may_change_while_all_files_are_named(
    tmp_path: Path, few: int, before: str, after: str
) -> None:
    for at in range(few):
        write(tmp_path, f"f{at}", 1000 + at)
    *_, last = Planner(spout(tmp_path, order=before)).all()
    write(tmp_path, "new", 900)
    made = spout(tmp_path, order=after)

    assert read(made, Planner(made, stored=last).all()) == ["new"]


def test_read_files_may_be_removed(tmp_path: Path, few: int) -> None:
    for at in range(9):
        write(tmp_path, f"f{at}", 1000 + at)
    made = spout(tmp_path)
    *_, last = Planner(made).all()
    for at in range(9):
        (tmp_path / f"f{at}").unlink()
    write(tmp_path, "g", 5000)

    assert read(made, Planner(made, stored=last).all()) == ["g"]


@pytest.mark.rule("txtopo.sources.files.planning", "Rules", 6)
def test_a_file_that_is_appended_to_after_it_was_read_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "a", 100)
    made = spout(tmp_path)
    planner = Planner(made)
    batches = planner.all()
    for time in range(200, 500, 100):
        write(tmp_path, "a", time)
        write(tmp_path, f"b{time}", time)
        batches += planner.all()

    assert read(made, batches[1:]) == ["b200", "b300", "b400"]
    (told,) = caplog.messages
    assert told.startswith("1 files were changed after they were read, such as ")


@pytest.mark.rule("txtopo.sources.files.planning", "Rules", 6)
def test_a_file_that_changed_after_it_was_read_is_not_new_when_it_was_pruned(
    tmp_path: Path, few: int
) -> None:
    for at in range(few):
        write(tmp_path, f"f{at}", 1000)
    made = spout(tmp_path)
    planner = Planner(made)
    planner.all()
    write(tmp_path, "f0", 9000)
    for at in range(few):
        write(tmp_path, f"g{at}", 1000)
    *_, last = planner.all()

    assert read(made, Planner(made, stored=last).all()) == []


@pytest.mark.parametrize("alone", [False, True])
def test_a_file_with_a_time_beyond_what_64_bits_of_nanoseconds_hold_is_read(
    tmp_path: Path, alone: bool
) -> None:
    write(tmp_path, "a")
    os.utime(tmp_path / "a", (15_032_385_535, 15_032_385_535))  # in 2446, the end of ext4
    if os.stat(tmp_path / "a").st_mtime < 15_000_000_000:
        pytest.skip("this file system has no such times")
    made = spout(tmp_path / "a" if alone else tmp_path)

    planner = Planner(made)
    assert read(made, planner.all()) == ["a"]
    assert Planner(made, stored=planner.metadata).all() == []


class OutageOnce(FileSource):
    """A filesystem that cannot be reached when one file is opened for the first time."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(str(folder), None)
        self._name: str | None = name

    def open(self, file: SourceFile) -> pa.NativeFile:
        if self._name is not None and file.name.endswith(self._name):
            self._name = None
            raise InfrastructureError("the filesystem was told to fail")
        return super().open(file)


@pytest.mark.parametrize("failing", ["a", "b", "c"])
@pytest.mark.row(10)
def test_an_outage_while_a_batch_is_planned_skips_no_file(tmp_path: Path, failing: str) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text("".join(f"{name}{line}\n" for line in range(10)))
    made = spout(tmp_path)
    planner = Planner(made)
    source, limits = OutageOnce(tmp_path, failing), Limits(rows=15)
    planner.coordinator = FilesCoordinator(source, FileFormat("text"), limits, 1, "name")

    batches: list[Json] = []
    outages = 0
    while not batches or batches[-1] is not None:
        try:
            batches.append(planner.plan())
        except InfrastructureError:
            outages += 1

    assert outages == 1
    assert read(made, batches[:-1]) == [f"{name}{line}" for name in "abc" for line in range(10)]


def test_metadata_stays_small_with_ten_thousand_files(tmp_path: Path) -> None:
    files = [SourceFile(f"/data/part-{at:05}.csv", 10, at) for at in range(10_000)]
    kept = planning.Cursor("name")
    kept.list(files)
    kept.take(kept.waiting)

    size = len(json.dumps(kept.stored()))
    again = planning.Cursor("name", kept.stored())
    again.list(files)
    assert size < 40_000
    assert again.waiting == 0


def test_a_batch_of_many_small_files_has_bounded_metadata(tmp_path: Path) -> None:
    for at in range(600):
        write(tmp_path, f"a-rather-long-name-of-a-small-file-{at:08}.txt")
    made = spout(tmp_path, batch_files_max=None, batch_bytes_max=1 << 30)

    batches = Planner(made).all()

    assert len(batches) == 3
    assert all(len(json.dumps(metadata)) < 40_000 for metadata in batches)
