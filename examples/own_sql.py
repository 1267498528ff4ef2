"""How many words were there so far, in a table of your own, by SQL of your own: exactly once.

Run it with ``python examples/own_sql.py``. It prints the total after each batch. Kill it at any
moment and run it again: it continues, and no word counts twice. Delete ``txtopo-zookeeper`` and the
database together to begin again.

The committer has a state in the same database. Its SQL is executed in the transaction that writes
the ledger of this state. The page ``docs/how-to/statements.md`` explains it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

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
    """Adds the counts of a batch to the total, and keeps what the total was after the batch."""

    writes_nowhere_else = True

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.attempt, self.state, self.sum = attempt, context.state("marker"), 0

    def execute(self, tuple: Tuple) -> None:
        self.sum += tuple["count"]

    def finish_batch(self) -> None:
        with self.state.transaction(self.attempt) as transaction:
            transaction.execute("UPDATE total SET words = words + :words", {"words": self.sum})
            transaction.execute("INSERT INTO history SELECT :txid, words FROM total")


def opened(path: str) -> sqlite3.Connection:
    """Open the database, which has a row with the total, and a row for each batch."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("CREATE TABLE IF NOT EXISTS total (words INTEGER)")
    database.execute("CREATE TABLE IF NOT EXISTS history (txid INTEGER, words INTEGER)")
    database.execute("INSERT INTO total SELECT 0 WHERE NOT EXISTS (SELECT * FROM total)")
    return database


def main(
    spark: SparkSession | None = None,
    config: Config = Config(max_spout_pending=3),
    url: str = "sqlite:///own_sql.db",
) -> None:
    """Count all words and print the totals that the database holds in the end."""
    spout = MemoryTransactionalSpout(DATA, Fields("word string"), 3)
    builder = TransactionalTopologyBuilder("own-sql", "spout", spout, 3)
    builder.set_bolt("partial-count", BatchCount(), 5).none_grouping("spout")
    builder.set_bolt("sum", UpdateGlobalCount()).global_grouping("partial-count").with_state(
        "marker", open_state(url)
    )

    with closing(opened(url.removeprefix("sqlite:///"))) as database:
        with builder.build_topology().start(spark, config) as run:
            run.process_all_available()

        for txid, words in database.execute("SELECT * FROM history ORDER BY txid"):
            print(f"txid {txid}: {words} words so far")
        (total,) = database.execute("SELECT words FROM total").fetchone()
    print(f"in the database: {total} words")


if __name__ == "__main__":
    main()
