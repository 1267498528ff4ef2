"""How many words were there so far, exactly once: Storm's first example (TransactionalGlobalCount).

Run it with ``python examples/global_count.py``. It prints the total after each batch. Run it again:
nothing is left to count, and the total stays. Delete ``txtopo-zookeeper`` and the database
together to begin again.
"""

from __future__ import annotations

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


class BatchCount(BatchBolt):
    """Counts the tuples of a batch that this task gets."""

    output_fields = Fields("count long")

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.collector, self.count = collector, 0

    def execute(self, tuple: Tuple) -> None:
        self.count += 1

    def finish_batch(self) -> None:
        self.collector.emit([self.count])


class UpdateGlobalCount(BatchBolt, Committer):
    """Adds the counts of a batch to the total, once per txid whatever is replayed."""

    output_fields = Fields("sum long")

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.collector, self.attempt, self.sum = collector, attempt, 0
        self.counts = context.state("counts")

    def execute(self, tuple: Tuple) -> None:
        self.sum += tuple["count"]

    def finish_batch(self) -> None:
        with self.counts.transaction(self.attempt) as state:
            total = state.update("global", lambda count: (count or 0) + self.sum)
        self.collector.emit([total])


class Print(BasicBolt):
    """Prints the total; below a committer, so in txid order, but again if a commit is replayed."""

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        print(f"txid {tuple.attempt.txid}: {tuple['sum']} words so far")


def main(
    spark: SparkSession | None = None,
    config: Config = Config(max_spout_pending=3),
    url: str = "sqlite:///global_count.db",
) -> None:
    """Count all words and print the total that the store holds in the end."""
    spout = MemoryTransactionalSpout(DATA, Fields("word string"), 3)
    builder = TransactionalTopologyBuilder("global-count", "spout", spout, 3)
    builder.set_bolt("partial-count", BatchCount(), 5).none_grouping("spout")
    builder.set_bolt("sum", UpdateGlobalCount()).global_grouping("partial-count").with_state(
        "counts", open_state(url)
    )
    builder.set_bolt("print", Print()).global_grouping("sum")

    with builder.build_topology().start(spark, config) as run:
        run.process_all_available()

    with open_state(url, table="counts").reader() as reader:
        print(f"in the store: {reader.get('global')} words")


if __name__ == "__main__":
    main()
