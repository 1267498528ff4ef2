"""Which part of a log is folded next: pure, for every store that keeps states in mode ``log``.

The newest segments are folded together, a tier at a time as in a log-structured merge tree: sixteen
of about one size become one of the next. So a row is rewritten once a tier, and what a commit costs
does not grow with the number of txids.

Sixteen segments that share keys become less than sixteen times one of them. So what ends a tier is
a segment a quarter of that size: else 16 of 100 keys, which make 1,597, would be folded with all
that lies before them, again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

SEGMENTS_OF_A_TIER = 16
_HIGHER_TIER = SEGMENTS_OF_A_TIER // 4
"""A segment with more than so many times the rows of the newest ones is of a higher tier."""
_SEGMENTS_MAX = 4 * SEGMENTS_OF_A_TIER
"""More than three tiers have. Batches that are small and large in turn would never be a tier."""


class Segment(Protocol):
    """Rows of a log that were written, or folded, together."""

    @property
    def first_txid(self) -> int:
        """Smallest txid of its rows."""
        ...

    @property
    def last_txid(self) -> int:
        """Largest txid of its rows."""
        ...

    @property
    def rows(self) -> int:
        """How many it has."""
        ...


def span_to_fold(segments: Sequence[Segment], txid: int) -> tuple[int, int] | None:
    """Return the first and last txid to be folded now, or None.

    Args:
        segments: The segments of the log, in the order of their txids.
        txid: The ledger's txid, which stays as it is, so that it can be undone.
    """
    older = [each for each in reversed(segments) if each.last_txid < txid]
    newest: list[Segment] = []
    for segment in older:
        # A segment of a higher tier ends the tier of the newest ones.
        if newest and segment.rows > _HIGHER_TIER * max(each.rows for each in newest):
            break
        newest.append(segment)
    if len(newest) < SEGMENTS_OF_A_TIER:
        if len(older) <= _SEGMENTS_MAX:
            return None
        newest = _whatever_is_newest(older)
    return min(each.first_txid for each in newest), newest[0].last_txid


def _whatever_is_newest(older: Sequence[Segment]) -> list[Segment]:
    """Return some segments where sizes that change all the time make no tiers."""
    newest = list(older[:SEGMENTS_OF_A_TIER])
    for segment in older[SEGMENTS_OF_A_TIER:]:
        if segment.rows > _HIGHER_TIER * sum(each.rows for each in newest):
            break
        newest.append(segment)
    return newest
