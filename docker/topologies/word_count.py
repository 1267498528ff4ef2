"""The topology of compose.yml: words of a Kafka topic in PostgreSQL, their lengths in S3.

``txtopo run word_count:topology`` runs it. The services are in the environment; see compose.yml.
"""

from __future__ import annotations

import os

from txtopo import (
    BasicBolt,
    BatchOutputCollector,
    Count,
    Fields,
    PersistentAggregate,
    Topology,
    TransactionalTopologyBuilder,
    Tuple,
    open_state,
)
from txtopo.spouts import KafkaTransactionalSpout


class Measure(BasicBolt):
    """Emits the length of each word."""

    output_fields = Fields("length long")

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        """Emit the length of a word."""
        collector.emit([len(tuple["value"])])


def topology() -> Topology:
    """Return the topology."""
    spout = KafkaTransactionalSpout(
        os.environ["KAFKA_SERVERS"],
        os.environ["WORDS_TOPIC"],
        value="string",
        columns=("value",),
        batch_rows_max=10_000,
    )
    builder = TransactionalTopologyBuilder("word-count", "words", spout, parallelism=2)
    counts = PersistentAggregate(open_state(os.environ["COUNTS_URL"]), "value", Count())
    builder.set_bolt("counts", counts, parallelism=2).fields_grouping("words", "value")
    builder.set_bolt("measure", Measure(), parallelism=2).shuffle_grouping("words")
    lengths = PersistentAggregate(open_state(os.environ["LENGTHS_URL"]), "length", Count())
    builder.set_bolt("lengths", lengths).fields_grouping("measure", "length")
    return builder.build_topology()
