"""Event time: the declaration of a source, MeasureTimes above the commit phase, Watermarks in it.

Rules
-----
1. The *mark* of a part of a source is the largest event time of its rows in all batches so far. The
   mark of a source is the smallest mark of its parts. The *watermark* W(T) of a stream is the
   smallest mark of its sources after txid T, each mark reduced by the delay of its source and by
   the time of rule 10. Rows before the watermark are no longer expected.
2. Marks and watermarks depend on data, so they are rows of a state, written with their txid: an
   undo removes them, a redo writes them again, and ``rewind`` and ``rebuild`` find them.
3. W(T - 1) decides which rows are *late*, and W(T) decides what closes. The committer emits a row
   with both in each txid. So everything that depends on event time runs below it, in the commit
   phase.
4. Until a source has had a row, the watermark is unknown: nothing is late, nothing closes.
5. With ``idle_after`` a part that had no row for that long, in planned time, does not count. A
   source without a part that counts does not count either: its mark stays, and the other sources
   decide. If no source counts, the watermark stays. With ``clock`` time continues for a part that
   had no row for that long: its mark is the planned time. A clock also makes sure that there are
   txids.
6. Nothing here reads a clock. The planned time of a txid is part of its metadata, so a replay gets
   the same time.
7. A row without an event time, with one that is not from 1000-01-01 to 9000-01-01 00:00 UTC, or
   further ahead of the planned time than ``max_ahead``, is not used: it would close all windows, or
   none. It goes to a table of such rows or becomes a dead letter; it is never only counted, since
   it would be lost. In a program without any table it ends the run. While the clock of the driver
   is ahead and not believed, the limit is measured from that clock: the clock may be right, as
   after a pause of a virtual machine.
8. Neither the mark of a source nor a watermark goes back, so both are stored. A part that begins
   behind the mark of its source does not move that mark: it stays until the part has passed it. A
   mark is stored without the delay, so another delay counts at once.
   Each table that uses a watermark has its own, stored under the table's name. The next watermark
   is never earlier, however sources, delays and joins above the table have changed. It is unknown
   at first only for a new table, which is empty.
9. A mark counts only for what it measures: the column of the event time, and the columns that
   identify the parts. Marks of other columns stay in the state, but no longer count. That is true
   of the marks of parts and of sources.
10. The rows of a stream may be *behind* a source by some time without being late. This time is
    zero in the stream of the source itself. Below an operator that emits rows after their time, it
    is longer by as much as they may wait there. Merged and joined streams have all sources of
    their inputs, each with its own time. A source of several inputs has the longest of its times.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import ArrowBolt, BasicBolt, BatchBolt, Committer
from txtopo.collector import ArrowOutputCollector, BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.dead_letters import FIELDS, dead_letter
from txtopo.durations import MICROSECOND, shown
from txtopo.errors import EmitError, RecordFailed
from txtopo.metadata import Json
from txtopo.state.transaction import StateTransaction
from txtopo.traits import Meaning, Traits
from txtopo.tuples import DEFAULT_STREAM, Fields, Stream, Tuple

MARKS, REFUSED = "marks", "refused"
"""Streams of ``MeasureTimes``: the largest event time of each part, and the unusable rows."""

MARK = Fields("part string, mark timestamp")

WATERMARK = Fields("before timestamp, after timestamp")
"""The row of a stream of ``Watermarks``: W(T - 1) and W(T), NULL while it is unknown."""

KEY = Fields("what string, name string, measure string, part string")
VALUE = Fields("time timestamp, seen timestamp")
"""The columns of the state of ``Watermarks``.

There are four kinds of rows, by ``what``. ``mark``: the mark of a part of source ``name``, and the
planned time of its newest row. ``source``: the mark of source ``name`` as a whole. ``begun``: the
planned time since which source ``name`` is waited for. ``watermark``: the last watermark that was
emitted for table ``name``, in lower case. ``measure`` is :attr:`SourceTime.measure`, and ``part``
is the values of a part as a JSON list; both are empty where they do not apply.
"""

EARLIEST = datetime.datetime(1000, 1, 1, tzinfo=datetime.UTC)
LATEST = datetime.datetime(9000, 1, 1, tzinfo=datetime.UTC)
"""No row may be earlier or later: the bounds of its windows might not be valid times."""

USABLE = f"a time from {EARLIEST:%Y-%m-%d} to {LATEST:%Y-%m-%d %H:%M} UTC"
"""What messages expect; both ends are usable."""


@dataclass(frozen=True, slots=True)
class SourceTime:
    """What a source declares about its event time.

    Attributes:
        source: Its id.
        column: The column of the event time, a ``timestamp``.
        delay: How much older than the newest row a row may be without being late.
        by: The columns whose values identify its parts; each part has a mark.
        idle_after: How long a part without rows still counts, in planned time; None for no limit.
        max_ahead: How far an event time may be ahead of the planned time; None for no limit.
        clock: After how long without a row the planned time becomes the mark of a part; None for
            never.
    """

    source: str
    column: str
    delay: datetime.timedelta
    by: tuple[str, ...] = ()
    idle_after: datetime.timedelta | None = None
    max_ahead: datetime.timedelta | None = None
    clock: datetime.timedelta | None = None

    @property
    def measure(self) -> str:
        """The columns that marks measure, as a JSON list of the time column and those of *by*."""
        return json.dumps([self.column, *self.by], ensure_ascii=False)

    @property
    def planned(self) -> bool:
        """Whether its watermark depends on planned time."""
        return self.idle_after is not None or self.clock is not None


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """The event time of a stream.

    Attributes:
        column: The column with the time.
        behind: How far its rows may be behind each of its sources without being late, by the id of
            the source; see rule 10.
        offset: What is added to the column: the time of a closed window is just before its end.
    """

    column: str
    behind: Mapping[str, datetime.timedelta]
    offset: datetime.timedelta = datetime.timedelta(0)

    def later(self, wait: datetime.timedelta) -> TimeColumn:
        """Return the event time of rows that are emitted up to this long after their time."""
        behind = {source: time + wait for source, time in self.behind.items()}
        return replace(self, behind=behind)

    def together(self, *others: TimeColumn) -> TimeColumn:
        """Return the event time of this stream merged with others, or joined with one."""
        behind = dict(self.behind)
        for other in others:
            for source, time in other.behind.items():
                behind[source] = max(time, behind.get(source, time))
        return replace(self, behind=behind)


class MeasureTimes(ArrowBolt):
    """Emits the largest event time of each part of a source, and sets unusable rows aside.

    Delivery: the same as for any ``ArrowBolt``.

    Args:
        time: What the source declares.
        fields: The fields of its rows.
    """

    writes_nowhere_else = True

    def __init__(self, time: SourceTime, fields: Fields) -> None:
        self._time = time
        self.needs_planned_time = time.max_ahead is not None
        self.output_streams: Mapping[str, Stream | Fields] = {
            DEFAULT_STREAM: fields,
            MARKS: MARK,
            REFUSED: fields,
        }

    @property
    def traits(self) -> Traits:
        """The traits of the bolt, with the event time and the parts that it measures."""
        time = self._time
        by = f"by {', '.join(time.by)}" if time.by else "the source as one part"
        return replace(
            super().traits,
            operators=(f"event time {time.column}", f"delay {shown(time.delay)}", by),
            rows=Meaning(f"event time {time.column!r} by {list(time.by)}"),
        )

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        ahead, self._latest = self._time.max_ahead, LATEST
        if ahead is not None:
            self._latest = min(LATEST, context.latest_time + ahead)
        self._collector = collector
        self._marks: dict[str, datetime.datetime] = {}

    def execute(self, batch: pa.RecordBatch) -> None:
        """Add rows to the batch."""
        fits = usable_times(batch.column(self._time.column), self._latest)
        if pc.all(fits).as_py():
            kept = batch
        else:
            kept = batch.filter(fits)
            self._collector.emit(batch.filter(pc.invert(fits)), REFUSED)
        if kept.num_rows:
            self._collector.emit(kept)
            for part, mark in self._parts(kept):
                known = self._marks.get(part)
                self._marks[part] = mark if known is None else max(known, mark)

    def finish_batch(self) -> None:
        """Emit the marks of the batch."""
        if self._marks:
            rows = [list(self._marks), list(self._marks.values())]
            schema = MARK.arrow_schema()
            arrays = [
                pa.array(column, kind) for column, kind in zip(rows, schema.types, strict=True)
            ]
            self._collector.emit(pa.RecordBatch.from_arrays(arrays, schema=schema), MARKS)

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[str, datetime.datetime]]:
        time, by = batch.column(self._time.column), self._time.by
        if not by:
            yield "", pc.max(time).as_py()
            return
        # Numbers as names: Arrow adds a column "time_max", and the user may have one too.
        names = [str(number) for number in range(len(by))]
        table = pa.table([*map(batch.column, by), time], names=[*names, "time"])
        found = table.group_by(names).aggregate([("time", "max")])
        for *values, mark in zip(*map(found.column, [*names, "time_max"]), strict=True):
            part = json.dumps([value.as_py() for value in values], ensure_ascii=False, default=str)
            yield part, mark.as_py()


class RefuseRows(BasicBolt):
    """Refuses each row without an event time, or with one that is out of range or too far ahead.

    Delivery: the same as for any ``BasicBolt``.

    Args:
        time: What the source declares.
        kept: Whether a table keeps what it emits: a row as it is as a dead letter. Otherwise the
            row becomes a dead letter, or ends the run in a topology without dead letters.
    """

    writes_nowhere_else = True

    def __init__(self, time: SourceTime, *, kept: bool) -> None:
        self._time = time
        self._kept = kept
        self.output_fields = FIELDS if kept else None
        self.output_streams: Mapping[str, Stream | Fields] = {}

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        """Refuse a row.

        Raises:
            RecordFailed: No table keeps it.
        """
        what, remedy = self._refusal(tuple)
        if not self._kept:
            raise RecordFailed(
                f"{what}; {remedy}", component=self._time.source, field=self._time.column
            )
        place: dict[str, Json] = {"column": self._time.column}
        collector.emit(dead_letter(self._time.source, RecordFailed(what), place, tuple))

    def _refusal(self, row: Tuple) -> tuple[str, str]:
        """Return what is wrong with the time of a row, and what to do about it."""
        time, at = self._time, row[self._time.column]
        remedy = (
            "set such rows aside with unusable= of the source or dead_letters= of the "
            "StreamBuilder, either of which needs allow_change once; or remove the batch with "
            "quarantine, and add its repaired rows to the source again"
        )
        where = f"of source {time.source!r} has no usable event time in column {time.column!r}"
        got = f"in {dict(zip(row.fields.names, row.values, strict=True))!r:.300}"
        if at is None:
            return f"a row {where}; got NULL, {got}; expected a time", remedy
        if time.max_ahead is None or not EARLIEST <= at <= LATEST:
            expected = USABLE
        else:
            expected = (
                f"at most {time.max_ahead} after the time at which its batch was planned "
                "(max_ahead), since it would make all other rows late; give the source another "
                "max_ahead=, if its rows may be in the future"
            )
            remedy = f"or {remedy}"
        return f"a row {where}; got {at.isoformat()}, {got}; expected {expected}", remedy


class Watermarks(BatchBolt, Committer):
    """Keeps the marks of all sources with event time, and emits watermarks in each txid.

    Delivery: each row counts exactly once. It reads its state as of the previous txid, so what a
    replay emits depends only on its rows and that state.

    Args:
        id: Its id, which is also the name of its state.
        sources: What the sources declare, by the component that emits their marks.
        wanted: The event time of each table that reads a watermark, by the name of the table, which
            is also the name of its stream.
    """

    writes_nowhere_else = True

    def __init__(
        self,
        id: str,
        sources: Mapping[str, SourceTime],
        wanted: Mapping[str, TimeColumn],
    ) -> None:
        self._id, self._times, self._wanted = id, dict(sources), dict(wanted)
        self._sources = {time.source: time for time in sources.values()}
        self.needs_planned_time = any(time.planned for time in sources.values())
        self.output_streams: Mapping[str, Stream | Fields] = dict.fromkeys(wanted, WATERMARK)

    @property
    def traits(self) -> Traits:
        """The traits of the bolt, with its watermarks; no table below may continue without them."""
        of = {", ".join(sorted(time.behind)): None for time in self._wanted.values()}
        return replace(
            super().traits,
            operators=tuple(f"watermark of {sources}" for sources in of),
            begins_with_below=(
                "a table whose watermark started again would close windows a second time; give "
                "StreamBuilder(marks=open_state(url, table='…')) the earlier table, or give "
                "another table to each state that has a watermark"
            ),
        )

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        self._collector, self._attempt = collector, attempt
        self._state = context.state(self._id)
        self._now = context.planned_time if self.needs_planned_time else None
        self._new: dict[tuple[str, str], datetime.datetime] = {}

    def execute(self, tuple: Tuple) -> None:
        """Receive a task's mark of a part; the row of a clock only serves to make a txid."""
        if tuple.source_component not in self._times:
            return
        part, mark = tuple.values
        key = self._times[tuple.source_component].source, part
        known = self._new.get(key)
        self._new[key] = mark if known is None else max(known, mark)

    def finish_batch(self) -> None:
        """Advance marks and watermarks, and emit the watermarks before and after."""
        with self._state.transaction(self._attempt) as values:
            known = {key: (row["time"], row["seen"]) for key, row in values.items()}
            sources = self._reached(values, known, self._moved(values, known))
            for table, time in self._wanted.items():
                key = ("watermark", table, "", "")
                before, _ = known.get(key, (None, None))
                after = _watermark(time, sources)
                if after is None or (before is not None and after < before):
                    after = before
                if after != before:
                    values.put(key, (after, None))
                self._collector.emit([before, after], table)

    def _moved(
        self, values: StateTransaction, known: Mapping[Any, Any]
    ) -> dict[str, list[tuple[datetime.datetime, datetime.datetime | None]]]:
        """Write the marks of the batch; return each source's marks and when each last had a row."""
        measures = {source: time.measure for source, time in self._sources.items()}
        marks = {
            (source, part): row
            for (what, source, measure, part), row in known.items()
            if what == "mark" and measures.get(source) == measure
        }
        for (source, part), new in sorted(self._new.items()):
            old, _ = marks.get((source, part), (new, None))
            marks[source, part] = max(old, new), self._now
            values.put(("mark", source, measures[source], part), marks[source, part])
        found: dict[str, list[Any]] = {}
        for (source, _), row in marks.items():
            found.setdefault(source, []).append(row)
        if self._now is not None:
            for source, time in self._sources.items():
                key = ("begun", source, time.measure, "")
                if time.idle_after is not None and source not in found and key not in known:
                    values.put(key, (None, self._now))
        return found

    def _reached(
        self,
        values: StateTransaction,
        known: Mapping[Any, Any],
        marks: Mapping[str, list[tuple[datetime.datetime, datetime.datetime | None]]],
    ) -> dict[str, datetime.datetime | None]:
        """Advance the marks of sources; return the mark less the delay for each that counts.

        It is None for a source that had no row. Such a source is ignored once it is idle.
        """
        found: dict[str, datetime.datetime | None] = {}
        for source, time in self._sources.items():
            if source not in marks:
                key = ("begun", source, time.measure, "")
                _, begun = known.get(key, (None, self._now))
                if not self._idle(time, begun):
                    found[source] = None
                continue
            counting = [
                self._mark(time, mark, seen)
                for mark, seen in marks[source]
                if not self._idle(time, seen)
            ]
            if counting:
                key = ("source", source, time.measure, "")
                before, _ = known.get(key, (None, None))
                after = min(counting)
                if before is not None and after < before:
                    after = before
                if after != before:
                    values.put(key, (after, None))
                found[source] = after - time.delay
        return found

    def _mark(
        self, time: SourceTime, mark: datetime.datetime, seen: datetime.datetime | None
    ) -> datetime.datetime:
        if time.clock is None or self._now is None or seen is None:
            return mark
        return max(mark, self._now) if self._now - seen >= time.clock else mark

    def _idle(self, time: SourceTime, seen: datetime.datetime | None) -> bool:
        if time.idle_after is None or self._now is None or seen is None:
            return False
        return self._now - seen >= time.idle_after


def _watermark(
    wanted: TimeColumn, sources: Mapping[str, datetime.datetime | None]
) -> datetime.datetime | None:
    """Return the smallest time of the sources that count; None if none does, or one had no row."""
    counting = []
    for source, behind in wanted.behind.items():
        if source in sources:
            reached = sources[source]
            if reached is None:
                return None
            counting.append(reached - behind)
    return min(counting, default=None)


def usable_times(column: pa.Array, latest: datetime.datetime) -> pa.Array:
    """Return for each event time whether it is present, and neither too early nor too late."""
    low, high = (pa.scalar(at, column.type) for at in (EARLIEST, latest))
    return pc.fill_null(pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high)), False)


def event_times(
    id: str, batch: pa.RecordBatch | pa.Table, time: TimeColumn
) -> np.ndarray[Any, Any]:
    """Return the event times of some rows, in microseconds since 1970.

    Args:
        id: Id of the operator, for messages.
        batch: The rows.
        time: Their event time.

    Raises:
        EmitError: A row has no usable time, since a function above has changed it.
    """
    column = batch.column(time.column)
    for at in column.filter(pc.invert(usable_times(column, LATEST))).to_pylist():
        raise EmitError(
            f"a row above {id!r} has no usable event time in column {time.column!r}; got "
            f"{'NULL' if at is None else at.isoformat()}; expected {USABLE}; let the functions "
            "above keep the column, or filter such rows",
            component=id,
        )
    found = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    times: np.ndarray[Any, Any] = found + time.offset // MICROSECOND
    return times


def event_time(id: str, row: Tuple, time: TimeColumn) -> datetime.datetime:
    """Return the event time of a row.

    Args:
        id: Id of the operator, for messages.
        row: The row.
        time: The event time of its stream.

    Raises:
        EmitError: It has none, since a function above has changed it.
    """
    at: datetime.datetime | None = row[time.column]
    if at is None:
        raise EmitError(
            f"a row above {id!r} has no event time; got NULL in column {time.column!r}; expected "
            "a time; let functions above keep the column, or filter such rows",
            component=id,
        )
    return at + time.offset


def just_before(column: str, time: TimeColumn) -> TimeColumn:
    """Return the event time of rows that represent the time just before a column's value.

    Args:
        column: The column.
        time: The event time of the rows that they are made of.
    """
    return replace(time, column=column, offset=-MICROSECOND)
