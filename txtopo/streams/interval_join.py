"""IntervalJoin: it buffers the rows of two streams, and emits those that match.

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
   equal times are in the order of their txids, and within one txid in the order of their values.
   Then it emits the left rows without a match.
8. A join that continues with another interval matches by the new interval, but closes buffered rows
   by their stored ``expires``, so no row is emitted twice. An inner join does not record which rows
   were matched (``matched`` is NULL). So if it becomes a left join, its buffered rows are never
   emitted without a match.
9. Buffered rows have values without names, so a join with other columns on a side, or in another
   order, cannot continue with the table.
"""

from __future__ import annotations

import datetime
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
    codes_of,
    differing,
    flags_of,
    is_key,
    order_of,
    order_of_all,
    positions,
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
from txtopo.streams.packed_rows import packed_rows, unpacked_columns
from txtopo.streams.tables import Output
from txtopo.traits import Meaning, Traits
from txtopo.tuples import Fields

How = Literal["inner", "left"]

LEFT, RIGHT = "left", "right"
"""The sides, as they are written in the state."""

SIDE_AND_TIME = Fields("side string, time timestamp")
"""The last columns of the key of the state."""

BUFFERED = Fields("expires timestamp, matched boolean, rows string")
"""The value columns of the state; ``matched`` is NULL except for left rows of a left join."""

LATE_SIDE = Fields("side string")
"""The first value column of the table of late rows."""

TIME = ""
"""The column of event times while rows are joined: no declared field has an empty name."""

ByName = dict[str, pa.Array]
"""Columns by their names."""


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

    def fields_of(self, side: str) -> Fields:
        """Return the other columns of a side."""
        return self.left if side == LEFT else self.right


@dataclass(frozen=True, slots=True)
class JoinedStream:
    """One of the two streams of a join.

    Attributes:
        outputs: The streams of components that it is made of.
        fields: The fields of its rows.
        time: The event time of its rows.
    """

    outputs: tuple[Output, ...]
    fields: Fields
    time: TimeColumn


class IntervalJoin(ArrowBolt, Committer):
    """Emits the matches of two streams.

    Delivery: each match exactly once; with ``how="left"`` each left row in a match or by itself.

    Args:
        id: Its id, which is also the name of its state.
        joined: What it joins.
        streams: The left stream and the right stream.
        late: Whether late rows are kept.
    """

    writes_nowhere_else = True

    def __init__(
        self, id: str, joined: Joined, streams: tuple[JoinedStream, JoinedStream], *, late: bool
    ) -> None:
        self._id, self._joined, self._streams, self._late = id, joined, streams, late
        self.output_fields = joined.fields

    @property
    def traits(self) -> Traits:
        """The traits of the join, with both sides and the columns of the buffered rows."""
        joined = self._joined
        ends = f"{signed(joined.lower)} to {signed(joined.upper)}"
        rows = f"{joined.how} join on {', '.join(joined.key.names)}, {ends}"
        buffered = f"left {_declared(joined.left)}, right {_declared(joined.right)}"
        fixed = (
            "the values of buffered rows are stored without names and would be read as other "
            "columns; join the same columns in the same order, or give the state another table"
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
        self._batches: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = [], []
        key = self._joined.key
        self._stored = Fields.of([*key, *SIDE_AND_TIME, *BUFFERED]).arrow_schema()
        self._lower = self._joined.lower // MICROSECOND
        self._upper = self._joined.upper // MICROSECOND

    def execute(self, batch: pa.RecordBatch) -> None:
        """Never called, since :meth:`execute_from` takes the rows of all streams."""
        raise AssertionError("execute_from takes the rows")

    def execute_from(self, component: str, stream: str, batch: pa.RecordBatch) -> None:
        """Add rows to their side, or to both if a stream is joined with itself."""
        sides = zip(self._streams, self._batches, strict=True)
        takers = [batches for each, batches in sides if (component, stream) in each.outputs]
        for batches in takers:
            batches.append(batch)
        if not takers and not self._watermark.takes(batch):
            raise AssertionError(f"rows of {component!r}, to which {self._id!r} does not subscribe")

    def finish_batch(self) -> None:
        """Match the rows of the batch with each other and with the buffered rows."""
        before, after = self._watermark.before, self._watermark.after
        rows = [self._arrived(at) for at in (0, 1)]
        divided = [on_time(each, each.column(TIME), before) for each in rows]
        left, right = (kept for kept, _ in divided)
        fits = [is_key(each, self._keys) for each in (left, right)]
        sides = [
            kept if fit is None else kept.filter(fit)
            for kept, fit in zip((left, right), fits, strict=True)
        ]
        with self._state.transaction(self._attempt) as values:
            lines = self._lines(values, sides[0], sides[1])
            parts, matched = [self._pairs(lines)], np.zeros(len(lines.renewed), np.bool_)
            if self._joined.how == "left":
                matched = lines.matched(self._lower, self._upper)
                if fits[0] is not None:
                    parts.append(self._in_order(left.filter(pc.invert(fits[0]))))
                parts.append(self._closed_before(values, lines, matched))
            parts.append(self._buffer(values, lines, matched))
            if after is not None:
                values.expire(after - MICROSECOND)
        for part in parts:
            for batch in part.to_batches():
                if batch.num_rows:
                    self._collector.emit(batch)
        if self._late_rows is not None:
            self._late_rows.keep(self._late_table(*(late for _, late in divided)))

    def _arrived(self, at: int) -> pa.Table:
        """Return the rows of a side: key columns, named as on the left, others, and times."""
        joined, stream = self._joined, self._streams[at]
        key, others = (
            (joined.key.names, joined.left) if at == 0 else (joined.right_key, joined.right)
        )
        rows = pa.Table.from_batches(self._batches[at], stream.fields.arrow_schema())
        times = pa.chunked_array([pa.array(event_times(self._id, rows, stream.time))])
        found = rows.select([*key, *others.names]).rename_columns([*self._keys, *others.names])
        return found.append_column(TIME, times)

    def _lines(self, values: StateTransaction, left: pa.Table, right: pa.Table) -> _Lines:
        """Return the rows of a batch, with the buffered rows of their keys."""
        left, right = (with_plain_zeros(each, self._keys) for each in (left, right))
        buffered = self._stored.empty_table()
        keys = pa.concat_tables([left.select(self._keys), right.select(self._keys)])
        if keys.num_rows:
            distinct = pa.TableGroupBy(keys, self._keys, use_threads=False).aggregate([])
            buffered = values.columns_starting(distinct)
        if (before := self._watermark.before) is not None:
            # Rows that were closed earlier match nothing.
            open_yet = pc.greater_equal(buffered.column("expires"), _scalar(before))
            buffered = buffered.filter(open_yet)
        return _Lines(left, right, buffered, self._joined)

    def _pairs(self, lines: _Lines) -> pa.Table:
        """Return the joined rows of the matches."""
        lefts, rights = lines.pairs(self._lower, self._upper)
        found = [lines.others(lefts, LEFT), lines.others(rights, RIGHT)]
        return self._joined_rows(lines.keys(lefts), *found)

    def _closed_before(self, values: StateTransaction, lines: _Lines, matched: Flags) -> pa.Table:
        """Return the buffered left rows without a match that this txid closes."""
        before, after = self._watermark.before, self._watermark.after
        if after is None or before == after:
            return self._joined.fields.arrow_schema().empty_table()
        above = None if before is None else before - MICROSECOND
        closed = values.columns_between("expires", above, after - MICROSECOND)
        alone = pc.equal(closed.column("matched"), pa.scalar(False)).fill_null(False)
        closed = closed.filter(pc.and_(pc.equal(closed.column("side"), LEFT), alone))
        names = [*self._keys, *SIDE_AND_TIME.names]
        found = positions(closed.select(names), lines.stored_keys(matched))
        closed = closed.filter(found.is_null())
        texts, parents = lines_of(closed)
        keys = closed.select(self._keys).take(parents)
        return self._joined_rows(keys, unpacked_columns(texts, self._joined.left))

    def _buffer(self, values: StateTransaction, lines: _Lines, matched: Flags) -> pa.Table:
        """Buffer the rows of the batch; return its unmatched left rows that are already closed."""
        after = self._watermark.after
        wait = np.where(lines.group_right, -self._lower, self._upper)
        known = lines.known("expires").cast(pa.int64())
        expires = pc.coalesce(known, pa.array(lines.group_times + wait)).to_numpy()
        noted: Any = pa.nulls(len(expires), pa.bool_())
        if self._joined.how == "left":
            noted = pc.if_else(pa.array(lines.group_right), noted, lines.noted(matched))
        changed = differing(
            pa.table([lines.known("matched")], ["matched"]), pa.table([noted], ["matched"])
        )
        closed = np.zeros(len(expires), np.bool_)
        if after is not None:
            closed = expires < microseconds_of(after)
        written = ~closed & (lines.renewed | changed)
        kind = self._stored.field("expires").type
        columns = [
            *lines.stored_keys(written).columns,
            pa.array(expires[written]).cast(kind),
            noted.filter(pa.array(written)),
            lines.texts_of(written),
        ]
        values.put_columns(pa.table(columns, schema=self._stored))
        alone = lines.new_of(closed & flags_of(pc.equal(noted, pa.scalar(False)).fill_null(False)))
        return self._joined_rows(lines.keys(alone), lines.others(alone, LEFT))

    @property
    def _keys(self) -> list[str]:
        return list(self._joined.key.names)

    def _in_order(self, rows: pa.Table) -> pa.Table:
        """Return the left rows that have no key, in an order that depends on these rows alone."""
        names = self._joined.left.names
        rows = rows.take(order_of_all(rows.select([*self._keys, *names])))
        return self._joined_rows(rows.select(self._keys), columns_of(rows, names))

    def _joined_rows(
        self, keys: pa.Table, left: ByName | None, right: ByName | None = None
    ) -> pa.Table:
        """Return joined rows; the columns of a side that is None are NULL."""
        schema = self._joined.fields.arrow_schema()
        columns: dict[str, Any] = {**columns_of(keys, self._keys), **(left or {}), **(right or {})}
        count = keys.num_rows
        found = [
            columns[each.name] if each.name in columns else pa.nulls(count, each.type)
            for each in schema
        ]
        return pa.table(found, schema=schema)

    def _late_table(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """Return late rows with the columns of their table."""
        lefts = columns_of(left, self._joined.left.names)
        rights = columns_of(right, self._joined.right.names)
        rows = pa.concat_tables(
            [
                self._joined_rows(left.select(self._keys), lefts),
                self._joined_rows(right.select(self._keys), None, rights),
            ]
        )
        sides = pa.array([LEFT] * len(left) + [RIGHT] * len(right), pa.string())
        return rows.add_column(0, LATE_SIDE[0].name, sides)


class _Lines:
    """The rows of a batch and the buffered rows of their keys, a line for each.

    They are sorted by key, side and time; of those with equal ones the buffered rows come first, in
    the order in which they are buffered, then the rows of the batch, in the order of their values.
    Lines with the same key, side and time are one group. A row that was buffered is a text until
    its values are needed, and a row of the batch becomes one when it is buffered.

    Args:
        left: The left rows of the batch: key, other columns, ``TIME``.
        right: The right rows of the batch.
        buffered: The buffered rows: key, side, time, expires, matched, rows.
        joined: What is joined.

    Attributes:
        group_right: Whether each group is one of right rows.
        group_times: The time of each group.
        renewed: Whether each group has a row of the batch.
    """

    def __init__(self, left: pa.Table, right: pa.Table, buffered: pa.Table, joined: Joined) -> None:
        self._joined, self._buffered = joined, buffered
        self._rows = {LEFT: left, RIGHT: right}
        self._texts, parents = lines_of(buffered)
        old, names = len(parents), joined.key.names
        # The lines before they are sorted: those that were buffered, left rows, right rows.
        self._first = {LEFT: old, RIGHT: old + len(left)}
        keys = [buffered.select(names).take(parents), left.select(names), right.select(names)]
        self._keys = pa.concat_tables(keys).combine_chunks()
        sides = flags_of(pc.equal(buffered.column("side"), RIGHT))[parents]
        right_side = np.append(sides, np.repeat([False, True], [len(left), len(right)]))
        stored = microseconds(buffered.column("time")).to_numpy()[parents]
        times = np.concatenate([stored, *(each.column(TIME).to_numpy() for each in (left, right))])
        codes = codes_of(self._keys, in_order=True)
        placed = pa.table([codes, right_side, times], names=["key", "side", "time"])
        order = order_of(placed, placed.column_names).to_numpy()
        other_key = np.diff(codes[order]) != 0
        again = ~other_key & (np.diff(times[order]) == 0)
        again &= right_side[order][1:] == right_side[order][:-1]
        self._order = self._in_order_of_values(order, again)
        self._new = self._order >= old
        self._right, self._times = right_side[self._order], times[self._order]
        self._moments, self._moment = np.unique(self._times, return_inverse=True)
        # Small numbers: a code of several columns may have 63 bits.
        self._key = np.cumsum(np.append(True, other_key)[: len(order)])
        starts = np.append(True, ~again)[: len(order)]
        self._begins, self._group = np.flatnonzero(starts), np.cumsum(starts) - 1
        self.group_right, self.group_times = self._right[self._begins], self._times[self._begins]
        self.renewed = np.zeros(len(self._begins), np.bool_)
        self.renewed[self._group[self._new]] = True
        # Where each group is buffered; the first line of such a group is a buffered one.
        begin = self._order[self._begins]
        self._is_buffered = begin < old
        place = np.zeros(len(begin), np.int64)
        place[self._is_buffered] = parents[begin[self._is_buffered]]
        self._buffered_at = pa.array(place, mask=~self._is_buffered)

    def matched(self, lower: int, upper: int) -> Flags:
        """Return for each group whether a row of the other side is in its interval, if left."""
        found = np.zeros(len(self._begins), np.bool_)
        lefts, rights = np.flatnonzero(~self._right), np.flatnonzero(self._right)
        first, last = self._ends(lefts, rights, lower, upper)
        found[self._group[lefts[last > first]]] = True
        return found

    def known(self, name: str) -> pa.Array:
        """Return ``expires`` or ``matched`` of each group as buffered; NULL if it is not."""
        return self._buffered.column(name).combine_chunks().take(self._buffered_at)

    def noted(self, matched: Flags) -> pa.Array:
        """Return what the state notes of each group; NULL if nobody knows whether it matched."""
        known = self.known("matched")
        # A group that is not buffered has no match yet, and neither has one with new rows.
        unknown = pc.and_(known.is_null(), pa.array(self._is_buffered & ~self.renewed))
        before = pc.if_else(unknown, pa.scalar(None, pa.bool_()), known.fill_null(False))
        return pc.if_else(pa.array(matched), pa.scalar(True), before)

    def pairs(self, lower: int, upper: int) -> tuple[Numbers, Numbers]:
        """Return the left and right lines of the matches with at least one row of the batch."""
        lefts, rights = np.flatnonzero(~self._right), np.flatnonzero(self._right)
        old, new = lefts[~self._new[lefts]], lefts[self._new[lefts]]
        parts = [
            self._matches(old, rights[self._new[rights]], lower, upper),
            self._matches(new, rights, lower, upper),
        ]
        left, right = (np.concatenate(each) for each in zip(*parts, strict=True))
        # Groups are in the order of their keys and times. Both sorts find long runs in order.
        by_line = np.argsort(left * len(self._key) + right, kind="stable")
        left, right = left[by_line], right[by_line]
        groups = self._group[left] * len(self._begins) + self._group[right]
        by_group = np.argsort(groups, kind="stable")
        return left[by_group], right[by_group]

    def keys(self, lines: Numbers) -> pa.Table:
        """Return the keys of some lines."""
        return self._keys.take(pa.array(self._order[lines]))

    def others(self, lines: Numbers, side: str) -> ByName:
        """Return the other columns of some lines of one side."""
        fields, place = self._joined.fields_of(side), self._order[lines]
        new = self._new[lines]
        fresh = self._fresh(side, place[new])
        if new.all():
            return fresh
        # A row with several matches is unpacked once.
        places, again = np.unique(place[~new], return_inverse=True)
        opened = unpacked_columns(self._texts.take(pa.array(places)), fields)
        return {
            name: _together([(~new, column.take(pa.array(again))), (new, fresh[name])])
            for name, column in opened.items()
        }

    def stored_keys(self, groups: Flags) -> pa.Table:
        """Return key, side and time of some groups, as they are stored."""
        begins = self._begins[groups]
        sides = pc.if_else(pa.array(self._right[begins]), pa.scalar(RIGHT), pa.scalar(LEFT))
        kind = SIDE_AND_TIME.arrow_schema().field("time").type
        found = self.keys(begins).append_column("side", sides)
        return found.append_column("time", pa.array(self._times[begins]).cast(kind))

    def texts_of(self, groups: Flags) -> pa.Array:
        """Return the texts of some groups, one to a line of its text."""
        lines = np.flatnonzero(groups[self._group])
        counts = np.bincount(self._group[lines], minlength=len(groups))[groups]
        offsets = pa.array(np.append(0, np.cumsum(counts)), pa.int32())
        texts = self._packed(self._order[lines])
        return pc.binary_join(pa.ListArray.from_arrays(offsets, texts), "\n")

    def new_of(self, groups: Flags) -> Numbers:
        """Return the lines of some groups that are rows of the batch."""
        return np.flatnonzero(groups[self._group] & self._new)

    def _in_order_of_values(self, order: Numbers, again: Flags) -> Numbers:
        """Sort rows of the batch with the same key, side and time by their other columns.

        Args:
            order: The lines in the order of key, side and time.
            again: Whether each line but the first has the same ones as the line before it.
        """
        ties = again & (order[:-1] >= self._first[LEFT])
        if not ties.any():
            return order
        sorted_lines = order.copy()
        tied = np.append(False, ties) | np.append(ties, False)
        runs = np.cumsum(np.append(False, ~ties))
        for side, chosen in self._by_side(order):
            among = np.flatnonzero(tied & chosen)
            values = pa.table({TIME: pa.array(runs[among]), **self._fresh(side, order[among])})
            sorted_lines[among] = order[among][order_of_all(values).to_numpy()]
        return sorted_lines

    def _by_side(self, places: Numbers) -> Iterator[tuple[str, Flags]]:
        """Yield which lines are rows of the batch, by side and by places before the sorting."""
        right = places >= self._first[RIGHT]
        yield LEFT, (places >= self._first[LEFT]) & ~right
        yield RIGHT, right

    def _fresh(self, side: str, places: Numbers) -> ByName:
        """Return the other columns of rows of the batch, by their places before the sorting."""
        rows = columns_of(self._rows[side], self._joined.fields_of(side).names)
        at = pa.array(places - self._first[side])
        return {name: column.take(at) for name, column in rows.items()}

    def _packed(self, places: Numbers) -> pa.Array:
        """Return lines as texts, by their places before they were sorted."""
        is_old = places < self._first[LEFT]
        parts = [(is_old, self._texts.take(pa.array(places[is_old])))]
        for side, chosen in self._by_side(places):
            if chosen.any():
                fresh = self._fresh(side, places[chosen])
                parts.append((chosen, packed_rows([*fresh.values()], int(chosen.sum()))))
        return _together(parts)

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
        # Key and time as one number: the time as its place among all times.
        keys, times = self._key * (len(self._moments) + 1), self._times[lefts]
        known = keys[rights] + self._moment[rights]
        first = keys[lefts] + np.searchsorted(self._moments, times + lower, "left")
        last = keys[lefts] + np.searchsorted(self._moments, times + upper, "right")
        return np.searchsorted(known, first), np.searchsorted(known, last)


def lines_of(buffered: pa.Table) -> tuple[pa.Array, Numbers]:
    """Return the lines of the texts of buffered rows, and for each line the place of its row."""
    texts = pc.split_pattern(buffered.column("rows").combine_chunks(), "\n")
    parents: Numbers = pc.list_parent_indices(texts).to_numpy()
    return texts.flatten(), parents


def columns_of(rows: pa.Table, names: Sequence[str]) -> ByName:
    """Return some columns of rows by name, each in one piece."""
    return {name: rows.column(name).combine_chunks() for name in names}


def _together(parts: Sequence[tuple[Flags, pa.Array]]) -> pa.Array:
    """Return one column of several; each has the values of the places that its flags name."""
    places = np.concatenate([np.flatnonzero(chosen) for chosen, _ in parts])
    order = pa.array(np.argsort(places, kind="stable"))
    return pa.concat_arrays([values for _, values in parts]).take(order)


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
    key, others = compared_columns(left, right, on)
    names = key.names
    check_new_columns("the state of join", key, [*SIDE_AND_TIME, *BUFFERED])
    lefts = Fields.of([each for each in left if each.name not in names])
    rights = Fields.of([each for each in right if each.name not in others])
    fields = check_new_columns("join", left, rights)
    return Joined(key, lefts, rights, others, fields, lower, upper, how)


def compared_columns(left: Fields, right: Fields, on: object) -> tuple[Fields, tuple[str, ...]]:
    """Return the columns of the left rows that are compared, and their names on the right.

    Raises:
        FieldsError: There is no such column, or types differ.
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
    return key, others


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


def checked_how(how: object) -> How:
    """Return which rows a join returns.

    Raises:
        TopologyError: There is no such join.
    """
    if how != "inner" and how != "left":
        raise TopologyError(
            f"join has no how={how!r} here; expected 'inner' or 'left'; to keep right rows without "
            "a match, swap the two streams, or join them without within, which has 'right' and "
            "'full' too",
            setting="how",
        )
    return how


def check_one_task(parallelism: object) -> None:
    """Check that a join of streams has no parallelism.

    Raises:
        TopologyError: It has one.
    """
    if parallelism is not None:
        raise TopologyError(
            f"join with a stream takes no parallelism; got {parallelism!r:.100}; expected none, "
            "because it runs in the commit phase, in one task; set the parallelism of the "
            "operators above it",
            setting="parallelism",
        )


def check_kept_by_time(expire_after: object) -> None:
    """Check that a join with ``within`` has no ``expire_after``.

    Raises:
        TopologyError: It has one.
    """
    if expire_after is not None:
        raise TopologyError(
            f"join with within takes no expire_after; got {expire_after!r:.100}; expected none, "
            "because a row is kept as long as it may match; remove one of them",
            setting="expire_after",
        )


def check_of_streams(**given: object) -> None:
    """Check that a join with a lookup has no argument that only a join of streams takes.

    Raises:
        TopologyError: It has one.
    """
    for name, value in given.items():
        if value is not None:
            raise TopologyError(
                f"join with a lookup takes no {name}; got {value!r:.100}; expected on, how and "
                "id, because it buffers nothing; remove it, or join a stream",
                setting=name,
            )


def _signed(what: str, given: object) -> datetime.timedelta:
    if isinstance(given, str) and given.strip().startswith("-"):
        return -duration(what, given.strip()[1:], zero=True)
    if isinstance(given, datetime.timedelta) and given < datetime.timedelta(0):
        return -duration(what, -given)
    return duration(what, given, zero=True)
