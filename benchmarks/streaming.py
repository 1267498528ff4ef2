"""ss: Structured Streaming with a hand-written idempotent upsert in ``foreachBatch``."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import psycopg

from benchmarks.data import Source
from benchmarks.frames import counted
from benchmarks.store import create, create_progress, plain, upsert
from benchmarks.workloads import FILES_PER_BATCH, Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_streaming(spark: SparkSession, workload: Workload, source: Source, url: str) -> None:
    """Run a query over all files that ends when they are done."""
    with psycopg.connect(plain(url)) as connection, tempfile.TemporaryDirectory() as checkpoint:
        create(connection, workload)
        create_progress(connection)

        def write(frame: DataFrame, batch: int) -> None:
            result = counted(frame, workload)
            with connection.transaction():
                row = connection.execute("SELECT batch FROM progress FOR UPDATE").fetchone()
                assert row is not None
                if row[0] < batch:
                    upsert(connection, workload, result)
                    connection.execute("UPDATE progress SET batch = %s", [batch])

        frame = (
            spark.readStream.schema(f"{workload.column} string")
            .option("maxFilesPerTrigger", FILES_PER_BATCH)
            .parquet(str(source.folder))
        )
        query = (
            frame.writeStream.foreachBatch(write)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
