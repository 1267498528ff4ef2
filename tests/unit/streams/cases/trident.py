"""Cases of Storm's Trident: TridentIntegrationTest and TestTridentTopology.

There a test asks a running topology by DRPC, and each call is a batch with one row. Here each call
is the row of a txid. What we do in another way:

* A query by DRPC is not there. What a state holds is read as every table is, and a stream asks it
  in its txid with ``query``.
* The aggregate of a batch without rows is 0 there. Here there is none: no row, no aggregate.
* A merged stream has the names of the first one there, whatever the others have. Here streams that
  are merged have the same fields, so the length is made a text.
* A tuple without a field of that name fails there as soon as it is named, as here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

INTEGRATION = "TridentIntegrationTest"
TOPOLOGY = "TestTridentTopology"


@dataclass(frozen=True)
class WordCount:
    """Sentences of which words are counted.

    Attributes:
        source: The test that it is taken from.
        feeds: The sentences of each txid.
        counts: What the table of words holds after this many txids.
        sums: The sum of the counts of the words of a text, after this many txids.
    """

    source: str
    feeds: Sequence[Sequence[str]]
    counts: Mapping[int, Mapping[str, int]]
    sums: Mapping[int, Mapping[str, int]]


@dataclass(frozen=True)
class OfBatch:
    """What a stream makes of each text, which is the one row of a txid.

    Attributes:
        source: The test that it is taken from.
        program: Which stream: one of ``count``, ``split and merge``, ``two groupings``.
        found: The rows of each text, as texts.
        differs: What is otherwise in the source, and why; empty for nothing.
    """

    source: str
    program: str
    found: Mapping[str, Sequence[tuple[str, ...]]]
    differs: str = ""


FIRST, SECOND = ["hello the man said", "the"], ["the man on the moon", "where are you"]
COUNTS = {1: {"the": 2, "hello": 1}, 2: {"the": 4, "man": 2, "man where you the": 8}}

WORD_COUNTS = [
    WordCount(
        f"{INTEGRATION}: testMemoryMapGetTuples",
        [FIRST, ["the foo"]],
        {
            1: {"hello": 1, "said": 1, "the": 2, "man": 1},
            2: {"hello": 1, "said": 1, "the": 3, "man": 1, "foo": 1},
        },
        {},
    ),
    WordCount(f"{INTEGRATION}: testWordCount", [FIRST, SECOND], {}, COUNTS),
    WordCount(
        f"{INTEGRATION}: testWordCountCommitterSpout",
        # The batches without rows that the test waits for.
        [FIRST, [], [], SECOND, [], ["the the"], ["the"]],
        {},
        {1: COUNTS[1], 3: {"the": 2}, 4: COUNTS[2], 6: {"the": 6}, 7: {"the": 7}},
    ),
]

OF_BATCHES = [
    OfBatch(
        f"{INTEGRATION}: testCountAgg",
        "count",
        {"the": [("1",)], "": [], "1 2 3 4 5 6 7 8": [("8",)]},
        differs="no words have a count of 0 in Trident, and none here",
    ),
    OfBatch(
        f"{INTEGRATION}: testSplitMerge",
        "split and merge",
        {"the man": [("7",), ("the",), ("man",)], "hello": [("5",), ("hello",)]},
        differs="Trident merges texts and numbers; here the length is made a text",
    ),
    OfBatch(
        f"{INTEGRATION}: testMultipleGroupingsSameStream",
        "two groupings",
        {"the": [("the", "1"), ("the", "1")], "aaaaa": [("aaaaa", "1"), ("aaaaa", "1")]},
    ),
    OfBatch(
        f"{INTEGRATION}: testMultiRepartition",
        "count",
        {"the man": [("2",)], "aaa": [("1",)]},
        differs="a shuffle is not asked for here; the tasks of the words are",
    ),
]

UNKNOWN_FIELDS = f"{INTEGRATION}: testStreamProjectionValidation"
"""A field that is not there is refused by each operator that names one."""

SAME_IDS = f"{TOPOLOGY}: testGenBoltId"
"""A program that is built a hundred times has the same components each time."""

LEFT_OUT = {
    f"{INTEGRATION}: testSetComponentResources": "memory and processors are Spark's to give, for "
    "an application and not for a component",
}
"""What is not carried over, and why."""
