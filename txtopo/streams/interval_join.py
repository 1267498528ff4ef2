"""Interval joins: BufferRows packs the rows of both sides, IntervalJoin buffers and matches them.

Rules
-----
1. A left row and a right row match if their keys are equal and
   ``left time + lower <= right time <= left time + upper``. Each match is emitted once, in the txid
   in which the later of the two is committed. A NULL or NaN in a key equals nothing.
2. W is the watermark of both sides together (:mod:`txtopo.streams.event_time`). A row is late in T
   if its time is before W(T - 1). It matches nothing, and goes to the table of late rows, or is
   dropped.
3. A row is needed until W has passed the latest time at which it can match: ``time + upper`` for a
   left row, ``time - lower`` for a right row. This time is its ``expires``. In T the row is closed
   if ``expires < W(T)``: no row that is on time after T matches it.
4. With ``how="left"`` a left row without a match is emitted with NULLs in the one txid that closes
   it. A row that was buffered before T is closed if ``W(T - 1) <= expires < W(T)``, so T reads that
   range. A row that arrives in T is closed if ``expires < W(T)``. A row with a NULL in its key is
   emitted at once.
5. A row that is closed in the txid in which it arrives is not buffered. The others expire by W,
   never by time of day. A row that is closed but not yet deleted does not match any row on time, so
   it makes no difference when it is deleted.
6. The event time of an emitted row is the event time of its left row. It may be as far behind
   W(T - 1) as a left row waits for a match. So the rows of the stream below may be behind each
   source by that much more (``TimeColumn.behind``). Then the watermark of that stream is W less the
   wait, and no emitted row is late there.
7. Rows with the same key, side and time have the same matches, so they are one row of the state:
   ``rows`` has a line for each, a JSON list of its other values. A txid reads the rows of all its
   keys in one request. It emits the matches sorted by key, left time and right time. Rows with
   equal times are in the order of their txids, and within one txid in the order of their lines.
   Then it emits the left rows without a match.
8. A join that continues with another interval matches by the new interval, but closes buffered rows
   by their stored ``expires``, so no row is emitted twice. An inner join does not record which rows
   were matched (``matched`` is NULL). So if it becomes a left join, its buffered rows are never
   emitted without a match.
9. Buffered rows have values without names, so a join with other columns on a side, or in another
   order, cannot continue with the table.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import ArrowBolt, Committer
from txtopo.collector import ArrowOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.durations import MICROSECOND, duration, shown
from txtopo.errors import FieldsError, TopologyError
from txtopo.state.transaction import StateTransaction
from txtopo.streams.checks import check_new_columns, check_same_types, column_names
from txtopo.streams.event_time import TimeColumn, event_times
from txtopo.streams.late_rows import (
    LATE,
    LateRows,
    Watermark,
    microseconds,
    microseconds_of,
    on_time,
)
from txtopo.streams.operators import Operator
from txtopo.traits import Meaning, Traits
from txtopo.tuples import Fields

How = Literal["inner", "left"]

LEFT, RIGHT = "left", "right"
"""The sides, as they are written in the state."""

SIDE_AND_TIME = Fields("side string, time timestamp")
"""The last columns of the key of the state."""

BUFFERED = Fields("expires timestamp, matched boolean, rows string")
"""The value columns of the state; ``matched`` is NULL except for left rows of a left join."""

PACKED = Fields("side string, time timestamp, packed string")
"""What ``BufferRows`` emits after the columns of the key."""

LATE_SIDE = Fields("side string")
"""The first value column of the table of late rows."""


@dataclass(frozen=True)
class BufferRows(Operator):
    """Packs the rows of one side: its key, side and event time, and the other values as JSON.

    It runs above the commit phase, with many tasks.

    Attributes:
        key: The columns that are compared.
        time: The event time of the rows.
        side: ``"left"`` or ``"right"``.
    """

    key: tuple[str, ...]
    time: TimeColumn
    side: str
    word = "join"

    def apply(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> Iterator[pa.RecordBatch]:
        """Pack rows for the buffer."""
        schema = self.fields.arrow_schema()
        times = pa.array(event_times(self.id, batch, self.time))
        others = [name for name in batch.schema.names if name not in self.key]
        packed = [
            *(batch.column(name) for name in self.key),
            pa.array([self.side] * batch.num_rows, pa.string()),
            times.cast(schema.field("time").type),
            pa.array(packed_rows([batch.column(name) for name in others], batch.num_rows)),
        ]
        yield pa.RecordBatch.from_arrays(packed, schema=schema)


@dataclass(frozen=True, slots=True)
class Joined:
    """What an interval join joins.

    Attributes:
        key: The columns of the key, by their names on the left.
        left: The other columns of the left rows.
        right: The other columns of the right rows.
        right_key: The names of the columns of the key on the right.
        fields: What is emitted: the left columns in their order, then those of *right*.
        lower: The minimum time from a left row to a matching right row; may be negative.
        upper: The maximum of that time.
        how: Whether left rows without a match are emitted.
    """

    key: Fields
    left: Fields
    right: Fields
    right_key: tuple[str, ...]
    fields: Fields
    lower: datetime.timedelta
    upper: datetime.timedelta
    how: How

    @property
    def packed(self) -> Fields:
        """The fields of packed rows."""
        return Fields.of([*self.key, *PACKED])


@dataclass(slots=True)
class _SameTime:
    """The rows of one key, side and time.

    Attributes:
        old: The buffered rows.
        new: The rows of this batch.
        matched: Whether they have a match; None if that was not recorded.
        noted: The value of ``matched`` in the state.
        expires: Their ``expires`` in the state; None if they are not buffered.
    """

    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    matched: bool | None = False
    noted: bool | None = None
    expires: int | None = None

    @property
    def rows(self) -> list[str]:
        """All rows of this time."""
        return self.old + self.new


_ByKey = dict[Any, tuple[dict[int, _SameTime], dict[int, _SameTime]]]
"""The left and the right groups of each key, by their times."""

_SIDES = {LEFT: 0, RIGHT: 1}

_Pair = tuple[tuple[Any, ...], str | None, str | None]
"""A key, and the packed left and right row."""


class IntervalJoin(ArrowBolt, Committer):
    """Emits the matches of two streams.

    Delivery: each match exactly once; with ``how="left"`` each left row in a match or by itself.

    Args:
        id: Its id, which is also the name of its state.
        joined: What it joins.
        late: Whether late rows are kept.
    """

    writes_nowhere_else = True

    def __init__(self, id: str, joined: Joined, *, late: bool) -> None:
        self._id, self._joined, self._late = id, joined, late
        self.output_fields = joined.fields

    @property
    def traits(self) -> Traits:
        """The traits of the join, with both sides and the columns of the buffered rows."""
        joined = self._joined
        ends = f"{signed(joined.lower)} to {signed(joined.upper)}"
        rows = f"{joined.how} join on {', '.join(joined.key.names)}, {ends}"
        buffered = f"left {_declared(joined.left)}, right {_declared(joined.right)}"
        fixed = (
            "buffered rows have values without names, which would be read as other columns; "
            "join the same columns in the same order, or give the state another table"
        )
        apart = f"late rows in state {LATE}" if self._late else "late rows dropped"
        return Traits(
            operators=(rows, apart), rows=Meaning(rows), buffered=Meaning(buffered, fixed)
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
        self._late_rows = LateRows(context.state(LATE), attempt) if self._late else None
        self._watermark = Watermark()
        self._batches: list[pa.RecordBatch] = []
        self._lower = self._joined.lower // MICROSECOND
        self._upper = self._joined.upper // MICROSECOND

    def execute(self, batch: pa.RecordBatch) -> None:
        """Add packed rows to the batch, or receive the watermark."""
        if not self._watermark.takes(batch):
            self._batches.append(batch)

    def finish_batch(self) -> None:
        """Match the rows of the batch with each other and with the buffered rows."""
        rows = pa.Table.from_batches(self._batches, self._joined.packed.arrow_schema())
        times = microseconds(rows.column("time"), datetime.timedelta(0))
        kept, late = on_time(rows, times, self._watermark.before)
        groups, unmatchable = self._grouped(kept)
        with self._state.transaction(self._attempt) as values:
            self._add_buffered(values, groups)
            pairs = [pair for key in sorted(groups) for pair in self._matches(key, *groups[key])]
            pairs += sorted(unmatchable, key=str)
            pairs += self._closed_before(values, groups)
            pairs += self._buffer(values, groups)
            if self._watermark.after is not None:
                values.expire(self._watermark.after - MICROSECOND)
        if pairs:
            self._collector.emit(self._unpacked(pairs))
        if self._late_rows is not None:
            self._late_rows.keep(self._late_table(late))

    def _grouped(self, rows: pa.Table) -> tuple[_ByKey, list[_Pair]]:
        """Return the rows of the batch in groups, and the left rows that cannot match anything."""
        groups: _ByKey = {}
        unmatchable: list[_Pair] = []
        times = microseconds(rows.column("time"), datetime.timedelta(0)).to_pylist()
        keys = list(zip(*(rows.column(n).to_pylist() for n in self._joined.key.names), strict=True))
        sides, packed = (rows.column(name).to_pylist() for name in ("side", "packed"))
        for key, side, time, row in zip(keys, sides, times, packed, strict=True):
            if any(part is None or part != part for part in key):
                if side == LEFT and self._joined.how == "left":
                    unmatchable.append((key, row, None))
                continue
            both = groups.get(key)
            if both is None:
                both = groups[key] = {}, {}
            group = both[_SIDES[side]].get(time)
            if group is None:
                group = both[_SIDES[side]][time] = _SameTime()
            group.new.append(row)
        for both in groups.values():
            for group in (*both[0].values(), *both[1].values()):
                group.new.sort()
        return groups, unmatchable

    def _closed_before(self, values: StateTransaction, groups: _ByKey) -> list[_Pair]:
        """Return the buffered left rows without a match that this txid closes."""
        before, after = self._watermark.before, self._watermark.after
        if self._joined.how == "inner" or after is None or before == after:
            return []
        above = None if before is None else before - MICROSECOND
        pairs: list[_Pair] = []
        for stored, value in values.between("expires", above, after - MICROSECOND):
            *parts, side, time = stored
            key = tuple(parts)
            if side == LEFT and value["matched"] is False:
                now = groups[key][0].get(microseconds_of(time)) if key in groups else None
                if now is None or not now.matched:
                    pairs += [(key, row, None) for row in value["rows"].split("\n")]
        return pairs

    def _add_buffered(self, values: StateTransaction, groups: _ByKey) -> None:
        """Add to the groups the buffered rows of their keys, except rows closed earlier."""
        before = self._watermark.before
        for stored, value in values.starting(groups):
            *parts, side, time = stored
            if before is not None and value["expires"] < before:
                continue
            sides = groups[tuple(parts)][_SIDES[side]]
            group = sides.setdefault(microseconds_of(time), _SameTime())
            group.old = value["rows"].split("\n")
            group.noted = value["matched"]
            if group.noted is not None or not group.new:
                group.matched = group.noted
            group.expires = microseconds_of(value["expires"])

    def _matches(
        self, key: tuple[Any, ...], left: dict[int, _SameTime], right: dict[int, _SameTime]
    ) -> list[_Pair]:
        """Return the matches of a key that contain at least one row of this batch."""
        pairs: list[_Pair] = []
        times = sorted(right)
        for time in sorted(left):
            lefts = left[time]
            first = bisect_left(times, time + self._lower)
            last = bisect_right(times, time + self._upper, first)
            for at in islice(times, first, last):
                rights = right[at]
                lefts.matched = True
                pairs += [(key, one, other) for one in lefts.old for other in rights.new]
                pairs += [(key, one, other) for one in lefts.new for other in rights.rows]
        return pairs

    def _buffer(self, values: StateTransaction, groups: _ByKey) -> list[_Pair]:
        """Buffer the rows of the batch; return its unmatched left rows that are already closed."""
        after, left = self._watermark.after, self._joined.how == "left"
        closed = -math.inf if after is None else microseconds_of(after)
        unmatched: list[_Pair] = []
        writes: list[tuple[Any, ...]] = []
        for key in sorted(groups):
            for side, wait, by_time in zip(
                (LEFT, RIGHT), (self._upper, -self._lower), groups[key], strict=True
            ):
                for time, group in sorted(by_time.items()):
                    matched = group.matched if left and side == LEFT else None
                    expires = time + wait if group.expires is None else group.expires
                    if expires < closed:
                        if matched is False:
                            unmatched += [(key, row, None) for row in group.new]
                    elif group.new or matched != group.noted:
                        writes.append((*key, side, time, expires, matched, "\n".join(group.rows)))
        values.put_columns(self._buffered(writes))
        return unmatched

    def _buffered(self, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
        """Return rows of the state in columns; their times are in microseconds since 1970."""
        schema = Fields.of([*self._joined.key, *SIDE_AND_TIME, *BUFFERED]).arrow_schema()
        columns = zip(*rows, strict=True) if rows else [()] * len(schema)
        arrays = [
            pa.array(column, pa.int64()).cast(each.type)
            if each.name in ("time", "expires")
            else pa.array(column, each.type)
            for each, column in zip(schema, columns, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _unpacked(self, pairs: list[_Pair]) -> pa.RecordBatch:
        """Return the joined rows of pairs; the columns of a missing side are NULL."""
        joined, columns = self._joined, dict[str, pa.Array]()
        keys, lefts, rights = zip(*pairs, strict=True)
        for one, parts in zip(joined.key, zip(*keys, strict=True), strict=True):
            kind = joined.key.select([one.name]).arrow_schema().field(0).type
            columns[one.name] = pa.array(parts, kind)
        columns |= unpacked_columns(lefts, joined.left) | unpacked_columns(rights, joined.right)
        schema = joined.fields.arrow_schema()
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _late_table(self, late: pa.Table) -> pa.Table:
        """Return late rows with the columns of their table."""
        fields = Fields.of([*LATE_SIDE, *self._joined.fields])
        if not late.num_rows:
            return fields.arrow_schema().empty_table()
        keys = zip(*(late.column(name).to_pylist() for name in self._joined.key.names), strict=True)
        sides, packed = (late.column(name).to_pylist() for name in ("side", "packed"))
        pairs: list[_Pair] = [
            (key, row, None) if side == LEFT else (key, None, row)
            for key, side, row in zip(keys, sides, packed, strict=True)
        ]
        columns = [pa.array(sides, pa.string()), *self._unpacked(pairs).columns]
        return pa.Table.from_arrays(columns, schema=fields.arrow_schema())


def joined_fields(
    left: Fields,
    right: Fields,
    on: object,
    lower: datetime.timedelta,
    upper: datetime.timedelta,
    how: How,
) -> Joined:
    """Return the parts of a join of two streams with these fields.

    Raises:
        FieldsError: There is no such column, types differ, or a column would occur twice.
    """
    pairs = on if isinstance(on, Mapping) else None
    names = column_names("join", on if pairs is None else list(pairs), left)
    others = column_names(
        "join, on its right side,", names if pairs is None else pairs.values(), right
    )
    if not names:
        raise FieldsError("join compares no column; got an empty on; expected at least one name")
    key = left.select(names)
    check_same_types("join, on its right side,", right.select(others), key)
    check_new_columns("the state of join", key, [*SIDE_AND_TIME, *BUFFERED, PACKED[-1]])
    lefts = Fields.of([each for each in left if each.name not in names])
    rights = Fields.of([each for each in right if each.name not in others])
    fields = check_new_columns("join", left, rights)
    return Joined(key, lefts, rights, others, fields, lower, upper, how)


def _declared(fields: Fields) -> str:
    return f"({', '.join(f'{each.name} {each.type}' for each in fields)})"


def interval(what: str, given: object) -> tuple[datetime.timedelta, datetime.timedelta]:
    """Return the minimum and the maximum by which a right row is later than a left row.

    Raises:
        TopologyError: They are not two durations, or the minimum exceeds the maximum.
    """
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise TopologyError(
            f"{what} is not an interval; got {given!r:.100}; expected the minimum and the maximum "
            "by which the right row is later, such as ('0 minutes', '1 hour'), or, if it may be "
            "earlier, ('-5 minutes', '1 hour')",
            setting="within",
        )
    lower, upper = (_signed(what, each) for each in given)
    if lower > upper:
        raise TopologyError(
            f"{what} ends before it begins; got {given!r:.100}; expected (lower, upper) with lower "
            "at most upper; swap the two",
            setting="within",
        )
    return lower, upper


def signed(length: datetime.timedelta) -> str:
    """Return a duration, which may be negative, as text."""
    return f"-{shown(-length)}" if length < datetime.timedelta(0) else shown(length)


def checked_how(how: object) -> None:
    """Check which rows a join returns.

    Raises:
        TopologyError: There is no such join.
    """
    if how not in ("inner", "left"):
        raise TopologyError(
            f"join has no how={how!r}; expected 'inner' or 'left'; to keep right rows without a "
            "match, swap the two streams",
            setting="how",
        )


def check_of_streams(**given: object) -> None:
    """Check that a join with a lookup has no argument that only a join of streams takes.

    Raises:
        TopologyError: It has one.
    """
    for name, value in given.items():
        if value is not None:
            raise TopologyError(
                f"join with a lookup takes no {name}; got {value!r:.100}; expected on, how and id, "
                "since it buffers nothing; remove it, or join a stream",
                setting=name,
            )


def _signed(what: str, given: object) -> datetime.timedelta:
    if isinstance(given, str) and given.strip().startswith("-"):
        return -duration(what, given.strip()[1:], zero=True)
    if isinstance(given, datetime.timedelta) and given < datetime.timedelta(0):
        return -duration(what, -given)
    return duration(what, given, zero=True)


def packed_rows(columns: Sequence[pa.Array], count: int) -> list[str]:
    """Return each row as text: a JSON list on one line."""
    if not columns or not count:
        return ["[]"] * count
    # By column: encoding row by row takes three times as long. A line break inside a text is
    # escaped, so every line break here separates two values.
    texts = [_LINES.encode(_plain(column))[1:-1].split("\n") for column in columns]
    return [f"[{row}]" for row in map(",".join, zip(*texts, strict=True))]


def unpacked_columns(rows: Sequence[str | None], fields: Fields) -> dict[str, pa.Array]:
    """Return the columns of rows that :func:`packed_rows` made; None stands for a row of NULLs."""
    # A row with several matches is parsed once, and all rows are parsed in one call.
    place = dict[str, int]()
    places = [None if row is None else place.setdefault(row, len(place)) for row in rows]
    taken, schema = pa.array(places, pa.int64()), fields.arrow_schema()
    values = json.loads(f"[{','.join(place)}]")
    columns = zip(*values, strict=True) if values else [()] * len(schema)
    return {
        each.name: _of_plain(column, each.type).take(taken)
        for each, column in zip(schema, columns, strict=len(schema) > 0)
    }


# NaN and the infinities are written as Python's json reads them.
_LINES = json.JSONEncoder(separators=("\n", ":"))


def _plain(column: pa.Array) -> list[Any]:
    """Return the values of a column as JSON has them."""
    kind = column.type
    if pa.types.is_binary(kind):
        return [v if v is None else base64.b64encode(v).decode() for v in column.to_pylist()]
    if (stored := _stored_as(kind)) is not None:
        column = column.cast(stored)
    values: list[Any] = column.to_pylist()
    return values


def _of_plain(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(kind):
        return pa.array([v if v is None else base64.b64decode(v) for v in values], kind)
    if (stored := _stored_as(kind)) is not None:
        return pa.array(values, stored).cast(kind)
    return pa.array(values, kind)


def _stored_as(kind: pa.DataType) -> pa.DataType | None:
    """Return the type whose values represent another type in JSON; None if it is the same."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.string() if pa.types.is_decimal(kind) else None
