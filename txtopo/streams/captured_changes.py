"""CapturedChanges: rows of a table's log become a stream of the table's rows, with retractions.

Rules
-----
1. An event is a row with an operation. *insert*, *update* and *read* say: the row of this key is
   now this one. *delete* says: this key has no row. *truncate* says: no key has a row. The stream
   has the rows that the captured table has: after each txid, the rows that were emitted less those
   that were taken back are its current rows. What is taken back is the row that was emitted,
   which the state has. No image of an earlier row in the source is used. A -0.0 is emitted as 0.0.
2. An event counts if its position is after the position of its key, also if that is of a delete,
   and after that of the last truncate. All others are repeats, or too old, and change nothing. So
   the order in which events arrive, and how often, makes no difference. Positions are compared
   column by column, from left to right.
3. Without positions events count in the order in which they arrive: by txid, and within a batch
   stream by stream, task by task, and as each task emits them. So the events of a key must come
   from one partition of the source. Nothing is remembered of a deleted key.
4. A truncate removes the keys whose positions are not after its own. Its position outlives them.
   Only a truncate and a new timeline read all rows.
5. Positions of different timelines cannot be compared. The state knows the current timeline, and
   those that were left. With the first event of another one all rows are taken back, and the table
   fills again. Then events of the timelines that were left change nothing. Timelines have no
   order: in a batch the current one is that which appears last.
6. The position of a deleted key is remembered for ``expire_after``, from ``gone_since``. With event
   time this is the event time of the delete, otherwise the planned time of its txid. T knows it no
   more if ``gone_since + expire_after`` is at or before W(T - 1), or the planned time of T. In T it
   expires by W(T), or the planned time of T, so it makes no difference when it is deleted. A row
   that is there does not expire.
7. The events of a key in a batch become one change: the old row is taken back, then the new one is
   emitted. If both are equal, neither is. Rows are emitted in the order of their keys.
8. An event without an operation that is known, without its key, its position or its timeline is
   emitted to the stream ``refused``, below which it becomes a dead letter.

A batch needs one read of its keys and one write, and of what is known of the log, a row or a few.
Its rows stay in Arrow.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import ArrowBolt, BasicBolt, Committer
from txtopo.collector import ArrowOutputCollector, BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.durations import Duration, duration
from txtopo.errors import EmitError, FieldsError, RecordFailed, TopologyError
from txtopo.log_records import logger_of
from txtopo.state.keyed_columns import (
    Flags,
    codes_of,
    differing,
    flags_of,
    in_one_piece,
    is_key,
    order_of,
    positions,
    there,
    with_plain_zeros,
)
from txtopo.state.registry import State
from txtopo.state.transaction import StateTransaction
from txtopo.streams.checks import check_new_columns, column_name, column_names
from txtopo.streams.draft import readable_state
from txtopo.streams.event_time import TimeColumn, event_times
from txtopo.streams.nodes import BoltNode, Port
from txtopo.streams.tables import RETRACTED, Output
from txtopo.traits import Meaning, Traits
from txtopo.tuples import DEFAULT_STREAM, Field, Fields, Stream, Tuple

if TYPE_CHECKING:
    from txtopo.streams.stream import DataStream, Names

_logger = logger_of("txtopo.streams")

Operation = Literal["insert", "update", "read", "delete", "truncate", "ignore"]
"""What an event says; ``read`` is a row of a snapshot, and ``ignore`` says nothing."""

OPERATIONS: Mapping[str, Operation] = {
    "c": "insert",
    "r": "read",
    "u": "update",
    "d": "delete",
    "t": "truncate",
    "insert": "insert",
    "read": "read",
    "update": "update",
    "delete": "delete",
    "truncate": "truncate",
}
"""The operations by their names in a log: the letters of Debezium, and the words."""

OnTruncate = Literal["refuse", "clear"]
OnNewTimeline = Literal["refuse", "snapshot"]

REFUSED = "refused"
"""The stream of events that cannot be used."""

LOG = "log"
"""The name of the state that has what is known of the log itself."""

GONE = Field("gone_since", "timestamp")
"""The column of the state with the time of a delete; NULL while the key has a row."""

POSITION, TRUNCATED = "log_", "truncated_"
"""The prefixes of the columns with the position of a key, and with that of the last truncate."""

TIMELINE = Field("timeline", "string")
"""The key of what is known of the log; empty text if the events have no timeline."""

CURRENT = Field("current", "boolean")
"""Whether a timeline is the current one, or was left."""

_PUT, _DELETE, _TRUNCATE, _IGNORE = range(4)
_KINDS: Mapping[Operation, int] = {
    "insert": _PUT,
    "update": _PUT,
    "read": _PUT,
    "delete": _DELETE,
    "truncate": _TRUNCATE,
    "ignore": _IGNORE,
}

_KIND = ""
"""The column of kinds while events are judged: no declared field has an empty name."""


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """How the events of a log become the rows of a table.

    Attributes:
        fields: The fields of an event.
        key: The key columns.
        value: The other columns of the table.
        op: The column with the operation.
        operations: The operations by the values of that column.
        position: The columns with the position in the log; empty for the order of arrival.
        timeline: The column with the timeline; None if there is only one.
        on_truncate: Whether a truncate clears the table or ends the run.
        on_new_timeline: Whether another timeline fills the table again or ends the run.
        expire_after: How long the position of a deleted key is remembered; None for forever.
        time: The event time of the events; None for planned time.
        watermark: The stream with its watermark; None if nothing expires by it.
    """

    fields: Fields
    key: tuple[str, ...]
    value: tuple[str, ...]
    op: str
    operations: Mapping[Any, Operation]
    position: tuple[str, ...] = ()
    timeline: str | None = None
    on_truncate: OnTruncate = "refuse"
    on_new_timeline: OnNewTimeline = "refuse"
    expire_after: datetime.timedelta | None = None
    time: TimeColumn | None = None
    watermark: Output | None = None

    @property
    def emitted(self) -> Fields:
        """The fields of the rows that are emitted."""
        fields = self.fields.select([*self.key, *self.value])
        return check_new_columns("as_changes", fields, [RETRACTED])

    @property
    def stored(self) -> Fields:
        """The value columns of the state."""
        value = self.fields.select(self.value)
        more = [GONE, *self._renamed(POSITION)] if self.position else []
        check_new_columns("the state of as_changes", self.fields.select(self.key), more)
        return check_new_columns("the state of as_changes", value, more)

    @property
    def log(self) -> Fields:
        """The value columns of the state of the log; none if nothing is known of it."""
        if self.timeline is None and not self.position:
            return Fields.of([])
        return Fields.of([CURRENT, *self._renamed(TRUNCATED)])

    def _renamed(self, prefix: str) -> list[Field]:
        return [Field(f"{prefix}{each.name}", each.type) for each in self._position]

    @property
    def _position(self) -> Fields:
        return self.fields.select(self.position)


class CapturedChanges(ArrowBolt, Committer):
    """Emits the rows of a captured table as they change.

    Delivery: each event counts exactly once, also if the source repeats it.

    Args:
        id: Its id, which is also the name of its state.
        table: How events become rows.
    """

    writes_nowhere_else = True

    def __init__(self, id: str, table: CapturedTable) -> None:
        self._id, self._captured = id, table
        self.needs_planned_time = bool(table.position) and table.time is None
        self.output_streams: Mapping[str, Stream | Fields] = {
            DEFAULT_STREAM: table.emitted,
            REFUSED: table.fields,
        }

    @property
    def traits(self) -> Traits:
        """The traits of the bolt, with what its stored positions are compared by."""
        table = self._captured
        order = ", ".join(table.position) or "arrival"
        by = "planned" if table.time is None else "event"
        timeline = "" if table.timeline is None else f", in timelines of {table.timeline}"
        meaning = Meaning(
            f"rows of {', '.join(table.key)} by {order}{timeline}; deletes by {by} time",
            "the stored positions and times would be compared with those of other columns; "
            "declare key, position and timeline as before, or give the state another table",
        )
        return replace(
            super().traits,
            operators=(f"rows of {', '.join(table.key)} from {table.op}, in order of {order}",),
            rows=meaning,
            retractions=DEFAULT_STREAM,
            expires=table.expire_after is not None,
        )

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
        self._log = context.state(LOG) if len(self._captured.log) else None
        self._batches: list[pa.RecordBatch] = []
        self._before: datetime.datetime | None = None
        self._after: datetime.datetime | None = None
        if self.needs_planned_time:
            self._before = self._after = context.planned_time

    def execute(self, batch: pa.RecordBatch) -> None:
        """Never called, since :meth:`execute_from` takes the rows of all streams."""
        raise AssertionError("execute_from takes the rows")

    def execute_from(self, component: str, stream: str, batch: pa.RecordBatch) -> None:
        """Add events to the batch, or receive the watermark."""
        if (component, stream) == self._captured.watermark:
            self._before, self._after = (column[0].as_py() for column in batch.columns)
        else:
            self._batches.append(batch)

    def finish_batch(self) -> None:
        """Emit what the events of the batch change, and write it.

        Raises:
            EmitError: A truncate, or another timeline, which this table refuses.
        """
        table = self._captured
        rows = pa.Table.from_batches(self._batches, table.fields.arrow_schema())
        events, renewed = self._usable(rows), False
        with ExitStack() as stack:
            values = stack.enter_context(self._state.transaction(self._attempt))
            log = None
            if self._log is not None:
                log = LogRecord(stack.enter_context(self._log.transaction(self._attempt)), table)
                events, renewed = self._of_current_timeline(log, events)
                if log.truncated.num_rows:
                    later = after(log.truncated, positions_of(events, table))
                    events = events.filter(pa.array(later))
            events, bound = self._since_truncate(events)
            if bound is not None and log is not None:
                log.truncated = bound
            self._change(values, events, bound, renewed=renewed)
            if log is not None:
                log.write()
            if table.expire_after is not None and self._after is not None:
                values.expire(self._after - table.expire_after)

    def _usable(self, rows: pa.Table) -> pa.Table:
        """Return the events that can be used, with their kinds; emit the others as refused."""
        table = self._captured
        known = pa.array(list(table.operations), rows.schema.field(table.op).type)
        kinds = pa.array([_KINDS[each] for each in table.operations.values()], pa.int8())
        kind = kinds.take(in_one_piece(pc.index_in(rows.column(table.op), known)))
        which = kind.fill_null(-1).to_numpy()
        placed = (*table.position, *([] if table.timeline is None else [table.timeline]))
        fits = (_fits(rows, table.key) | (which == _TRUNCATE)) & _fits(rows, placed)
        usable = ((which >= 0) & fits) | (which == _IGNORE)
        for batch in rows.filter(pa.array(~usable)).to_batches():
            self._collector.emit(batch, REFUSED)
        events = rows.append_column(_KIND, kind)
        return events.filter(pa.array(usable & (which != _IGNORE)))

    def _of_current_timeline(self, log: LogRecord, events: pa.Table) -> tuple[pa.Table, bool]:
        """Return the events of the current timeline, and whether another one was current before."""
        about, before = (self._id, self._attempt.txid), log.current
        kept = log.of_current_timeline(self._id, events)
        renewed = before not in (None, log.current)
        if renewed:
            text = (
                "%r: txid %d: the log continues in timeline %r, after %r: all earlier rows are "
                "taken back"
            )
            _logger.warning(text, *about, log.current, before)
        if kept.num_rows < events.num_rows:
            text = "%r: txid %d: %d events of timelines that were left are ignored"
            _logger.warning(text, *about, events.num_rows - kept.num_rows)
        return kept, renewed

    def _since_truncate(self, events: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """Return the events after the last truncate, and its position; None if there is none."""
        table = self._captured
        kinds = events.column(_KIND).to_numpy()
        found = np.flatnonzero(kinds == _TRUNCATE)
        if not len(found):
            return events, None
        if table.on_truncate == "refuse":
            raise EmitError(
                f"the table of {self._id!r} was truncated in its source; got "
                f"{_shown(events, int(found[0]), (table.op, *table.position))}; expected no "
                'truncate, because all rows would be deleted; as_changes(…, on_truncate="clear") '
                "clears the table here as well; or remove the batch with quarantine",
                component=self._id,
                setting="on_truncate",
            )
        if not table.position:
            return events.slice(int(found[-1]) + 1), positions_of(events.slice(0, 0), table)
        places = positions_of(events, table)
        last = int(found[np.argmax(codes_of(places, in_order=True)[found])])
        bound = places.slice(last, 1)
        return events.filter(pa.array(after(bound, places))), bound

    def _change(
        self,
        values: StateTransaction,
        events: pa.Table,
        bound: pa.Table | None,
        *,
        renewed: bool,
    ) -> None:
        """Apply events to the rows of the state, and emit what they change.

        Args:
            values: The state.
            events: The events, in the order of their arrival.
            bound: The position of a truncate in the batch; None if there is none.
            renewed: Whether another timeline has begun, so that all rows go.
        """
        table = self._captured
        # A store may lose the sign of a zero, and rows that differ only in it are equal.
        events = with_plain_zeros(events, [*table.key, *table.value, *table.position])
        all_rows = renewed or bound is not None
        stored = values.all_columns() if all_rows else values.get_columns(self._keys(events))
        stored = self._remembered(stored)
        if renewed or (bound is not None and not table.position):
            stands = np.zeros(stored.num_rows, np.bool_)
        elif bound is not None:
            stands = after(bound, positions_of(stored, table, POSITION))
        else:
            stands = np.ones(stored.num_rows, np.bool_)
        won = events.take(pa.array(self._winners(stored.filter(pa.array(stands)), events)))
        there_is = won.filter(pa.array(won.column(_KIND).to_numpy() == _PUT))
        overwritten = there(positions(self._keys(stored), self._keys(won)))
        self._emit(stored.filter(pa.array(~stands | overwritten)), there_is)
        values.delete_columns(self._keys(stored.filter(pa.array(~stands))))
        if table.position:
            values.put_columns(self._entries(won))
        else:
            values.delete_columns(self._keys(won))
            values.put_columns(there_is)

    def _remembered(self, stored: pa.Table) -> pa.Table:
        """Return the stored rows without deletes that are forgotten."""
        length = self._captured.expire_after
        if length is None or self._before is None:
            return stored
        gone = stored.column(GONE.name)
        forgotten = pc.less_equal(gone, pa.scalar(self._before - length, gone.type))
        return stored.filter(pc.invert(forgotten.fill_null(False)))

    def _winners(self, stored: pa.Table, events: pa.Table) -> np.ndarray[Any, Any]:
        """Return the places of the events that are the last of their key, and not repeats."""
        table, known = self._captured, stored.num_rows
        keys = pa.concat_tables([self._keys(stored), self._keys(events)])
        if not keys.num_rows:
            return np.zeros(0, np.int64)
        codes = codes_of(keys)
        places = arrival = np.arange(len(codes))
        if table.position:
            both = [positions_of(stored, table, POSITION), positions_of(events, table)]
            places = codes_of(pa.concat_tables(both), in_order=True)
        # Of events with one position the first counts, and what is stored is before all of them.
        order = np.lexsort((-arrival, places, codes))
        last = np.append(codes[order][1:] != codes[order][:-1], True)
        winners: np.ndarray[Any, Any] = np.sort(order[last]) - known
        return winners[winners >= 0]

    def _entries(self, won: pa.Table) -> pa.Table:
        """Return the rows of the state for the events that count."""
        table, fields = self._captured, self._captured.stored
        schema, deleted = fields.arrow_schema(), won.column(_KIND).to_numpy() == _DELETE
        entries = self._keys(won)
        for name in table.value:
            column = in_one_piece(won.column(name))
            none = pa.scalar(None, column.type)
            entries = entries.append_column(name, pc.if_else(pa.array(deleted), none, column))
        entries = entries.append_column(GONE.name, self._gone(won, deleted))
        places = positions_of(won, table)
        for name, column in zip(places.column_names, places.columns, strict=True):
            entries = entries.append_column(schema.field(f"{POSITION}{name}"), column)
        return entries

    def _gone(self, won: pa.Table, deleted: Flags) -> pa.Array:
        """Return the time of each delete, NULL for rows that are there."""
        kind, time = self._captured.stored.arrow_schema().field(GONE.name).type, self._captured.time
        if time is None:
            now = pa.scalar(self._after, kind)
            return pc.if_else(pa.array(deleted), now, pa.scalar(None, kind))
        times = np.zeros(len(deleted), np.int64)
        times[deleted] = event_times(self._id, won.filter(pa.array(deleted)), time)
        return pa.array(times, mask=~deleted).cast(kind)

    def _emit(self, before: pa.Table, rows: pa.Table) -> None:
        """Emit the difference of some stored rows and what their keys have now."""
        table = self._captured
        if table.position:
            before = before.filter(before.column(GONE.name).is_null())
        names, value = [*table.key, *table.value], list(table.value)
        before, rows = before.select(names), rows.select(names)
        place = positions(self._keys(rows), self._keys(before))
        same = there(place) & ~differing(before.take(place).select(value), rows.select(value))
        stays = there(positions(self._keys(before), self._keys(rows.filter(pa.array(same)))))
        gone, new = before.filter(pa.array(~stays)), rows.filter(pa.array(~same))
        schema = table.emitted.arrow_schema()
        marks = np.arange(gone.num_rows + new.num_rows) < gone.num_rows
        both = pa.concat_tables([gone.cast(new.schema), new])
        both = both.append_column(schema.field(RETRACTED.name), pa.array(marks))
        # The sort is stable, so the old row of a key stays before the new one.
        for batch in both.take(order_of(both, table.key)).to_batches():
            self._collector.emit(batch)

    def _keys(self, rows: pa.Table) -> pa.Table:
        return rows.select(list(self._captured.key))


class LogRecord:
    """What a state knows of a log: its timelines, and the last truncate of the current one.

    Args:
        values: The state.
        table: The captured table.

    Attributes:
        current: The current timeline, empty if events have none; None before the first event.
        truncated: The position of the last truncate; no row if there was none.
    """

    def __init__(self, values: StateTransaction, table: CapturedTable) -> None:
        self._values, self._table = values, table
        self._schema = Fields.of([TIMELINE, *table.log]).arrow_schema()
        known = values.all_columns().select(self._schema.names)
        self._known = {row[TIMELINE.name]: row for row in known.to_pylist()}
        self._written: dict[str, dict[str, Any]] = {}
        if table.timeline is None:
            self._known.setdefault("", self._row("", current=True))
        timelines = [name for name, row in self._known.items() if row[CURRENT.name]]
        self.current = timelines[0] if timelines else None
        self.truncated = self._truncated()

    def of_current_timeline(self, id: str, events: pa.Table) -> pa.Table:
        """Return the events of the current timeline, which may be another one than before.

        Raises:
            EmitError: It is another one, which the table refuses.
        """
        table = self._table
        if table.timeline is None:
            return events
        timelines = events.column(table.timeline).cast(pa.string())
        for timeline in timelines.unique().to_pylist():
            if timeline not in self._known:
                if self.current is not None and table.on_new_timeline == "refuse":
                    raise EmitError(
                        f"the log of {id!r} continues in another timeline, whose positions cannot "
                        f"be compared with the earlier ones; got {timeline!r:.100} after "
                        f"{self.current!r:.100}; expected one server and one log; as_changes(…, "
                        'on_new_timeline="snapshot") takes all rows back and fills the table '
                        "from a new snapshot; or let the state begin in another table",
                        component=id,
                        setting="on_new_timeline",
                    )
                self._begin(timeline)
        return events.filter(pc.equal(timelines, pa.scalar(self.current, pa.string())))

    def write(self) -> None:
        """Write what has changed."""
        if self.current is not None and self.truncated.num_rows:
            (bound,) = self.truncated.to_pylist()
            row = {f"{TRUNCATED}{name}": value for name, value in bound.items()}
            self._note({**self._known[self.current], **row})
        rows = list(self._written.values())
        if rows:
            self._values.put_columns(pa.Table.from_pylist(rows, self._schema))

    def _begin(self, timeline: str) -> None:
        """Continue in another timeline."""
        if self.current is not None:
            self._note(self._row(self.current, current=False))
        self.current = timeline
        self._note(self._row(timeline, current=True))
        self.truncated = self._truncated()

    def _row(self, timeline: str, *, current: bool) -> dict[str, Any]:
        none = dict.fromkeys(self._schema.names)
        return {**none, TIMELINE.name: timeline, CURRENT.name: current}

    def _note(self, row: dict[str, Any]) -> None:
        if self._known.get(row[TIMELINE.name]) != row:
            self._known[row[TIMELINE.name]] = self._written[row[TIMELINE.name]] = row

    def _truncated(self) -> pa.Table:
        names = self._table.position
        row = None if self.current is None else self._known[self.current]
        schema = self._table.fields.select(names).arrow_schema()
        if row is None or not names or row[f"{TRUNCATED}{names[0]}"] is None:
            return schema.empty_table()
        return pa.Table.from_pylist([{name: row[f"{TRUNCATED}{name}"] for name in names}], schema)


class RefuseEvents(BasicBolt):
    """Makes a dead letter of each event that cannot be used.

    Delivery: the same as for any ``BasicBolt``. Without dead letters the first such event ends the
    run.

    Args:
        id: Id of the operator.
        table: How events become rows.
    """

    writes_nowhere_else = True

    def __init__(self, id: str, table: CapturedTable) -> None:
        self._id, self._table = id, table
        self.output_fields = None
        self.output_streams: Mapping[str, Stream | Fields] = {}

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        """Refuse an event.

        Raises:
            RecordFailed: Always.
        """
        table, row = self._table, dict(zip(tuple.fields.names, tuple.values, strict=True))
        operation, field = table.operations.get(row[table.op]), table.op
        if operation is None:
            expected = f"one of {', '.join(map(repr, table.operations))}"
        else:
            key = () if operation == "truncate" else table.key
            placed = () if table.timeline is None else (table.timeline,)
            named = (*key, *table.position, *placed)
            field = next(name for name in named if row[name] is None or row[name] != row[name])
            expected = "a value, neither NULL nor NaN"
        raise RecordFailed(
            f"an event of {self._id!r} cannot be used; got {row[field]!r:.100} in column "
            f"{field!r}, in {row!r:.300}; expected {expected}; map other words with operations=, "
            "filter such rows above, or set them aside with dead_letters= of the StreamBuilder",
            component=self._id,
            field=field,
        )


def positions_of(rows: pa.Table, table: CapturedTable, prefix: str = "") -> pa.Table:
    """Return the positions of events, or of stored rows if there is a prefix."""
    names = list(table.position)
    return rows.select([f"{prefix}{name}" for name in names]).rename_columns(names)


def after(bound: pa.Table, places: pa.Table) -> Flags:
    """Return which positions are after another one."""
    codes = codes_of(pa.concat_tables([bound, places]), in_order=True)
    found: Flags = codes[1:] > codes[0]
    return found


def captured_changes(
    stream: DataStream,
    state: State,
    *,
    key: Names,
    value: Names | None,
    op: str,
    operations: Mapping[Any, Operation] | None,
    position: Names,
    timeline: str | None,
    on_truncate: OnTruncate,
    on_new_timeline: OnNewTimeline,
    expire_after: Duration | None,
    id: str | None,
) -> tuple[Port, Fields]:
    """Add the operator to the program of a stream; return its output and the fields of its rows.

    Raises:
        TopologyError: An argument is wrong; the message says which.
    """
    operator, fields = "as_changes", stream.fields
    keys = column_names(f"{operator}, for its key,", key, fields)
    if not keys:
        raise FieldsError(f"{operator} has no key columns; expected at least one", name=operator)
    column = column_name(f"{operator}, for op,", op, fields)
    order = column_names(f"{operator}, for its position,", position, fields)
    line = None
    if timeline is not None:
        line = column_name(f"{operator}, for its timeline,", timeline, fields)
        _check_type(fields, line, "string", "timeline")
    if value is None:
        others = {*keys, column, *order, line}
        value = [name for name in fields.names if name not in others]
    values = column_names(f"{operator}, for its value,", value, fields)
    check_new_columns(operator, fields.select(keys), fields.select(values))
    _check_choice("on_truncate", on_truncate, OnTruncate)
    _check_choice("on_new_timeline", on_new_timeline, OnNewTimeline)
    if expire_after is not None and not order:
        raise TopologyError(
            f"{operator} has expire_after, but no position; got {expire_after!r:.100}; expected "
            "position= as well, because without it nothing is stored about a deleted key",
            setting="expire_after",
        )
    length = None
    if expire_after is not None:
        length = duration(f"expire_after, of {operator},", expire_after)
    table = CapturedTable(
        fields,
        keys,
        values,
        op=column,
        operations=_checked_operations(operations, fields[fields.index[column]]),
        position=order,
        timeline=line,
        on_truncate=on_truncate,
        on_new_timeline=on_new_timeline,
        expire_after=length,
        time=stream.time,
    )
    draft = stream.draft
    with draft.all_or_nothing():
        taken = draft.id_of_table(id, operator, state)
        kept = readable_state(operator, state).named(taken)
        kept = kept.with_columns(fields.select(keys), table.stored)
        states, ports = {taken: kept}, stream.ports
        if len(table.log):
            log = kept.beside(f"{kept.table}_log").with_columns(Fields.of([TIMELINE]), table.log)
            draft.take_table(f"the log of {operator} {taken!r}", log, log.table or "")
            states[LOG] = log
        refused = draft.take_id(f"{taken}.refused", "operator")
        if length is not None:
            states[taken] = kept.ranged(GONE.name)
        if length is not None and stream.time is not None:
            watermark = draft.watermark(stream.time, states[taken], kept.table or taken)
            table, ports = replace(table, watermark=watermark.output), (*ports, watermark)
        node = draft.add(BoltNode(taken, ports, 1, CapturedChanges(taken, table), (), states))
        below = (Port(node, REFUSED),)
        draft.add(BoltNode(refused, below, 1, RefuseEvents(taken, table), ()))
        return Port(node), table.emitted


def _checked_operations(given: object, field: Field) -> Mapping[Any, Operation]:
    """Return the operations by the values of a column.

    Raises:
        TopologyError: It is not a mapping to operations, or has keys of another type.
    """
    if given is None:
        _check_type(Fields.of([field]), field.name, "string", "op")
        return OPERATIONS
    words = get_args(Operation)
    if not isinstance(given, Mapping) or not given or not set(given.values()) <= {*words}:
        raise TopologyError(
            f"the operations of as_changes are wrong; got {given!r:.200}; expected a dictionary "
            f"from values of column {field.name!r} to {', '.join(map(repr, words))}",
            setting="operations",
        )
    try:
        pa.array(list(given), Fields.of([field]).arrow_schema().types[0])
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TopologyError(
            f"the operations of as_changes do not fit column {field.name!r}; got "
            f"{list(given)!r:.200}; expected values of type {field.type}",
            setting="operations",
            field=field.name,
        ) from error
    return dict(given)


def _check_type(fields: Fields, name: str, kind: str, setting: str) -> None:
    found = fields[fields.index[name]].type
    if found != kind:
        raise FieldsError(
            f"column {name!r} of as_changes, its {setting}, is of the wrong type; got {found}; "
            f"expected {kind}; convert it with with_columns()"
            + (", or name its values with operations=" if setting == "op" else ""),
            field=name,
            setting=setting,
        )


def _check_choice(setting: str, given: object, choices: Any) -> None:
    if given not in get_args(choices):
        raise TopologyError(
            f"{setting} of as_changes is unknown; got {given!r:.100}; expected "
            f"{' or '.join(map(repr, get_args(choices)))}",
            setting=setting,
        )


def _fits(rows: pa.Table, names: Sequence[str]) -> Flags:
    """Return which rows have neither NULL nor NaN in some columns."""
    fits = is_key(rows, names)
    return np.ones(rows.num_rows, np.bool_) if fits is None else flags_of(fits)


def _shown(rows: pa.Table, at: int, names: Sequence[str]) -> str:
    row = rows.slice(at, 1).to_pylist()[0]
    return ", ".join(f"{name}={row[name]!r:.100}" for name in names)
