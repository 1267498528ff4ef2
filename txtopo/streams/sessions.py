"""Session windows: AssignSessions finds the sessions of a batch; SessionCommitter merges them.

Rules
-----
1. Each row starts as a session of its own, ``[ts, ts + gap)``. Sessions of one key that overlap or
   touch are one session: ``window_start`` is its first event time, ``window_end`` its last event
   time plus the gap. So a row exactly one gap after another is in the same session, as in Spark and
   Flink.
2. In the processing phase each task finds the sessions among its rows, and emits a partial
   aggregate for each. In the commit phase the sessions of all tasks are merged with each other and
   with the open sessions of their keys. A session is open if it ends at or after W(T - 1), the
   watermark of the previous txid: a row with time W(T - 1) is not late, and touches a session that
   ends there. One txid deletes the stored rows of merged sessions and writes the merged one.
3. A session that still ends before W(T - 1) after all merging is late, with its rows. So a row is
   late if its own session ended before W(T - 1), and it reaches neither an open session nor one of
   the batch. Flink judges a row in the same way, by the session that it is merged into, but row by
   row; here the rows of a batch have no order. Spark judges each row by its own session alone.
4. A closed session never changes, and no other session gets its key. A row that would be late by
   itself, but is kept by rule 3, may be as old as a closed session. So it moves the start of its
   session back to ``W(T - 1) - gap`` at most: no closed session has a row at or after that time.
   Without such rows, sessions do not depend on how the stream is divided into batches.
5. Txid T closes the sessions that end at or after W(T - 1) and before W(T). They are read by that
   range. Flink also closes a session that ends exactly at W(T). So in Flink it depends on the
   watermarks in between whether a row exactly one gap after another is in the same session.
6. Late rows form sessions among themselves, in the table of late rows. These never close. With
   ``keep``, sessions that have expired by W(T - 1) are not read any more, and late rows of that age
   are dropped.
7. The rows of a batch that are in one session are aggregated together first. The result is then
   combined with the stored sessions that they join, the earliest first. So ``First`` is the value
   of the earliest stored session, and ``Last`` is the value of the batch.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.attempt import TransactionAttempt
from txtopo.durations import MICROSECOND
from txtopo.state.keyed_columns import Flags, Numbers, codes_of, order_of
from txtopo.state.transaction import StateTransaction
from txtopo.streams.event_time import TimeColumn, event_times
from txtopo.streams.late_rows import microseconds, microseconds_of
from txtopo.streams.operators import Operator
from txtopo.streams.tables import Aggregating
from txtopo.streams.windows import (
    BOUND,
    BOUNDS,
    END,
    START,
    Closing,
    Session,
    WindowCommitter,
)


@dataclass(frozen=True)
class AssignSessions(Operator):
    """Puts the bounds of its session, among the rows of a record batch, in front of each row.

    Attributes:
        time: The event time of the rows.
        gap: The longest time between two consecutive rows of one session.
        key: The columns that the rows are grouped by.
    """

    time: TimeColumn
    gap: datetime.timedelta
    key: tuple[str, ...]
    word = "window"

    def apply(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> Iterator[pa.RecordBatch]:
        """Add the bounds of the session to each row."""
        gap, times = self.gap // MICROSECOND, event_times(self.id, batch, self.time)
        keys = [batch.column(name).dictionary_encode("encode").indices for name in self.key]
        codes = [key.to_numpy(zero_copy_only=False) for key in keys]
        order = np.lexsort((times, *codes))
        sorted_times = times[order]
        begins = np.ones(len(order), dtype=bool)
        begins[1:] = np.diff(sorted_times) > gap
        for code in codes:
            begins[1:] |= np.diff(code[order]) != 0
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(order)) - 1
        which = np.empty(len(order), dtype=np.int64)
        which[order] = np.cumsum(begins) - 1
        schema = self.fields.arrow_schema()
        bounds = [
            pa.array(found[which], pa.int64()).cast(BOUNDS.arrow_schema().field(name).type)
            for name, found in ((START, sorted_times[first]), (END, sorted_times[last] + gap))
        ]
        yield pa.RecordBatch.from_arrays([*bounds, *batch.columns], schema=schema)


class SessionCommitter(WindowCommitter):
    """Keeps a table of sessions, merges them, and emits the sessions that close.

    Delivery: each row counts exactly once, in this table or in the table of late rows.

    Args:
        closing: When sessions close.
        arguments: The arguments of ``TableCommitter``.
    """

    def __init__(self, closing: Closing, *arguments: Any) -> None:
        super().__init__(closing, *arguments)
        assert isinstance(closing.window, Session)
        self._gap = closing.window.gap

    def finish_batch(self) -> None:
        """Merge the rows that are on time, emit the sessions that close, and store late rows."""
        before, after = self._watermark.before, self._watermark.after
        expired = self._expired = self._expired_by(before)
        with self._state.transaction(self._attempt) as values:
            late = self._merge(values, self._rows(), before)
            for stream, query in self._queries.items():
                self._answer(values, stream, query)
            self._close(values, before, after)
            self._expire(values, after)
        if self._late_state is not None:
            with self._late_state.transaction(self._attempt) as values:
                self._merge(values, late, None if expired is None else expired + MICROSECOND)
                self._expire(values, after)

    def _merge(
        self, values: StateTransaction, rows: pa.Table, bound: datetime.datetime | None
    ) -> pa.Table:
        """Merge rows with the sessions of a table that end at *bound* or later.

        The stored rows of merged sessions are deleted, and the merged session is written.

        Returns:
            The rows whose sessions end before *bound*; they are not written.
        """
        if not rows.num_rows:
            return rows
        stored = self._open(values, rows, bound)
        spans = _Spans(rows, stored, self._keys[:-1])
        late = spans.ends < (-math.inf if bound is None else microseconds_of(bound))
        on_time = rows.filter(pa.array(~late[: len(rows)]))
        if on_time.num_rows:
            self._write(values, spans, ~late, on_time, stored, bound)
        return rows.filter(pa.array(late[: len(rows)]))

    def _write(
        self,
        values: StateTransaction,
        spans: _Spans,
        kept: Flags,
        on_time: pa.Table,
        stored: pa.Table,
        bound: datetime.datetime | None,
    ) -> None:
        """Write the sessions that rows are in, and delete the stored ones that they replace."""
        new = spans.new & kept
        brought = spans.first_of(new)
        if bound is not None:
            brought = np.maximum(brought, microseconds_of(bound - self._gap))
        begins = np.minimum(brought, spans.first_of(~spans.new))
        of_rows, of_stored = spans.session[new], spans.session[~spans.new]
        joined = np.zeros(len(begins), np.bool_)
        joined[of_rows] = True
        # The rows of the batch first, so that a session takes a value of the batch as a whole.
        changes = self._applies.changed(_beginning(on_time, begins[of_rows]))
        taken = joined[of_stored]
        replaced = stored.filter(pa.array(taken))
        starts = begins[of_stored[taken]]
        gone = pa.array(microseconds(replaced.column(START)).to_numpy() != starts)
        values.delete_columns(replaced.select(self._keys).filter(gone))
        earlier = _beginning(replaced, starts).take(order_of(replaced, [START]))
        assert isinstance(self._applies, Aggregating)
        values.put_columns(self._applies.combined(earlier, changes))

    def _open(
        self, values: StateTransaction, rows: pa.Table, bound: datetime.datetime | None
    ) -> pa.Table:
        """Return the stored sessions that end at *bound* or later, for the keys of the batch."""
        above = None if bound is None else bound - MICROSECOND
        users = self._keys[:-1]
        if not users:
            return values.columns_between(END, above, None)
        found = values.columns_starting(rows.select(users))
        if bound is None:
            return found
        return found.filter(pc.greater_equal(found.column(END), pa.scalar(bound, BOUND)))


class _Spans:
    """The sessions that the rows of a batch and stored sessions form together.

    Args:
        rows: The rows of the batch.
        stored: The stored sessions.
        users: The columns by which rows are grouped.

    Attributes:
        new: Whether each span is a row of the batch: these come first, in their order.
        session: The number of the session that each is in.
        ends: The end of that session, in microseconds since 1970.
    """

    def __init__(self, rows: pa.Table, stored: pa.Table, users: list[str]) -> None:
        names = [*users, START, END]
        both = pa.concat_tables([rows.select(names), stored.select(names)])
        self.new = np.arange(len(both)) < len(rows)
        self._starts: Numbers = microseconds(both.column(START)).to_numpy()
        ends = microseconds(both.column(END)).to_numpy()
        user = codes_of(both.select(users)) if users else np.zeros(len(both), np.int64)
        order = np.lexsort((self._starts, user))
        user, starts, after = user[order], self._starts[order], ends[order]
        first_of_user = np.append(True, np.diff(user) != 0)
        # The latest end of the spans before, of the same user: as a place among all times, so that
        # those of the next user are larger than all of this one.
        times = np.unique(np.concatenate([starts, after]))
        shift = np.cumsum(first_of_user) * (len(times) + 1)
        latest = np.maximum.accumulate(np.searchsorted(times, after) + shift)
        begins = np.append(True, (np.searchsorted(times, starts) + shift)[1:] > latest[:-1])
        self.session = np.empty(len(both), np.int64)
        self.session[order] = np.cumsum(begins) - 1
        self._count = int(begins.sum())
        last = np.full(self._count, np.iinfo(np.int64).min)
        np.maximum.at(last, self.session, ends)
        self.ends = last[self.session]

    def first_of(self, chosen: Flags) -> Numbers:
        """Return the first start of chosen spans in each session; the largest number for none."""
        first = np.full(self._count, np.iinfo(np.int64).max)
        np.minimum.at(first, self.session[chosen], self._starts[chosen])
        return first


def _beginning(rows: pa.Table, starts: Numbers) -> pa.Table:
    """Return rows with other starts of their sessions."""
    at = rows.schema.get_field_index(START)
    return rows.set_column(at, rows.schema.field(at), pa.array(starts).cast(BOUND))
