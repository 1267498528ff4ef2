"""floor: one DataFrame job per batch, collected and upserted; no bookkeeping at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from benchmarks.data import Source
from benchmarks.frames import counted
from benchmarks.store import create, plain, upsert
from benchmarks.workloads import Workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_floor(spark: SparkSession, workload: Workload, source: Source, url: str) -> None:
    """Do the work of all batches, one after the other."""
    with psycopg.connect(plain(url)) as connection:
        create(connection, workload)
        for files in source.batches:
            frame = spark.read.schema(f"{workload.column} string").parquet(*files)
            upsert(connection, workload, counted(frame, workload))
            connection.commit()
