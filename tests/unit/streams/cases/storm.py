"""Cases of Storm: WindowManagerTest and WaterMarkEventGeneratorTest.

What we do in another way:

* There a window is told to be there whenever the watermark passes its end, with the events in it; a
  timer sends watermarks. Here the rows of a txid move the watermark, with a delay of 5 as there.
* Storm's windows contain their end and not their beginning; no event of these cases is on one.
* There a late tuple is behind the last watermark. Here a row is late for a window that has closed,
  so the windows of the case of a late event are as short as a tick of its time.

Left out, since there is no such thing here: windows that count tuples, windows by processing time,
the threshold at which tuples are compacted.
"""

from __future__ import annotations

from tests.unit.streams.cases.case import Case, Marks
from txtopo.streams import sliding, tumbling

WINDOWS = "WindowManagerTest"
WATERMARKS = "WaterMarkEventGeneratorTest"
TWENTY = sliding("20 seconds", every="10 seconds")


def rows(*seconds: float) -> list[tuple[str, float]]:
    """Rows of one txid."""
    return [("", second) for second in seconds]


FIRST_THREE = [("", 590, 610, 3), ("", 600, 620, 4)]

CASES = [
    Case(
        f"{WINDOWS}: testEventTimeBasedWindow",
        TWENTY,
        5,
        [rows(603, 605, 607), rows(618, 626, 636), rows(825, 826, 827, 839)],
        closed={
            2: [*FIRST_THREE, ("", 610, 630, 2)],
            3: [("", 620, 640, 2), ("", 630, 650, 1), ("", 810, 830, 3)],
        },
    ),
    Case(
        f"{WINDOWS}: testEventTimeLag",
        TWENTY,
        5,
        [rows(603, 605, 607, 618, 626, 632, 629, 636)],
        closed={1: [*FIRST_THREE, ("", 610, 630, 3)]},
    ),
    Case(
        f"{WINDOWS}: testScanStop",
        TWENTY,
        5,
        [rows(603, 605, 607, 618, 626, 629, 636, 637, 638, 639)],
        closed={1: [*FIRST_THREE, ("", 610, 630, 3)]},
    ),
    Case(
        f"{WATERMARKS}: testLateEvent",
        tumbling("1 second"),
        5,
        [rows(100, 110), rows(105, 106, 115, 104)],
        kept=[("", second, second + 1, 1) for second in (100, 105, 106, 110, 115)],
        late={("", 104): 1},
    ),
]

MARKS = [
    Marks(f"{WATERMARKS}: testTrackSingleStream", [5], [([[100, 110]], 105)]),
    Marks(f"{WATERMARKS}: testTrackSingleStreamOutOfOrder", [5], [([[100, 110, 104]], 105)]),
    Marks(
        f"{WATERMARKS}: testTrackTwoStreams",
        [5, 5],
        [([[100, 110], []], None), ([[], [95, 98]], 93)],
    ),
    Marks(
        f"{WATERMARKS}: testLateEvent",
        [5],
        [([[100, 110]], 105), ([[105, 106, 115, 104]], 110)],
    ),
]
