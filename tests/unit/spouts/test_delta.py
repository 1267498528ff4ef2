"""What is appended to a Delta table is read once, and the same again in a replay."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.unit.spouts.driving import Planner, context, emit
from txtopo import Config, Fields
from txtopo.errors import ConfigError, SourceDataLost
from txtopo.spouts import DeltaTransactionalSpout

pytestmark = pytest.mark.integration
FIELDS = Fields("word string, n long")


def append(folder: Path, *numbers: int, **options: Any) -> None:
    rows = pa.table({"n": list(numbers), "word": [f"w{n}" for n in numbers]})
    write_deltalake(str(folder), rows, mode="append", **options)


def spout(folder: Path, **options: Any) -> DeltaTransactionalSpout:
    made = DeltaTransactionalSpout(folder, FIELDS, **options)
    travelled: DeltaTransactionalSpout = pickle.loads(pickle.dumps(made))
    return travelled


def numbers(made: DeltaTransactionalSpout, metadata: Any, tasks: int = 1) -> list[int]:
    return sorted(n for _, n in emit(made, metadata, tasks))


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, [[1, 2, 3, 4, 5]]),
        ({"batch_versions_max": 2}, [[1, 2, 3], [4, 5]]),
        ({"batch_files_max": 1}, [[1, 2], [3], [4], [5]]),
        ({"batch_bytes_max": 1}, [[1, 2], [3], [4], [5]]),
        ({"starting_version": 1}, [[3, 4, 5]]),
    ],
    ids=str,
)
def test_all_batches_together_are_what_was_appended(
    tmp_path: Path, limits: dict[str, int], expected: list[list[int]]
) -> None:
    for rows in ((1, 2), (3,), (4,), (5,)):
        append(tmp_path, *rows)
    made = spout(tmp_path, **limits)

    batches = Planner(made).all()

    assert [numbers(made, metadata) for metadata in batches] == expected


def test_a_batch_ends_with_what_was_there_when_it_was_planned(tmp_path: Path) -> None:
    append(tmp_path, 1)
    made = spout(tmp_path)
    planner = Planner(made)
    first = planner.plan()
    assert planner.plan() is None
    append(tmp_path, 2)

    assert numbers(made, first) == [1]
    second = planner.plan()
    assert numbers(made, second) == [2]
    assert planner.plan() is None
    again = Planner(spout(tmp_path), stored=second)
    assert again.plan() is None
    append(tmp_path, 3)
    assert numbers(made, again.plan()) == [3]


def test_the_files_of_a_version_may_be_divided_and_each_is_in_one_task(tmp_path: Path) -> None:
    append(tmp_path, *range(6), partition_by=["word"])
    made = spout(tmp_path, batch_files_max=4)

    first, second = Planner(made).all()

    for tasks in (1, 2, 3, 9):
        assert len(numbers(made, first, tasks)) == 4
        assert numbers(made, first, tasks) + numbers(made, second, tasks) == sorted(
            numbers(made, first)
        ) + sorted(numbers(made, second))
    rows = emit(made, first, 2) + emit(made, second, 2)
    assert sorted(rows) == [(f"w{n}", n) for n in range(6)], "partition values are columns too"


def test_compaction_brings_no_row_again(tmp_path: Path) -> None:
    for n in range(4):
        append(tmp_path, n)
    made = spout(tmp_path)
    planner = Planner(made)
    first = planner.plan()
    DeltaTable(str(tmp_path)).optimize.compact()

    assert planner.plan() is None
    append(tmp_path, 9)
    assert numbers(made, planner.plan()) == [9]
    assert numbers(made, first) == [0, 1, 2, 3], "the old files are still there"


def test_a_column_that_older_files_lack_is_null_there(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"n": [1]}))
    write_deltalake(
        str(tmp_path), pa.table({"n": [2], "word": ["w"]}), mode="append", schema_mode="merge"
    )
    made = spout(tmp_path)

    assert emit(made, Planner(made).plan()) == [(None, 1), ("w", 2)]


def test_a_vacuumed_file_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    append(tmp_path, 1)
    made = spout(tmp_path)
    metadata = Planner(made).plan()
    append(tmp_path, 2)
    table = DeltaTable(str(tmp_path))
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    with pytest.raises(SourceDataLost, match=r"version 0 .* is gone.*vacuumed\?.*starting_version"):
        emit(made, metadata)


def test_a_log_that_does_not_go_back_so_far_is_an_error(tmp_path: Path) -> None:
    for n in range(3):
        append(tmp_path, n)
    DeltaTable(str(tmp_path)).create_checkpoint()
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()

    with pytest.raises(SourceDataLost, match=r"lacks version 0.*logRetentionDuration"):
        Planner(spout(tmp_path)).plan()
    later = spout(tmp_path, starting_version=1)
    assert numbers(later, Planner(later).plan()) == [1, 2]


@pytest.mark.parametrize("change", ["delete", "overwrite"])
def test_a_version_that_takes_rows_away_stops_the_run(tmp_path: Path, change: str) -> None:
    append(tmp_path, 1, 2)
    planner = Planner(spout(tmp_path))
    planner.plan()
    if change == "delete":
        DeltaTable(str(tmp_path)).delete("n = 1")
    else:
        write_deltalake(str(tmp_path), pa.table({"n": [5], "word": ["w"]}), mode="overwrite")

    with pytest.raises(SourceDataLost, match=r"version 1 .*took rows away.*starting_version=2"):
        planner.plan()


def test_mistakes_are_found_when_the_topology_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no Delta table"):
        spout(tmp_path / "nothing").coordinator(Config(), context())
    append(tmp_path, 1)
    with pytest.raises(ConfigError, match=r"column 'n' .* got int64; expected double"):
        DeltaTransactionalSpout(tmp_path, Fields("n double")).coordinator(Config(), context())
    with pytest.raises(ConfigError, match="batch_files_max"):
        spout(tmp_path, batch_files_max=0)
    with pytest.raises(ConfigError, match="starting_version"):
        spout(tmp_path, starting_version=-1)
