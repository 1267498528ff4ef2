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
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.durations import MICROSECOND
from txtopo.state.backend import Values
from txtopo.state.transaction import StateTransaction
from txtopo.streams.event_time import EARLIEST, TimeColumn, event_times
from txtopo.streams.operators import Operator
from txtopo.streams.tables import plain
from txtopo.streams.windows import (
    BOUNDS,
    END,
    START,
    Closing,
    Session,
    WindowCommitter,
    key_parts,
)
from txtopo.tuples import Tuple


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


@dataclass(frozen=True, slots=True)
class _Span:
    """A session that may be merged with others of its key.

    Attributes:
        start: Its first event time; for a stored session its ``window_start``.
        end: Its last event time plus the gap.
        row: The partial aggregate from the batch; None if the session is stored.
        values: The stored values, decoded; the first one is the end.
    """

    start: datetime.datetime
    end: datetime.datetime
    row: Tuple | None = None
    values: Values = ()


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
        ((before, after),) = (row.values for row in self._watermark)
        expired = self._expired = self._expired_by(before)
        with self._state.transaction(self._attempt) as values:
            late = self._merge(values, self._rows, before)
            for stream, query in self._queries.items():
                self._answer(values, stream, query)
            self._close(values, before, after)
            self._expire(values, after)
        if self._late_state is not None:
            with self._late_state.transaction(self._attempt) as values:
                self._merge(values, late, None if expired is None else expired + MICROSECOND)
                self._expire(values, after)

    def _merge(
        self, values: StateTransaction, rows: Sequence[Tuple], bound: datetime.datetime | None
    ) -> list[Tuple]:
        """Merge rows with the sessions of a table that end at *bound* or later.

        The stored rows of merged sessions are deleted, and the merged session is written.

        Returns:
            The rows whose sessions end before *bound*; they are not written.
        """
        *names, _ = self._table.key.names
        brought: dict[tuple[Any, ...], list[_Span]] = {}
        for row in rows:
            span = _Span(row[START], row[END], row)
            brought.setdefault(tuple(row[name] for name in names), []).append(span)
        known = self._open(values, brought, bound)
        late: list[Tuple] = []
        moved: list[Tuple] = []
        grown: list[tuple[tuple[Any, ...], datetime.datetime, list[_Span]]] = []
        for user in sorted(brought):
            for parts in _connected([*brought[user], *known.get(user, ())]):
                new = [part.row for part in parts if part.row is not None]
                if bound is not None and max(part.end for part in parts) < bound:
                    late += new
                elif new:
                    first = min(part.start for part in parts if part.row is not None)
                    moved += [_beginning(row, first) for row in new]
                    grown.append((user, first, [part for part in parts if part.row is None]))
        changes = self._applies.changed(moved)
        earliest = EARLIEST if bound is None else bound - self._gap
        written = []
        for user, first, stored in grown:
            start = min([max(first, earliest), *(part.start for part in stored)])
            merged = self._merged(stored, changes[plain((*user, first))])
            written.append((plain((*user, start)), plain(merged)))
            for part in stored:
                if part.start != start:
                    values.delete(plain((*user, part.start)))
        values.put_all(written)
        return late

    def _open(
        self,
        values: StateTransaction,
        brought: Collection[tuple[Any, ...]],
        bound: datetime.datetime | None,
    ) -> dict[tuple[Any, ...], list[_Span]]:
        """Return the stored sessions that end at *bound* or later, for the keys of the batch."""
        if not brought:
            return {}
        above = None if bound is None else bound - MICROSECOND
        rows = values.between(END, above, None) if () in brought else values.starting(brought)
        found: dict[tuple[Any, ...], list[_Span]] = {}
        for key, named in rows:
            *user, start = key_parts(key)
            opened = self._values(named)
            if bound is None or opened[0] >= bound:
                part = _Span(start, opened[0], values=opened)
                found.setdefault(tuple(user), []).append(part)
        return found

    def _merged(self, stored: Sequence[_Span], change: Values) -> Values:
        """Combine the values of stored sessions, the earliest first, and then of the batch."""
        parts = [part.values for part in sorted(stored, key=lambda part: part.start)]
        merged, *others = (*parts, change)
        for values in others:
            (merged,) = self._applies.combined([merged], [values])
        return merged


def _beginning(row: Tuple, start: datetime.datetime) -> Tuple:
    """Return a row with another start of its session."""
    values = list(row.values)
    values[row.fields.index[START]] = start
    return Tuple(values, row.origin, row.source_task)


def _connected(parts: Sequence[_Span]) -> Iterator[list[_Span]]:
    """Group sessions that overlap or touch, the earliest group first."""
    first, *others = sorted(parts, key=lambda part: part.start)
    together, end = [first], first.end
    for part in others:
        if part.start > end:
            yield together
            together = []
        together.append(part)
        end = max(end, part.end)
    yield together
