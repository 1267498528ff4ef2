"""Files, Delta tables and queries are read to their end, and what follows begins at a place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from sqlalchemy import create_engine, text

from tests.unit.sources.driving import context
from txtopo import Config, Fields
from txtopo.errors import ConfigError
from txtopo.kafka.offsets import checked_start, start_from
from txtopo.metadata import Json
from txtopo.spouts import (
    DeltaTransactionalSpout,
    FilesTransactionalSpout,
    QueryTransactionalSpout,
    SequenceSpout,
)
from txtopo.spouts.spout import LastBatch, TransactionalCoordinator
from txtopo.testing.conformance.spout_driver import SpoutDriver

FIELDS = Fields("id long")


def files(folder: Path, *names: str) -> FilesTransactionalSpout:
    folder.mkdir(exist_ok=True)
    for at, name in enumerate(names):
        (folder / name).write_text(f"id\n{at}\n")
    return FilesTransactionalSpout(folder, FIELDS)


def delta(folder: Path, versions: int, start: int = 0) -> DeltaTransactionalSpout:
    folder.mkdir(exist_ok=True)
    for at in range(start, start + versions):
        rows = pa.table({"id": pa.array([at], pa.int64())})
        write_deltalake(str(folder), rows, mode="append")
    return DeltaTransactionalSpout(folder, FIELDS)


def run(url: str, *statements: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def query(
    folder: Path, ids: Sequence[int] = (), settle_s: float = 0, name: str = "rows"
) -> QueryTransactionalSpout:
    url = f"sqlite:///{folder / name}.db"
    inserts = [f"INSERT INTO numbers VALUES ({id})" for id in ids]
    run(url, "CREATE TABLE IF NOT EXISTS numbers (id INTEGER PRIMARY KEY)", *inserts)
    return QueryTransactionalSpout(url, "numbers", "id", FIELDS, settle_s=settle_s)


@pytest.fixture
def numbers(tmp_path: Path) -> Iterator[Any]:
    """Return a function that reads a spout to its end and returns the numbers."""
    drivers = []

    def read(spout: SequenceSpout) -> list[object]:
        driver = SpoutDriver(spout)
        drivers.append(driver)
        found: list[object] = []
        while done := driver.next():
            driver.commit()
            found += [id for batch in done for (id,) in batch.rows]
        return found

    yield read
    for driver in drivers:
        driver.close()


def test_files_and_then_a_query_from_where_the_files_ended(tmp_path: Path, numbers: Any) -> None:
    first = files(tmp_path / "files", "a", "b", "c")

    found = numbers(SequenceSpout(first, query(tmp_path, range(5)), lambda end: 2))

    assert found == [0, 1, 2, 3, 4]


def test_a_query_and_then_versions_of_a_delta_table(tmp_path: Path, numbers: Any) -> None:
    spout = SequenceSpout(query(tmp_path, [7, 8]), delta(tmp_path / "table", 4), 2)

    assert numbers(spout) == [7, 8, 2, 3]


def test_a_delta_table_and_then_a_query_after_a_key(tmp_path: Path, numbers: Any) -> None:
    ends: list[Json] = []

    def begins(end: Any) -> Json:
        ends.append(end)
        return end["end"][0]  # type: ignore[no-any-return]

    spout = SequenceSpout(delta(tmp_path / "table", 3), query(tmp_path, range(6)), begins)

    assert numbers(spout) == [0, 1, 2, 3, 4, 5]


def key_of(end: Any) -> Json:
    return end["upto"]  # type: ignore[no-any-return]


def test_a_query_and_then_another_from_its_last_key(tmp_path: Path, numbers: Any) -> None:
    """The metadata of a query has the largest key that was read."""
    old, new = query(tmp_path, [1, 3]), query(tmp_path, [1, 2, 3, 4], name="new")

    assert numbers(SequenceSpout(old, new, key_of)) == [1, 3, 4]


def test_a_query_has_not_ended_while_a_key_settles(tmp_path: Path) -> None:
    planner = query(tmp_path, [1], settle_s=60).coordinator(Config(), context())

    assert not planner.is_ready(1, LastBatch())
    assert not planner.ended(LastBatch())
    planner.close()


def test_a_query_has_not_ended_while_a_row_is_ahead_of_the_clock(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/times.db"
    run(
        url, "CREATE TABLE times (at TIMESTAMP)", "INSERT INTO times VALUES ('2999-01-01 00:00:00')"
    )
    spout = QueryTransactionalSpout(url, "times", "at", Fields("at timestamp"), settle_s=0)
    planner = spout.coordinator(Config(), context())

    assert not planner.is_ready(1, LastBatch())
    assert not planner.ended(LastBatch())
    planner.close()


def test_a_source_that_gets_more_has_not_ended(tmp_path: Path) -> None:
    """And it has again when that is read."""
    first = files(tmp_path / "files", "a")
    table = delta(tmp_path / "table", 1)
    rows = query(tmp_path, [1])
    planners: list[TransactionalCoordinator] = [
        each.coordinator(Config(), context()) for each in (first, table, rows)
    ]
    lasts = [LastBatch(0), LastBatch(0), LastBatch(0)]
    for txid in (1, 2):
        for at, planner in enumerate(planners):
            assert planner.is_ready(txid, lasts[at])
            metadata = planner.initialize_transaction(txid, lasts[at].metadata)
            lasts[at] = LastBatch(txid, metadata)
            ready = planner.is_ready(txid + 1, lasts[at])
            assert (ready, planner.ended(lasts[at])) == (False, True)
        files(tmp_path / "files", "b")
        delta(tmp_path / "table", 1, start=1)
        query(tmp_path, [1 + txid])
    for planner in planners:
        planner.close()


@pytest.mark.parametrize(
    ("kind", "place", "key"),
    [
        ("long", 7, 7),
        ("date", "2026-01-31", date(2026, 1, 31)),
        ("timestamp", "2026-01-31T12:00:00+01:00", datetime(2026, 1, 31, 11, tzinfo=UTC)),
    ],
)
def test_a_query_begins_after_a_key_in_the_form_of_metadata(
    kind: str, place: Json, key: object
) -> None:
    spout = QueryTransactionalSpout("sqlite://", "rows", "k", Fields(f"k {kind}"), settle_s=0)

    assert spout.beginning_at(place)._start_after == key
    assert spout._start_after is None
    for wrong in ([place], False):
        with pytest.raises(ConfigError, match=f"expected the form of a {kind} in metadata"):
            spout.beginning_at(wrong)


def test_a_delta_table_begins_at_a_version(tmp_path: Path) -> None:
    spout = delta(tmp_path / "table", 1)

    assert spout.beginning_at(3)._first == (3, 0)
    assert spout._first == (0, 0)
    with pytest.raises(ConfigError, match="starting_version is wrong; got '3'"):
        spout.beginning_at("3")


@pytest.mark.parametrize(
    ("place", "start"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("2026-01-31T12:00:00+00:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ({"orders": {"0": 7, "12": 0}}, {"orders": {0: 7, 12: 0}}),
    ],
)
def test_kafka_begins_at_a_start_in_json(place: Json, start: object) -> None:
    assert checked_start(start_from(place), "orders") == start


@pytest.mark.parametrize(
    "place", [7, "yesterday", "2026-01-31", {"orders": 7}, {"orders": {"x": 7}}, {"other": {}}]
)
def test_what_is_no_start_of_kafka_is_refused(place: Json) -> None:
    with pytest.raises(ConfigError):
        checked_start(start_from(place), "orders")
