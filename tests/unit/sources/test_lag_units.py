"""How far spouts are behind that do not count records: versions, keys, offsets and seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import create_engine, text

from tests.unit.sources.data_sources import LinesSource, write
from txtopo import Config, Fields, TaskContext, TransactionalTopologyBuilder, TransactionAttempt
from txtopo.coordinator.protocol import NotReady, PlanBatch, Planned
from txtopo.plugins.spouts import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.runtime.batch_planner import BatchPlanner
from txtopo.sources.datasource import offsets_between
from txtopo.spouts import DataFrameTransactionalSpout, DataSourceSpout, QueryTransactionalSpout
from txtopo.topology.graph import Graph
from txtopo.ui.board import lag_by_unit

CONFIG = Config(carrier="local", zookeeper="memory")
NUMBER = Fields("n long")


def lags(spout: Any, batches: int = 10) -> list[dict[str, int]]:
    """Plan all batches, and return the lag behind each, as of the last look at the source."""
    coordinator = spout.coordinator(CONFIG, TaskContext("lag", "spout", 0, 1))
    planned: list[Any] = []
    for txid in range(1, batches + 1):
        last = LastBatch(txid - 1, planned[-1] if planned else None)
        if not coordinator.is_ready(txid, last):
            break
        planned.append(coordinator.initialize_transaction(txid, last.metadata))
    found = [dict(coordinator.lag(metadata)) for metadata in planned]
    coordinator.close()
    return found


def table(tmp_path: Path, kind: str, *keys: object) -> str:
    url = f"sqlite:///{tmp_path / 'rows.db'}"
    with create_engine(url).begin() as connection:
        connection.execute(text(f"CREATE TABLE numbers (n {kind})"))
        for key in keys:
            connection.execute(text("INSERT INTO numbers VALUES (:n)"), {"n": key})
    return url


def test_a_query_by_numbers_is_behind_by_keys(tmp_path: Path) -> None:
    url = table(tmp_path, "INTEGER", 1, 2, 50)
    spout = QueryTransactionalSpout(url, "numbers", "n", NUMBER, settle_s=0, batch_rows_max=1)

    assert lags(spout) == [{"keys": 49}, {"keys": 48}, {"keys": 0}]


@pytest.mark.parametrize(
    ("kind", "fields", "keys", "behind"),
    [
        ("DATE", "n date", ("2026-01-01", "2026-01-03"), 2 * 86_400),
        ("TIMESTAMP", "n timestamp", ("2026-01-01 00:00:00", "2026-01-01 00:01:00.500000"), 61),
    ],
)
def test_a_query_by_time_is_behind_by_seconds(
    tmp_path: Path, kind: str, fields: str, keys: tuple[str, ...], behind: int
) -> None:
    url = table(tmp_path, kind, *keys)
    spout = QueryTransactionalSpout(
        url, "numbers", "n", Fields(fields), settle_s=0, batch_rows_max=1
    )

    assert lags(spout) == [{"seconds": behind}, {"seconds": 0}]


def test_a_delta_table_is_behind_by_versions(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    from txtopo.spouts import DeltaDataFrameSpout, DeltaTransactionalSpout

    for n in range(3):
        deltalake.write_deltalake(tmp_path, pa.table({"n": [n]}), mode="append")
    one, frames = (
        kind(tmp_path, NUMBER, batch_files_max=1)
        for kind in (DeltaTransactionalSpout, DeltaDataFrameSpout)
    )
    assert lags(one) == lags(frames) == [{"versions": n} for n in (2, 1, 0)]
    deltalake.DeltaTable(tmp_path).optimize.compact()

    assert lags(one)[-1] == {"versions": 0}, "a version without rows is nothing to read"


class Reporting(LinesSource):
    """Its reader limits batches, and says where its source ends."""

    def streamReader(self, schema: Any) -> Any:
        reader: Any = super().streamReader(schema)
        reader.reportLatestOffset = lambda: {"p0": 9}
        return reader


class Failing(LinesSource):
    def streamReader(self, schema: Any) -> Any:
        def report() -> None:
            raise OSError("away")

        reader: Any = super().streamReader(schema)
        reader.reportLatestOffset = report
        return reader


def test_a_data_source_is_behind_by_offsets_if_its_end_is_known(tmp_path: Path) -> None:
    write(tmp_path / "p0", *range(7))
    options = {"path": str(tmp_path)}
    old = DataSourceSpout(LinesSource, {**options, "signature": "old"})
    assert lags(old)[-1] == {"offsets": 0}
    assert lags(DataSourceSpout(LinesSource, options))[-1] == {}, "a limited batch ends earlier"

    assert lags(DataSourceSpout(Reporting, options, batch_rows_max=3)) == [
        {"offsets": n} for n in (6, 3, 2)
    ]
    assert lags(DataSourceSpout(Failing, options, batch_rows_max=3)) == [{}, {}, {}], "no failure"


@pytest.mark.parametrize(
    ("start", "end", "ahead"),
    [
        (3, 7, 4),
        ({"a": 1, "b": {"c": 2}}, {"a": 2, "b": {"c": 5}, "d": 3}, 7),
        ({"a": 9, "at": "x"}, {"a": 1, "at": "y"}, 0),
        ("2026-01-01", "2026-01-02", None),
    ],
)
def test_offsets_are_ahead_by_their_numbers(start: Any, end: Any, ahead: int | None) -> None:
    assert offsets_between(start, end) == ahead


def test_units_are_added_up_and_of_seconds_the_most_counts() -> None:
    lag = {"a/0": 3, "a/1": 4, "b/versions": 2, "c/then/seconds": 5, "d/seconds": 9}

    assert lag_by_unit(lag) == {"records": 7, "versions": 2, "seconds": 9}


# ---------------------------------------------------------------- of any spout


class Three(TransactionalCoordinator):
    """Has three batches."""

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= 3

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
        return txid


class Silent(TransactionalSpout):
    output_fields = NUMBER

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        return Three()

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        raise NotImplementedError


class Clock:
    now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def wall_clock(self) -> float:
        return 1_000 + self.now_s


def graph_with(spout: Any) -> Graph:

    return TransactionalTopologyBuilder("lag", "spout", spout).build_topology().graph


def no_frame(spark: Any, attempt: Any, metadata: Any) -> Any:
    raise NotImplementedError


@pytest.mark.parametrize(
    "spout", [Silent(), DataFrameTransactionalSpout(Three(), no_frame, NUMBER)]
)
def test_a_spout_that_says_nothing_is_behind_since_it_was_found_ready(spout: Any) -> None:
    """The planner knows that of each spout, without a call more."""
    clock = Clock()
    planner = BatchPlanner(graph_with(spout), CONFIG, clock)
    stored: list[Any] = []
    for txid in range(1, 5):
        clock.now_s = 10.0 * txid
        last = stored[-1] if stored else None
        ask = PlanBatch(TransactionAttempt(txid, 0, 1), txid - 1, last)
        answer = planner.plan(ask)
        assert isinstance(answer, Planned | NotReady)
        if isinstance(answer, Planned):
            stored.append(answer.metadata)
            assert planner.lag(answer.metadata, txid) == {}, "it was not asked for more yet"
    clock.now_s = 55.0

    assert [planner.lag(each, txid) for txid, each in enumerate(stored, 1)] == [
        {"seconds": 35},
        {"seconds": 25},
        {"seconds": 0},
    ]
    planner.close()
