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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import ArrowBolt, Committer
from txtopo.collector import ArrowOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.durations import MICROSECOND, duration, shown
from txtopo.errors import FieldsError, TopologyError
from txtopo.state.keyed_columns import (
    Flags,
    Numbers,
    differing,
    flags_of,
    is_key,
    order_of,
    positions,
    same_as_before,
    with_plain_zeros,
)
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
        times = microseconds(rows.column("time"))
        kept, late = on_time(rows, times, self._watermark.before)
        fits = is_key(kept, self._keys)
        matchable = kept if fits is None else kept.filter(fits)
        with self._state.transaction(self._attempt) as values:
            lines = self._lines(values, matchable)
            matched = lines.matched(self._lower, self._upper)
            pairs = [lines.pairs(self._lower, self._upper)]
            if self._joined.how == "left" and fits is not None:
                pairs.append(_alone(self._in_order(kept.filter(pc.invert(fits)))))
            pairs.append(self._closed_before(values, lines, matched))
            pairs.append(self._buffer(values, lines, matched))
            if self._watermark.after is not None:
                values.expire(self._watermark.after - MICROSECOND)
        self._emit([each for each in pairs if each.num_rows])
        if self._late_rows is not None:
            self._late_rows.keep(self._late_table(late))

    def _lines(self, values: StateTransaction, rows: pa.Table) -> _Lines:
        """Return the rows of a batch, with the buffered rows of their keys."""
        names = [*self._keys, *SIDE_AND_TIME.names]
        buffered = self._stored.empty_table()
        if rows.num_rows:
            buffered = values.columns_starting(rows.select(self._keys))
        if (before := self._watermark.before) is not None:
            # Rows that were closed earlier match nothing.
            open_yet = pc.greater_equal(buffered.column("expires"), _scalar(before))
            buffered = buffered.filter(open_yet)
        plain = with_plain_zeros(rows.select([*names, "packed"]), self._keys)
        return _Lines(plain, buffered, self._keys)

    def _closed_before(self, values: StateTransaction, lines: _Lines, matched: Flags) -> pa.Table:
        """Return the buffered left rows without a match that this txid closes."""
        before, after = self._watermark.before, self._watermark.after
        if self._joined.how == "inner" or after is None or before == after:
            return _alone(self._stored.empty_table().rename_columns({"rows": "packed"}))
        above = None if before is None else before - MICROSECOND
        closed = values.columns_between("expires", above, after - MICROSECOND)
        alone = pc.equal(closed.column("matched"), pa.scalar(False)).fill_null(False)
        closed = closed.filter(pc.and_(pc.equal(closed.column("side"), LEFT), alone))
        names = [*self._keys, *SIDE_AND_TIME.names]
        now = lines.groups.select(names).filter(pa.array(matched))
        found = positions(closed.select(names), now)
        return _alone(exploded(closed.filter(found.is_null())))

    def _buffer(self, values: StateTransaction, lines: _Lines, matched: Flags) -> pa.Table:
        """Buffer the rows of the batch; return its unmatched left rows that are already closed."""
        groups, after = lines.groups, self._watermark.after
        left = pc.equal(groups.column("side"), LEFT)
        times = microseconds(groups.column("time"))
        wait = pc.if_else(left, pa.scalar(self._upper), pa.scalar(-self._lower))
        expires = pc.coalesce(groups.column("expires").cast(pa.int64()), pc.add(times, wait))
        noted: Any = pa.nulls(len(groups), pa.bool_())
        if self._joined.how == "left":
            noted = pc.if_else(left, lines.noted(matched), noted)
        changed = differing(pa.table([groups.column("matched")], ["m"]), pa.table([noted], ["m"]))
        closed = np.zeros(len(groups), np.bool_)
        if after is not None:
            closed = flags_of(pc.less(expires, pa.scalar(microseconds_of(after))))
        written = ~closed & (lines.renewed | changed)
        columns = groups.select([*self._keys, *SIDE_AND_TIME.names]).columns
        kind = self._stored.field("expires").type
        kept = _numbered([*columns, expires.cast(kind), noted]).filter(pa.array(written))
        texts = lines.joined(written)
        values.put_columns(pa.table([*kept.columns, texts], schema=self._stored))
        alone = closed & flags_of(pc.equal(noted, pa.scalar(False)).fill_null(False))
        return _alone(lines.new_of(alone))

    @property
    def _keys(self) -> list[str]:
        return list(self._joined.key.names)

    @property
    def _stored(self) -> pa.Schema:
        """The columns of the state."""
        return Fields.of([*self._joined.key, *SIDE_AND_TIME, *BUFFERED]).arrow_schema()

    def _in_order(self, rows: pa.Table) -> pa.Table:
        """Return the left rows that have no key, in an order that depends on these rows alone."""
        rows = rows.filter(pc.equal(rows.column("side"), LEFT))
        return rows.take(order_of(rows, [*self._keys, "packed"]))

    def _emit(self, parts: Sequence[pa.Table]) -> None:
        if parts:
            for batch in self._unpacked(pa.concat_tables(parts)).to_batches():
                self._collector.emit(batch)

    def _unpacked(self, pairs: pa.Table) -> pa.Table:
        """Return the joined rows of pairs; the columns of a missing side are NULL.

        Args:
            pairs: The key columns, then the packed left row, then the packed right row.
        """
        joined, width = self._joined, len(self._keys)
        columns = dict(zip(self._keys, pairs.columns[:width], strict=True))
        lefts, rights = pairs.columns[width:]
        columns |= unpacked_columns(lefts, joined.left) | unpacked_columns(rights, joined.right)
        schema = joined.fields.arrow_schema()
        return pa.table([columns[name] for name in schema.names], schema=schema)

    def _late_table(self, late: pa.Table) -> pa.Table:
        """Return late rows with the columns of their table."""
        fields = Fields.of([*LATE_SIDE, *self._joined.fields])
        if not late.num_rows:
            return fields.arrow_schema().empty_table()
        side, packed = late.column("side"), late.column("packed")
        left, none = pc.equal(side, LEFT), pa.scalar(None, pa.string())
        both = [pc.if_else(left, packed, none), pc.if_else(left, none, packed)]
        keys = late.select(self._keys).columns
        rows = self._unpacked(_numbered([*keys, *both]))
        return pa.table([side, *rows.columns], schema=fields.arrow_schema())


class _Lines:
    """The rows of a batch and the buffered rows of their keys, a line for each.

    They are sorted by key, side and time; of those with equal ones the buffered rows come first, in
    the order in which they are buffered, then the rows of the batch, in the order of their texts.

    Args:
        rows: The rows of the batch: key, side, time, packed.
        buffered: The buffered rows: key, side, time, expires, matched, rows.
        keys: Names of the key columns.

    Attributes:
        groups: Lines with the same key, side and time are one group. A row for each: key, side,
            time, then ``expires`` and ``matched`` as buffered; NULL if it is not.
        renewed: Whether each group has a row of the batch.
    """

    def __init__(self, rows: pa.Table, buffered: pa.Table, keys: list[str]) -> None:
        names = [*keys, *SIDE_AND_TIME.names]
        old = exploded(buffered).select(rows.column_names)
        both = pa.concat_tables([old, rows.take(order_of(rows, [*names, "packed"]))])
        order = order_of(both, names)
        self._lines = both.take(order)
        self._new = order.to_numpy() >= len(old)
        again = same_as_before(self._lines.select(names))
        self._begins = np.flatnonzero(np.append(True, ~again)[: len(both)])
        self._group = np.cumsum(np.append(True, ~again)[: len(both)]) - 1
        other_key = ~same_as_before(self._lines.select(keys))
        self._key = np.cumsum(np.append(True, other_key)[: len(both)])
        self._right = flags_of(pc.equal(self._lines.column("side"), RIGHT))
        self._times: Numbers = microseconds(self._lines.column("time")).to_numpy()
        groups = self._lines.select(names).take(pa.array(self._begins))
        place = positions(groups, buffered.select(names))
        known = buffered.select(["expires", "matched"]).take(place)
        self.groups = pa.table(
            [*groups.columns, *known.columns], names=[*names, "expires", "matched"]
        )
        self.renewed = np.zeros(len(groups), np.bool_)
        self.renewed[self._group[self._new]] = True
        self._keys = keys

    def matched(self, lower: int, upper: int) -> Flags:
        """Return for each group whether a row of the other side is in its interval, if left."""
        found = np.zeros(len(self.groups), np.bool_)
        lefts, rights = np.flatnonzero(~self._right), np.flatnonzero(self._right)
        first, last = self._ends(lefts, rights, lower, upper)
        found[self._group[lefts[last > first]]] = True
        return found

    def noted(self, matched: Flags) -> pa.Array:
        """Return what the state notes of each group; NULL if nobody knows whether it matched."""
        known = self.groups.column("matched").combine_chunks()
        unknown = known.is_null()
        # A group that is not buffered has no match yet, and neither has one with new rows.
        unknown = pc.and_(unknown, self.groups.column("expires").combine_chunks().is_valid())
        unknown = pc.and_(unknown, pa.array(~self.renewed))
        before = pc.if_else(unknown, pa.scalar(None, pa.bool_()), known.fill_null(False))
        return pc.if_else(pa.array(matched), pa.scalar(True), before)

    def pairs(self, lower: int, upper: int) -> pa.Table:
        """Return the matches with at least one row of the batch: key, left and right text."""
        lefts, rights = np.flatnonzero(~self._right), np.flatnonzero(self._right)
        old, new = lefts[~self._new[lefts]], lefts[self._new[lefts]]
        parts = [
            self._matches(old, rights[self._new[rights]], lower, upper),
            self._matches(new, rights, lower, upper),
        ]
        left, right = (np.concatenate(each) for each in zip(*parts, strict=True))
        order = np.lexsort((right, left, self._times[right], self._times[left], self._key[left]))
        left, right = pa.array(left[order]), pa.array(right[order])
        packed = self._lines.column("packed")
        keys = self._lines.select(self._keys).take(left)
        return _numbered([*keys.columns, packed.take(left), packed.take(right)])

    def joined(self, groups: Flags) -> pa.Array:
        """Return the texts of some groups, one to a line of its text."""
        kept = self._lines.column("packed").filter(pa.array(groups[self._group]))
        counts = np.bincount(self._group, minlength=len(groups))[groups]
        offsets = pa.array(np.append(0, np.cumsum(counts)), pa.int32())
        return pc.binary_join(pa.ListArray.from_arrays(offsets, kept.combine_chunks()), "\n")

    def new_of(self, groups: Flags) -> pa.Table:
        """Return the rows of the batch that are in some groups."""
        return self._lines.filter(pa.array(groups[self._group] & self._new))

    def _matches(
        self, lefts: Numbers, rights: Numbers, lower: int, upper: int
    ) -> tuple[Numbers, Numbers]:
        """Return the left and the right line of each match of these lines."""
        first, last = self._ends(lefts, rights, lower, upper)
        counts = last - first
        begins = np.cumsum(counts) - counts
        which = np.repeat(first - begins, counts) + np.arange(counts.sum())
        return np.repeat(lefts, counts), rights[which]

    def _ends(
        self, lefts: Numbers, rights: Numbers, lower: int, upper: int
    ) -> tuple[Numbers, Numbers]:
        """Return between which places in *rights* the matches of each left line are."""
        times = np.unique(self._times[rights])
        # Key and time as one number: the time as its place among all times.
        keys, width = self._key * (len(times) + 1), self._times[lefts]
        known = keys[rights] + np.searchsorted(times, self._times[rights])
        first = keys[lefts] + np.searchsorted(times, width + lower, "left")
        last = keys[lefts] + np.searchsorted(times, width + upper, "right")
        return np.searchsorted(known, first), np.searchsorted(known, last)


def exploded(buffered: pa.Table) -> pa.Table:
    """Return a row for each line of the buffered rows, in a column ``packed``."""
    texts = pc.split_pattern(buffered.column("rows").combine_chunks(), "\n")
    parents = pc.list_parent_indices(texts)
    found = buffered.drop_columns(["rows"]).take(parents)
    return found.append_column("packed", texts.flatten())


def _alone(lefts: pa.Table) -> pa.Table:
    """Return left rows as pairs without a right row."""
    keys = lefts.column_names[: lefts.column_names.index("side")]
    none = pa.nulls(len(lefts), pa.string())
    return _numbered([*lefts.select(keys).columns, lefts.column("packed"), none])


def _numbered(columns: Sequence[Any]) -> pa.Table:
    """Return a table whose columns have numbers as names: a user's column may have any name."""
    return pa.table(list(columns), names=[str(at) for at in range(len(columns))])


def _scalar(time: datetime.datetime) -> pa.Scalar[Any]:
    return pa.scalar(time, pa.timestamp("us", tz="UTC"))


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


def unpacked_columns(rows: pa.ChunkedArray, fields: Fields) -> dict[str, pa.Array]:
    """Return the columns of rows that :func:`packed_rows` made; NULL stands for a row of NULLs."""
    # A row with several matches is parsed once, and all rows are parsed in one call.
    encoded = pc.dictionary_encode(rows.combine_chunks())
    schema = fields.arrow_schema()
    values = json.loads(f"[{','.join(encoded.dictionary.to_pylist())}]")
    columns = zip(*values, strict=True) if values else [()] * len(schema)
    return {
        each.name: _of_plain(column, each.type).take(encoded.indices)
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
