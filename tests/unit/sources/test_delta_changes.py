"""All that changes in a Delta table is read once: rows that come, and rows that go."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.unit.sources.driving import Planner, context, emit
from txtopo import Config, Fields
from txtopo.errors import ConfigError, SourceDataLost
from txtopo.sources.delta.log import DeltaLog
from txtopo.spouts import DeltaTransactionalSpout
from txtopo.spouts.spout import LastBatch

pytestmark = pytest.mark.integration
FIELDS = Fields("word string, n long, gone boolean")
FEED = {"delta.enableChangeDataFeed": "true"}
STEPS = 20


class Table:
    """A table that is changed at random, with one row for each number."""

    def __init__(self, folder: Path, seed: int, *, feed: bool, parted: bool = False) -> None:
        self.folder = str(folder)
        self.random = random.Random(seed)
        self.next = 0
        schema = pa.schema([("n", pa.int64()), ("word", pa.string())])
        DeltaTable.create(
            self.folder,
            schema,
            configuration=FEED if feed else None,
            partition_by=["word"] if parted else None,
        )

    def change(self) -> None:
        table = DeltaTable(self.folder)
        number = self.random.randrange(self.next + 1)
        match self.random.choice(["append", "append", "delete", "update", "merge", "new", "pack"]):
            case "append":
                write_deltalake(self.folder, self._rows(3), mode="append")
            case "delete":
                table.delete(f"n = {number} OR n = {number + 1}")
            case "update":
                table.update(
                    {"word": f"'{self.random.choice('xyz')}'"}, predicate=f"n % 7 = {number % 7}"
                )
            case "merge":
                merge = table.merge(self._rows(2, number), "s.n = t.n", "s", "t")
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
            case "new":
                if self.random.random() < 0.3:
                    write_deltalake(self.folder, self._rows(4), mode="overwrite")
            case "pack":
                table.optimize.compact()

    def rows(self) -> Counter[tuple[Any, ...]]:
        found = DeltaTable(self.folder).to_pyarrow_table(columns=["word", "n"]).to_pylist()
        return Counter(tuple(row.values()) for row in found)

    def told(self) -> Counter[tuple[Any, ...]]:
        """Return how often each row came and went, as delta-rs reads the feed."""
        feed = DeltaTable(self.folder).load_cdf(starting_version=0)
        rows = pa.table(feed.read_all()).select(["word", "n", "_change_type"]).to_pylist()
        gone = ("delete", "update_preimage")
        return Counter((row["word"], row["n"], row["_change_type"] in gone) for row in rows)

    def _rows(self, count: int, first: int | None = None) -> pa.Table:
        first = self.next if first is None else first
        numbers = list(range(first, first + count))
        self.next = max(self.next, first + count)
        return pa.table({"n": numbers, "word": [self.random.choice("abc") for _ in numbers]})


def spout(folder: Path, **options: Any) -> DeltaTransactionalSpout:
    return DeltaTransactionalSpout(folder, FIELDS, changes="gone", **options)


def total(rows: Counter[Any]) -> dict[Any, int]:
    """Return what is left when rows that went are taken from those that came."""
    left: Counter[Any] = Counter()
    for (word, n, gone), count in rows.items():
        left[word, n] += -count if gone else count
    return {row: count for row, count in left.items() if count}


@pytest.mark.parametrize("parted", [False, True], ids=["whole", "in partitions"])
@pytest.mark.parametrize("seed", range(2))
def test_with_the_feed_each_change_is_told_as_delta_rs_tells_it(
    tmp_path: Path, seed: int, parted: bool
) -> None:
    table = Table(tmp_path, seed, feed=True, parted=parted)
    for _ in range(STEPS):
        table.change()
    made = spout(tmp_path, batch_versions_max=2)

    batches = Planner(made).all()

    assert len(batches) > 3
    found = Counter(row for batch in batches for row in emit(made, batch, 2))
    assert found == table.told()
    assert total(found) == dict(table.rows())


@pytest.mark.parametrize("parted", [False, True], ids=["whole", "in partitions"])
@pytest.mark.parametrize("seed", range(2))
def test_without_the_feed_it_comes_to_the_same(tmp_path: Path, seed: int, parted: bool) -> None:
    """After each batch what came and did not go is what the table had then."""
    table = Table(tmp_path, seed, feed=False, parted=parted)
    made = spout(tmp_path, batch_files_max=1)
    planner, found = Planner(made), Counter[Any]()
    went = 0

    for _ in range(STEPS):
        table.change()
        for batch in batches_of(planner):
            rows = emit(made, batch)
            assert rows == emit(made, batch)
            went += sum(gone for _, _, gone in rows)
            found.update(rows)
        assert total(found) == dict(table.rows())
    assert went


def batches_of(planner: Planner) -> Iterator[Any]:
    while (batch := planner.plan()) is not None:
        yield batch


def test_a_version_is_never_divided(tmp_path: Path) -> None:
    """Else a state would show rows as gone that another batch brings."""
    table = Table(tmp_path, 0, feed=False, parted=True)
    write_deltalake(
        table.folder, pa.table({"n": [1, 2, 3], "word": ["a", "b", "c"]}), mode="append"
    )
    write_deltalake(table.folder, pa.table({"n": [4, 5], "word": ["a", "b"]}), mode="overwrite")
    made = spout(tmp_path, batch_files_max=1, batch_bytes_max=1)

    batches = Planner(made).all()

    assert [len(emit(made, batch)) for batch in batches] == [3, 5]


def test_a_plan_that_reads_nothing_new_makes_no_batch(tmp_path: Path) -> None:
    table = Table(tmp_path, 0, feed=True)
    write_deltalake(table.folder, pa.table({"n": [1], "word": ["a"]}), mode="append")
    made = spout(tmp_path)
    coordinator = made.coordinator(Config(), context())
    first = coordinator.initialize_transaction(1, None)
    DeltaTable(table.folder).delete("n = 9")

    assert not coordinator.is_ready(2, LastBatch(1, first))


def test_what_it_cannot_read_stops_the_run(tmp_path: Path) -> None:
    table = Table(tmp_path, 0, feed=True)
    write_deltalake(table.folder, pa.table({"n": [1, 2], "word": ["a", "b"]}), mode="append")
    DeltaTable(table.folder).delete("n = 1")
    made = spout(tmp_path)
    metadata = Planner(made).plan()
    for path in (tmp_path / "_change_data").glob("*.parquet"):
        path.unlink()
    with pytest.raises(SourceDataLost, match=r"'_change_data/.* no longer exists"):
        emit(made, metadata)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"remove": {"path": "x", "size": 1}}, "does not say of which partition"),
        ({"remove": {"path": "x", "partitionValues": {}, "deletionVector": {"a": 1}}}, "vectors"),
        ({"add": {"path": "x", "partitionValues": {}, "deletionVector": {"a": 1}}}, "vectors"),
    ],
    ids=str,
)
def test_an_entry_of_the_log_that_it_cannot_follow_stops_the_run(
    tmp_path: Path, entry: dict[str, Any], reason: str
) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{7:020}.json").write_text(json.dumps(entry) + "\n")

    with pytest.raises(SourceDataLost, match=rf"version 7 .*{reason}.*starting_version=8"):
        DeltaLog(str(tmp_path), changes=True).files(7)


def test_mistakes_are_found_when_the_topology_is_made(tmp_path: Path) -> None:
    for fields in ("n long", "n long, gone string"):
        with pytest.raises(ConfigError, match="changes does not name a boolean field"):
            DeltaTransactionalSpout(tmp_path, Fields(fields), changes="gone")
    schema = pa.schema([("n", pa.int64()), ("gone", pa.bool_())])
    DeltaTable.create(str(tmp_path), schema)
    taken = DeltaTransactionalSpout(tmp_path, Fields("n long, gone boolean"), changes="gone")
    with pytest.raises(ConfigError, match="changes names a column"):
        taken.coordinator(Config(), context())
