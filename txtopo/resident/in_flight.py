"""InFlightCounts: how many tuples are on their way from one slot to another, or to itself. Pure.

The sender reports the tuples that it sent; the receiver reports the tuples that it consumed. The
two reports arrive over different connections, in any order. The driver's sum of both must not fall
below zero, nor keep tuples that will never be consumed. So if tuples are consumed before they are
reported as sent, this count waits here for that report. When a life ends, the tuples that it had
sent count as consumed, since they may have been lost with it.
"""

from __future__ import annotations

from collections import Counter

Pair = tuple[int, int]
"""(life of the sender, life of the receiver)."""


class InFlightCounts:
    """Counts the tuples that lives have sent to each other. Used on the loop."""

    def __init__(self) -> None:
        self._living: set[int] = set()
        self._under_way: Counter[Pair] = Counter()
        self._ahead: Counter[Pair] = Counter()

    def begin(self, life: int) -> None:
        """Start to count for a life, as receiver and as sender."""
        self._living.add(life)

    def sent(self, sender: int, receiver: int, tuples: int) -> int:
        """Count sent tuples; return how many of them to report to the driver."""
        if sender not in self._living or receiver not in self._living:
            return 0
        early = min(tuples, self._ahead[sender, receiver])
        self._ahead[sender, receiver] -= early
        self._under_way[sender, receiver] += tuples - early
        return tuples - early

    def consumed(self, sender: int, receiver: int, tuples: int) -> int:
        """Count consumed tuples; return how many of them to report to the driver."""
        if sender not in self._living:
            return 0
        known = min(tuples, self._under_way[sender, receiver])
        self._under_way[sender, receiver] -= known
        self._ahead[sender, receiver] += tuples - known
        return known

    def end(self, life: int) -> Counter[int]:
        """Forget a life; return how many of its tuples each other life will never get."""
        self._living.discard(life)
        lost: Counter[int] = Counter()
        for sender, receiver in [pair for pair in self._under_way if life in pair]:
            tuples = self._under_way.pop((sender, receiver))
            if sender == life and tuples:
                lost[receiver] += tuples
        for pair in [pair for pair in self._ahead if life in pair]:
            del self._ahead[pair]
        return lost
