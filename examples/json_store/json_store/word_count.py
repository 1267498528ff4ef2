"""Counts words into a state of this plug-in: ``python -m json_store.word_count json:counts``."""

from __future__ import annotations

import sys

from txtopo import Config, Fields, PersistentAggregate, TransactionalTopologyBuilder
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state import Count, open_state

WORDS = [
    "cat dog chicken cat dog apple",
    "cat dog apple banana",
    "cat cat cat cat cat dog dog dog dog",
]
DATA = {number: [[word] for word in words.split()] for number, words in enumerate(WORDS)}


def main(url: str) -> None:
    """Count the words and print the counts that the state holds in the end."""
    spout = MemoryTransactionalSpout(DATA, Fields("word string"), 3)
    builder = TransactionalTopologyBuilder("json-words", "spout", spout, 3)
    words = PersistentAggregate(open_state(url), "word", Count())
    builder.set_bolt("words", words).fields_grouping("spout", "word")

    with builder.build_topology().start(None, Config(carrier="local")) as run:
        run.process_all_available()

    with open_state(url, table="words").reader() as reader:
        for word, count in sorted(reader.items()):
            print(f"{word}: {count}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "json:counts")
