"""Words counted at least once: Storm's reliability API, with bolts that fail and forget.

Run it with ``python examples/reliable_word_count.py``: no Spark, no service. Or with ``python
examples/reliable_word_count.py resident``: spout and bolts then live in Spark tasks. It shows how
many trees of tuples were acked and failed, how many sentences were replayed, and how many trees are
pending.
A sentence that fails in the middle is counted twice in part: at least once is not exactly once.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    BatchOutputCollector,
    Bolt,
    Config,
    FailedException,
    Fields,
    OutputCollector,
    Progressed,
    TaskContext,
    TopologyBuilder,
    TopologyEvent,
    TopologyListener,
    Tuple,
)
from txtopo.spouts import MemorySpout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SENTENCES = [
    ["the cow jumped over the moon"],
    ["an apple a day keeps the doctor away"],
    ["four score and seven years ago"],
    ["snow white and the seven dwarfs"],
    ["i am at two with nature"],
]
TIMES = 2_000
FAILS_EVERY = 100
FORGETS_EVERY = 1_000


class Split(BasicBolt):
    """Emits the words of a sentence, anchored to it; fails now and then."""

    output_fields = Fields("word string")

    def prepare(self, config: Config | AtLeastOnceConfig, context: TaskContext) -> None:
        self.sentences = 0

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        self.sentences += 1
        if self.sentences % FAILS_EVERY == 0:
            raise FailedException("the sentence could not be read")
        for word in tuple["sentence"].split():
            collector.emit([word])


class Count(Bolt):
    """Counts words and acks them by hand; forgets to, now and then: their trees time out."""

    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
        self.collector, self.counts, self.words = collector, Counter[str](), 0

    def execute(self, tuple: Tuple) -> None:
        self.counts[tuple["word"]] += 1
        self.words += 1
        if self.words % FORGETS_EVERY:
            self.collector.ack(tuple)

    def cleanup(self) -> None:
        for word, count in self.counts.most_common(2):
            print(f"{word}: {count:,}")


class Show(TopologyListener):
    """Prints each progress."""

    def on_change(self, change: TopologyEvent) -> None:
        if isinstance(change, Progressed):
            now = change.progress
            print(
                f"acked {now.acked:,} · failed {now.failed:,} · timed out {now.timed_out:,} · "
                f"replayed {now.replays:,} · pending {now.pending:,}",
                flush=True,
            )


def main(
    spark: SparkSession | None = None,
    config: AtLeastOnceConfig = AtLeastOnceConfig(message_timeout_s=2, max_spout_pending=2_000),
) -> None:
    """Count until every sentence is acked, on Spark if there is a session."""
    builder = TopologyBuilder("reliable-word-count")
    builder.set_spout("sentences", MemorySpout(SENTENCES, Fields("sentence string"), TIMES))
    builder.set_bolt("split", Split(), 2).shuffle_grouping("sentences")
    builder.set_bolt("count", Count(), 2).fields_grouping("split", "word")

    with builder.build_topology().start(spark, config, [Show()]) as run:
        run.process_all_available()


if __name__ == "__main__":
    if sys.argv[1:] == ["resident"]:
        main(
            config=AtLeastOnceConfig(
                carrier="resident", message_timeout_s=2, max_spout_pending=2_000
            )
        )
    else:
        main()
