"""Cases of windows of a number of rows: what Flink and Storm expect of them, as data.

What we do in another way:

* Flink's ``countWindow(size, slide)`` and Storm's count windows emit after each *slide* rows what
  is there of the last *size* rows, as here. The newer planner of Flink's Table API waits until a
  window has *size* rows, so its first windows are left out; here a filter on the count does that.
* Storm has no keys there. Here all rows are one group.
* An average of whole numbers is one in Flink. Here the sums are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txtopo.streams import sliding, tumbling
from txtopo.streams.row_windows import RowWindow

Full = tuple[int, str, int, int, int]
"""A full window: its txid, key, number, rows and total."""


@dataclass(frozen=True)
class RowCase:
    """Rows of several txids, and the windows that are full.

    Attributes:
        source: The test that it is taken from.
        window: The windows.
        txids: The rows of each txid: key, time and amount.
        full: The windows that are full, by the txid in which they are.
        order_by: The columns by which rows of a txid are ordered.
        by_key: Whether rows are grouped by their key; else all are one group, with the key "".
        whole: Whether only windows with all of their rows are compared.
    """

    source: str
    window: RowWindow
    txids: Sequence[Sequence[tuple[str, int, int]]]
    full: Sequence[Full]
    order_by: tuple[str, ...] = ()
    by_key: bool = True
    whole: bool = False


def one_by_one(*rows: tuple[str, int]) -> list[list[tuple[str, int, int]]]:
    return [[(key, time, amount)] for time, (key, amount) in enumerate(rows)]


def ones(keys: str) -> list[list[tuple[str, int, int]]]:
    """Return rows of key1 and key2, each in a txid of its own, with the amount 1."""
    return one_by_one(*((f"key{number}", 1) for number in keys))


HELLO = one_by_one(("Hi", 1), ("Hello", 2), ("Hello", 2), ("Hello world", 3), ("Hello world", 3))

CASES = [
    RowCase(
        "Flink WindowOperatorTest: testCountTrigger",
        tumbling(rows=4),
        ones("221112221222"),
        [(7, "key2", 1, 4, 4), (9, "key1", 1, 4, 4), (12, "key2", 2, 4, 4)],
    ),
    RowCase(
        "Flink EvictingWindowOperatorTest: testCountTrigger",
        sliding(rows=4, every=2),
        ones("2211122212"),
        [
            (2, "key2", 1, 2, 2),
            (4, "key1", 1, 2, 2),
            (7, "key2", 2, 4, 4),
            (9, "key1", 2, 4, 4),
            (10, "key2", 3, 4, 4),
        ],
    ),
    RowCase(
        "Flink GroupWindowITCase (first planner): testProcessingTimeSlidingGroupWindowOverCount",
        sliding(rows=2, every=1),
        HELLO,
        [
            (1, "Hi", 1, 1, 1),
            (2, "Hello", 1, 1, 2),
            (3, "Hello", 2, 2, 4),
            (4, "Hello world", 1, 1, 3),
            (5, "Hello world", 2, 2, 6),
        ],
    ),
    RowCase(
        "Flink GroupWindowITCase (newer planner): testProcessingTimeSlidingGroupWindowOverCount",
        sliding(rows=2, every=1),
        HELLO,
        [(3, "Hello", 2, 2, 4), (5, "Hello world", 2, 2, 6)],
        whole=True,
    ),
    RowCase(
        "Flink GroupWindowITCase: testAllProcessingTimeTumblingGroupWindowOverCount",
        tumbling(rows=2),
        HELLO,
        [(2, "", 1, 2, 3), (4, "", 2, 2, 5)],
        by_key=False,
    ),
    RowCase(
        "Flink GroupWindowITCase (batch): testEventTimeTumblingGroupWindowOverCount",
        tumbling(rows=2),
        [
            [
                ("Hi", 1, 1),
                ("Hallo", 2, 2),
                ("Hello", 3, 2),
                ("Hello", 7, 3),
                ("Hello", 4, 5),
                ("Hello world", 16, 4),
                ("Hello world", 8, 3),
            ]
        ],
        [(1, "Hello", 1, 2, 7), (1, "Hello world", 1, 2, 7)],
        order_by=("time",),
    ),
    RowCase(
        "Storm WindowManagerTest: testCountBasedWindow",
        sliding(rows=5, every=2),
        one_by_one(*(("", number) for number in range(1, 9))),
        [(2, "", 1, 2, 3), (4, "", 2, 4, 10), (6, "", 3, 5, 20), (8, "", 4, 5, 30)],
        by_key=False,
    ),
    RowCase(
        "Storm WindowManagerTest: testTumblingWindow",
        tumbling(rows=3),
        one_by_one(*(("", number) for number in range(1, 7))),
        [(3, "", 1, 3, 6), (6, "", 2, 3, 15)],
        by_key=False,
    ),
]
