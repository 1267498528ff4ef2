"""How often each word was there, exactly once, with the ready-made committer.

Run it with ``python examples/word_count.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo import (
    Config,
    Count,
    Fields,
    PersistentAggregate,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.spouts import MemoryTransactionalSpout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORDS = [
    "cat dog chicken cat dog apple",
    "cat dog apple banana",
    "cat cat cat cat cat dog dog dog dog",
]
DATA = {number: [[word] for word in words.split()] for number, words in enumerate(WORDS)}


def main(
    spark: SparkSession | None = None,
    config: Config = Config(),
    url: str = "sqlite:///word_count.db",
) -> None:
    """Count the words and print the counts that the store holds in the end."""
    spout = MemoryTransactionalSpout(DATA, Fields("word string"), batch_rows_max=3)
    counts = PersistentAggregate(open_state(url), key="word", aggregates=Count())
    builder = TransactionalTopologyBuilder("word-count", "spout", spout, parallelism=3)
    builder.set_bolt("words", counts, parallelism=2).fields_grouping("spout", "word")

    with builder.build_topology().start(spark, config) as run:
        run.process_all_available()

    with open_state(url, table="words").reader() as reader:
        for word, count in sorted(reader.items()):
            print(f"{word}: {count}")


if __name__ == "__main__":
    main()
