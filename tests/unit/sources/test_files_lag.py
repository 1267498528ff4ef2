"""How far a files spout is behind: files and bytes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.harness.runs import LOCAL, Storage, run_to_end
from tests.unit.sources.driving import Planner
from tests.unit.sources.files import numbered, spout, write
from txtopo import Count, PersistentAggregate, TransactionalTopologyBuilder, open_state
from txtopo.runtime.progress import BatchCommitted


def lags(planner: Planner, batches: list[Any]) -> list[dict[str, int]]:
    return [dict(planner.coordinator.lag(metadata)) for metadata in batches]


def fill(folder: Path, format: str = "csv", files: int = 4) -> int:
    """Write files of equal size, and return that size."""
    for at in range(files):
        write(folder / f"{at}.data", format, numbered(20, 100))
    return (folder / "0.data").stat().st_size


def test_the_lag_is_what_was_found_and_comes_after_the_batch(tmp_path: Path) -> None:
    size = fill(tmp_path)
    planner = Planner(spout(tmp_path, batch_files_max=1))

    batches = planner.all()

    assert lags(planner, batches) == [{"files": n, "bytes": n * size} for n in (3, 2, 1, 0)]


def test_a_file_of_which_a_part_was_read_counts_with_its_rest(tmp_path: Path) -> None:
    size = fill(tmp_path, files=2)
    planner = Planner(spout(tmp_path, batch_bytes_max=size // 2 + 1))

    found = lags(planner, planner.all())

    assert [each["files"] for each in found] == [2, 1, 1, 0]
    behind = [each["bytes"] for each in found]
    assert behind == sorted(behind, reverse=True)
    assert behind[0] == 2 * size - (size // 2 + 1)
    assert behind[-1] == 0


def test_a_parquet_file_counts_whole_until_it_is_read(tmp_path: Path) -> None:
    """How many bytes a row has is not known without reading."""
    size = fill(tmp_path, "parquet", files=1)
    planner = Planner(spout(tmp_path, "parquet", batch_rows_max=15))

    assert lags(planner, planner.all()) == [{"files": 1, "bytes": size}, {"files": 0, "bytes": 0}]


def test_files_that_come_later_count_once_they_are_found(tmp_path: Path) -> None:
    size = fill(tmp_path, files=2)
    planner = Planner(spout(tmp_path, batch_files_max=1))
    first, second = planner.all()
    write(tmp_path / "later", "csv", numbered(20, 100))
    third = planner.plan()

    assert [each["files"] for each in lags(planner, [first, second, third])] == [2, 1, 0]
    assert lags(planner, [second]) == [{"files": 1, "bytes": size}]


@pytest.mark.parametrize("limit", [{"batch_files_max": 1}, {"batch_bytes_max": 150}], ids=str)
def test_another_coordinator_goes_on_with_the_lag(tmp_path: Path, limit: dict[str, int]) -> None:
    fill(tmp_path)
    made = spout(tmp_path, **limit)
    earlier = Planner(made)
    before = [earlier.plan() for _ in range(3)]

    later = Planner(made, stored=earlier.metadata)
    after = [later.plan() for _ in range(2)]

    assert lags(later, before[:2]) == [{}, {}], "it has not planned those"
    assert lags(later, [before[2]])[0]["files"] >= lags(later, after)[0]["files"]
    while later.plan() is not None:
        pass
    assert lags(later, [later.metadata]) == [{"files": 0, "bytes": 0}]


def test_telling_the_lag_reads_nothing(tmp_path: Path) -> None:
    """It is asked before each commit, of folders with any number of files."""
    fill(tmp_path / "in")
    planner = Planner(spout(tmp_path / "in", batch_files_max=1))
    metadata = planner.plan()
    shutil.rmtree(tmp_path / "in")

    assert lags(planner, [metadata])[0]["files"] == 3


def test_the_progress_of_a_run_shows_the_lag(tmp_path: Path) -> None:
    size = fill(tmp_path / "in")
    storage = Storage.in_memory()
    made = spout(tmp_path / "in", batch_files_max=1)
    builder = TransactionalTopologyBuilder("files", "files", made)
    count = PersistentAggregate(open_state(storage.url), "name", Count())
    builder.set_bolt("count", count).fields_grouping("files", "name")

    changes = run_to_end(builder.build_topology(), storage, LOCAL)

    seen = [change.progress.lag for change in changes.of(BatchCommitted)]
    assert seen == [{"files": n, "bytes": n * size} for n in (3, 2, 1, 0)]
