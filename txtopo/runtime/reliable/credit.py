"""Credit: how many tuples spouts may put in front of a slot. No I/O, no clock.

A tuple that waits behind others in a slot gets older while it waits; if that takes longer than the
timeout it comes again, waits again, and nothing is ever done in time. So a slot is given no more at
once than it finishes within ``SHARE`` of the timeout, at the pace at which it consumed tuples of
late. The driver knows that from reports: how many were consumed, and since when the slot has had
some to consume.

* **The pace** is that of the last ``SHARE`` of a timeout in which the slot had something to do;
  older times count half for each such stretch. Reports that come together count as one.
* **At first** a slot gets one tuple, then twice as many as it has shown to consume, and one. So a
  bolt that needs seconds for a tuple is not handed hundreds before that is known, and a fast one
  has all it can take after some milliseconds. A slot that is lost begins anew.
* **What a spout's turn may emit** follows from what its last turns sent to each slot for a tuple:
  a slow slot that gets one tuple in a hundred does not hold the others up. An open slot takes at
  least a quarter of its credit, since the smallest envelopes cost most.
* **Not bounded** is what bolts make of a tuple: it waits in the next slot, and spouts with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

# A tree goes through some slots, each of which may have as much to do, and a timeout is counted
# in whole ones: so a tenth leaves room for a busy machine.
SHARE = 0.1
_LEAST = 1e-3
"""Tuples that a slot gets for each one of a spout, at least: what was never seen may come."""


class Credit:
    """What may be in front of each slot. Used on the loop.

    Args:
        slots: How many there are.
        timeout_s: When a tree has timed out.
        tuples_max: Most tuples that a slot is ever given.
    """

    def __init__(self, slots: int, timeout_s: float, tuples_max: int) -> None:
        self._share_s = SHARE * timeout_s
        self._tuples_max = tuples_max
        self._paces = [_Pace() for _ in range(slots)]
        # Tuples that each slot gets for one of a spout.
        self._weights = [1.0] * slots

    def began(self, slot: int, now_s: float) -> None:
        """Take note that a slot which had nothing to consume has something now."""
        self._paces[slot].since_s = now_s

    def consumed(self, slot: int, tuples: int, now_s: float) -> None:
        """Take note that a slot has consumed tuples."""
        pace = self._paces[slot]
        elapsed_s = now_s - pace.since_s
        kept = 0.5 ** (elapsed_s / self._share_s)
        pace.tuples = kept * pace.tuples + tuples
        pace.busy_s = kept * pace.busy_s + elapsed_s
        pace.since_s = now_s

    def lost(self, slot: int) -> None:
        """Take note that a slot begins anew."""
        self._paces[slot] = _Pace()

    def emitted(self, tuples: int, sent: Counter[int]) -> None:
        """Take note of what a spout's turn sent to the slots."""
        for slot, weight in enumerate(self._weights):
            self._weights[slot] = max(_LEAST, (weight + sent[slot] / tuples) / 2)

    def limit(self, slot: int) -> int:
        """Return how many tuples a slot may have to consume."""
        pace = self._paces[slot]
        seen = 1 + int(2 * pace.tuples)
        if pace.busy_s * seen > pace.tuples * self._share_s:
            seen = max(1, int(pace.tuples * self._share_s / pace.busy_s))
        return min(seen, self._tuples_max)

    def room(self, backlog: Sequence[int]) -> int:
        """Return how many tuples a spout may emit."""
        room = float(self._tuples_max)
        for slot, waiting in enumerate(backlog):
            limit = self.limit(slot)
            if waiting >= limit:
                return 0
            room = min(room, max(limit - waiting, limit / 4) / self._weights[slot])
        return max(1, int(room))


class _Pace:
    """How fast a slot was of late: tuples, and the seconds that they took."""

    __slots__ = ("busy_s", "since_s", "tuples")

    def __init__(self) -> None:
        self.tuples = self.busy_s = self.since_s = 0.0
