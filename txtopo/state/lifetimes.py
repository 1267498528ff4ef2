"""Lifetime: how long a value counts without a row of its key.

A value is stored with ``seen``, the time at which it last had a row. It has expired at a time *now*
if ``seen`` plus the lifetime is at or before *now*. Then it counts as absent, also while the store
has not deleted it yet. So no result depends on when the store deletes it.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.durations import shown
from txtopo.state.aggregates import Max
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.state.registry import State

SEEN = Fields("seen timestamp")
"""The column of a state with the time at which a value last had a row."""

LAST = SEEN.names[0]
"""The name of that column."""

OTHER_TIMES = (
    "the stored values have no such times, so they would expire immediately or never; keep the "
    "event time of the stream as before, or give the state another table"
)
"""Why stored values may not expire later, or by event time instead of planned time."""


def with_seen(state: State) -> State:
    """Return a state with ``seen`` as its last column, by which its rows expire."""
    kinds = (*state.aggregates, Max(LAST)) if state.aggregates else ()
    return state.with_columns(state.key, Fields.of([*state.value, *SEEN]), kinds).ranged(LAST)


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long a value counts without a row of its key.

    Attributes:
        after: That long.
    """

    after: datetime.timedelta

    def bound(self, now: datetime.datetime | None) -> datetime.datetime | None:
        """Return the latest ``seen`` of values that have expired; None while *now* is unknown."""
        return None if now is None else now - self.after

    def live(self, rows: pa.Table, now: datetime.datetime | None) -> pa.Table:
        """Return the rows that have not expired."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if (bound := self.bound(now)) is None:
            return rows
        seen = rows.column(LAST)
        return rows.filter(pc.greater(seen, pa.scalar(bound, seen.type)))

    def __str__(self) -> str:
        return f"values expire {shown(self.after)} after the last row of their key"
