"""Readers of Python Data Sources that are not as one would write them, and runs beside runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource, InputPartition

from tests.harness.metadata import of_one
from tests.unit.sources.data_sources import CountingReader, LinesSource, SimpleLinesSource, write
from tests.unit.sources.test_data_source import FIELDS, committed, folder, spout
from txtopo import Config, TransactionAttempt
from txtopo.builders.prototypes import snapshot
from txtopo.coordinator.protocol import PlanBatch
from txtopo.errors import ConfigError, EmitError
from txtopo.metadata import SpoutShare
from txtopo.plugins.spouts import LastBatch
from txtopo.runtime.spout_planner import ReadySpout, SpoutPlan, SpoutPlanner
from txtopo.spouts import DataSourceSpout
from txtopo.testing.conformance.spout_driver import SpoutDriver
from txtopo.topology.component import Component
from txtopo.topology.spout_kinds import TransactionalKind

__all__ = ["folder"]
END_5: Any = {"start": {}, "end": {"p0": 4, "p1": 1}}
END_6: Any = {"start": {"p0": 4, "p1": 1}, "end": {"p0": 5, "p1": 1}}


class Ticks(CountingReader):
    """Says the offsets that it was made with, one after the other, and then the last one."""

    def __init__(self, *latest: Any, initial: Any = None) -> None:
        self.left, self.initial = list(latest), initial or {"offset": 0}

    def initialOffset(self) -> Any:
        return self.initial

    def latestOffset(self) -> Any:  # type: ignore[override]
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


class OneObject(CountingReader):
    """Returns one dict again and again, with another number in it."""

    def __init__(self) -> None:
        self.offset = {"offset": 0}

    def initialOffset(self) -> Any:
        return self.offset

    def latestOffset(self) -> Any:  # type: ignore[override]
        self.offset["offset"] += 2
        return self.offset


def numbers(reader: Any, asks: int) -> list[object]:
    driver = SpoutDriver(DataSourceSpout(reader, fields=FIELDS))
    return [n for _ in range(asks) for batch in driver.next() for _, n in batch.rows]


def test_a_reader_may_go_on_with_the_offset_that_it_returned() -> None:
    assert numbers(OneObject(), 3) == list(range(6))


class PartsGo(Ticks):
    def partitions(self, start: Any, end: Any) -> Any:
        spans = [range(start.get(name, 0), stop) for name, stop in end.items()]
        return [InputPartition(n) for span in spans for n in span]


def test_a_part_of_an_offset_may_go() -> None:
    reader = PartsGo({"a": 2, "b": 12}, {"a": 4}, initial={"a": 0, "b": 10})

    assert numbers(reader, 2) == [0, 1, 10, 11, 2, 3]


@pytest.mark.parametrize(
    ("initial", "ahead", "back"),
    [
        ({"at": [3, 3]}, {"at": [5, 3]}, {"at": [4, 3]}),
        ({"at": 3.5}, {"at": 5.5}, {"at": 4.5}),
    ],
)
def test_numbers_in_lists_and_fractions_go_back_too(initial: Any, ahead: Any, back: Any) -> None:
    reader = Ticks(ahead, back, ahead, initial=initial)
    driver = SpoutDriver(DataSourceSpout(reader, fields=FIELDS))
    coordinator = driver._spout._coordinator

    assert coordinator.is_ready(1, LastBatch())
    first = LastBatch(1, coordinator.initialize_transaction(1, None))
    assert [coordinator.is_ready(2, first) for _ in range(2)] == [False, False]


@pytest.mark.parametrize("offset", [{0: 1}, {"at": Path()}, {"at": float("nan")}])
def test_an_offset_that_cannot_be_stored_is_named(offset: Any) -> None:
    for reader in (Ticks(offset), Ticks({"offset": 1}, initial=offset)):
        with pytest.raises(EmitError, match="Offset returned what is not JSON"):
            numbers(reader, 1)


class Rows(Ticks):
    def __init__(self, *rows: Any) -> None:
        super().__init__({"offset": 1})
        self.rows = rows

    def read(self, partition: Any) -> Any:
        return iter(self.rows)


@pytest.mark.parametrize("row", [{"partition": 0, "n": 1}, "01", {0, 1}, 7, None])
def test_what_is_no_row_is_refused(row: Any) -> None:
    """The names of a mapping would pass for the values of two strings."""
    reader = Rows(row)

    with pytest.raises(EmitError, match="returned something that is not a row"):
        numbers(reader, 1)


def test_a_table_of_arrow_is_read() -> None:
    assert numbers(Rows(pa.table({"n": [1, 2], "partition": [0, 0]})), 1) == [1, 2]


def plan(planner: SpoutPlanner, action: PlanBatch) -> SpoutPlan | None:
    ready = planner.ask(action)
    return planner.plan(ready) if isinstance(ready, ReadySpout) else None


def test_the_source_hears_nothing_of_a_batch_that_another_leader_planned_otherwise(
    folder: Path,
) -> None:
    """What this process planned in its first term was never stored, and ends further on."""
    driver = SpoutDriver(spout(folder, signature="old"))
    planner = driver._spout
    plan(planner, PlanBatch(TransactionAttempt(1, 0, 1), 0, None))
    write(folder / "p0", 5)
    plan(planner, PlanBatch(TransactionAttempt(2, 0, 1), 1, of_one(END_5)))
    plan(planner, PlanBatch(TransactionAttempt(3, 0, 1), 2, of_one(END_6)))

    planner.commit(TransactionAttempt(3, 0, 3), SpoutShare(END_6))
    planner.cleanup_before(4)
    planner.close()
    assert committed(folder) == []


def test_starts_of_one_topology_share_nothing(folder: Path) -> None:
    """A standby in the same process must not get what the leader's source is to hear."""
    shared = snapshot(Component("spout", TransactionalKind(), spout(folder), 1, {}))
    leader, standby = (SpoutPlanner("lines", shared, Config()) for _ in range(2))
    planned = plan(leader, PlanBatch(TransactionAttempt(1, 0, 1), 0, None))
    assert planned is not None

    leader.commit(TransactionAttempt(1, 0, 1), SpoutShare(planned.planned))
    leader.cleanup_before(2)
    plan(leader, PlanBatch(TransactionAttempt(2, 0, 1), 1, of_one(planned.planned)))
    assert committed(folder) == ["4"]
    standby.close()


class BatchOnly(DataSource):
    def schema(self) -> str:
        return "partition bigint, n bigint"


def test_a_source_that_is_no_stream_is_refused_at_the_start(folder: Path) -> None:
    with pytest.raises(ConfigError, match="'BatchOnly' cannot be read as a stream"):
        SpoutDriver(DataSourceSpout(BatchOnly))


@pytest.mark.parametrize("source", ["old", "simple"])
def test_a_limit_that_the_reader_does_not_take_is_refused(folder: Path, source: str) -> None:
    kind: Any = SimpleLinesSource if source == "simple" else LinesSource
    options = {"path": str(folder), "signature": source}

    with pytest.raises(
        ConfigError, match=r"does not accept a limit; got batch_rows_max=2 and \w+LinesRead"
    ):
        SpoutDriver(DataSourceSpout(kind, options, batch_rows_max=2))
