"""Cases of Flink: WindowJoinTestPrograms. A txid has one row of each side, in their order.

There the rows of a window are joined when it closes. Here an interval join does it: the beginning
of the window is a part of the key, and two rows of one window are less apart than its size. What we
do in another way:

* A match leaves when its second row comes, and not when the window closes, so the cases say nothing
  of txids. A left row without a match leaves when no match can come any more.
* At the end of its input Flink closes all windows. Here one more row of each side does, which has
  no match and stays in its window.
* A right outer join is a left outer one of exchanged sides, as in the cases of Spark. Where a left
  row is NULL, the window and the name are NULL there, and those of the right row here.
* A row is late there if its window has closed, and here if it is before the watermark. So a late
  row of the cases still belongs to an open sliding window there, and to none here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from txtopo.streams import sliding, tumbling
from txtopo.streams.windows import Window

PROGRAMS = "WindowJoinTestPrograms"

Row = tuple[float, str, str | None]
"""The second, the id and the name."""

LEFT: list[Row] = [
    (1, "L1", "a"),
    (2, "L2", "c"),
    (3, "L3", "x"),
    (4, "L7", "a"),
    (7, "L8", "b"),
    (6, "L6", "b"),
    (8, "L9", "a"),
    (4, "L4", "a"),
    (16, "L10", "b"),
    (32, "L11", None),
    (34, "L12", "b"),
    (41, "L41", "a"),
    (42, "L42", "d"),
    (43, "L43", "c"),
    (44, "L44", "d"),
]
RIGHT: list[Row] = [
    (1, "R1", "a"),
    (2, "R2", "b"),
    (3, "R3", "f"),
    (4, "R7", "g"),
    (7, "R8", "b"),
    (6, "R6", "b"),
    (8, "R9", "a"),
    (4, "R4", "a"),
    (17, "R17", "k"),
    (31, "R31", None),
    (33, "R33", "b"),
    (41, "R41", "y"),
    (42, "R42", "c"),
    (43, "R43", "x"),
    (44, "R44", "z"),
]

Pair = tuple[float, str | None, str, str | None]
"""The beginning of the window, the name, and the ids of the left and of the right row."""


@dataclass(frozen=True)
class WindowJoin:
    """A join of rows of one window.

    Attributes:
        source: The program that it is taken from.
        window: The windows.
        how: What becomes of rows without a match; ``semi`` takes the left rows with one, and
            ``anti`` those without.
        pairs: What it finds; of rows without a match the other id is None.
        exchanged: Whether the right side is the left one.
        late: The rows that were late, of either side.
        differs: What is otherwise in the source, and why; empty for nothing.
    """

    source: str
    window: Window
    how: Literal["inner", "left", "semi", "anti"]
    pairs: Sequence[Pair]
    exchanged: bool = False
    late: Sequence[str] = ("L4", "R4")
    differs: str = ""


FIVE = tumbling("5 seconds")
INNER: list[Pair] = [
    (0, "a", "L1", "R1"),
    (0, "a", "L7", "R1"),
    (5, "b", "L8", "R8"),
    (5, "b", "L8", "R6"),
    (5, "b", "L6", "R8"),
    (5, "b", "L6", "R6"),
    (5, "a", "L9", "R9"),
    (30, "b", "L12", "R33"),
    (40, "c", "L43", "R42"),
]
ALONE: list[Pair] = [
    (0, "x", "L3", None),
    (0, "c", "L2", None),
    (15, "b", "L10", None),
    (30, None, "L11", None),
    (40, "a", "L41", None),
    (40, "d", "L42", None),
    (40, "d", "L44", None),
]

JOINS = [
    WindowJoin(f"{PROGRAMS}: window-join-inner-tumble-event-time", FIVE, "inner", INNER),
    WindowJoin(f"{PROGRAMS}: window-join-left-tumble-event-time", FIVE, "left", INNER + ALONE),
    WindowJoin(
        f"{PROGRAMS}: window-join-right-tumble-event-time",
        FIVE,
        "left",
        [
            *((start, name, right or "", left) for start, name, left, right in INNER),
            (0, "g", "R7", None),
            (0, "b", "R2", None),
            (0, "f", "R3", None),
            (15, "k", "R17", None),
            (30, None, "R31", None),
            (40, "x", "R43", None),
            (40, "z", "R44", None),
            (40, "y", "R41", None),
        ],
        exchanged=True,
        differs="the window and the name of a right row without a match are NULL in Flink",
    ),
    WindowJoin(
        f"{PROGRAMS}: window-join-semi-tumble-event-time",
        FIVE,
        "semi",
        [
            (0, "a", "L1", None),
            (0, "a", "L7", None),
            (5, "b", "L8", None),
            (5, "b", "L6", None),
            (5, "a", "L9", None),
            (30, "b", "L12", None),
            (40, "c", "L43", None),
        ],
    ),
    WindowJoin(f"{PROGRAMS}: window-join-anti-tumble-event-time", FIVE, "anti", ALONE),
    WindowJoin(
        f"{PROGRAMS}: window-join-hop-event-time",
        sliding("10 seconds", every="5 seconds"),
        "inner",
        [
            (-5, "a", "L1", "R1"),
            (-5, "a", "L7", "R1"),
            (0, "a", "L1", "R1"),
            (0, "a", "L1", "R9"),
            (0, "a", "L7", "R1"),
            (0, "a", "L7", "R9"),
            (0, "a", "L9", "R1"),
            (0, "a", "L9", "R9"),
            (0, "b", "L8", "R2"),
            (0, "b", "L8", "R8"),
            (0, "b", "L8", "R6"),
            (0, "b", "L6", "R2"),
            (0, "b", "L6", "R8"),
            (0, "b", "L6", "R6"),
            (5, "a", "L9", "R9"),
            (5, "b", "L8", "R8"),
            (5, "b", "L8", "R6"),
            (5, "b", "L6", "R8"),
            (5, "b", "L6", "R6"),
            (25, "b", "L12", "R33"),
            (30, "b", "L12", "R33"),
            (35, "c", "L43", "R42"),
            (40, "c", "L43", "R42"),
        ],
        late=("L4", "L4", "R4", "R4"),
        differs="L4 and R4, which are before the watermark, have seven matches in Flink in the "
        "window from 0, which is open; here they are late for both of their windows",
    ),
]

LEFT_OUT = {
    f"{PROGRAMS}: window-join-full-outer-tumble-event-time": "a join is inner or left; what a "
    "full one adds to a left one are the right rows alone, which the case of the right join has",
    f"{PROGRAMS}: window-join-cumulate-event-time": "there are no cumulating windows",
}
"""What is not carried over, and why."""
