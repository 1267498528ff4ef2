"""Wide: what a txid costs against the number of partitions, bolts, keys and topologies."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import log10
from pathlib import Path

from tests.faults.pictures.drawing import (
    BROKEN,
    COMMIT,
    GREY,
    PROCESSING,
    SMALL,
    STORED,
    Picture,
)

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "scale.md"
"""It has the table that is drawn, as ``python -m benchmarks.wide`` prints it."""
ROW = re.compile(r"^\| (partitions|bolts|keys|topologies) \| ([\d,]+) \| ([\d,.]+) \|", re.M)
COLOURS = {"partitions": PROCESSING, "bolts": COMMIT, "keys": STORED, "topologies": BROKEN}
LEFT, TOP, DECADE_X, DECADE_Y = 78.0, 92.0, 82.0, 46.0
"""Where the axes begin, and how long a factor of ten is."""
DOT = 3.5

Points = Mapping[str, Sequence[tuple[float, float]]]
"""Number and milliseconds by kind."""


def wide() -> str:
    """Return the picture of the table in the page."""
    return drawn(read(PAGE.read_text()))


def read(page: str) -> Points:
    """Return the points of the table in a page."""
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for kind, size, ms in ROW.findall(page):
        points[kind].append((float(size.replace(",", "")), float(ms.replace(",", ""))))
    assert points, f"{PAGE.name} has no table of partitions, bolts, keys and topologies"
    return points


def drawn(points: Points) -> str:
    """Return the picture: both axes are logarithmic."""
    values = [ms for line in points.values() for _, ms in line]
    low, high = int(log10(min(values)) // 1), int(-(-log10(max(values)) // 1))
    wide = int(-(-log10(max(size for line in points.values() for size, _ in line)) // 1))
    told = "; ".join(
        f"{kind}: {', '.join(f'{size:,.0f} take {ms:,.2f} ms' for size, ms in line)}"
        for kind, line in points.items()
    )
    picture = Picture("What a txid costs", f"Processor time of a txid by number. {told}.")
    picture.text(24, 36, "What a txid costs", size=16, bold=True)
    sentence = (
        "Processor time of the process in milliseconds, on the carrier local; both axes by tens"
    )
    picture.text(24, 57, sentence, size=SMALL, opacity=0.8)
    right, bottom = LEFT + DECADE_X * wide, TOP + DECADE_Y * (high - low)
    for power in range(low, high + 1):
        y = bottom - DECADE_Y * (power - low)
        picture.line([(LEFT, y), (right, y)], colour=GREY, opacity=0.3, width=1.0)
        label = f"{10**power:,} ms" if power >= 0 else f"{10.0**power:g} ms"
        picture.text(LEFT - 8, y + 4, label, size=SMALL, anchor="end")
    for power in range(wide + 1):
        x = LEFT + DECADE_X * power
        picture.line([(x, TOP), (x, bottom)], colour=GREY, opacity=0.3, width=1.0)
        picture.text(x, bottom + 18, f"{10**power:,}", size=SMALL, anchor="middle")
    for kind, line in points.items():
        places = [
            (LEFT + DECADE_X * log10(size), bottom - DECADE_Y * (log10(ms) - low))
            for size, ms in line
        ]
        picture.line(places, colour=COLOURS[kind], opacity=1.0, width=2.0)
        for x, y in places:
            corner = x - DOT, y - DOT
            picture.box(*corner, 2 * DOT, 2 * DOT, colour=COLOURS[kind], fill=1.0, round=DOT)
        picture.text(places[-1][0] + 8, places[-1][1] + 4, kind, colour=COLOURS[kind], bold=True)
    return picture.svg(right + 90, bottom + 38)
