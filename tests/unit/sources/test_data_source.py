"""Python Data Sources as spouts: both signatures, what is read, when the source may forget."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceStreamReader, SimpleDataSourceStreamReader

from tests.harness.runs import Storage, run_to_end
from tests.unit.runtime.loop_world import Total
from tests.unit.sources.data_sources import (
    CountingReader,
    LinesReader,
    LinesSource,
    SimpleLinesReader,
    write,
)
from txtopo import Fields, Topology, TransactionalTopologyBuilder
from txtopo.errors import ConfigError, EmitError, TopologyError
from txtopo.spouts import DataSourceSpout
from txtopo.testing.conformance.spout_driver import SpoutDriver

FIELDS = Fields("partition long, n long")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "p0", 1, 2, 3, 4)
    write(tmp_path / "p1", 10)
    return tmp_path


def spout(folder: Path, **options: Any) -> DataSourceSpout:
    return DataSourceSpout(LinesSource, {"Path": str(folder), **options})


def cut(spout: Any, tasks: int = 1) -> list[list[Any]]:
    driver, found = SpoutDriver(spout, tasks), []
    while done := driver.next():
        found += [[n for _, n in batch.rows] for batch in done]
    driver.close()
    return found


def committed(folder: Path) -> list[str]:
    notes = folder / "committed"
    return notes.read_text().split() if notes.exists() else []


def test_the_reader_limits_a_batch(folder: Path) -> None:
    assert cut(spout(folder)) == [[1, 2, 3, 10], [4]]
    assert cut(DataSourceSpout("lines", {"path": str(folder)}, batch_rows_max=2)) == [
        [1, 2, 10],
        [3, 4],
    ]


def test_the_older_signature_has_no_limit(folder: Path) -> None:
    assert cut(spout(folder, signature="old")) == [[1, 2, 3, 4, 10]]


@pytest.mark.parametrize("rows", ["arrow", "named"])
def test_rows_may_be_arrow_or_named(folder: Path, rows: str) -> None:
    assert cut(spout(folder, rows=rows), tasks=2) == [[1, 2, 3, 10], [4]]


def test_a_reader_may_be_given_itself(folder: Path) -> None:
    class Schema:
        def simpleString(self) -> str:
            return "struct<partition:bigint,n:bigint>"

    reader = LinesReader(folder, "tuples", Schema())
    assert cut(DataSourceSpout(reader, fields=FIELDS)) == [[1, 2, 3, 10], [4]]
    simple = DataSourceSpout(SimpleLinesReader(folder), fields=FIELDS)
    assert cut(simple) == [[1, 2], [3, 4]]


def test_the_initial_offset_is_stored_before_a_record_is_there(tmp_path: Path) -> None:
    driver = SpoutDriver(spout(tmp_path))

    (first,) = driver.next()
    assert first.rows == ()
    assert first.metadata.of("spout").planned == {"start": {}, "end": {}}
    assert driver.next() == []


def test_the_source_hears_only_of_what_is_durably_committed(folder: Path) -> None:
    driver = SpoutDriver(spout(folder, signature="old"))
    driver.next()
    write(folder / "p0", 5)
    driver.next()
    assert committed(folder) == []

    driver.commit()
    driver.next()
    assert committed(folder) == ["6"]
    driver.close()
    assert (folder / "stopped").exists()


def test_after_a_restart_the_source_hears_what_the_new_process_knows(folder: Path) -> None:
    driver = SpoutDriver(spout(folder))
    driver.next(2)
    again = SpoutDriver(spout(folder), stored=driver.stored)
    write(folder / "p0", 5)
    again.next(3)

    again.commit()
    again.next()
    again.close()
    assert committed(folder)[-1] == "6"


def test_a_reader_that_begins_again_in_each_process_reads_nothing_twice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After the restart it says 2 and 4, which lie behind, then 6, where the last batch ended."""
    driver = SpoutDriver(DataSourceSpout(CountingReader(), fields=FIELDS))
    rows = [n for _ in range(3) for batch in driver.next() for _, n in batch.rows]
    driver.commit()

    again = SpoutDriver(DataSourceSpout(CountingReader(), fields=FIELDS), stored=driver.stored)
    found = [again.next() for _ in range(4)]
    assert [len(batches) for batches in found] == [0, 0, 0, 1]
    rows += [n for _, n in found[3][0].rows]
    assert rows == list(range(8))
    assert caplog.text.count("is behind {'offset': 6}") == 2


def topology_of(spout: Any, storage: Storage) -> Topology:
    builder = TransactionalTopologyBuilder("lines", "spout", spout)
    total = builder.set_bolt("total", Total()).global_grouping("spout")
    total.with_state("totals", storage.state("totals"))
    return builder.build_topology()


def test_a_topology_counts_each_record_once(folder: Path) -> None:
    storage = Storage.in_memory()
    source = {"path": str(folder)}
    fields = Fields("partition long, amount long")

    for _ in range(2):
        run_to_end(
            topology_of(DataSourceSpout(LinesSource, source, fields=fields), storage), storage
        )
        assert storage.read("totals") == {"total": 20}
    assert committed(folder)[-1:] == ["5"]


def test_a_transactional_state_needs_a_repeatable_reader(folder: Path) -> None:
    storage = Storage.in_memory("transactional")

    with pytest.raises(TopologyError, match="is transactional and the spout 'spout' is opaque"):
        topology_of(spout(folder), storage)
    repeatable = DataSourceSpout(LinesSource, {"path": str(folder)}, repeatable=True)
    assert topology_of(repeatable, storage).id == "lines"


def test_fields_in_the_place_of_options_are_answered_with_what_to_write() -> None:
    fields: Any = Fields("word string")

    with pytest.raises(ConfigError, match=r"write DataSourceSpout\(…, fields=Fields\("):
        DataSourceSpout("words", fields)


def test_what_is_no_source_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="this is not a source"):
        DataSourceSpout(Path)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no data source of this name is imported; got 'kafka'"):
        DataSourceSpout("kafka")
    with pytest.raises(ConfigError, match="does not declare its fields"):
        DataSourceSpout(SimpleLinesReader(folder))
    with pytest.raises(ConfigError, match="batch_rows_max is wrong"):
        DataSourceSpout(LinesSource, {}, batch_rows_max=0)


class Undivided(DataSourceStreamReader):
    """Does not say how a range is divided."""

    def initialOffset(self) -> dict[str, int]:
        return {"offset": 0}

    def latestOffset(self, start: Any, limit: Any) -> dict[str, int]:
        return {"offset": 2}

    def read(self, partition: Any) -> Iterator[tuple[int, int]]:
        yield 0, 1


class Stuck(SimpleDataSourceStreamReader):
    """Has rows, and ends where it began."""

    def initialOffset(self) -> dict[str, int]:
        return {"offset": 0}

    def read(self, start: Any) -> tuple[Iterator[tuple[int, int]], Any]:
        return iter([(0, 1)]), start


def test_a_reader_without_partitions_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"Undivided does not divide a range"):
        SpoutDriver(DataSourceSpout(Undivided(), fields=FIELDS)).next()


def test_a_simple_reader_that_has_rows_and_does_not_advance_is_told() -> None:
    """Spark says so as well; without a word its rows would wait for ever."""
    with pytest.raises(
        EmitError, match=r"read\(\) of Stuck returned rows but ended where it began"
    ):
        SpoutDriver(DataSourceSpout(Stuck(), fields=FIELDS)).next()
