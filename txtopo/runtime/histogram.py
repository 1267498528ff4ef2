"""Histogram: how often durations fell into each bucket."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

BUCKETS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
    *(0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""Upper bounds of the buckets of a histogram, in seconds."""


@dataclass(slots=True)
class Histogram:
    """How often durations fell into each bucket.

    Attributes:
        buckets: Upper bounds of the buckets, in seconds; one more bucket has all longer ones.
        counts: Number of durations in each bucket, not cumulative.
        sum_s: Sum of all durations.
    """

    buckets: tuple[float, ...] = BUCKETS_S
    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    sum_s: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(self.buckets, seconds)] += 1
        self.sum_s += seconds

    def copy(self) -> Histogram:
        """Return a copy."""
        return Histogram(self.buckets, list(self.counts), self.sum_s)
