"""``python -m benchmarks.kafka``: from Kafka into PostgreSQL, against a plain loop.

The Spark connector for Kafka could not be had, so there is no Structured Streaming here. The plain
loop is one process with confluent-kafka: it reads a batch, counts it with Arrow, and upserts it as
the floor does, with its offsets in the same transaction.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import Counter
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa

from benchmarks.data import zipf_words
from benchmarks.report import machine
from benchmarks.store import TABLE, create, fresh_database, plain, upsert
from benchmarks.workloads import WORDS, Workload
from tests.harness.servers.kafka import KafkaBroker
from tests.harness.servers.postgresql import PostgresServer
from txtopo import (
    Config,
    Count,
    PersistentAggregate,
    Topology,
    TransactionalTopologyBuilder,
    ZooKeeper,
    open_session,
    open_state,
)
from txtopo.spouts import KafkaTransactionalSpout

if TYPE_CHECKING:
    from confluent_kafka import Message
    from pyspark.sql import SparkSession

PARTITIONS = 4
BATCHES = 20
KEYED = Workload("K", "keyed count from Kafka", "keyed", WORDS, BATCHES, 1.25)
LIMIT_S = 600.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of each; default 5")
    parser.add_argument("--words", type=int, default=WORDS, help="how many, in 20 batches")
    arguments = parser.parse_args()
    print(machine(), flush=True)
    spark, _ = open_session(app_name="txtopo-benchmarks")
    try:
        with PostgresServer() as server, KafkaBroker() as broker:
            throughput(spark, server, broker, arguments.words, arguments.runs)
    finally:
        spark.stop()


def throughput(
    spark: SparkSession, server: PostgresServer, broker: KafkaBroker, words: int, runs: int
) -> None:
    """Count the same records in both ways, in turn."""
    written = zipf_words(words)
    fill(broker, "warm", written[: words // 10], 2)
    fill(broker, "words", written, BATCHES)
    ratios = []
    for number in range(runs + 1):
        topic, expected = ("words", written) if number else ("warm", written[: words // 10])
        walls = {}
        for name, way in (("plain", plain_loop), ("txtopo", by_txtopo)):
            with fresh_database(server) as url:
                started_s = time.monotonic()
                way(spark, broker.servers, topic, len(expected) // (BATCHES if number else 2), url)
                walls[name] = time.monotonic() - started_s
                check(url, expected, TABLE if name == "plain" else f"{TABLE}_view")
        if number:
            ratios.append(walls["plain"] / walls["txtopo"])
            print(
                f"run {number}: plain {walls['plain']:.2f} s, txtopo {walls['txtopo']:.2f} s, "
                f"throughput txtopo ÷ plain {ratios[-1]:.2f}",
                flush=True,
            )
    print(f"median of the ratios: {statistics.median(ratios):.2f} (goal 0.80)", flush=True)


def fill(broker: KafkaBroker, topic: str, words: list[str], batches: int) -> None:
    """Make a topic and write the words, to the partitions in turn."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    broker.admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    settings = {"bootstrap.servers": broker.servers, "linger.ms": 50, "batch.size": 1_000_000}
    producer = Producer({**settings, "queue.buffering.max.messages": 5_000_000})
    for at, word in enumerate(words):
        producer.produce(topic, word.encode(), partition=at % PARTITIONS)
        if at % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0


def plain_loop(spark: SparkSession, servers: str, topic: str, batch: int, url: str) -> None:
    """Read, count, upsert; the offsets in the same transaction."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "plain",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    with psycopg.connect(plain(url)) as connection:
        create(connection, KEYED)
        connection.execute("CREATE TABLE places (place int PRIMARY KEY, offset_ bigint)")
        ends = 0
        records: list[Message] = []
        while ends < PARTITIONS or records:
            got = consumer.consume(min(10_000, batch - len(records)), 0.02)
            ends += sum(message.error() is not None for message in got)
            records += [message for message in got if message.error() is None]
            if len(records) < batch and ends < PARTITIONS:
                continue
            offsets = {int(m.partition() or 0): m.offset() for m in records}
            counted = pa.array([m.value() for m in records]).cast(pa.string()).value_counts()
            columns = {"word": counted.field("values"), "count": counted.field("counts")}
            upsert(connection, KEYED, pa.table(columns).sort_by("word"))
            connection.cursor().executemany(
                "INSERT INTO places VALUES (%s, %s) ON CONFLICT (place) "
                "DO UPDATE SET offset_ = excluded.offset_",
                list(offsets.items()),
            )
            connection.commit()
            records = []
    consumer.close()


def by_txtopo(spark: SparkSession, servers: str, topic: str, batch: int, url: str) -> None:
    """Run the topology until everything is committed, and stop it."""
    with tempfile.TemporaryDirectory(prefix="txtopo-benchmark-zookeeper-") as folder:
        topology = word_topology(servers, topic, batch // PARTITIONS, url)
        run = topology.start(spark, Config(zookeeper=ZooKeeper(dir=folder)))
        run.process_all_available(LIMIT_S)
        run.stop()


def word_topology(servers: str, topic: str, records_max: int, url: str) -> Topology:
    """Return the topology that counts the values of a topic."""
    spout = KafkaTransactionalSpout(
        servers, topic, value="string", columns=("value",), batch_rows_max=records_max
    )
    builder = TransactionalTopologyBuilder("benchmark", "words", spout, 2)
    counts = PersistentAggregate(open_state(url, table=TABLE), "value", Count())
    builder.set_bolt("counts", counts, 2).fields_grouping("words", "value")
    return builder.build_topology()


def check(url: str, words: list[str], table: str) -> None:
    """Compare what is counted with what was written."""
    with psycopg.connect(plain(url)) as connection:
        found: dict[str, int] = dict(connection.execute(f"SELECT * FROM {table}").fetchall())
    assert found == Counter(words), f"the store is wrong: {str(found)[:200]}"


if __name__ == "__main__":
    main()
