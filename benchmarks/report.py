"""The table that the benchmark prints."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.workloads import WORKLOADS

Walls = Mapping[tuple[str, str], Sequence[float]]
"""Wall times in seconds by (workload, way)."""


def table(walls: Walls, ways: Sequence[str]) -> str:
    """Return medians in seconds, and ratios to floor and plain, as a Markdown table."""
    ratios = [
        (way, base)
        for base in ("floor", "plain")
        if base in ways
        for way in ways
        if way not in ("floor", "plain")
    ]
    titles = [*(f"{way} s" for way in ways), *(f"{way} ÷ {base}" for way, base in ratios)]
    lines = [_row(["", *titles, "goal"]), "|---" * (len(titles) + 2) + "|"]
    for workload in WORKLOADS:
        if (workload.name, ways[0]) not in walls:
            continue
        medians = {way: median(walls[workload.name, way]) for way in ways}
        cells = [f"{medians[way]:.2f}" for way in ways]
        cells += [f"{medians[way] / medians[base]:.2f}" for way, base in ratios]
        lines.append(_row([f"{workload.name}: {workload.title}", *cells, f"{workload.goal:.2f}"]))
    return "\n".join(lines)


def machine() -> str:
    """Return what the numbers were measured on."""
    import pyspark

    return (
        f"{os.cpu_count()} cores {platform.machine()}, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, PySpark {pyspark.__version__}"
    )


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
