"""What the tests of other engines expect of timers, as data.

Sources, as of 2026:

* Flink: ``KeyedProcessOperatorTest``, ``InternalTimerServiceImplTest``
* Spark: ``TransformWithStateSuite``

A step is one txid: its rows, the watermark or the planned time after it, and what is emitted. Times
are seconds. An element of Flink that comes between two watermarks is a txid that leaves the
watermark where it is. Flink's namespaces of timers are names here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Row = tuple[str, int, float]
Emitted = Sequence[tuple[str, int]]
Step = tuple[Sequence[Row], float, Emitted]


@dataclass(frozen=True)
class TimerCase:
    """Txids, and what is emitted.

    Attributes:
        source: The test that it is taken from.
        program: The program, by the name of its class in ``test_timer_cases.py``.
        planned: Whether the timers fire by planned time.
        steps: Rows, time, and what is emitted, of each txid.
        differs: What is otherwise in the source, and why; empty for nothing.
    """

    source: str
    program: str
    planned: bool
    steps: Sequence[Step]
    differs: str = ""


def at(key: str, *numbers: int, time: float = 0) -> list[Row]:
    return [(key, number, time) for number in numbers]


OPERATOR, SERVICE = "Flink, KeyedProcessOperatorTest", "Flink, InternalTimerServiceImplTest"
SUITE = "Spark, TransformWithStateSuite"

FOUR = [*at("1", 10, 11), *at("2", 10, 11)]
"""Two keys with the timers "ciao" (10) and "hello" (11), both at the moment 10."""

CASES = [
    TimerCase(
        f"{OPERATOR}, timestamp and watermark querying",
        "TellsNow",
        False,
        [([], 17, []), (at("5", 5), 42, [("now", 17)]), (at("6", 6), 42, [("now", 42)])],
    ),
    TimerCase(
        f"{OPERATOR}, timestamp and processing time querying",
        "TellsNow",
        True,
        [(at("5", 5), 17, [("now", 17)]), (at("6", 6), 42, [("now", 42)])],
    ),
    TimerCase(
        f"{OPERATOR}, event time timers",
        "FiveLater",
        False,
        [([], 0, []), (at("17", 17), 0, [("input", 17)]), ([], 5, [("timer", 17)])],
    ),
    TimerCase(
        f"{OPERATOR}, processing time timers",
        "FiveLater",
        True,
        [(at("17", 17), 0, [("input", 17)]), ([], 5, [("timer", 17)])],
    ),
    *(
        TimerCase(
            f"{OPERATOR}, {'processing' if planned else 'event'} time timer with state",
            "FiveLater",
            planned,
            [
                ([], 1, []),
                (at("17", 17), 1, [("input", 17)]),
                ([], 2, []),
                (at("42", 42), 2, [("input", 42)]),
                ([], 6, [("timer", 17)]),
                ([], 7, [("timer", 42)]),
            ],
        )
        for planned in (False, True)
    ),
    *(
        TimerCase(
            f"{SERVICE}, set and fire {'processing' if planned else 'event'} time timers",
            "CiaoAndHello",
            planned,
            [
                (FOUR, 0, []),
                ([], 10, [("1ciao", 10), ("1hello", 10), ("2ciao", 10), ("2hello", 10)]),
                ([], 20, []),
            ],
        )
        for planned in (False, True)
    ),
    *(
        TimerCase(
            f"{SERVICE}, delete {'processing' if planned else 'event'} time timers",
            "CiaoAndHello",
            planned,
            [
                (FOUR, 0, []),
                ([*at("1", -11), *at("2", -10)], 0, []),
                ([], 10, [("1ciao", 10), ("2hello", 10)]),
                ([], 20, []),
            ],
        )
        for planned in (False, True)
    ),
    TimerCase(
        f"{SERVICE}, a timer that is registered again while one fires",
        "TenLaterAgain",
        True,
        [
            (at("a", 1), 0, []),
            ([], 10, [("timer", 10)]),
            ([], 19, []),
            ([], 20, [("timer", 20)]),
            ([], 30, [("timer", 30)]),
        ],
    ),
    TimerCase(
        f"{SUITE}, processing time timer",
        "CountsToThree",
        True,
        [
            (at("a", 1), 1, [("a", 1)]),
            (at("b", 1), 2, [("b", 1)]),
            (at("b", 1), 12, [("a", -1), ("b", 2)]),
            ([*at("b", 1), *at("c", 1)], 13, [("c", 1)]),
            (at("d", 1), 23, [("c", -1), ("d", 1)]),
        ],
    ),
    TimerCase(
        f"{SUITE}, processing time timer and updating timers",
        "MovesItsTimer",
        True,
        [
            (at("a", 1), 1, [("a", 1)]),
            (at("a", 1), 3, [("a", 2)]),
            (at("d", 1), 9, [("d", 1)]),
            (at("d", 1), 13, [("a", -1), ("d", 2)]),
        ],
        differs="Here the timer is moved by its name; there the earlier moment is deleted.",
    ),
    TimerCase(
        f"{SUITE}, processing time timer and multiple timers",
        "ThreeTimers",
        True,
        [
            (at("a", 1), 1, []),
            (at("a", 1), 7, [("a", 1)]),
            (at("a", 1), 12, [("a", 2)]),
            (at("a", 1), 17, [("a", 3)]),
        ],
        differs="There rows come before timers of processing time, so each count is one more.",
    ),
    TimerCase(
        f"{SUITE}, event time based timer",
        "LatestTime",
        False,
        [
            ([("a", 0, 11), ("a", 0, 13), ("a", 0, 15)], 5, [("a", 15)]),
            ([("a", 0, 4)], 5, [("a", 15)]),
            ([("a", 0, 10)], 5, [("a", 15)]),
            ([("b", 0, 31)], 21, [("b", 31), ("a", -1)]),
        ],
        differs="There the row at 4, which is late, is dropped before the function sees it.",
    ),
]
