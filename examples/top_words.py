"""The ten most frequent words: a committer, and below it one that keeps a top ten of its output.

What hangs below a committer runs in the same commit phase. Both states are in one database, so they
move from one txid to the next in one transaction. Run it with ``python examples/top_words.py``.
"""

from __future__ import annotations

from collections import Counter
from heapq import nlargest

from pyspark.sql import SparkSession

from txtopo import (
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


class CountWords(BatchBolt, Committer):
    """Keeps the count of each word, and emits those that changed."""

    output_fields = Fields("word string, count long")

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
                count = state.get(word, 0) + more
                state.put(word, count)
                self.collector.emit([word, count])


class KeepTop(BatchBolt, Committer):
    """Keeps the words with the largest counts.

    Counts only grow, so a word that is not in the top and did not change cannot come into it.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.attempt = attempt
        self.changed: dict[str, int] = {}
        self.top = context.state("top")

    def execute(self, tuple: Tuple) -> None:
        self.changed[tuple["word"]] = tuple["count"]

    def finish_batch(self) -> None:
        with self.top.transaction(self.attempt) as state:
            before = dict(state.items())
            counts = before | self.changed
            top = nlargest(self.size, counts, key=lambda word: (counts[word], word))
            for word in before.keys() - set(top):
                state.delete(word)
            for word in top:
                state.put(word, counts[word])


def main(
    spark: SparkSession | None = None,
    config: Config = Config(),
    url: str = "sqlite:///top_words.db",
    size: int = 10,
) -> None:
    """Count the words and print the top of them that the store holds in the end."""
    spout = MemoryTransactionalSpout(DATA, Fields("word string"), 3)
    builder = TransactionalTopologyBuilder("top-words", "spout", spout, 3)
    builder.set_bolt("count", CountWords()).fields_grouping("spout", "word").with_state(
        "words", open_state(url)
    )
    builder.set_bolt("top", KeepTop(size)).global_grouping("count").with_state(
        "top", open_state(url)
    )

    with builder.build_topology().start(spark, config) as run:
        run.process_all_available()

    with open_state(url, table="top").reader() as reader:
        for word, count in sorted(reader.items(), key=lambda item: (-item[1], item[0])):
            print(f"{word}: {count}")


if __name__ == "__main__":
    main()
