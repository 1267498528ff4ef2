"""Credit: limits the number of tuples that wait in a slot. No I/O, no clock.

If a tuple waits in a slot for longer than the timeout, its tree fails, the spout emits it again, it
waits again, and no tuple is ever processed in time. So a slot never gets more tuples than it can
process, at its recent pace, in the fraction ``SHARE`` of the timeout. The driver computes the pace
from the number of consumed tuples in reports, and from how long the slot has had tuples to consume.

* **The pace** is an average over the periods in which the slot had something to do. The weight of
  older periods is halved with each ``SHARE`` of the timeout. Reports at the same time count as one.
* **At first** a slot gets one tuple. After that its limit is one more than twice the number of
  tuples that it has recently consumed. So a bolt that needs seconds per tuple does not get hundreds
  of tuples before its pace is known, and a fast bolt reaches its full rate within milliseconds. A
  slot that was lost starts with one tuple again.
* **A grant** lets a spout emit as many tuples as fit into the credit of all slots. Recent reports
  show how many tuples each slot gets per tuple of a spout. So a slow slot that gets one tuple in a
  hundred does not slow down the others. A slot below its limit always accepts at least a quarter of
  its credit, because small envelopes are expensive.
* **Tuples that bolts emit** are not limited. They wait in the next slot, and meanwhile the spouts
  wait too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

# A tree may pass through several slots, each with this many waiting tuples. A tenth also leaves
# room for a busy machine.
SHARE = 0.1
_LEAST = 1e-3
"""The minimum number of tuples that a slot is assumed to get per tuple of a spout."""


class Credit:
    """Computes how many tuples may wait in each slot. Used on the loop.

    Args:
        slots: Number of slots.
        timeout_s: Timeout of a tree.
        tuples_max: The limit for any slot.
    """

    def __init__(self, slots: int, timeout_s: float, tuples_max: int) -> None:
        self._share_s = SHARE * timeout_s
        self._tuples_max = tuples_max
        self._paces = [_Pace() for _ in range(slots)]
        # Tuples that each slot gets per tuple of a spout.
        self._weights = [1.0] * slots

    def began(self, slot: int, now_s: float) -> None:
        """Record that a slot that had no tuples to consume now has some."""
        self._paces[slot].since_s = now_s

    def consumed(self, slot: int, tuples: int, now_s: float) -> None:
        """Record that a slot has consumed tuples."""
        pace = self._paces[slot]
        elapsed_s = now_s - pace.since_s
        kept = 0.5 ** (elapsed_s / self._share_s)
        pace.tuples = kept * pace.tuples + tuples
        pace.busy_s = kept * pace.busy_s + elapsed_s
        pace.since_s = now_s

    def lost(self, slot: int) -> None:
        """Record that a slot was lost, and start again with one tuple."""
        self._paces[slot] = _Pace()

    def emitted(self, tuples: int, sent: Counter[int]) -> None:
        """Record the tuples that spouts emitted and sent to the slots."""
        for slot, weight in enumerate(self._weights):
            self._weights[slot] = max(_LEAST, (weight + sent[slot] / tuples) / 2)

    def limit(self, slot: int) -> int:
        """Return the number of tuples that may wait in a slot."""
        pace = self._paces[slot]
        seen = 1 + int(2 * pace.tuples)
        if pace.busy_s * seen > pace.tuples * self._share_s:
            seen = max(1, int(pace.tuples * self._share_s / pace.busy_s))
        return min(seen, self._tuples_max)

    def room(self, backlog: Sequence[int]) -> int:
        """Return the number of tuples that a spout may emit now."""
        room = float(self._tuples_max)
        for slot, waiting in enumerate(backlog):
            limit = self.limit(slot)
            if waiting >= limit:
                return 0
            room = min(room, max(limit - waiting, limit / 4) / self._weights[slot])
        return max(1, int(room))


class _Pace:
    """The recent pace of a slot: a number of tuples, and the seconds that they took."""

    __slots__ = ("busy_s", "since_s", "tuples")

    def __init__(self) -> None:
        self.tuples = self.busy_s = self.since_s = 0.0
