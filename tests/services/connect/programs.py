"""What a client of Spark Connect runs in the tests: topologies that count words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.harness.polling import LIMIT_S
from tests.harness.runs import Changes
from tests.harness.servers.spark_connect import connected, shared
from tests.unit.sources.data_sources import LinesSource
from txtopo import (
    BasicBolt,
    Config,
    Count,
    DataFrameBolt,
    Fields,
    PersistentAggregate,
    StreamBuilder,
    Sum,
    Topology,
    TopologyBuilder,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    Tuple,
    open_state,
)
from txtopo.carriers.spark import DataFrameCarrier
from txtopo.collector import BatchOutputCollector
from txtopo.config import Carrier
from txtopo.metadata import Json
from txtopo.plugins.spouts import LastBatch, TransactionalCoordinator
from txtopo.spouts import (
    DataFrameTransactionalSpout,
    DataSourceSpout,
    DeltaDataFrameSpout,
    MemorySpout,
    MemoryTransactionalSpout,
    StreamSpout,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WORD = Fields("word string")
WORDS = ["the", "cat", "and", "the", "dog", "and", "the", "bird"] * 25
COUNTS = dict(Counter(WORDS))
BATCHES = 4
CONFIG = Config(zookeeper="memory")


def counting(
    state: str, spout: Any = None, bolt: BasicBolt | None = None, tasks: int = 1
) -> Topology:
    """Return a topology that counts words, in all and each, in the tables ``total`` and ``counts``.

    Args:
        state: URL of the store.
        spout: The spout; by default one of :data:`WORDS`.
        bolt: A bolt between the spout and the committers.
        tasks: Tasks of the committer that counts each word.
    """
    if spout is None:
        rows = [[word] for word in WORDS]
        spout = MemoryTransactionalSpout({0: rows}, WORD, len(rows) // BATCHES)
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    source = "spout"
    if bolt is not None:
        builder.set_bolt("bolt", bolt).shuffle_grouping("spout")
        source = "bolt"
    total = PersistentAggregate(open_state(state, table="total"), (), Count())
    builder.set_bolt("total", total).global_grouping(source)
    counts = PersistentAggregate(open_state(state, table="counts"), "word", Count())
    builder.set_bolt("counts", counts, tasks).fields_grouping(source, "word")
    return builder.build_topology()


def process(
    spark: SparkSession, topology: Topology, config: Config = CONFIG, **started: Any
) -> Changes:
    """Process all that there is, and return what happened."""
    changes = Changes()
    with topology.start(spark, config, [changes], **started) as run:
        run.process_all_available(LIMIT_S)
    return changes


def read(state: str, table: str = "counts") -> dict[Any, Any]:
    """Return the contents of a state."""
    with open_state(state, table=table).reader() as reader:
        return dict(reader.items())


def count_words(url: str, state: str, carrier: Carrier, tasks: int = 1) -> str:
    """Count the words, and return what Spark says of the state: the number of *the*."""
    with shared(url) as spark:
        process(spark, counting(state, tasks=tasks), Config(carrier=carrier, zookeeper="memory"))
        with open_state(state, table="counts").reader() as reader:
            frame = reader.to_spark(spark)
        return str(frame.where("word = 'the'").collect())


def slots(url: str, partitions: int) -> int:
    """Return the slots of a topology by default, on a session with this many shuffle partitions."""
    with connected(url) as spark:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        return DataFrameCarrier(spark).default_slots()


class Days(TransactionalCoordinator):
    """Plans three days."""

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= 3

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        return {"day": txid}


def read_day(spark: SparkSession, attempt: TransactionAttempt, metadata: Any) -> DataFrame:
    """Return the numbers of a day; a hundred for each day."""
    start = 100 * metadata["day"]
    return spark.range(start, start + 100).selectExpr("id % 3 as kind", "id as amount")


class PerKind(DataFrameBolt):
    """Adds up the amounts of each kind."""

    output_fields = Fields("kind long, total long")

    def transform(self, frame: DataFrame, attempt: TransactionAttempt) -> DataFrame:
        from pyspark.sql.functions import sum

        return frame.groupBy("kind").agg(sum("amount").alias("total"))


def add_up_days(url: str, state: str) -> list[tuple[int, int]]:
    """Add up DataFrames, and return the state as Spark reads it."""
    spout = DataFrameTransactionalSpout(Days(), read_day, Fields("kind long, amount long"))
    builder = TransactionalTopologyBuilder("days", "spout", spout)
    builder.set_bolt("per-kind", PerKind()).shuffle_grouping("spout")
    totals = PersistentAggregate(open_state(state), "kind", {"total": Sum("total")})
    builder.set_bolt("totals", totals).fields_grouping("per-kind", "kind")
    with shared(url) as spark:
        process(spark, builder.build_topology())
        with open_state(state, table="totals").reader() as reader:
            return sorted((row.kind, row.total) for row in reader.to_spark(spark).collect())


def count_frame_words(url: str, state: str, table: str) -> None:
    """Count the words of a Delta table that Spark reads."""
    with shared(url) as spark:
        process(spark, counting(state, DeltaDataFrameSpout(table, WORD)))


def count_lines(url: str, state: str, folder: str) -> None:
    """Count the numbers of a Python Data Source by its stream reader."""
    spout = DataSourceSpout(LinesSource, {"path": folder})
    builder = TransactionalTopologyBuilder("lines", "spout", spout)
    counts = PersistentAggregate(open_state(state, table="counts"), "n", Count())
    builder.set_bolt("counts", counts).fields_grouping("spout", "n")
    with shared(url) as spark:
        process(spark, builder.build_topology())


def run_streams(url: str, state: str) -> None:
    """Run a program of streams: two operators and a table."""
    builder = StreamBuilder("streams")
    spout = MemoryTransactionalSpout({0: [["the cat"], ["a cat"]]}, Fields("line string"), 1)
    (
        builder.source("lines", spout)
        .flat_map(lambda row: [[word] for word in row["line"].split()], "word string")
        .filter(lambda row: row["word"] != "a")
        .group_by("word")
        .persistent_aggregate(open_state(state, table="counts"), count=Count())
    )
    with shared(url) as spark:
        process(spark, builder.build_topology())


class CrashingOnce(BasicBolt):
    """Passes words on; kills its Python worker the first time."""

    output_fields = WORD

    def __init__(self, crashed: Path) -> None:
        self.crashed = crashed

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        if not self.crashed.exists():
            import os
            import signal

            self.crashed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        collector.emit([tuple["word"]])


def crash_once(url: str, state: str, crashed: str) -> list[tuple[str, str]]:
    """Count words while a worker dies, and return the failures."""
    with shared(url) as spark:
        changes = process(spark, counting(state, bolt=CrashingOnce(Path(crashed))))
    return [(failed.kind, str(failed.error)) for failed in changes.failures]


def count_shipped(
    url: str, state: str, artifacts: Sequence[str], conf: Mapping[str, str] = {}, module: str = ""
) -> None:
    """Count words on a session that was sent some files of Python.

    Args:
        url: The server.
        state: URL of the store.
        artifacts: Files of Python to send.
        conf: Settings of the session.
        module: File of a bolt ``Upper`` of this client, by the name of its module.
    """
    import sys
    from importlib import import_module

    bolt = None
    if module:
        sys.path.insert(0, str(Path(module).parent))
        bolt = import_module(Path(module).stem).Upper()
    with connected(url) as spark:
        for name, value in conf.items():
            spark.conf.set(name, value)
        if artifacts:
            spark.addArtifacts(*artifacts, pyfile=True)
        process(spark, counting(state, bolt=bolt))


def start_with(url: str, state: str, config: Config) -> None:
    """Start a topology that is refused."""
    with shared(url) as spark:
        process(spark, counting(state), config)


def start_stopped(url: str, state: str) -> None:
    """Start a topology on a session that was stopped."""
    with connected(url) as spark:
        spark.stop()
        counting(state).start(spark, CONFIG)


def start_at_least_once(url: str) -> None:
    """Start an at-least-once topology."""
    builder = TopologyBuilder()
    builder.set_spout("words", MemorySpout([["a"]], WORD))
    with shared(url) as spark:
        builder.build_topology().start(spark)


def stream_words(url: str, state: str, folder: str) -> str:
    """Let a streaming query of Spark drive a topology, and return why it does not."""
    topology = counting(state, StreamSpout(WORD))
    with shared(url) as spark:
        words = spark.readStream.text(folder).withColumnRenamed("value", "word")
        try:
            words.writeStream.foreachBatch(topology.foreach_batch())
        except Exception as error:  # noqa: BLE001 - PySpark's, with ours behind it
            return str(error.__context__)
    return "nothing"


def write_by_hand(url: str, state: str) -> None:
    """Call ``foreach_batch`` with a DataFrame."""
    with shared(url) as spark:
        frame = spark.createDataFrame([("a",)], "word string")
        counting(state, StreamSpout(WORD)).foreach_batch()(frame, 0)
