"""What is appended to a Delta table is read once, and the same again in a replay."""

from __future__ import annotations

import json
import pickle
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.unit.sources.driving import Planner, context, emit
from txtopo import Config, Fields
from txtopo.errors import ConfigError, InfrastructureError, OffsetRegression, SourceDataLost
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

    with pytest.raises(
        SourceDataLost, match=r"version 0 .* no longer exists.*vacuumed\?.*starting_version"
    ):
        emit(made, metadata)


def clean(folder: Path, before: int) -> None:
    """Take the entries of versions away, as the retention of the log does after a checkpoint."""
    DeltaTable(str(folder)).create_checkpoint()
    for version in range(before):
        (folder / "_delta_log" / f"{version:020}.json").unlink(missing_ok=True)


@pytest.mark.parametrize("limit", [1, 100])
def test_a_log_that_was_cleaned_behind_the_position_goes_on(tmp_path: Path, limit: int) -> None:
    for n in range(3):
        append(tmp_path, n)
    made = spout(tmp_path, batch_files_max=limit)
    *_, last = Planner(made).all()
    append(tmp_path, 3)
    clean(tmp_path, 3)

    again = Planner(spout(tmp_path), stored=last)

    assert numbers(made, again.plan()) == [3]
    assert again.plan() is None
    append(tmp_path, 4)
    clean(tmp_path, 5)
    with pytest.raises(SourceDataLost, match="lacks version 3, which was to be read"):
        Planner(spout(tmp_path), stored=last).plan()


def test_a_version_of_which_files_are_left_is_still_needed(tmp_path: Path) -> None:
    append(tmp_path, 1, 2, partition_by=["word"])
    made = spout(tmp_path, batch_files_max=1)
    first = Planner(made).plan()
    append(tmp_path, 3)

    rest = Planner(made, stored=first).all()
    assert sorted(n for each in rest for n in numbers(made, each)) in ([1, 3], [2, 3])
    clean(tmp_path, 1)
    with pytest.raises(SourceDataLost, match="lacks version 0, which was to be read"):
        Planner(spout(tmp_path), stored=first).plan()


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

    with pytest.raises(SourceDataLost, match=r"version 1 .*removed rows.*starting_version=2"):
        planner.plan()


def remade(folder: Path, *rows: int) -> None:
    """Delete a table, and make it again with a version for each number."""
    shutil.rmtree(folder)
    for n in rows:
        append(folder, n)


ANOTHER = r"is not the one that was read; got a log entry of version 2 .* under a new topology id"


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("versions", [1, 2, 3, 5])
def test_a_table_that_was_made_again_stops_the_run(
    tmp_path: Path, versions: int, running: bool
) -> None:
    """Its first versions would be skipped, since they have the numbers of those that were read."""
    table = tmp_path / "table"
    remade_from = [1, 2, 3]
    for n in remade_from:
        append(table, n)
    planner = Planner(spout(table))
    (read,) = planner.all()
    remade(table, *range(10, 10 + versions))
    if running and versions <= len(remade_from):
        with suppress(InfrastructureError):  # deltalake sees that the log has become shorter
            assert planner.plan() is None, "nothing of the new table is read"
        append(table, 20)
        append(table, 21)
        append(table, 22)
    elif not running:
        planner = Planner(spout(table), stored=read)

    ends = r"ends before the version up to which it was read; got \d as its latest .* at least 2"
    shorter = not running and versions < len(remade_from)
    with pytest.raises(OffsetRegression, match=ends if shorter else ANOTHER) as caught:
        planner.plan()
    assert caught.value.version == 2


def test_a_planned_batch_is_not_replayed_from_a_table_that_was_made_again(tmp_path: Path) -> None:
    table = tmp_path / "table"
    for n in range(3):
        append(table, n)
    planned = Planner(spout(table)).plan()
    assert numbers(spout(table), planned) == [0, 1, 2]
    remade(table, 10, 11, 12)

    with pytest.raises(OffsetRegression, match=ANOTHER):
        emit(spout(table), planned)


def test_an_earlier_state_that_was_restored_from_a_copy_stops_the_run(tmp_path: Path) -> None:
    """It has the same id, and its next version has the number of one that was read."""
    table, copy = tmp_path / "table", tmp_path / "copy"
    append(table, 0)
    append(table, 1)
    shutil.copytree(table, copy)
    append(table, 2)
    (read,) = Planner(spout(table)).all()
    shutil.rmtree(table)
    shutil.copytree(copy, table)

    with pytest.raises(OffsetRegression, match="ends before the version"):
        Planner(spout(table), stored=read).plan()
    append(table, 7)
    with pytest.raises(OffsetRegression, match=ANOTHER):
        Planner(spout(table), stored=read).plan()


def test_a_table_that_moved_or_was_replaced_in_place_goes_on(tmp_path: Path) -> None:
    """A table that is replaced gets another id from deltalake, and its log continues."""
    table, other = tmp_path / "table", tmp_path / "other"
    append(table, 1)
    fields = Fields("word string, n long, gone boolean")
    (read,) = Planner(DeltaTransactionalSpout(table, fields, changes="gone")).all()
    id = DeltaTable(str(table)).metadata().id
    table.rename(other)
    schema = pa.schema([("n", pa.int64()), ("word", pa.string())])
    DeltaTable.create(str(other), schema, mode="overwrite")
    append(other, 2)
    made = DeltaTransactionalSpout(other, fields, changes="gone")
    batches = Planner(made, stored=read).all()

    assert DeltaTable(str(other)).metadata().id != id
    rows = [row for metadata in batches for row in emit(made, metadata)]
    assert sorted(rows, key=str) == [("w1", 1, True), ("w2", 2, False)]


def mapped(folder: Path) -> None:
    """Turn column mapping on by hand, since deltalake cannot."""
    table = DeltaTable(str(folder))
    version, schema = table.version() + 1, json.loads(table.schema().to_json())
    for at, column in enumerate(schema["fields"], 1):
        name = {"delta.columnMapping.physicalName": f"col-{at}", "delta.columnMapping.id": at}
        column["metadata"] = name
    changed = {
        "id": str(table.metadata().id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": [],
        "configuration": {"delta.columnMapping.mode": "name"},
    }
    actions = [
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {"metaData": changed},
    ]
    entry = folder / "_delta_log" / f"{version:020}.json"
    entry.write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize("start", [0, 1, 2])
def test_a_table_with_column_mapping_is_refused_when_the_topology_starts(
    tmp_path: Path, start: int
) -> None:
    """Behind the version that turned it on all columns would be NULL."""
    append(tmp_path, 1)
    mapped(tmp_path)
    made = spout(tmp_path, starting_version=start)

    with pytest.raises(
        ConfigError, match=r"got delta\.columnMapping\.mode='name'; .* without column mapping"
    ):
        Planner(made)


def test_column_mapping_that_is_turned_on_stops_the_run_without_advice_to_begin_behind_it(
    tmp_path: Path,
) -> None:
    append(tmp_path, 1)
    planner = Planner(spout(tmp_path))
    planner.all()
    mapped(tmp_path)

    with pytest.raises(SourceDataLost, match=r"version 1 .* without column mapping") as caught:
        planner.plan()
    assert "starting_version" not in str(caught.value)


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


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x0b", "\x1c", "\r"])
def test_a_log_whose_statistics_have_odd_line_ends_is_read(tmp_path: Path, sign: str) -> None:
    word = f"tea{sign}pot"
    write_deltalake(str(tmp_path), pa.table({"n": [1], "word": [word]}))
    made = spout(tmp_path)
    (metadata,) = Planner(made).all()

    assert emit(made, metadata) == [(word, 1)]


@pytest.mark.parametrize("damage", [b"[]\n", b"{", b'{"add": {}}', b'{"add": 5}', b"\xff"])
def test_a_damaged_log_ends_the_run_and_is_named(tmp_path: Path, damage: bytes) -> None:
    append(tmp_path, 1)
    planner = Planner(spout(tmp_path))
    (tmp_path / "_delta_log" / f"{0:020}.json").write_bytes(damage)

    with pytest.raises(
        SourceDataLost, match=r"damaged in version 0; got .*; expected one Delta action"
    ):
        planner.plan()
