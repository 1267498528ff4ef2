"""Cases of Flink: WindowAggregateTestPrograms. Each row is a txid of its own.

What we do in another way:

* At the end of its input Flink moves the watermark to infinity, so the last windows close. Here
  they stay open, and are compared in the table.
* A key that is NULL is refused by a state; here it is ``none``.

Left out: cumulating windows, which are not there, and the distinct comments of each window.
Flink runs each program in one and in two phases; the answers are the same. Ours always combines in
two, and runs with one task and with three.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.streams.cases.case import Case, Found
from txtopo.streams import sliding, tumbling

PROGRAMS = "WindowAggregateTestPrograms"
# The name and the second of each row of BEFORE_DATA and AFTER_DATA, in their order.
ROWS = [
    [row]
    for row in (
        ("a", 1),
        ("a", 2),
        ("a", 3),
        ("a", 4),
        ("b", 7),
        ("b", 6),
        ("a", 8),
        ("a", 4),
        ("b", 16),
        ("none", 32),
        ("b", 34),
        ("a", 40),
        ("d", 42),
        ("c", 43),
        ("d", 44),
    )
]
ENDLESS = "Flink's windows of the last rows close at the end of the input"


def windows(size: float, *rows: tuple[str, float, int]) -> Sequence[Found]:
    """Windows of one size, by key, beginning and count."""
    return [(key, start, start + size, count) for key, start, count in rows]


CASES = [
    Case(
        f"{PROGRAMS}: window-aggregate-tumble-event-time",
        tumbling("5 seconds"),
        1,
        ROWS,
        kept=windows(
            5,
            ("a", 0, 4),
            ("a", 5, 1),
            ("b", 5, 2),
            ("b", 15, 1),
            ("b", 30, 1),
            ("none", 30, 1),
            ("a", 40, 1),
            ("c", 40, 1),
            ("d", 40, 2),
        ),
        closed={
            5: windows(5, ("a", 0, 4)),
            9: windows(5, ("a", 5, 1), ("b", 5, 2)),
            10: windows(5, ("b", 15, 1)),
            12: windows(5, ("b", 30, 1), ("none", 30, 1)),
        },
        late={("a", 0): 1},
        differs=ENDLESS,
    ),
    Case(
        f"{PROGRAMS}: window-aggregate-tumble-event-time-with-offset",
        tumbling("5 seconds", offset="1 second"),
        1,
        ROWS,
        kept=windows(
            5,
            ("a", 1, 4),
            ("a", 6, 1),
            ("b", 6, 2),
            ("b", 16, 1),
            ("b", 31, 1),
            ("none", 31, 1),
            ("a", 36, 1),
            ("c", 41, 1),
            ("d", 41, 2),
        ),
        late={("a", 1): 1},
        differs=ENDLESS,
    ),
    Case(
        f"{PROGRAMS}: window-aggregate-hop-event-time",
        sliding("10 seconds", every="5 seconds"),
        1,
        ROWS,
        kept=windows(
            10,
            ("a", -5, 4),
            ("a", 0, 6),
            ("b", 0, 2),
            ("a", 5, 1),
            ("b", 5, 2),
            ("b", 10, 1),
            ("b", 15, 1),
            ("b", 25, 1),
            ("none", 25, 1),
            ("b", 30, 1),
            ("none", 30, 1),
            ("a", 35, 1),
            ("c", 35, 1),
            ("d", 35, 2),
            ("a", 40, 1),
            ("c", 40, 1),
            ("d", 40, 2),
        ),
        late={("a", -5): 1},
        differs=ENDLESS,
    ),
    Case(
        f"{PROGRAMS}: window-aggregate-hop-event-time-with-offset",
        sliding("10 seconds", every="5 seconds", offset="1 second"),
        1,
        ROWS,
        kept=windows(
            10,
            ("a", -4, 4),
            ("a", 1, 6),
            ("b", 1, 2),
            ("a", 6, 1),
            ("b", 6, 2),
            ("b", 11, 1),
            ("b", 16, 1),
            ("b", 26, 1),
            ("none", 26, 1),
            ("a", 31, 1),
            ("b", 31, 1),
            ("none", 31, 1),
            ("a", 36, 1),
            ("c", 36, 1),
            ("d", 36, 2),
            ("c", 41, 1),
            ("d", 41, 2),
        ),
        late={("a", -4): 1},
        differs=ENDLESS,
    ),
]
