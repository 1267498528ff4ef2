"""``python -m benchmarks.latency``: how long a record waits until another process sees its count.

Records come into being at a steady rate, by the clock: record *n* at ``start + n / rate``, in this
process or written to Kafka by another one. All ways count them into one row of PostgreSQL. Another
process reads that row every millisecond. When it sees the count *c*, the records 0 to *c* - 1 are
committed. The first seconds, in which Spark starts its workers, are left out.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa

from benchmarks.report import machine
from benchmarks.store import create_progress, fresh_database, plain
from tests.harness.servers.kafka import KafkaBroker
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.private import free_port
from txtopo import (
    Config,
    Count,
    Fields,
    PersistentAggregate,
    TransactionalTopologyBuilder,
    ZooKeeper,
    open_session,
    open_state,
)
from txtopo.config import Carrier
from txtopo.plugins.spouts import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.spouts import KafkaTransactionalSpout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RATES = (100, 1_000, 10_000)
BATCH_ROWS_MAX = 100_000
BEFORE_S = 1.0
"""The time from the call of a way to its first record."""
WARM_UP_S = 4.0
TABLE = "counts"

Way = Callable[["SparkSession", "Offer", str], AbstractContextManager[None]]
"""Counts records into a database while a block runs."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The records that come.

    Attributes:
        rate: How many a second.
        start_s: When the first one comes, on the clock ``time.monotonic``.
        servers: Of the Kafka that they come from; empty if they come into being in the process.
        topic: The topic.
    """

    rate: int
    start_s: float
    servers: str = ""
    topic: str = ""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each run; default 15")
    parser.add_argument("--runs", type=int, default=3, help="runs of each; default 3")
    parser.add_argument("--rate", type=int, action="append", help="records a second")
    parser.add_argument("--ways", default=",".join(WAYS), help=f"of {', '.join(WAYS)}")
    parser.add_argument("--sources", default="process,kafka", help="of process, kafka")
    arguments = parser.parse_args()
    sources = arguments.sources.split(",")
    print(machine(), flush=True)
    print("\n| source, records/s | way | p50 ms | p99 ms | of each run |\n|---|---|---|---|---|")
    spark, _ = open_session(app_name="txtopo-benchmarks")
    try:
        with PostgresServer() as server, brokers("kafka" in sources) as broker:
            for source in sources:
                for rate in arguments.rate or RATES:
                    names = [name for name in WAYS if name in arguments.ways.split(",")]
                    if source == "kafka":  # its connector for Spark could not be had
                        names = [name for name in names if name != "ss"]
                    compare(spark, server, broker, source, rate, names, arguments)
    finally:
        spark.stop()


def compare(
    spark: SparkSession,
    server: PostgresServer,
    broker: KafkaBroker | None,
    source: str,
    rate: int,
    names: list[str],
    arguments: argparse.Namespace,
) -> None:
    """Measure all ways in turn, and print a row for each."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number in range(arguments.runs):
        for name in names:
            offer = Offer(rate, 0.0)
            if source == "kafka":
                assert broker is not None
                offer = replace(offer, servers=broker.servers, topic=f"{name}-{rate}-{number}")
            found[name].append(measured(spark, server, offer, name, arguments.seconds))
    for name, runs in found.items():
        p50, p99 = (sorted(each)[len(runs) // 2] for each in zip(*runs, strict=True))
        each = ", ".join(f"{low:.0f} {high:.0f}" for low, high in runs)
        print(f"| {source}, {rate:,} | {name} | {p50:.0f} | {p99:.0f} | {each} |", flush=True)


def measured(
    spark: SparkSession, server: PostgresServer, offer: Offer, name: str, seconds: float
) -> tuple[float, float]:
    """Run one way for a time; return p50 and p99 in milliseconds."""
    total = int(offer.rate * (seconds + WARM_UP_S))
    if offer.servers:
        make_topic(offer.servers, offer.topic)
    with fresh_database(server) as url, ExitStack() as running:
        offer = replace(offer, start_s=time.monotonic() + BEFORE_S)
        reader = running.enter_context(program("read", plain(url), str(total)))
        running.enter_context(WAYS[name](spark, offer, url))
        if offer.servers:
            paced = (str(offer.start_s), str(offer.rate), str(total))
            running.enter_context(program("write", offer.servers, offer.topic, *paced))
        seen = json.loads(reader.communicate()[0])
    rate, start_s = offer.rate, offer.start_s
    waits, at = [], 0
    for then_s, count in seen:
        waits += [then_s - start_s - each / rate for each in range(at, min(count, total))]
        at = count
    steady = sorted(waits[int(WARM_UP_S * rate) :])
    assert len(waits) == total, "all records were seen"
    return 1_000 * steady[len(steady) // 2], 1_000 * steady[len(steady) * 99 // 100]


# ------------------------------------------------------------ the ways


def run_txtopo(carrier: Carrier) -> Way:
    """Return the way that is txtopo on a carrier, with settings that are else the default ones."""

    @contextmanager
    def run(spark: SparkSession, offer: Offer, url: str) -> Iterator[None]:
        spout: Any = Records(offer.rate, offer.start_s)
        if offer.servers:
            spout = KafkaTransactionalSpout(
                offer.servers, offer.topic, value="string", columns=("value",)
            )
        builder = TransactionalTopologyBuilder("latency", "records", spout)
        state = open_state(url, table=TABLE)
        counts = PersistentAggregate(state, (), {"records": Count()})
        builder.set_bolt("counts", counts).global_grouping("records")
        topology = builder.build_topology()
        with tempfile.TemporaryDirectory(prefix="txtopo-benchmark-zookeeper-") as folder:
            config = Config(zookeeper=ZooKeeper(dir=folder), carrier=carrier)
            with topology.start(spark, config):
                yield

    return run


@contextmanager
def run_streaming(spark: SparkSession, offer: Offer, url: str) -> Iterator[None]:
    """Run Structured Streaming on a socket, with a hand-written idempotent upsert."""
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="txtopo-benchmark-checkpoint-") as folder,
        psycopg.connect(plain(url)) as connection,
        program("serve", str(port), str(offer.start_s), str(offer.rate)) as records,
    ):
        connection.execute(f"CREATE TABLE {TABLE}_view (records bigint NOT NULL)")
        connection.execute(f"INSERT INTO {TABLE}_view VALUES (0)")
        create_progress(connection)
        assert records.stdout is not None
        records.stdout.readline()  # it listens

        def count(frame: DataFrame, batch: int) -> None:
            (counted,) = frame.groupBy().count().collect()
            with connection.transaction():
                row = connection.execute("SELECT batch FROM progress FOR UPDATE").fetchone()
                assert row is not None
                if row[0] < batch:
                    add = f"UPDATE {TABLE}_view SET records = records + %s"
                    connection.execute(add, [counted[0]])
                    connection.execute("UPDATE progress SET batch = %s", [batch])

        frame = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port)
        writing = frame.load().writeStream.foreachBatch(count)
        query = writing.option("checkpointLocation", folder).start()
        try:
            yield
        finally:
            query.stop()


WAYS: dict[str, Way] = {
    "resident": run_txtopo("resident"),
    "rdd": run_txtopo("rdd"),
    "ss": run_streaming,
}


class Records(TransactionalSpout):
    """Records that come into being at a steady rate."""

    output_fields = Fields("number long")

    def __init__(self, rate: int, start_s: float) -> None:
        self._rate, self._start_s = rate, start_s

    def coordinator(self, config: Config, context: Any) -> TransactionalCoordinator:
        """Make the planning part."""
        return RecordsCoordinator(self._rate, self._start_s)

    def emitter(self, config: Config, context: Any) -> TransactionalEmitter:
        """Make an emitting part."""
        return RecordsEmitter()


class RecordsCoordinator(TransactionalCoordinator):
    """Plans the records that are there."""

    def __init__(self, rate: int, start_s: float) -> None:
        self._rate, self._start_s = rate, start_s

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Return whether there is a record, and it is worth a batch."""
        unread = self._there - self._end(last.metadata)
        return last.worth_a_batch(unread, BATCH_ROWS_MAX)

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
        """Return a range of records."""
        start = self._end(previous_metadata)
        return [start, min(self._there, start + BATCH_ROWS_MAX)]

    @property
    def _there(self) -> int:
        return max(0, int(self._rate * (time.monotonic() - self._start_s)) + 1)

    def _end(self, metadata: Any) -> int:
        return metadata[1] if metadata else 0


class RecordsEmitter(TransactionalEmitter):
    """Makes the records of a range."""

    def emit_batch(self, attempt: Any, metadata: Any, collector: Any) -> None:
        """Emit the range."""
        numbers = pa.array(range(*metadata), pa.int64())
        collector.emit_batch(pa.RecordBatch.from_arrays([numbers], names=["number"]))


# ------------------------------------------------------------ the other processes


@contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start this module as another process; its main function is the first argument."""
    command = [sys.executable, "-m", "benchmarks.latency", "--", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process


def read(url: str, total: str) -> None:
    """Print the counts as JSON, each with the time at which it was first seen."""
    seen: list[tuple[float, int]] = []
    with psycopg.connect(url, autocommit=True) as connection:
        while not seen or seen[-1][1] < int(total):
            try:
                row = connection.execute(f"SELECT records FROM {TABLE}_view").fetchone()
            except psycopg.errors.UndefinedTable:
                row = None
            if row is not None and row[0] and (not seen or row[0] > seen[-1][1]):
                seen.append((time.monotonic(), row[0]))
            time.sleep(0.001)
    print(json.dumps(seen))


def write(servers: str, topic: str, start_s: str, rate: str, total: str) -> None:
    """Write records to the one partition of a topic of Kafka, each at its time."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    sent = 0
    while sent < int(total):
        time.sleep(0.001)
        there = int(int(rate) * (time.monotonic() - float(start_s))) + 1
        for _ in range(sent, min(there, int(total))):
            producer.produce(topic, b"record", partition=0)
        producer.poll(0)
        sent = max(sent, min(there, int(total)))
    producer.flush(60)


def serve(port: str, start_s: str, rate: str) -> None:
    """Send lines to the first who connects, each at its time, until the connection ends."""
    with socket.create_server(("127.0.0.1", int(port))) as server:
        print("listening", flush=True)
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sent = 0
            while True:
                time.sleep(0.001)
                there = max(0, int(int(rate) * (time.monotonic() - float(start_s))) + 1)
                connection.sendall(b"record\n" * (there - sent))
                sent = there


def make_topic(servers: str, topic: str) -> None:
    """Make a topic with one partition, so that the order of the records is known."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)


@contextmanager
def brokers(wanted: bool) -> Iterator[KafkaBroker | None]:
    """Start a broker if it is wanted."""
    if not wanted:
        yield None
        return
    with KafkaBroker() as broker:
        yield broker


PROGRAMS: dict[str, Callable[..., None]] = {"read": read, "write": write, "serve": serve}

if __name__ == "__main__":
    # What is pickled by its name is in the module of that name.
    import benchmarks.latency as here

    if sys.argv[1:2] == ["--"]:
        here.PROGRAMS[sys.argv[2]](*sys.argv[3:])
    else:
        here.main()
