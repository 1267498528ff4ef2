"""What the tests of other engines expect of joins and deduplication, as tables.

A case is a list of steps, each one txid: rows of the left and of the right side (or of the one
stream), and what follows. Times are seconds. Keys are texts. Of the watermark there are two ways to
count: in Flink and Spark nothing at the watermark is expected any more, here only nothing before
it. So a watermark of theirs is one microsecond more here (``AT_THE_WATERMARK``). Structured
Streaming emits what a watermark closes in a batch of its own, with no data; here it comes in the
txid that moved it.

Sources, as of 2026:

* Storm: ``JoinProcessorTest``
* Flink: ``IntervalJoinOperatorTest``, ``IntervalJoinTestPrograms``, ``DeduplicationTestPrograms``
* Spark: ``StreamingJoinSuite.scala`` (inner and outer suites),
  ``StreamingDeduplicationWithinWatermarkSuite``
* Kafka Streams: ``KStreamKStreamLeftJoinTest``; it emits a left row without a match at once, here
  it waits until none can come, so only matches are taken over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

AT_THE_WATERMARK = 1e-6
JUST = 1e-6

Rows = Sequence[tuple[Any, float]]
Matches = Sequence[tuple[Any, float, float | None]]


@dataclass(frozen=True)
class JoinCase:
    """A join: its interval, the delays of both sides, and steps of (left, right, what follows)."""

    source: str
    interval: tuple[float, float]
    how: str
    delays: tuple[float, float]
    steps: Sequence[tuple[Rows, Rows, Matches]]
    late: int = 0


def of(key: str, *times: float) -> Rows:
    return [(key, time) for time in times]


def pairs(key: str, *times: tuple[float, float | None]) -> Matches:
    return [(key, one, other) for one, other in times]


FLINK_BOUNDS: list[tuple[float, float, list[tuple[float, float]]]] = [
    (1, 3 - JUST, [(1, 2), (1, 3), (2, 3), (2, 4), (3, 4)]),
    (-3 + JUST, -1, [(2, 1), (3, 1), (3, 2), (4, 2), (4, 3)]),
    (-2, -1, [(2, 1), (3, 1), (3, 2), (4, 2), (4, 3)]),
    (-1, 1, [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3), (3, 4), (4, 3), (4, 4)]),
    (1, 2, [(1, 2), (1, 3), (2, 3), (2, 4), (3, 4)]),
    (-3 + JUST, -1 - JUST, [(3, 1), (4, 2)]),
    (-1 + JUST, 1 - JUST, [(1, 1), (2, 2), (3, 3), (4, 4)]),
    (1 + JUST, 3 - JUST, [(1, 3), (2, 4)]),
]
"""IntervalJoinOperatorTest: elements 1 to 4 of one key on both sides; lower, upper, the matches."""

FLINK_CLEANUP: list[tuple[float, float, dict[float, tuple[list[float], list[float]]]]] = [
    (-1, 0, {1: ([2, 3, 4, 5], [1, 2, 3, 4, 5]), 4: ([5], [4, 5]), 6: ([], [])}),
    (-2 + 1, 1 - 1, {1: ([2, 3, 4, 5], [1, 2, 3, 4, 5]), 4: ([5], [4, 5]), 6: ([], [])}),
    (0, 1, {1: ([1, 2, 3, 4, 5], [2, 3, 4, 5]), 4: ([4, 5], [5]), 6: ([], [])}),
    (-1 + 1, 2 - 1, {1: ([1, 2, 3, 4, 5], [2, 3, 4, 5]), 4: ([4, 5], [5]), 6: ([], [])}),
]
"""IntervalJoinOperatorTest: elements 1 to 5 on both sides; what is buffered at each watermark.

Its times are whole, so an exclusive bound is the next whole number.
"""

ORDERS = [("1", 1), ("2", 2), ("4", 4), ("5", 5), ("3", 3), ("7", 9), ("10", 11)]
SHIPMENTS = [("1", 2), ("2", 5), ("5", 6), ("4", 15), ("6", 15), ("3", 15), ("7", 16), ("10", 16)]

JOINS = [
    JoinCase(
        "Storm, JoinProcessorTest, inner",
        (0, 0),
        "inner",
        (0, 0),
        [
            (
                [("2", 0), ("5", 0), ("7", 0)],
                [("1", 0), ("2", 0), ("5", 0), ("6", 0)],
                [("2", 0, 0), ("5", 0, 0)],
            )
        ],
    ),
    JoinCase(
        "Storm, JoinProcessorTest, left outer",
        (0, 0),
        "left",
        (0, 0),
        [
            (
                [("2", 0), ("5", 0), ("7", 0)],
                [("1", 0), ("2", 0), ("5", 0), ("6", 0)],
                [("2", 0, 0), ("5", 0, 0), ("7", 0, None)],
            )
        ],
    ),
    JoinCase(
        "Storm, JoinProcessorTest, right outer as left outer of exchanged sides",
        (0, 0),
        "left",
        (0, 0),
        [
            (
                [("1", 0), ("2", 0), ("5", 0), ("6", 0)],
                [("2", 0), ("5", 0), ("7", 0)],
                [("2", 0, 0), ("5", 0, 0), ("1", 0, None), ("6", 0, None)],
            )
        ],
    ),
    JoinCase(
        "Flink, IntervalJoinOperatorTest, restored from a snapshot",
        (-1, 1),
        "inner",
        (0, 0),
        [
            (of("k", 1), [], []),
            ([], of("k", 1), pairs("k", (1, 1))),
            (of("k", 2), [], pairs("k", (2, 1))),
            ([], of("k", 2), pairs("k", (1, 2), (2, 2))),
            (of("k", 3), [], pairs("k", (3, 2))),
            ([], of("k", 3), pairs("k", (2, 3), (3, 3))),
            (of("k", 4), [], pairs("k", (4, 3))),
            ([], of("k", 4), pairs("k", (3, 4), (4, 4))),
        ],
    ),
    JoinCase(
        "Flink, IntervalJoinTestPrograms, event time",
        (-5, 5),
        "inner",
        (1, 1),
        [
            (ORDERS[:5], SHIPMENTS[:5], [("1", 1, 2), ("2", 2, 5), ("5", 5, 6)]),
            (ORDERS[5:], SHIPMENTS[5:], [("10", 11, 16)]),
        ],
    ),
    JoinCase(
        "Spark, StreamingInnerJoinSuite, non-time column",
        (-100, 100),
        "inner",
        (100, 100),
        [
            (of("1", 0), [], []),
            ([], [("1", 0), ("10", 0)], [("1", 0, 0)]),
            (of("10", 0), [], [("10", 0, 0)]),
            ([], of("1", 0), [("1", 0, 0)]),
            (of("1", 0), [], [("1", 0, 0), ("1", 0, 0)]),
            (of("100", 0), of("100", 0), [("100", 0, 0)]),
        ],
    ),
    JoinCase(
        "Spark, StreamingInnerJoinSuite, time range, one side condition",
        (5 + JUST, 100),
        "inner",
        (10, 10),
        [
            (of("1", 5), [], []),
            ([], of("1", 11), pairs("1", (5, 11))),
            ([], of("1", 10), []),
            (of("1", 3, 30), [], pairs("1", (3, 10), (3, 11))),
            ([], of("0", 30), []),
            ([], of("1", 20, 21, 28), pairs("1", (3, 21), (3, 28), (5, 21), (5, 28))),
            (of("1", 20, 21), [], pairs("1", (21, 28))),
        ],
        late=2,
    ),
    JoinCase(
        "Spark, StreamingInnerJoinSuite, time range, two side conditions",
        (-5, 10),
        "inner",
        (20, 30),
        [
            (of("1", 20), [], []),
            (
                [],
                of("1", 14, 15, 25, 26, 30, 31),
                pairs("1", (20, 15), (20, 25), (20, 26), (20, 30)),
            ),
            ([], of("1", 60), []),
            (of("1", 49, 50, 65, 66), [], pairs("1", (50, 60), (65, 60))),
            (of("1", 30, 31), [], pairs("1", (31, 26), (31, 30), (31, 31))),
            ([], of("1", 80), []),
            ([], of("1", 46, 50), pairs("1", (49, 50), (50, 50))),
        ],
        late=2,
    ),
    JoinCase(
        "Spark, StreamingOuterJoinSuite, left outer with watermark range condition",
        (-5, 5),
        "left",
        (10, 10),
        [
            ([("1", 5), ("3", 5)], [], []),
            ([], [("1", 10), ("2", 5)], pairs("1", (5, 10))),
            ([], of("1", 11), []),
            (of("1", 7, 30), [], pairs("1", (7, 10), (7, 11))),
            ([], of("0", 30), [("3", 5, None)]),
        ],
    ),
    JoinCase(
        "Spark, StreamingOuterJoinSuite, right outer as left outer of exchanged sides",
        (-5, 5),
        "left",
        (10, 10),
        [
            ([], [("1", 5), ("3", 5)], []),
            ([("1", 10), ("2", 5)], [], pairs("1", (10, 5))),
            (of("1", 11), [], []),
            ([], of("1", 7, 30), pairs("1", (10, 7), (11, 7))),
            (of("0", 30), [], [("2", 5, None)]),
        ],
    ),
    JoinCase(
        "Spark, StreamingOuterJoinSuite, left outer with a range of three and a half minutes",
        (-210, 210),
        "left",
        (600, 600),
        [
            ([("1", 210), ("3", 5)], [], []),
            ([], [("1", 300), ("2", 5)], pairs("1", (210, 300))),
            ([], of("1", 450), []),
            (of("1", 260, 1800), [], pairs("1", (260, 300), (260, 450))),
            ([], of("0", 1800), [("3", 5, None)]),
        ],
    ),
    JoinCase(
        "Spark, StreamingOuterJoinSuite, SPARK-26187",
        (0, 5),
        "left",
        (5, 5),
        [
            (
                [(str(n), n) for n in range(1, 6)],
                [(str(n), n) for n in (2, 4)],
                [("2", 2, 2), ("4", 4, 4)],
            ),
            (
                [(str(n), n) for n in range(6, 11)],
                [(str(n), n) for n in (6, 8, 10)],
                [("10", 10, 10), ("6", 6, 6), ("8", 8, 8)],
            ),
            (
                [(str(n), n) for n in range(11, 16)],
                [(str(n), n) for n in (12, 14)],
                [("12", 12, 12), ("14", 14, 14), ("1", 1, None), ("3", 3, None)],
            ),
        ],
    ),
    JoinCase(
        "Kafka Streams, KStreamKStreamLeftJoinTest, left join",
        (-0.1, 0.1),
        "left",
        (10, 10),
        [
            ([("0", 0), ("1", 0)], [], []),
            ([], [("0", 0), ("1", 0)], [("0", 0, 0), ("1", 0, 0)]),
            ([("0", 0), ("1", 0), ("2", 0)], [], [("0", 0, 0), ("1", 0, 0)]),
            (
                [],
                [("0", 0), ("1", 0), ("2", 0), ("3", 0)],
                [("0", 0, 0)] * 2 + [("1", 0, 0)] * 2 + [("2", 0, 0)],
            ),
            (
                [("0", 0), ("1", 0), ("2", 0), ("3", 0)],
                [],
                [("0", 0, 0)] * 2 + [("1", 0, 0)] * 2 + [("2", 0, 0), ("3", 0, 0)],
            ),
        ],
    ),
    JoinCase(
        "Kafka Streams, KStreamKStreamLeftJoinTest, windowing",
        (-0.1, 0.1),
        "left",
        (10, 10),
        [
            ([("0", 0), ("1", 0)], [], []),
            ([], [(str(n), 0) for n in range(4)], [("0", 0, 0), ("1", 0, 0)]),
            ([], [(str(n), 1 + n / 1000) for n in range(4)], []),
            *(
                (
                    [(str(n), 1.1 + late / 1000) for n in range(4)],
                    [],
                    [(str(n), 1.1 + late / 1000, 1 + n / 1000) for n in range(late, 4)],
                )
                for late in range(5)
            ),
            *(
                (
                    [(str(n), 0.899 + early / 1000) for n in range(4)],
                    [],
                    [(str(n), 0.899 + early / 1000, 1 + n / 1000) for n in range(early)],
                )
                for early in range(5)
            ),
        ],
    ),
]


@dataclass(frozen=True)
class UniqueCase:
    """A deduplication: ``within``, the delay, the key, and steps of (rows, what is let through)."""

    source: str
    within: float
    delay: float
    key: tuple[str, ...]
    steps: list[tuple[list[tuple[Any, int, float]], list[tuple[Any, int, float]]]]
    late: int = 0


def events(*given: tuple[str, float]) -> list[tuple[Any, int, float]]:
    return [(key, 0, time) for key, time in given]


def at(*times: float) -> list[tuple[Any, int, float]]:
    return [("k", 0, time) for time in times]


UNIQUE = [
    UniqueCase(
        "Flink, DeduplicationTestPrograms, ascending",
        100_000,
        5,
        ("key",),
        [
            (
                [
                    ("pen", 1, 1000),
                    ("pen", 2, 2000),
                    ("pen", 3, 3000),
                    ("apple", 4, 4000),
                    ("apple", 5, 5000),
                ],
                [("pen", 1, 1000), ("apple", 4, 4000)],
            ),
            (
                [("pen", 6, 6000), ("apple", 7, 7000), ("banana", 8, 8000), ("apple", 9, 9000)],
                [("banana", 8, 8000)],
            ),
        ],
    ),
    UniqueCase(
        "Spark, StreamingDeduplicationWithinWatermarkSuite, all columns",
        10,
        10,
        ("key", "n", "ts"),
        [
            (at(*range(10, 16)) * 5, at(*range(10, 16))),
            (at(*range(13, 18)), at(16, 17)),
            (at(5), []),
            (at(35), at(35)),
            (at(55), at(55)),
        ],
        late=1,
    ),
    UniqueCase(
        "Spark, StreamingDeduplicationWithinWatermarkSuite, subset of columns",
        2,
        2,
        ("key",),
        [
            (events(("a", 17)), events(("a", 17))),
            (events(("a", 16)), []),
            (events(("a", 13)), []),
            (events(("b", 22), ("c", 21)), events(("b", 22), ("c", 21))),
            (events(("a", 21)), events(("a", 21))),
            (events(("d", 25)), events(("d", 25))),
        ],
        late=1,
    ),
    UniqueCase(
        "Spark, StreamingDeduplicationWithinWatermarkSuite, SPARK-39650",
        10,
        10,
        ("key",),
        [
            (events(("a", 1)), events(("a", 1))),
            (events(("a", 2), ("b", 3)), events(("b", 3))),
            (events(("a", 5), ("b", 2), ("c", 9)), events(("c", 9))),
        ],
    ),
    UniqueCase(
        "Spark, StreamingDeduplicationWithinWatermarkSuite, partition keys",
        10,
        10,
        ("key",),
        [(events(("a", 17), ("b", 22), ("c", 21)), events(("a", 17), ("b", 22), ("c", 21)))],
    ),
]
