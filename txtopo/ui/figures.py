"""Figures: the rates and samples of a :class:`~txtopo.ui.board.Board`.

The board holds a lock around each call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Parts of the time from the plan of a batch to its commit.
SPANS = ("plan", "process", "wait", "commit")
QUANTILES = {"p50_s": 50, "p99_s": 99}

SAMPLE_S = 10.0
SAMPLES_MAX = 360

LATENCIES_MAX = 1_000
LATENCIES_S = 60.0

# Few enough to follow a change and to be sorted at each reading, enough for a 99th percentile.
PARTS_MAX = 100

# Rates are computed from this many totals, at least a second apart: about ten seconds, or the last
# ten commits if they are further apart.
_TOTALS_MAX = 11
_TOTALS_S = 1.0
_REST_S = 10.0

Latency = tuple[float, float | None, float | None, float | None, float | None]
"""When a txid was committed, and how long each of :data:`SPANS` took."""


class Rates:
    """Tuples per second of the topology and of each component."""

    def __init__(self) -> None:
        self._totals: deque[tuple[float, int, dict[str, int]]] = deque(maxlen=_TOTALS_MAX)
        self._last_s = self._due_s = 0.0

    def begin(self, now_s: float, rows: int, tuples: Mapping[str, int]) -> None:
        """Start again from these totals."""
        self._totals.clear()
        self._due_s = 0.0
        self.add(now_s, rows, tuples)

    def add(self, now_s: float, rows: int, tuples: Mapping[str, int]) -> None:
        """Record totals, and keep them at most once a second."""
        self._last_s = now_s
        if not self._due_s - _REST_S <= now_s < self._due_s:  # or the clock was set back
            self._totals.append((now_s, rows, dict(tuples)))
            self._due_s = now_s + _TOTALS_S

    def at(self, now_s: float, rows: int, tuples: Mapping[str, int]) -> tuple[float, list[float]]:
        """Return the rows per second and those of each component.

        They are 0 if there were no rows for as long as the totals reach back, or for ten seconds.
        """
        if not self._totals:
            return 0.0, [0.0] * len(tuples)
        first_s, first_rows, first = self._totals[0]
        seconds = now_s - first_s
        if seconds <= 0 or now_s - self._last_s > max(_REST_S, self._last_s - first_s):
            return 0.0, [0.0] * len(tuples)
        by_component = [(total - first.get(id, 0)) / seconds for id, total in tuples.items()]
        return (rows - first_rows) / seconds, by_component


class Samples:
    """One sample for each ten seconds of the last hour."""

    def __init__(self, now_s: float) -> None:
        self.samples: deque[dict[str, Any]] = deque(maxlen=SAMPLES_MAX)
        self.latencies: deque[Latency] = deque(maxlen=LATENCIES_MAX)
        self._due_s = now_s + SAMPLE_S
        self._rows = self._txids = 0

    def due(self, now_s: float) -> bool:
        """Return whether a sample is due, or the clock was set back."""
        return not self._due_s - 2 * SAMPLE_S <= now_s < self._due_s

    def sample(self, now_s: float, rows: int, txids: int, others: Mapping[str, Any]) -> None:
        """Add the samples that are due.

        Args:
            now_s: The time.
            rows: Number of rows since the start.
            txids: Number of txids that were committed since the start.
            others: Other current figures.
        """
        if not 0 <= now_s - self._due_s < SAMPLES_MAX * SAMPLE_S:
            self._due_s = now_s  # the clock was set, or nothing has happened for an hour
        while self._due_s <= now_s:
            self._one(self._due_s, rows, txids, others)
            self._due_s += SAMPLE_S

    def _one(self, at_s: float, rows: int, txids: int, others: Mapping[str, Any]) -> None:
        since = [each for each in self.latencies if at_s - SAMPLE_S <= each[0] < at_s]
        sample: dict[str, Any] = {
            "at_s": at_s,
            "rows_per_second": (rows - self._rows) / SAMPLE_S,
            "txids": txids - self._txids,
        }
        for span, found in percentiles(since).items():
            for name in QUANTILES:
                sample[f"{span}_{name}"] = None if found is None else found[name]
        self.samples.append({**sample, **others})
        self._rows, self._txids = rows, txids


class RecentDurations:
    """The last hundred durations of each part of a commit."""

    def __init__(self) -> None:
        self._parts: dict[str, deque[float]] = {}

    def add(self, part: str, seconds: float) -> None:
        """Add a duration."""
        if part not in self._parts:
            self._parts[part] = deque(maxlen=PARTS_MAX)
        self._parts[part].append(seconds)

    def of(self, part: str) -> dict[str, float] | None:
        """Return the median and the 99th percentile of a part; None without data."""
        return _quantiles(self._parts.get(part, ()))


def recent(latencies: Sequence[Latency], now_s: float) -> list[Latency]:
    """Return the latencies of the last minute; all latencies if there are none."""
    return [each for each in latencies if now_s - each[0] <= LATENCIES_S] or list(latencies)


def percentiles(latencies: Sequence[Latency]) -> dict[str, dict[str, float] | None]:
    """Return the median and the 99th percentile of each span; None without data."""
    found: dict[str, dict[str, float] | None] = {}
    for number, span in enumerate(SPANS, 1):
        found[span] = _quantiles(v for each in latencies if (v := each[number]) is not None)
    return found


def _quantiles(values: Iterable[float]) -> dict[str, float] | None:
    known = sorted(values)
    return {name: _rank(known, q) for name, q in QUANTILES.items()} if known else None


def _rank(ordered: Sequence[float], percent: int) -> float:
    """Return the smallest value such that at least this percentage of values is not above it."""
    return ordered[-(-percent * len(ordered) // 100) - 1]
