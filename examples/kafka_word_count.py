"""Counts the words of a Kafka topic in a database, and reports each batch to another topic.

The counts are exactly once, and so are the reports, for consumers that read committed records.
``make demo-kafka`` runs it against a broker of its own, kills both at random moments, and compares.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from examples.flights import JsonProgress
from txtopo import (
    BatchBolt,
    BatchOutputCollector,
    Config,
    Count,
    Fields,
    PersistentAggregate,
    TaskContext,
    Topology,
    TopologyListener,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    Tuple,
    ZooKeeper,
    open_session,
    open_state,
)
from txtopo.bolts import KafkaSink
from txtopo.spouts import KafkaTransactionalSpout

WORDS, REPORTS = "words", "reports"
BATCH_ROWS_MAX = 1_000


class CountBatch(BatchBolt):
    """Says how many words a batch has."""

    output_fields = Fields("txid long, words long")

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.collector, self.attempt, self.words = collector, attempt, 0

    def execute(self, tuple: Tuple) -> None:
        self.words += 1

    def finish_batch(self) -> None:
        self.collector.emit([self.attempt.txid, self.words])


def word_count(
    servers: str,
    state: str,
    batch_rows_max: int = BATCH_ROWS_MAX,
    reports: str = REPORTS,
) -> Topology:
    """Return the topology: topic ``words`` into table ``counts`` and the topic of the reports."""
    spout = KafkaTransactionalSpout(
        servers,
        WORDS,
        value="string",
        columns=("value",),
        batch_rows_max=batch_rows_max,
        timeout_s=5.0,
    )
    counts = PersistentAggregate(open_state(state, table="counts"), "value", Count())
    sink = KafkaSink(servers, reports, value=("txid", "words"), timeout_s=5.0)
    builder = TransactionalTopologyBuilder("kafka-word-count", "words", spout, 2)
    builder.set_bolt("counts", counts, 2).shuffle_grouping("words")
    builder.set_bolt("batch", CountBatch()).global_grouping("words")
    builder.set_bolt("reports", sink).global_grouping("batch")
    return builder.build_topology()


def counted(state: str) -> dict[str, int]:
    """Return the counts in the database."""
    with open_state(state, table="counts").reader() as reader:
        return {str(word): int(count) for word, count in reader.items()}


def main() -> None:
    """Count until there are as many words as the command line says."""
    parser = argparse.ArgumentParser(description="count the words of a Kafka topic, exactly once")
    parser.add_argument("--servers", default="localhost:9092", help="bootstrap servers of Kafka")
    parser.add_argument("--records", type=int, required=True, help="end after this many words")
    parser.add_argument("--dir", type=Path, default=Path("txtopo-demo"), help="folder of all files")
    parser.add_argument("--zookeeper", default="embedded", help="host:port of a running server")
    parser.add_argument("--carrier", default="auto", help="auto, local, rdd or dataframe")
    args = parser.parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    config = Config(
        carrier=args.carrier,
        zookeeper=ZooKeeper(
            args.zookeeper, dir=str(args.dir / "txtopo-zookeeper"), session_timeout_s=2.0
        ),
    )
    listeners: Sequence[TopologyListener] = [JsonProgress()]
    conf = {"spark.ui.enabled": "false"}
    spark = None if args.carrier == "local" else open_session(conf=conf)[0]
    state = f"sqlite:///{args.dir / 'words.db'}"
    with word_count(args.servers, state).start(spark, config, listeners) as run:
        while sum(counted(state).values()) < args.records:
            run.process_all_available()


if __name__ == "__main__":
    main()
