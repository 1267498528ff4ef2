"""Compute the states of the first n flights in plain Python, to compare them with the stores.

The batches follow one another through the files, so a state that holds n flights holds the first n.
Where a batch ends depends on when it was planned: after a restart the files are listed again.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from operator import itemgetter
from pathlib import Path

from tests.faults.processes.sampling_process import digest

NAMES = ("departures", "delay_minutes", "cancellations")
COLUMNS = ("carrier", "hour", "dep_time", "dep_delay")
Sums = dict[tuple[str, int], list[int]]
"""The numbers called *NAMES*, by carrier and hour."""
Fold = dict[str, str]
"""Digest of each state, by the end of its table's name."""


def folds(folder: Path, sizes: Collection[int]) -> dict[int, Fold]:
    """Return the fold of the first n flights, for each n of *sizes* and for all of them."""
    sums: Sums = {}
    found = {0: _fold(sums)}
    number = 0
    for number, (carrier, hour, dep_time, dep_delay) in enumerate(_rows(folder), start=1):
        departed = dep_time not in ("", "NA")
        row = sums.setdefault((carrier, int(hour)), [0, 0, 0])
        row[0] += departed
        row[1] += int(dep_delay) if departed else 0
        row[2] += not departed
        if number in sizes:
            found[number] = _fold(sums)
    found[number] = _fold(sums)
    return found


def _rows(folder: Path) -> Iterator[tuple[str, ...]]:
    for path in sorted(folder.glob("*.csv")):
        with path.open() as file:
            lines = csv.reader(file)  # a DictReader takes three times as long
            names = next(lines)
            columns = itemgetter(*map(names.index, COLUMNS))
            yield from map(columns, lines)


def _fold(sums: Sums) -> Fold:
    by_key = {key: dict(zip(NAMES, row, strict=True)) for key, row in sums.items()}
    total = {name: sum(row[name] for row in by_key.values()) for name in NAMES}
    return {
        "by_carrier_hour": digest(by_key),
        "total": digest({"global": total} if by_key else {}),
    }
