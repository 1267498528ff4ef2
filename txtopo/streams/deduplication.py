"""DropDuplicates: passes on the first row of each key, and remembers the key for a time.

Rules
-----
1. A row is late if its time is before W(T - 1), the watermark of the previous txid
   (:mod:`txtopo.streams.event_time`). It is too late to know whether it is a duplicate. It goes to
   the table of late rows, or is dropped, and is not remembered.
2. Any other row is a duplicate if an earlier row of its key was passed on and their times differ by
   less than ``within``, in either direction. It is dropped, and not remembered. A row that is
   neither is passed on, and its time is remembered.
3. *Earlier* means the order of arrival: by txid, and within a batch in the order in which this task
   receives the rows. This order is: by stream, in the order of the program; then by sending task;
   then in the order in which that task emitted them, for a source partition by partition. So if
   nothing is late and all operators above have one task, the rows of a key in one partition are
   judged as one long list, however it is divided into batches. With several partitions in a batch,
   or several tasks for a partition, another row may come first. This makes no difference if the
   rows of a key are either copies with equal times, or at least ``within`` apart: whatever the
   order and the batches, exactly one of the copies is passed on.
4. A NULL or NaN equals nothing, so a row with one in a key column is never a duplicate, and is not
   remembered.
5. A time is remembered until time + ``within`` <= W(T): no row that is on time after T differs
   from it by less. The state has a row for each key: ``time`` is its latest time, ``earlier`` has
   the other remembered times, NULL if there are none. So the row expires, with all of its times,
   when ``time`` + ``within`` <= W(T). It makes no difference when it is deleted after that. Most
   keys have one time. A key has several if a row on time was older than another by ``within`` or
   more: parts of the source are far apart, or ``within`` is shorter than ``delay``.

A replay has the rows in the same order, if the source repeats its order and the program runs with
the same numbers of tasks and slots. Otherwise the other one of two close rows may be passed on, as
in a replay of an opaque source. So keep everything below it in opaque states.

A batch needs one read of its keys and one write of the new ones. Its rows stay in Arrow.
"""

from __future__ import annotations

import datetime
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import ArrowBolt, Committer
from txtopo.collector import ArrowOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.durations import MICROSECOND, shown
from txtopo.state.keyed_columns import Flags, Numbers, codes_of, flags_of, is_key, positions, there
from txtopo.state.transaction import StateTransaction
from txtopo.streams.event_time import TimeColumn, event_times
from txtopo.streams.late_rows import (
    LATE,
    LateRows,
    Watermark,
    microseconds,
    microseconds_of,
    moment,
    on_time,
)
from txtopo.traits import Meaning, Traits
from txtopo.tuples import Fields

ENTRY = Fields("time timestamp, earlier json")
"""The value of a key: the latest accepted time, and earlier ones in microseconds since 1970."""


class DropDuplicates(ArrowBolt, Committer):
    """Emits the first row of each key.

    Delivery: each row counts exactly once: it is emitted, dropped as a duplicate, or late.

    Args:
        id: Its id, which is also the name of its state.
        key: The columns that identify a row.
        time: The event time of the rows.
        within: How far apart two rows of one key must be to count as different.
        fields: The fields of the rows.
        late: Whether late rows are kept.
    """

    writes_nowhere_else = True

    def __init__(
        self,
        id: str,
        key: tuple[str, ...],
        time: TimeColumn,
        within: datetime.timedelta,
        fields: Fields,
        *,
        late: bool,
    ) -> None:
        self._id, self._key, self._time, self._within = id, key, time, within
        self._late = late
        self.output_fields = fields

    @property
    def traits(self) -> Traits:
        """The traits of the bolt, with the rows that it drops."""
        rows = f"{', '.join(self._key)} within {shown(self._within)}"
        apart = f"late rows in state {LATE}" if self._late else "late rows dropped"
        return Traits(operators=(f"first of {rows}", apart), rows=Meaning(rows))

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        self._collector, self._attempt = collector, attempt
        self._state = context.state(self._id)
        self._late_rows = LateRows(context.state(LATE), attempt) if self._late else None
        self._watermark = Watermark()
        self._batches: list[pa.RecordBatch] = []

    def execute(self, batch: pa.RecordBatch) -> None:
        """Add rows to the batch, or receive the watermark."""
        if not self._watermark.takes(batch):
            event_times(self._id, batch, self._time)  # checks that each row has an event time
            self._batches.append(batch)

    def finish_batch(self) -> None:
        """Emit the rows that are the first of their key, and store late ones."""
        assert self.output_fields is not None
        rows = pa.Table.from_batches(self._batches, self.output_fields.arrow_schema())
        times = microseconds(rows.column(self._time.column), self._time.offset)
        kept, late = on_time(rows, times, self._watermark.before)
        after = self._watermark.after
        with self._state.transaction(self._attempt) as values:
            for batch in self._first(values, kept).to_batches():
                self._collector.emit(batch)
            if after is not None:
                values.expire(after - self._within)
        if self._late_rows is not None:
            self._late_rows.keep(late)

    def _first(self, values: StateTransaction, rows: pa.Table) -> pa.Table:
        """Return the rows that are not duplicates, and write their times."""
        if not rows.num_rows:
            return rows
        keys, names = rows.select(self._key), list(self._key)
        fits = is_key(rows, names)
        keyed = np.ones(len(rows), np.bool_) if fits is None else flags_of(fits)
        found = values.get_columns(keys if fits is None else keys.filter(fits))
        place = positions(keys, found.select(names))
        _, numbers, counts = np.unique(codes_of(keys), return_inverse=True, return_counts=True)
        # Most rows need not become Python values: the only row of a new key is passed on, and a row
        # close to the latest time of its key is dropped.
        known = found.take(place)
        through = ~keyed | ((counts[numbers] == 1) & ~there(place))
        close = self._close(rows, known)
        entries = [self._entries(rows.filter(pa.array(keyed & through)))]
        if not (through | close).all():
            others = np.flatnonzero(~through & ~close)
            entries.append(self._judged(rows, others, numbers, known, through))
        values.put_columns(pa.concat_tables(entries))
        return rows if through.all() else rows.filter(pa.array(through))

    def _close(self, rows: pa.Table, known: pa.Table) -> Flags:
        """Return which rows are close to the latest time of their key."""
        times = microseconds(rows.column(self._time.column), self._time.offset)
        latest = microseconds(known.column("time"))
        apart = pc.abs(pc.subtract(times, latest))
        close = pc.less(apart, pa.scalar(self._within // MICROSECOND))
        return flags_of(close.fill_null(False))

    def _judged(
        self,
        rows: pa.Table,
        others: Numbers,
        numbers: Numbers,
        known: pa.Table,
        through: Flags,
    ) -> pa.Table:
        """Judge rows one by one, those of each key in their order; return their entries.

        Args:
            rows: The rows of the batch.
            others: The places of the rows that are judged.
            numbers: A number for each row, equal for equal keys.
            known: What the state has for the key of each row; NULL if nothing.
            through: Becomes true for rows that are not duplicates.
        """
        accepted = AcceptedTimes(self._within // MICROSECOND)
        chosen = pa.array(others)
        times = microseconds(rows.column(self._time.column).take(chosen), self._time.offset)
        latest, earlier = (known.column(name).take(chosen) for name in ENTRY.names)
        first: dict[int, int] = {}
        for at, key, time, newest, texts in zip(
            others.tolist(),
            numbers[others].tolist(),
            times.to_pylist(),
            latest.cast(pa.int64()).to_pylist(),
            earlier.to_pylist(),
            strict=True,
        ):
            if key not in first:
                first[key] = at
                if newest is not None:
                    accepted.latest[key] = newest
                if texts is not None:
                    accepted.earlier[key] = json.loads(texts)
            through[at] = accepted.lets_through(key, time)
        changed = list(accepted.entries(self._watermark.after))
        keys = rows.select(self._key).take(pa.array([first[key] for key, _ in changed], pa.int64()))
        kinds = ENTRY.arrow_schema().types
        values = [
            pa.array([time for _, (time, _) in changed], kinds[0]),
            pa.array([None if not e else json.dumps(e) for _, (_, e) in changed], kinds[1]),
        ]
        return pa.table([*keys.columns, *values], names=[*self._key, *ENTRY.names])

    def _entries(self, rows: pa.Table) -> pa.Table:
        """Return the state's rows for rows that are the only ones of their keys."""
        time, earlier = ENTRY.arrow_schema()
        times = microseconds(rows.column(self._time.column), self._time.offset).cast(time.type)
        entries = rows.select(self._key).append_column(time, times)
        return entries.append_column(earlier, pa.nulls(rows.num_rows, earlier.type))


class AcceptedTimes:
    """The accepted times of each key that are remembered, in microseconds since 1970.

    Args:
        within: How far apart two rows of one key must be to count as different.

    Attributes:
        latest: The latest time of each key.
        earlier: The other times of the few keys that have several, in order.
    """

    def __init__(self, within: int) -> None:
        self._within = within
        self.latest: dict[Any, int] = {}
        self.earlier: dict[Any, list[int]] = {}
        self._changed: dict[Any, None] = {}

    def lets_through(self, key: Any, time: int) -> bool:
        """Return whether a row is not a duplicate; if so, remember its time."""
        latest = self.latest.get(key)
        if latest is None:
            self.latest[key] = time
        elif time >= latest + self._within:
            self.earlier.setdefault(key, []).append(latest)
            self.latest[key] = time
        elif time > latest - self._within or not self._precedes(key, time):
            return False
        self._changed[key] = None
        return True

    def _precedes(self, key: Any, time: int) -> bool:
        """Remember a time before the latest one, unless it is close to one of the earlier ones."""
        others = self.earlier.setdefault(key, [])
        place = bisect_left(others, time)
        if any(abs(time - other) < self._within for other in others[max(place - 1, 0) : place + 1]):
            return False
        others.insert(place, time)
        return True

    def entries(
        self, after: datetime.datetime | None
    ) -> Iterator[tuple[Any, tuple[datetime.datetime, list[int] | None]]]:
        """Yield the keys that have changed, with the times that are remembered after W(T)."""
        expired = None if after is None else microseconds_of(after) - self._within
        for key in self._changed:
            earlier = self.earlier.get(key)
            if earlier is not None and expired is not None:
                earlier = earlier[bisect_right(earlier, expired) :]
            yield key, (moment(self.latest[key]), earlier or None)
