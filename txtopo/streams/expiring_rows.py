"""Rows that are appended and expire: append(expire_after=…) of a stream.

Rules
-----
1. The key of a row is ``seen``, then its txid and a number, as for :class:`~txtopo.bolts.Append`.
   With event time ``seen`` is the event time of the row; otherwise it is the planned time of its
   txid.
2. In T a row expires if its ``seen + expire_after`` is at or before W(T), or the planned time of T.
   A row that is late is appended all the same. Nothing in the topology reads these rows, so it
   makes no difference there when the store deletes them.
3. Such a table is no outbox. Its rows may expire before they are published, so a ``Publisher``
   refuses its key.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.append import Append
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.durations import Duration
from txtopo.state.lifetimes import OTHER_TIMES
from txtopo.state.registry import State
from txtopo.streams.event_time import WATERMARK, TimeColumn, event_time
from txtopo.streams.tables import Output
from txtopo.traits import Meaning, Traits
from txtopo.tuples import Fields, Tuple


class TimedAppend(Append):
    """Appends rows that expire by their event time.

    Delivery: exactly once, as for ``Append``.

    Args:
        state: The state that keeps the rows.
        fields: The fields of the rows.
        after: How long after its event time a row expires.
        time: Their event time.

    Attributes:
        watermark: The stream with their watermark, which one of the tasks gets.
    """

    watermark: Output

    def __init__(self, state: State, fields: Fields, after: Duration, time: TimeColumn) -> None:
        super().__init__(state, fields, expire_after=after)
        self.needs_planned_time = False
        self._time = time

    @property
    def traits(self) -> Traits:
        """The traits of the bolt, whose rows expire by event time."""
        meaning = Meaning("rows that expire by event time", OTHER_TIMES)
        return replace(super().traits, rows=meaning)

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        super().prepare(config, context, collector, attempt)
        self._id, self._now = context.component_id, None
        self._times: list[Any] = []

    def execute(self, tuple: Tuple) -> None:
        """Keep a row until the end of the batch, or receive the watermark."""
        if (tuple.source_component, tuple.source_stream) == self.watermark:
            _, self._now = tuple.values
            return
        super().execute(tuple)
        self._times.append(event_time(self._id, tuple, self._time))

    def finish_batch(self) -> None:
        """Write the rows, and let earlier ones expire."""
        assert self.lifetime is not None
        keys = [(time, *key) for time, key in zip(self._times, self._numbers, strict=True)]
        self._write(keys, self.lifetime.bound(self._now))

    def _check_input(self, fields: Fields) -> None:
        if fields != WATERMARK:
            super()._check_input(fields)
