"""Cases of Flink: WindowRankTestPrograms. Each row is a txid of its own.

There a program ranks the rows of a window, or the aggregates of a group in it, and takes the first
three. Here a window keeps ``TopN``, or its closed windows do; the smallest ones are the largest of
the negative prices. What we do in another way:

* Of equal prices the one that came first stands first there. Here the labels decide, so the first
  label of a row is larger the earlier the row came.
* At the end of its input Flink closes all windows. Here one more row does, of its own window.
* Each rank is a row there, and a list in one row here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from txtopo.streams import sliding, tumbling
from txtopo.streams.windows import Window

PROGRAMS = "WindowRankTestPrograms"

Bid = tuple[float, int, str, str]
"""The second, the price, the item and the number of the supplier."""

BIDS: list[Bid] = [
    (5, 4, "A", "1"),
    (6, 4, "C", "2"),
    (7, 2, "G", "1"),
    (8, 2, "B", "3"),
    (9, 5, "D", "4"),
    (11, 2, "B", "3"),
    (13, 1, "E", "1"),
    (15, 3, "H", "2"),
    (17, 6, "F", "5"),
    (21, 2, "B", "7"),
    (23, 1, "A", "4"),
    (25, 3, "C", "3"),
    (28, 6, "A", "8"),
]
"""BEFORE_DATA and AFTER_DATA, in their order."""


@dataclass(frozen=True)
class RankOfRows:
    """The items and prices of the first three rows of each window, by its beginning."""

    source: str
    window: Window
    largest: bool
    best: Mapping[float, Sequence[tuple[str, int]]]
    bids: Sequence[Bid] = tuple(BIDS)


@dataclass(frozen=True)
class RankOfSums:
    """The suppliers, sums and numbers of bids of the first three sums of each window."""

    source: str
    window: Window
    largest: bool
    best: Mapping[float, Sequence[tuple[str, int, int]]]


TEN = tumbling("10 seconds")
HOP = sliding("10 seconds", every="5 seconds")

OF_ROWS = [
    RankOfRows(
        f"{PROGRAMS}: window-rank-tumble-tvf-min-top-n",
        TEN,
        False,
        {
            0: [("G", 2), ("B", 2), ("A", 4)],
            10: [("E", 1), ("B", 2), ("H", 3)],
            20: [("A", 1), ("B", 2), ("C", 3)],
        },
    ),
    RankOfRows(
        f"{PROGRAMS}: window-rank-tumble-tvf-max-top-n",
        TEN,
        True,
        {
            0: [("D", 5), ("A", 4), ("C", 4)],
            10: [("F", 6), ("H", 3), ("B", 2)],
            20: [("A", 6), ("C", 3), ("B", 2)],
        },
    ),
    RankOfRows(
        f"{PROGRAMS}: window-rank-hop-tvf-min-top-n",
        HOP,
        False,
        {
            0: [("G", 2), ("B", 2), ("A", 4)],
            5: [("E", 1), ("G", 2), ("B", 2)],
            10: [("E", 1), ("B", 2), ("H", 3)],
            15: [("A", 1), ("B", 2), ("H", 3)],
            20: [("A", 1), ("B", 2), ("C", 3)],
            25: [("C", 3), ("A", 6)],
        },
    ),
    RankOfRows(
        f"{PROGRAMS}: window-rank-hop-tvf-named-min-top-n",
        HOP,
        False,
        {0: [("A", 4)], 5: [("A", 4)]},
        BIDS[:1],
    ),
]

OF_SUMS = [
    RankOfSums(
        f"{PROGRAMS}: window-rank-tumble-tvf-agg-min-top-n",
        TEN,
        False,
        {
            0: [("3", 2, 1), ("2", 4, 1), ("4", 5, 1)],
            10: [("1", 1, 1), ("3", 2, 1), ("2", 3, 1)],
            20: [("4", 1, 1), ("7", 2, 1), ("3", 3, 1)],
        },
    ),
    RankOfSums(
        f"{PROGRAMS}: window-rank-tumble-tvf-agg-max-top-n",
        TEN,
        True,
        {
            0: [("1", 6, 2), ("4", 5, 1), ("2", 4, 1)],
            10: [("5", 6, 1), ("2", 3, 1), ("3", 2, 1)],
            20: [("8", 6, 1), ("3", 3, 1), ("7", 2, 1)],
        },
    ),
]

LEFT_OUT = {
    f"{PROGRAMS}: window-rank-cumulate-tvf-min-top-n": "there are no cumulating windows",
}
"""What is not carried over, and why."""
