"""How often each word was there, as a chain of operators on a stream.

It is ``word_count.py`` once more, from lines: they are split, grouped and counted. Run it with
``python examples/streams_word_count.py``.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from txtopo import Config, Count, Fields, StreamBuilder, Topology, open_state
from txtopo.spouts import MemoryTransactionalSpout

LINES = [
    "cat dog chicken cat dog apple",
    "cat dog apple banana",
    "cat cat cat cat cat dog dog dog dog",
]


def topology(url: str) -> Topology:
    """Return the topology; its counts are in table ``counts`` of a store."""
    builder = StreamBuilder("stream-word-count")
    spout = MemoryTransactionalSpout({0: [[line] for line in LINES]}, Fields("value string"), 1)
    lines = builder.source("lines", spout)
    (
        lines.flat_map(lambda row: [[word] for word in row["value"].split()], "word string")
        .group_by("word")
        .persistent_aggregate(open_state(url, table="counts"), count=Count())
    )
    return builder.build_topology()


def main(
    spark: SparkSession | None = None,
    config: Config = Config(),
    url: str = "sqlite:///streams_word_count.db",
) -> None:
    """Count the words and print the counts that the store holds in the end."""
    with topology(url).start(spark, config) as run:
        run.process_all_available()

    with open_state(url, table="counts").reader() as reader:
        for word, count in sorted(reader.items()):
            print(f"{word}: {count}")


if __name__ == "__main__":
    main()
