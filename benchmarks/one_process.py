"""plain: one Python process that reads, counts and upserts; it starts again after a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.data import Source
from benchmarks.frames import split
from benchmarks.store import create, create_progress, plain, upsert
from benchmarks.workloads import Workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_plain(spark: SparkSession, workload: Workload, source: Source, url: str) -> None:
    """Do the work of all batches: the number of a batch and its counts in one transaction."""
    with psycopg.connect(plain(url)) as connection:
        create(connection, workload)
        create_progress(connection)
        for number, files in enumerate(source.batches):
            rows = pa.concat_tables([pq.read_table(file) for file in files])
            upsert(connection, workload, counted_here(rows, workload))
            connection.execute("UPDATE progress SET batch = %s", [number])
            connection.commit()


def counted_here(rows: pa.Table, workload: Workload) -> pa.Table:
    """Return the counts of a batch, computed in this process."""
    if workload.kind == "sentences":
        rows = pa.Table.from_batches([split(each) for each in rows.to_batches()])
    if workload.kind == "global":
        letters = pc.sum(pc.utf8_length(rows["word"])).as_py()
        return pa.table({"words": [rows.num_rows], "letters": [letters]})
    return rows.group_by("word").aggregate([([], "count_all")]).rename_columns(["word", "count"])
