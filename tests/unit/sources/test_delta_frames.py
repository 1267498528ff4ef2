"""Spark reads the same rows of a Delta table as the tasks do."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.unit.sources.driving import Planner, context, emit
from txtopo import Config, Fields, TransactionAttempt
from txtopo.errors import SourceDataLost
from txtopo.plugins.spouts import LastBatch
from txtopo.spouts import DeltaDataFrameSpout, DeltaTransactionalSpout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
FIELDS = Fields("word string, n long, gone boolean")
ODD = "{a,b} [c]*?%20\\'=ä"


def test_each_batch_has_the_rows_that_tasks_read(spark: SparkSession, tmp_path: Path) -> None:
    """Of files that came, went and tell their changes; in partitions whose names mean nothing."""
    folder = tmp_path / "table"
    rows = pa.table({"n": range(6), "word": [ODD, "b", None] * 2})
    write_deltalake(folder, rows, partition_by=["word"])
    DeltaTable(folder).delete("n = 1")
    DeltaTable(folder).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    DeltaTable(folder).update({"n": "n + 10"}, predicate="n = 3")
    tasks = DeltaTransactionalSpout(folder, FIELDS, changes="gone", batch_versions_max=1)
    batches = Planner(tasks).all()
    made = DeltaDataFrameSpout(folder, FIELDS, changes="gone", batch_versions_max=1)
    planner = made.coordinator(Config(), context())
    assert planner.is_ready(1, LastBatch())
    assert planner.initialize_transaction(1, None) == batches[0]

    for metadata in batches:
        frame = made.read(spark, TransactionAttempt(1), metadata)
        assert frame.dtypes == [("word", "string"), ("n", "bigint"), ("gone", "boolean")]
        assert Counter(map(tuple, frame.collect())) == Counter(emit(tasks, metadata))
    assert len(batches) == 3

    table = DeltaTable(folder)
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(SourceDataLost, match=r"no longer exists.*vacuumed\?.*starting_version"):
        made.read(spark, TransactionAttempt(1), batches[0])


PARTED = Fields("n long, text string, raw binary, day date, at timestamp, local timestamp_ntz")


def test_values_of_partitions_do_not_depend_on_the_zone_of_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    noon = datetime(2020, 1, 2, 12, 0, 0, 500)
    values = ["", b"\0\xff", noon.date(), noon.replace(tzinfo=UTC), noon]
    columns = [[1, 2], *([value, None] for value in values)]
    rows = pa.Table.from_arrays(list(map(pa.array, columns)), PARTED.names)
    rows = rows.cast(PARTED.arrow_schema())
    write_deltalake(tmp_path / "table", rows, partition_by=list(PARTED.names[1:]))
    made = DeltaDataFrameSpout(tmp_path / "table", PARTED)
    planner = made.coordinator(Config(), context())
    assert planner.is_ready(1, LastBatch())
    metadata = planner.initialize_transaction(1, None)

    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = made.read(spark, TransactionAttempt(1), metadata)
        shown = frame.selectExpr(
            *("n", "text", "hex(raw)", "string(day)", "unix_micros(at)", "string(local)")
        )
        found = sorted(map(tuple, shown.collect()))
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))

    moment = int(noon.replace(tzinfo=UTC).timestamp()) * 1_000_000 + 500
    assert found == [
        (1, None, "00FF", "2020-01-02", moment, "2020-01-02 12:00:00.0005"),
        (2, None, None, None, None, None),
    ]
