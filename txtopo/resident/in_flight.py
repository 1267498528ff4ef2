"""InFlightCounts: how many tuples are on their way from one slot to another, or to itself. Pure.

One slot reports the tuples that it sent, another one those that it consumed. The two reports come
over different connections, in any order. The driver adds both up; its sum must not get below zero,
nor keep tuples that will never be consumed. So tuples that were consumed before they were reported
as sent wait here, and when a life ends, the tuples that it had sent count as consumed: they may
have been lost with it.
"""

from __future__ import annotations

from collections import Counter

Pair = tuple[int, int]
"""(life of the sender, life of the receiver)."""


class InFlightCounts:
    """Tuples that lives have sent each other. Used on the loop."""

    def __init__(self) -> None:
        self._living: set[int] = set()
        self._under_way: Counter[Pair] = Counter()
        self._ahead: Counter[Pair] = Counter()

    def begin(self, life: int) -> None:
        """Count a life from now on, as receiver and as sender."""
        self._living.add(life)

    def sent(self, sender: int, receiver: int, tuples: int) -> int:
        """Count sent tuples; return how many of them the driver is told."""
        if sender not in self._living or receiver not in self._living:
            return 0
        early = min(tuples, self._ahead[sender, receiver])
        self._ahead[sender, receiver] -= early
        self._under_way[sender, receiver] += tuples - early
        return tuples - early

    def consumed(self, sender: int, receiver: int, tuples: int) -> int:
        """Count consumed tuples; return how many of them the driver is told."""
        if sender not in self._living:
            return 0
        known = min(tuples, self._under_way[sender, receiver])
        self._under_way[sender, receiver] -= known
        self._ahead[sender, receiver] += tuples - known
        return known

    def end(self, life: int) -> Counter[int]:
        """Forget a life; return, by life, the tuples that the others wait for in vain."""
        self._living.discard(life)
        lost: Counter[int] = Counter()
        for sender, receiver in [pair for pair in self._under_way if life in pair]:
            tuples = self._under_way.pop((sender, receiver))
            if sender == life and tuples:
                lost[receiver] += tuples
        for pair in [pair for pair in self._ahead if life in pair]:
            del self._ahead[pair]
        return lost
