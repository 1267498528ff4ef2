"""Spark reads the same rows of a Delta table as the tasks do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.unit.spouts.driving import Planner, context, emit
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
    with pytest.raises(SourceDataLost, match=r"is gone.*vacuumed\?.*starting_version"):
        made.read(spark, TransactionAttempt(1), batches[0])
