"""TimedValues: a value for each key, and timers that call a function when their moment has come.

Rules
-----
1. A timer belongs to a key and has a name; it has one moment. Setting a name again moves the timer;
   deleting a name that has none does nothing. A timer fires once: it is deleted before the function
   for timers is called, which may set it again.
2. The moments of an operator are all of event time, or all of planned time. In txid T the rows come
   at ``before``, and then time moves to ``after``. With event time these are W(T - 1) and W(T), the
   watermarks of :mod:`txtopo.streams.event_time`; while one is unknown, no timer fires by it. With
   planned time both are the planned time of T. All of these are the same in a replay.
3. Txid T first fires the timers with moments at or before ``before``; then it calls the function
   for rows, once for each key that has rows; then it fires the timers with moments at or before
   ``after``. Timers fire in the order of (moment, key, name).
4. A call for rows may set a moment that has passed: the timer fires in T, after the rows. A call
   for a timer may do so too: the new timer fires in T if its moment is after that of the timer that
   the call is for; else it fires in the next txid. So a txid ends, and a timer that sets itself
   each hour fires for each hour that has passed.
5. A key without a value has no timers. A call that returns no value deletes all timers of its key,
   also those that it has set itself: whether they were set by an earlier row of the same batch or
   of an earlier batch makes no difference. So the function for timers always gets a value.
6. Each timer is a row of the table ``<table>_timers``, written with its txid. A txid reads the
   timers that are due, and those of the keys whose values it removes. It reads no others; but until
   the next commit a store also keeps those that its last commit deleted.
7. Late rows are rows as all others, as in :mod:`txtopo.streams.expiring_values`.

What depends on how batches are cut
-----------------------------------
With event time, all rows before the moment of a timer come before it, except those that are late.
A row at or after the moment comes before it or after it: that depends on when the watermark moved.
A function that compares the times of rows with the moment does not depend on it, if it also treats
rows one by one. If it removes a value and makes another one in the same call, no value was removed
for rule 5; then it must delete the earlier timers itself. With planned time a row comes after all
timers that are due when it is planned, so it makes no difference whether there were txids without
rows in between.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Literal

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import BatchBolt, Committer
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.durations import Duration
from txtopo.errors import EmitError, FieldsError, TopologyError
from txtopo.sources.clock import ClockTransactionalSpout
from txtopo.state.columns import Columns
from txtopo.state.registry import State
from txtopo.state.transaction import StateTransaction
from txtopo.streams.checks import check_function, check_new_columns, column_names, declared_fields
from txtopo.streams.draft import readable_state
from txtopo.streams.nodes import BoltNode, Port, SourceNode
from txtopo.streams.tables import Output, in_order, keys_of
from txtopo.traits import Meaning, Traits
from txtopo.tuples import Field, Fields, Tuple

if TYPE_CHECKING:
    from txtopo.streams.stream import DataStream, Grouped

NAME = Field("timer", "string")
"""The last key column of the table of timers, below the columns of the group."""

MOMENT = Fields("at timestamp")
"""The value column of the table of timers."""

Answer = tuple[Any, Iterable[Sequence[Any]] | None]
"""What a function returns: the next value, and the rows to emit."""


@dataclass(frozen=True, slots=True)
class DueTimer:
    """A timer that fires.

    Attributes:
        key: Its key: a plain value if the group has one column, otherwise a tuple.
        name: Its name.
        at: The time at which it is due, in UTC.
    """

    key: Any
    name: str
    at: datetime.datetime


class Timers:
    """Sets and deletes the timers of one key, in one call of a function of ``process``.

    Attributes:
        now: With event time, the watermark: in a call for rows W(T - 1), so a row before it is
            late; in a call for a timer W(T). None while it is unknown. With planned time, the time
            at which the batch was planned.
    """

    __slots__ = ("_any_set", "_at", "_key", "_txid", "now")

    def __init__(
        self, txid: _Txid, key: Any, now: datetime.datetime | None, at: datetime.datetime | None
    ) -> None:
        self._txid, self._key, self._at = txid, key, at
        self.now = now
        self._any_set = False

    def set(self, at: datetime.datetime, name: str = "") -> None:
        """Set a timer of this key, or move the timer of that name.

        Args:
            at: The time at which it is due, with a time zone.
            name: The name of the timer. A key may have any number of timers.

        Raises:
            EmitError: *at* is not a ``datetime`` with a time zone.
            StateUsageError: The name is not a text.
        """
        self._txid.set(self._key, name, at, self._at)
        self._any_set = True

    def delete(self, name: str = "") -> None:
        """Delete the timer of that name of this key, if there is one."""
        self._txid.delete(self._key, name)


@dataclass(frozen=True, slots=True)
class Processing:
    """What ``process`` was given.

    Attributes:
        key: The columns of the group.
        function: The function for rows.
        on_timer: The function for timers.
        order_by: The columns by which the rows of a batch are ordered.
        timers: The name of the state of the timers.
        watermark: The stream with the watermark; None for planned time.
        clock: The id of the clock that makes txids; None if there is none.
    """

    key: Fields
    function: Callable[[Any, list[Tuple], Timers], Answer]
    on_timer: Callable[[Any, DueTimer, Timers], Answer]
    order_by: tuple[str, ...]
    timers: str
    watermark: Output | None
    clock: str | None = None


class TimedValues(BatchBolt, Committer):
    """Calls a function with the rows of each key, and one with each timer that fires.

    Delivery: each row counts exactly once, and each timer fires exactly once. In a replay the
    functions may be called again, with the same values as in the previous attempt.

    Args:
        id: Its id, which is also the name of the state of its values.
        given: What is processed, and how.
        fields: The fields of the emitted rows.
    """

    writes_nowhere_else = True

    def __init__(self, id: str, given: Processing, fields: Fields) -> None:
        self._id, self._given = id, given
        self.output_fields = fields
        self.needs_planned_time = given.watermark is None

    @property
    def traits(self) -> Traits:
        """The traits of the bolt, which say by which time its timers fire."""
        by = f"timers by {'planned' if self.needs_planned_time else 'event'} time"
        meaning = Meaning(
            by,
            "the stored times are of the other kind, so timers would fire immediately or never; "
            "keep the time of process as before, or give the state another table",
        )
        return replace(super().traits, operators=(by,), rows=meaning)

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        self._collector, self._attempt = collector, attempt
        self._state, self._timers = context.state(self._id), context.state(self._given.timers)
        self._rows: list[Tuple] = []
        self._before: datetime.datetime | None = None
        self._after: datetime.datetime | None = None
        if self.needs_planned_time:
            self._before = self._after = context.planned_time

    def execute(self, tuple: Tuple) -> None:
        """Add a row to the batch, or receive the watermark; a clock only serves to make a txid."""
        if (tuple.source_component, tuple.source_stream) == self._given.watermark:
            self._before, self._after = tuple.values
        elif tuple.source_component != self._given.clock:
            self._rows.append(tuple)

    def finish_batch(self) -> None:
        """Call the functions, and write values and timers."""
        with (
            self._state.transaction(self._attempt) as values,
            self._timers.transaction(self._attempt) as timers,
        ):
            txid = _Txid(self._id, self._given, values, timers, self._collector)
            txid.read_due(self._after)
            txid.fire(self._before)
            txid.take(self._rows, self._before)
            txid.fire(self._after)
            txid.write()


class _Txid:
    """Values and timers during one txid.

    Args:
        id: Id of the operator, for messages.
        given: What is processed, and how.
        values: The values.
        timers: The timers.
        collector: Takes the emitted rows.
    """

    def __init__(
        self,
        id: str,
        given: Processing,
        values: StateTransaction,
        timers: StateTransaction,
        collector: BatchOutputCollector,
    ) -> None:
        self._id, self._given, self._collector = id, given, collector
        self._values, self._timers = values, timers
        self._keys = Columns(id, "key", given.key)
        self._names = Columns(given.timers, "key", Fields.of([NAME]))
        self._known: dict[Any, Any] = {}
        self._changed: dict[Any, Any] = {}
        self._until: datetime.datetime | None = None
        self._due: dict[Any, dict[str, datetime.datetime]] = {}
        self._queue: list[tuple[datetime.datetime, Any, str]] = []
        self._now: datetime.datetime | None = None
        self._removed: list[Any] = []

    def read_due(self, until: datetime.datetime | None) -> None:
        """Read the timers that are due in this txid."""
        self._until = until
        if until is not None:
            for (*key, name), at in self._timers.between("at", None, until):
                self._due.setdefault(self._keys.plain(tuple(key)), {})[name] = at

    def take(self, rows: list[Tuple], now: datetime.datetime | None) -> None:
        """Call the function for rows with those of each key."""
        rows = in_order(rows, self._given.order_by)
        packed = self._keys.pack_all(keys_of(rows, self._given.key.names))
        of_keys: dict[Any, list[Tuple]] = {}
        for key, row in zip(map(self._keys.plain, packed), rows, strict=True):
            of_keys.setdefault(key, []).append(row)
        self._load(of_keys)
        function = self._given.function
        for key, of_key in of_keys.items():
            timers = Timers(self, key, now, None)
            value = self._value(key)
            self._answered(key, value, function(value, of_key, timers), timers)
        self._delete_removed()

    def fire(self, now: datetime.datetime | None) -> None:
        """Call the function for timers with those that are at or before a time."""
        if now is None:
            return
        self._now = now
        self._queue = [
            (at, key, name)
            for key, timers in self._due.items()
            for name, at in timers.items()
            if at <= now
        ]
        heapify(self._queue)
        self._load(dict.fromkeys(key for _, key, _ in self._queue))
        function = self._given.on_timer
        while self._queue:
            at, key, name = heappop(self._queue)
            # It may have been moved or deleted meanwhile.
            if self._due.get(key, {}).get(name) == at:
                self.delete(key, name)
                timers = Timers(self, key, now, at)
                value = self._value(key)
                answer = function(value, DueTimer(key, name, at), timers)
                self._answered(key, value, answer, timers)
        self._delete_removed()

    def set(
        self, key: Any, name: str, at: datetime.datetime, called: datetime.datetime | None
    ) -> None:
        """Set a timer in a call for a timer of the moment *called*; None in a call for rows."""
        if not isinstance(at, datetime.datetime) or at.tzinfo is None:
            raise EmitError(
                f"a function of {self._id!r} sets a timer without a time; got {at!r:.100}; "
                "expected a datetime with a time zone, such as timers.now or a timestamp of a "
                "row, and a timedelta",
                component=self._id,
            )
        row, at = self._row(key, name), self._timers.as_read(at)
        *_, name = row  # the text that a later txid reads
        self._timers.put(row, at)
        self._due.get(key, {}).pop(name, None)
        if self._until is None or at > self._until or (called is not None and at <= called):
            return
        self._due.setdefault(key, {})[name] = at
        if called is not None and self._now is not None and at <= self._now:
            heappush(self._queue, (at, key, name))

    def delete(self, key: Any, name: str) -> None:
        """Delete a timer."""
        self._timers.delete(self._row(key, name))
        self._due.get(key, {}).pop(name, None)

    def write(self) -> None:
        """Write the values."""
        for key in [key for key, value in self._changed.items() if value is None]:
            self._values.delete(key)
            del self._changed[key]
        self._values.put_all(self._changed.items())

    def _load(self, keys: Mapping[Any, object]) -> None:
        """Read the values of keys that are not known yet."""
        new = [key for key in keys if key not in self._known]
        self._known.update(zip(new, self._values.get_all(new), strict=True))

    def _value(self, key: Any) -> Any:
        if key not in self._changed:
            return self._known[key]
        value = self._changed[key]
        # A function gets the value as the state would return it.
        return None if value is None else self._values.as_read(value)

    def _answered(self, key: Any, before: Any, answer: object, timers: Timers) -> None:
        """Keep the value that a function has returned, and emit the rows."""
        after, rows = self._checked(answer)
        for row in rows:
            self._collector.emit(row)
        if after is None and (before is not None or timers._any_set):
            # Until the end of this step there is no other call for this key.
            self._removed.append(key)
            self._due.pop(key, None)
        self._changed[key] = after

    def _checked(self, answer: object) -> tuple[Any, list[Sequence[Any]]]:
        if isinstance(answer, tuple) and len(answer) == 2:
            after, emitted = answer
            if emitted is None:
                return after, []
            if isinstance(emitted, Iterable) and not isinstance(emitted, str | bytes):
                rows = list(emitted)
                if all(isinstance(row, list | tuple) for row in rows):
                    return after, rows
        raise EmitError(
            f"a function of {self._id!r} did not return a value and rows; got {answer!r:.200}; "
            "expected (value, [row, …]), each row a list of its fields, with None for no value and "
            "[] for no rows",
            component=self._id,
        )

    def _delete_removed(self) -> None:
        """Delete the timers of the keys whose values were removed."""
        if not self._removed:
            return
        for key, _ in self._timers.starting(self._keys.pack_all(self._removed)):
            self._timers.delete(key)
        self._removed.clear()

    def _row(self, key: Any, name: str) -> tuple[Any, ...]:
        return (*self._keys.pack(key), *self._names.exact([name]))


def processed(
    grouped: Grouped,
    function: Callable[[Any, list[Tuple], Timers], Answer],
    fields: str | Fields,
    on_timer: Callable[[Any, DueTimer, Timers], Answer],
    state: State,
    time: Literal["event", "planned"] | None,
    clock: Duration | None,
    order_by: str | Sequence[str],
    id: str | None,
) -> DataStream:
    """Add the operator ``process`` to a program, and return its stream.

    Raises:
        TopologyError: An argument is wrong, or the state is used elsewhere.
    """
    stream, operator = grouped.stream, "process"
    check_function(operator, function, "value", "rows", "timers")
    check_function("process, for on_timer,", on_timer, "value", "timer", "timers")
    declared, by_event_time = declared_fields(operator, fields), _by_event_time(stream, time)
    ticking = _clock(clock, by_event_time)
    if not grouped.key:
        raise FieldsError("process has no groups; got group_by(); expected names of columns")
    order = column_names("process, for its order,", order_by, stream.fields)
    key = stream.fields.select(grouped.key)
    what = "the table of timers of process"
    row = check_new_columns(what, check_new_columns(what, key, [NAME]), MOMENT)
    draft = stream.draft
    with draft.all_or_nothing():
        taken = draft.id_of_table(id, operator, state)
        kept = readable_state(operator, state).named(taken).with_columns(key, state.value)
        table = f"{kept.table}_timers"
        pending = kept.beside(table).with_columns(row.select([*key.names, NAME.name]), MOMENT)
        draft.take_table(f"the timers of {taken!r}", pending, table)
        timers, ports = f"{taken}_timers", stream.ports
        given = Processing(key, function, on_timer, order, timers, None)
        if ticking is not None:
            ticker = draft.take_id(f"{taken}.clock", "spout")
            ports = (*ports, Port(draft.add_source(SourceNode(ticker, (), 1, ticking))))
            given = replace(given, clock=ticker)
        if by_event_time:
            assert stream.time is not None, "checked above"
            port = draft.watermark(stream.time, kept, kept.table or taken)
            ports, given = (*ports, port), replace(given, watermark=port.output)
        states = {taken: kept, timers: pending.ranged("at")}
        bolt = TimedValues(taken, given, declared)
        return stream._on(Port(draft.add(BoltNode(taken, ports, 1, bolt, (), states))), declared)


def _clock(clock: Duration | None, by_event_time: bool) -> ClockTransactionalSpout | None:
    """Return what makes txids while the sources are silent; None if nothing does.

    Raises:
        TopologyError: It would have no effect, or is not a duration.
    """
    if clock is not None and by_event_time:
        raise TopologyError(
            f"process has clock= and timers of event time; got clock={clock!r:.100}; expected "
            "none, because the watermark decides; pass clock= to builder.source, or "
            "time='planned' here",
            setting="clock",
        )
    return None if clock is None else ClockTransactionalSpout(clock)


def _by_event_time(stream: DataStream, time: object) -> bool:
    """Return whether timers fire by event time; else they fire by planned time.

    Raises:
        TopologyError: There is no such time.
    """
    if time not in ("event", "planned", None):
        raise TopologyError(
            f"process has timers of an unknown time; got time={time!r:.100}; expected 'event' or "
            "'planned'; by default it is event time if the stream has it",
            setting="time",
        )
    if time == "event" and stream.time is None:
        raise TopologyError(
            f"process needs event time; got stream {stream.name!r}, which has none; expected "
            "builder.source(…, event_time='ts') above it, and every operator in between to keep "
            "the column; or time='planned'",
            setting="time",
            stream=stream.name,
        )
    return stream.time is not None and time != "planned"
