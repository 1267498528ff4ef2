"""txtopo: the full guarantee, with coordinator, ZooKeeper, fence, undo and opaque state."""

from __future__ import annotations

import tempfile
import time
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.data import Source
from benchmarks.frames import split
from benchmarks.store import TABLE
from benchmarks.workloads import FILES_PER_BATCH, Workload
from txtopo import (
    ArrowBolt,
    BatchCommitted,
    Config,
    Count,
    Fields,
    PersistentAggregate,
    Sum,
    TopologyEvent,
    TopologyListener,
    TransactionalTopologyBuilder,
    ZooKeeper,
    open_state,
)
from txtopo.spouts import FilesTransactionalSpout
from txtopo.state import StateMode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo import Topology

TIMEOUT_S = 3600.0


class Measure(ArrowBolt):
    """Emits how many words a batch has and how long they are."""

    output_fields = Fields("words long, letters long")

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.words, self.letters = collector, 0, 0

    def execute(self, batch: pa.RecordBatch) -> None:
        self.words += batch.num_rows
        self.letters += pc.sum(pc.utf8_length(batch["word"])).as_py()

    def finish_batch(self) -> None:
        totals = {"words": [self.words], "letters": [self.letters]}
        self.collector.emit(pa.RecordBatch.from_pydict(totals))


class Split(ArrowBolt):
    """Splits sentences into words, in Python, as the others do."""

    output_fields = Fields("word string")

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector = collector

    def execute(self, batch: pa.RecordBatch) -> None:
        self.collector.emit(split(batch))

    def finish_batch(self) -> None:
        pass


class Pace(TopologyListener):
    """Notes when each group was committed, and how long that took. Units: seconds."""

    def __init__(self) -> None:
        self._commits_s: list[float] = []
        self._took_s: list[float] = []

    def on_change(self, change: TopologyEvent) -> None:
        """Note a commit, with the last batch of its group."""
        if isinstance(change, BatchCommitted) and change.progress.group[1] == change.progress.txid:
            self._commits_s.append(time.monotonic())
            self._took_s.append(change.progress.commit_s)

    def __str__(self) -> str:
        between = [later - before for before, later in pairwise(self._commits_s)]
        p50_ms, took_ms = 1000 * median(between or [0.0]), 1000 * median(self._took_s)
        longest_ms = 1000 * max(self._took_s[1:] or self._took_s)
        return (
            f"{len(self._took_s)} commits, p50 from one to the next {p50_ms:.1f} ms, "
            f"of one {took_ms:.1f} ms, at most {longest_ms:.1f} ms after the first"
        )


def run_topology(spark: SparkSession, workload: Workload, source: Source, url: str) -> str:
    """Run the topology until everything is committed, and stop it; return its pace."""
    return _run(spark, workload, word_topology(workload, source, url))


def run_resident(spark: SparkSession, workload: Workload, source: Source, url: str) -> str:
    """Do the same on resident slots."""
    return _run(spark, workload, word_topology(workload, source, url), carrier="resident")


def run_alone(spark: SparkSession, workload: Workload, source: Source, url: str) -> str:
    """Do the same without groups."""
    return _run(spark, workload, word_topology(workload, source, url), group_txids_max=1)


def run_log(spark: SparkSession, workload: Workload, source: Source, url: str) -> str:
    """Do the same with a state in mode ``log``."""
    return _run(spark, workload, word_topology(workload, source, url, "log"))


def _run(spark: SparkSession, workload: Workload, topology: Topology, **settings: Any) -> str:
    with tempfile.TemporaryDirectory(prefix="txtopo-benchmark-zookeeper-") as folder:
        settings["zookeeper"] = ZooKeeper(dir=folder)
        settings["max_spout_pending"] = workload.max_spout_pending
        pace = Pace()
        run = topology.start(spark, Config(**settings), [pace])
        run.process_all_available(TIMEOUT_S)
        run.stop()
    return str(pace)


def word_topology(
    workload: Workload, source: Source, url: str, mode: StateMode = "table"
) -> Topology:
    """Return the topology of a workload."""
    fields = Fields(f"{workload.column} string")
    spout = FilesTransactionalSpout(
        str(source.folder), fields, "parquet", batch_files_max=FILES_PER_BATCH
    )
    # One task for each file of a batch.
    tasks = FILES_PER_BATCH
    builder = TransactionalTopologyBuilder("benchmark", "files", spout, tasks)
    state = open_state(url, table=TABLE, mode=mode)
    if workload.kind == "global":
        totals = {"words": Sum("words"), "letters": Sum("letters")}
        measured = builder.set_bolt("measure", Measure(), tasks)
        measured.local_or_shuffle_grouping("files")
        counts = builder.set_bolt("counts", PersistentAggregate(state, (), totals))
        counts.global_grouping("measure")
    elif workload.kind == "sentences":
        builder.set_bolt("split", Split(), tasks).local_or_shuffle_grouping("files")
        counts = builder.set_bolt("counts", PersistentAggregate(state, "word", Count()))
        counts.fields_grouping("split", "word")
    else:
        counts = builder.set_bolt("counts", PersistentAggregate(state, "word", Count()))
        counts.fields_grouping("files", "word")
    return builder.build_topology()
