"""ExpiringValues: running values that expire after a time without a row of their key.

Rules
-----
1. A value is stored with ``seen``. With event time this is the latest event time of the rows of its
   key since the value was created; otherwise it is the planned time of the last txid that had such
   a row.
2. A row finds no value if ``seen + expire_after`` is at or before its *now*. With event time *now*
   is the later of the row's own time and W(T - 1); otherwise it is the planned time of T. All of
   these are the same in a replay.
3. In T a value expires if its ``seen + expire_after`` is at or before W(T), or the planned time of
   T. No row of a later txid would find it, so it makes no difference when it is deleted.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.state.columns import Columns
from txtopo.state.lifetimes import OTHER_TIMES
from txtopo.state.transaction import StateTransaction
from txtopo.streams.event_time import TimeColumn, event_time
from txtopo.streams.tables import Output, RunningValues
from txtopo.traits import Meaning, Traits
from txtopo.tuples import Fields, Tuple


@dataclass(frozen=True, slots=True)
class TimeToLive:
    """When values expire.

    Attributes:
        after: How long a value lives without a row.
        value: The value columns of the user.
        time: The event time of the rows; None for planned time.
        watermark: The stream with its watermark; None for planned time.
    """

    after: datetime.timedelta
    value: Fields
    time: TimeColumn | None = None
    watermark: Output | None = None


class ExpiringValues(RunningValues):
    """Calls a function with each row and the value of its key, unless the value has expired.

    Delivery: the same as for ``RunningValues``.

    Args:
        expiry: When values expire.
        arguments: The arguments of ``RunningValues``.
    """

    def __init__(self, expiry: TimeToLive, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._expiry = expiry
        self.needs_planned_time = expiry.time is None

    @property
    def traits(self) -> Traits:
        """The traits of the bolt, which say if values expire by event time or by planned time."""
        by = "planned" if self.needs_planned_time else "event"
        meaning = Meaning(f"values that expire by {by} time", OTHER_TIMES)
        return replace(super().traits, rows=meaning, expires=True)

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        super().prepare(config, context, collector, attempt)
        self._columns = Columns(self._id, "value", self._expiry.value)
        self._before: datetime.datetime | None = None
        self._after: datetime.datetime | None = None
        if self.needs_planned_time:
            self._before = self._after = context.planned_time

    def execute(self, tuple: Tuple) -> None:
        """Add a row to the batch, or receive the watermark."""
        if (tuple.source_component, tuple.source_stream) == self._expiry.watermark:
            self._before, self._after = tuple.values
        else:
            super().execute(tuple)

    def _value(self, stored: Any, row: Tuple) -> Any:
        found = self._live(stored, row)
        if found is None:
            return None
        names = self._expiry.value.names
        if not names:  # a state that keeps keys alone
            return True
        return found[names[0]] if len(names) == 1 else {name: found[name] for name in names}

    def _kept(self, stored: Any, after: Any, row: Tuple) -> Any:
        seen, found = self._time(row), self._live(stored, row)
        if found is not None:
            seen = max(seen, self._seen(found))
        return *self._columns.opened(self._columns.pack(after)), seen

    def _expire(self, values: StateTransaction) -> None:
        if self._after is not None:
            values.expire(self._after - self._expiry.after)

    def _live(self, stored: Any, row: Tuple) -> Any:
        """Return the stored value, unless it has expired."""
        if stored is None or self._seen(stored) + self._expiry.after <= self._now(row):
            return None
        return stored

    def _seen(self, stored: Any) -> datetime.datetime:
        """Return the time of a stored value, which is all of it if the state keeps keys alone."""
        seen: datetime.datetime = stored["seen"] if self._expiry.value else stored
        return seen

    def _time(self, row: Tuple) -> datetime.datetime:
        if (time := self._expiry.time) is not None:
            return event_time(self._id, row, time)
        assert self._after is not None, "the planned time"
        return self._after

    def _now(self, row: Tuple) -> datetime.datetime:
        time = self._time(row)
        return time if self._before is None else max(time, self._before)
