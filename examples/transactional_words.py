"""Word counts, and how many words have which count: Storm's second example (TransactionalWords).

Two states change in one transaction of their database: the count of each word, and for every ten
counts (0 to 9, 10 to 19 …) the number of words that stand there. A word that moves on leaves its
old bucket. Run it with ``python examples/transactional_words.py``.
"""

from __future__ import annotations

from collections import Counter

from pyspark.sql import SparkSession

from txtopo import (
    BasicBolt,
    BatchBolt,
    BatchOutputCollector,
    Committer,
    Config,
    Fields,
    TaskContext,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    Tuple,
    open_state,
)
from txtopo.spouts import MemoryTransactionalSpout

WORDS = [
    "cat dog chicken cat dog apple",
    "cat dog apple banana",
    "cat cat cat cat cat dog dog dog dog",
]
DATA = {number: [[word] for word in words.split()] for number, words in enumerate(WORDS)}
BUCKET_SIZE = 10


class KeyedCountUpdater(BatchBolt, Committer):
    """Keeps the count of each word; emits the new one and the one before."""

    output_fields = Fields("word string, count long, previous long")

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.collector, self.attempt = collector, attempt
        self.words: Counter[str] = Counter()
        self.counts = context.state("words")

    def execute(self, tuple: Tuple) -> None:
        self.words[tuple["word"]] += 1

    def finish_batch(self) -> None:
        with self.counts.transaction(self.attempt) as state:
            for word, more in self.words.items():
                previous = state.get(word)
                state.put(word, (previous or 0) + more)
                self.collector.emit([word, (previous or 0) + more, previous])


class Bucketize(BasicBolt):
    """Says which bucket a word has come to, and which it has left."""

    output_fields = Fields("bucket long, delta long")

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        bucket = tuple["count"] // BUCKET_SIZE
        if tuple["previous"] is None:
            collector.emit([bucket, 1])
        elif bucket != tuple["previous"] // BUCKET_SIZE:
            collector.emit([bucket, 1])
            collector.emit([tuple["previous"] // BUCKET_SIZE, -1])


class BucketCountUpdater(BatchBolt, Committer):
    """Keeps the number of words in each bucket."""

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.attempt = attempt
        self.deltas: Counter[int] = Counter()
        self.buckets = context.state("buckets")

    def execute(self, tuple: Tuple) -> None:
        self.deltas[tuple["bucket"]] += tuple["delta"]

    def finish_batch(self) -> None:
        with self.buckets.transaction(self.attempt) as state:
            for bucket, delta in self.deltas.items():
                state.put(bucket, state.get(bucket, 0) + delta)


def main(
    spark: SparkSession | None = None,
    config: Config = Config(max_spout_pending=3),
    url: str = "sqlite:///transactional_words.db",
) -> None:
    """Count the words and print both states as the store holds them in the end."""
    words = open_state(url)
    buckets = open_state(url, key=Fields("bucket long"), value=Fields("words long"))
    spout = MemoryTransactionalSpout(DATA, Fields("word string"), 3)
    builder = TransactionalTopologyBuilder("transactional-words", "spout", spout, 2)
    builder.set_bolt("count", KeyedCountUpdater(), 5).fields_grouping("spout", "word").with_state(
        "words", words
    )
    builder.set_bolt("bucketize", Bucketize()).none_grouping("count")
    builder.set_bolt("buckets", BucketCountUpdater(), 5).fields_grouping(
        "bucketize", "bucket"
    ).with_state("buckets", buckets)

    with builder.build_topology().start(spark, config) as run:
        run.process_all_available()

    with open_state(url, table="words").reader() as reader:
        for word, count in sorted(reader.items()):
            print(f"{word}: {count}")
    with open_state(url, table="buckets").reader() as reader:
        for bucket, number in sorted(reader.items()):
            first = bucket * BUCKET_SIZE
            print(f"{first} to {first + BUCKET_SIZE - 1} times: {number} words")


if __name__ == "__main__":
    main()
