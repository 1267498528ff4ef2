"""What the states of the flights hold after the first n flights, by plain Python over the input.

The batches follow one another through the files, so a state that holds n flights holds the first n.
Where a batch ends depends on when it was planned: after a restart the files are listed again.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.kills.sampling_process import digest

NAMES = ("departures", "delay_minutes", "cancellations")
Fold = dict[str, str]
"""Digest of each state, by the end of its table's name."""


def folds(folder: Path, sizes: Collection[int]) -> dict[int, Fold]:
    """Return the fold of the first n flights, for each n of *sizes* and for all of them."""
    counts: Counter[tuple[str, int, str]] = Counter()
    keys: set[tuple[str, int]] = set()
    found = {0: _fold(counts, keys)}
    number = 0
    for number, row in enumerate(_rows(folder), start=1):
        departed = row["dep_time"] not in ("", "NA")
        key = row["carrier"], int(row["hour"])
        keys.add(key)
        counts[*key, "departures"] += departed
        counts[*key, "delay_minutes"] += int(row["dep_delay"]) if departed else 0
        counts[*key, "cancellations"] += not departed
        if number in sizes:
            found[number] = _fold(counts, keys)
    found[number] = _fold(counts, keys)
    return found


def _rows(folder: Path) -> Iterator[dict[str, str]]:
    for path in sorted(folder.glob("*.csv")):
        with path.open() as file:
            yield from csv.DictReader(file)


def _fold(counts: Counter[tuple[str, int, str]], keys: set[tuple[str, int]]) -> Fold:
    by_key = {key: {name: counts[*key, name] for name in NAMES} for key in keys}
    total = {name: sum(row[name] for row in by_key.values()) for name in NAMES}
    return {
        "by_carrier_hour": digest(by_key),
        "total": digest({"global": total} if keys else {}),
    }
