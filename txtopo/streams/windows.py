"""Windows of event time: tumbling and sliding ones, and WindowCommitter, which closes them.

Rules
-----
1. A window is ``[window_start, window_end)``. Tumbling and sliding windows begin at multiples of
   their step since 1970 (UTC), plus ``offset``; a row is in each window that contains its time.
2. W is the watermark of the stream (:mod:`txtopo.streams.event_time`). In txid T a row is late for
   a window whose end is at or before W(T - 1). It is then aggregated in the table of late rows,
   which has the same columns. So for each window and key both tables together contain every row
   exactly once.
3. Txid T closes the windows whose end is after W(T - 1) and at or before W(T). The committer reads
   that range after it has applied the rows of T, and emits these windows in T. A redo of T emits
   what its own rows lead to. A session closes just after its end, see
   :mod:`txtopo.streams.sessions`. No row reaches a closed window, so each closed window is emitted
   once, and is final.
4. With ``keep`` the rows of a window expire that long after its end, by the watermark. From then on
   they may be deleted at any time. So late rows of such a window are dropped, and queries do not
   find it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.attempt import TransactionAttempt
from txtopo.collector import ArrowOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.durations import MICROSECOND, Duration, duration, shown
from txtopo.errors import TopologyError
from txtopo.state.aggregates import Max
from txtopo.state.transaction import StateTransaction
from txtopo.streams.event_time import TimeColumn, event_times
from txtopo.streams.late_rows import Watermark
from txtopo.streams.operators import Operator
from txtopo.streams.row_windows import RowWindow, row_window
from txtopo.streams.tables import Output, TableCommitter, changed_fields
from txtopo.traits import Meaning, Traits
from txtopo.tuples import Fields

START, END = "window_start", "window_end"
BOUNDS = Fields(f"{START} timestamp, {END} timestamp")
"""The columns of a window."""

BOUND = BOUNDS.arrow_schema().field(END).type
"""The type of these columns in Arrow."""

FINAL = "final"
"""The stream of closed windows."""

WINDOW_END = {END: Max(END)}
"""The end of a window as an aggregate of its rows, which all have the same end."""

WINDOWS_MAX = 10_000
"""If a row would be in more windows than this, the declaration must be a mistake."""

SLICE_ROWS = 65_536
"""About how many rows with a window are produced at a time."""


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of one size at regular intervals; created by :func:`tumbling` and :func:`sliding`.

    Attributes:
        size: The length of a window.
        every: The time between the starts of two consecutive windows.
        offset: The time from 1970-01-01 00:00 UTC to the start of a window.
    """

    size: datetime.timedelta
    every: datetime.timedelta
    offset: datetime.timedelta = datetime.timedelta(0)

    @property
    def ranged(self) -> tuple[str, datetime.timedelta]:
        """The column by which windows are read, and how long after its value they close."""
        return START, self.size

    def __str__(self) -> str:
        size = shown(self.size)
        if self.every == self.size:
            return f"tumbling windows of {size}"
        return f"sliding windows of {size}, one every {shown(self.every)}"

    @property
    def meaning(self) -> str:
        """How the fingerprint of a topology describes these windows."""
        return f"{self}, from {self.offset}"


@overload
def tumbling(size: Duration, *, offset: Duration = ...) -> Window: ...
@overload
def tumbling(*, rows: int) -> RowWindow: ...
def tumbling(
    size: Duration | None = None, *, rows: int | None = None, offset: Duration | None = None
) -> Window | RowWindow:
    """Return windows that follow each other without overlap, so each row is in exactly one.

    Args:
        size: The length of a window, such as ``"5 minutes"``.
        rows: Instead of a length: how many rows of a group a window has. See
            :mod:`txtopo.streams.row_windows`.
        offset: How far the starts are shifted, e.g. ``"22 hours"`` for days that begin at midnight
            in a zone two hours ahead of UTC. Daylight saving time is not taken into account.

    Raises:
        TopologyError: An argument is not a duration, or not a number of rows.
    """
    what = "tumbling windows"
    if _of_rows(what, size, rows, offset):
        return row_window(what, rows, rows)
    length = duration(f"the size of {what}", size)
    return Window(length, length, _offset(offset, length))


@overload
def sliding(size: Duration, *, every: Duration, offset: Duration = ...) -> Window: ...
@overload
def sliding(*, rows: int, every: int) -> RowWindow: ...
def sliding(
    size: Duration | None = None,
    *,
    every: Duration | int,
    rows: int | None = None,
    offset: Duration | None = None,
) -> Window | RowWindow:
    """Return windows that overlap: a window of *size* starts at each *every* (Flink's HOP).

    Args:
        size: The length of a window, such as ``"10 minutes"``.
        every: The time between two starts; a row is in ``size / every`` windows. With *rows* the
            number of rows between two ends.
        rows: Instead of a length: how many rows of a group a window has, as for :func:`tumbling`.
        offset: See :func:`tumbling`.

    Raises:
        TopologyError: An argument is not a duration, or not a number of rows, or the windows leave
            gaps.
    """
    if _of_rows("sliding windows", size, rows, offset):
        return row_window("sliding windows", rows, every)
    length = duration("the size of sliding windows", size)
    step = duration("every, of sliding windows", every)
    if step > length:
        raise TopologyError(
            f"sliding windows leave gaps; got size {length} and every {step}; expected every to "
            "be at most the size, so that each row is in a window",
            setting="every",
            got=str(step),
        )
    if length / step > WINDOWS_MAX:
        raise TopologyError(
            f"each row would be in {length / step:.0f} windows; got size {length} and every "
            f"{step}; expected at most {WINDOWS_MAX:,}; choose a larger every",
            setting="every",
            got=str(step),
        )
    return Window(length, step, _offset(offset, step))


@dataclass(frozen=True, slots=True)
class Session:
    """Windows that last as long as rows keep arriving; created by :func:`session`.

    Attributes:
        gap: The longest time between two consecutive rows of one window.
    """

    gap: datetime.timedelta

    @property
    def ranged(self) -> tuple[str, datetime.timedelta]:
        """The column by which windows are read, and how long after its value they close.

        A session closes just after its end, since a row of exactly that time still belongs to it.
        """
        return END, MICROSECOND

    def __str__(self) -> str:
        return f"sessions with gaps of {shown(self.gap)}"

    @property
    def meaning(self) -> str:
        """How the fingerprint of a topology describes these windows."""
        return str(self)


def session(gap: Duration) -> Session:
    """Return windows that end when a group has had no row for some time.

    Args:
        gap: How long a group must have no row for its session to end, such as ``"30 minutes"``.

    Raises:
        TopologyError: The gap is not a duration.
    """
    return Session(duration("the gap of sessions", gap))


def _of_rows(what: str, size: object, rows: object, offset: object) -> bool:
    """Return whether windows are declared by a number of rows, instead of a length.

    Raises:
        TopologyError: They are declared by both, or rows have an offset.
    """
    if rows is not None and (size is not None or offset is not None):
        given = {"size": size, "rows": rows, "offset": offset}
        got = ", ".join(f"{name}={each!r:.50}" for name, each in given.items() if each is not None)
        raise TopologyError(
            f"{what} have a length or a number of rows; got {got}; expected one of them, e.g. "
            "tumbling('5 minutes') or tumbling(rows=100); only a length has an offset",
            setting="rows",
            got=got,
        )
    return rows is not None


def _offset(given: Duration | None, step: datetime.timedelta) -> datetime.timedelta:
    if given is None:
        return datetime.timedelta(0)
    return duration("the offset of windows", given, zero=True) % step


@dataclass(frozen=True)
class AssignWindows(Operator):
    """Emits a row once for each window that contains it, preceded by the bounds of the window.

    Attributes:
        time: The event time of the rows.
        window: The windows.
    """

    time: TimeColumn
    window: Window
    word = "window"

    def apply(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> Iterator[pa.RecordBatch]:
        """Add the bounds, slice by slice, so that a row's many copies do not fill the memory."""
        count = -(-self.window.size // self.window.every)
        portion = max(1, SLICE_ROWS // count)
        for start in range(0, batch.num_rows, portion):
            yield self._windows(batch.slice(start, portion))

    def _windows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        size, every, offset = (
            length // MICROSECOND
            for length in (self.window.size, self.window.every, self.window.offset)
        )
        times = event_times(self.id, batch, self.time)
        newest = (times - offset) // every * every + offset
        # All windows that might contain a row, the earliest first.
        back = np.arange((size - 1) // every, -1, -1) * every
        starts = newest[:, None] - back[None, :]
        rows, which = np.nonzero(starts + size > times[:, None])
        found = starts[rows, which]
        bounds = [
            pa.array(found, pa.int64()).cast(BOUNDS.arrow_schema().field(START).type),
            pa.array(found + size, pa.int64()).cast(BOUNDS.arrow_schema().field(END).type),
        ]
        taken = batch.take(pa.array(rows))
        schema = self.fields.arrow_schema()
        return pa.RecordBatch.from_arrays([*bounds, *taken.columns], schema=schema)


@dataclass(frozen=True, slots=True)
class Closing:
    """When the windows of a table close, and what happens to late rows.

    Attributes:
        watermark: The stream that carries the watermark.
        window: The windows.
        late: Name of the state of late rows; None if they are dropped.
        keep: How long after its end a window is kept; None for forever.
        final: Whether anything reads the closed windows.
    """

    watermark: Output
    window: Window | Session
    late: str | None
    keep: datetime.timedelta | None
    final: bool


class WindowCommitter(TableCommitter):
    """Keeps a table of windows, and emits the windows that close.

    Delivery: each row counts exactly once, in this table or in the table of late rows.

    Args:
        closing: When windows close.
        arguments: The arguments of ``TableCommitter``.
    """

    def __init__(self, closing: Closing, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._closing = closing
        self.meaning = Meaning(
            closing.window.meaning,
            "other windows have other ends, so closed windows would close again; declare the "
            "windows as before, or give the state another table",
        )
        if closing.final:
            closed = changed_fields(self._table, FINAL)
            self.output_streams = {**self.output_streams, FINAL: closed}

    @property
    def traits(self) -> Traits:
        """The traits of a table, with its windows, and with what happens to late rows."""
        late, keep = self._closing.late, self._closing.keep
        apart = "dropped" if late is None else f"in state {late}"
        kept = () if keep is None else (f"kept {shown(keep)} after its end",)
        operators = (str(self._closing.window), f"late rows {apart}", *kept)
        return replace(super().traits, operators=operators)

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        super().prepare(config, context, collector, attempt)
        late = self._closing.late
        self._late_state = None if late is None else context.state(late)
        self._watermark = Watermark()

    def execute_from(self, component: str, stream: str, batch: pa.RecordBatch) -> None:
        """Add rows of the table, or of a query, to the batch, or receive the watermark."""
        if (component, stream) == self._closing.watermark:
            self._watermark.takes(batch)
        else:
            super().execute_from(component, stream, batch)

    def finish_batch(self) -> None:
        """Apply the rows that are on time, emit the windows that close, and store late rows."""
        before, after = self._watermark.before, self._watermark.after
        expired = self._expired = self._expired_by(before)
        rows = self._rows()
        kept, late = rows, rows.slice(rows.num_rows)
        if before is not None:
            ended = pc.less_equal(rows.column(END), pa.scalar(before, BOUND))
            kept, late = rows.filter(pc.invert(ended)), rows.filter(ended)
        with self._state.transaction(self._attempt) as values:
            self._apply(values, kept)
            self._close(values, before, after)
            self._expire(values, after)
        if self._late_state is not None:
            if expired is not None:
                late = late.filter(pc.greater(late.column(END), pa.scalar(expired, BOUND)))
            with self._late_state.transaction(self._attempt) as values:
                if late.num_rows:
                    self._change(values, self._applies.changed(late), told=False)
                self._expire(values, after)

    def _close(self, values: StateTransaction, before: Any, after: Any) -> None:
        """Emit the windows that close."""
        if self._closing.final and after is not None and after != before:
            column, size = self._closing.window.ranged
            above = None if before is None else before - size
            closed = values.columns_between(column, above, after - size)
            self._emit(self._shown(closed).columns, FINAL)

    def _expired_by(self, before: Any) -> Any:
        """Return the latest end of windows that may be deleted already; None if there are none."""
        keep = self._closing.keep
        if keep is None or before is None:
            return None
        column, size = self._closing.window.ranged
        return before - keep - (size if column == END else datetime.timedelta(0))

    def _found(self, values: StateTransaction, keys: pa.Table) -> pa.Table:
        """Return the windows for a query, without those that may have been deleted."""
        found = super()._found(values, keys)
        if self._expired is None:
            return found
        return found.filter(pc.greater(found.column(END), pa.scalar(self._expired, BOUND)))

    def _expire(self, values: StateTransaction, after: Any) -> None:
        if self._closing.keep is not None and after is not None:
            _, size = self._closing.window.ranged
            values.expire(after - size - self._closing.keep)
