"""How many words were there so far, in a database of your own: Storm's first example as it is.

Run it with ``python examples/own_database.py``. It prints the total after each batch. Kill it at
any moment and run it again: it continues, and no word counts twice. Delete ``txtopo-zookeeper`` and
the database together to begin again.

The committer writes to the database by itself, and keeps the txid next to the count. The page
``docs/how-to/own-database.md`` explains each condition of its transaction.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

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
    """Adds the counts of a batch to the total, unless the total has the txid of the batch."""

    def __init__(self, path: str) -> None:
        self.path = path

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.attempt, self.sum = attempt, 0

    def execute(self, tuple: Tuple) -> None:
        self.sum += tuple["count"]

    def finish_batch(self) -> None:
        txid, epoch = self.attempt.txid, self.attempt.epoch
        with closing(opened(self.path)) as database, database:
            database.execute("BEGIN IMMEDIATE")  # nobody writes between the look and the write
            total, stored_txid, stored_epoch = database.execute("SELECT * FROM total").fetchone()
            if txid < stored_txid or epoch < stored_epoch:
                raise RuntimeError(f"txid {txid} of epoch {epoch} comes too late: another leads")
            if txid != stored_txid:
                total += self.sum
            database.execute(
                "UPDATE total SET words = ?, txid = ?, epoch = ?", [total, txid, epoch]
            )
        print(f"txid {txid}: {total} words so far")


def opened(path: str) -> sqlite3.Connection:
    """Open the database, which has one row."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(
        "CREATE TABLE IF NOT EXISTS total (words INTEGER, txid INTEGER, epoch INTEGER)"
    )
    database.execute("INSERT INTO total SELECT 0, 0, 0 WHERE NOT EXISTS (SELECT * FROM total)")
    return database


def main(
    spark: SparkSession | None = None,
    config: Config = Config(max_spout_pending=3),
    url: str = "sqlite:///own_database.db",
) -> None:
    """Count all words and print the total that the database holds in the end."""
    path = str(Path(url.removeprefix("sqlite:///")).absolute())
    spout = MemoryTransactionalSpout(DATA, Fields("word string"), 3)
    builder = TransactionalTopologyBuilder("own-database", "spout", spout, 3)
    builder.set_bolt("partial-count", BatchCount(), 5).none_grouping("spout")
    builder.set_bolt("sum", UpdateGlobalCount(path)).global_grouping("partial-count")

    with builder.build_topology().start(spark, config) as run:
        run.process_all_available()

    with closing(opened(path)) as database:
        (total,) = database.execute("SELECT words FROM total").fetchone()
    print(f"in the database: {total} words")


if __name__ == "__main__":
    main()
