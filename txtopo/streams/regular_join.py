"""RegularJoin: the join of two changing tables, kept right by what it emits, without time bounds.

Rules
-----
1. A side is the multiset of the rows that a stream has added and not taken back: all rows of a
   stream without a ``retracted`` column, the rows of a table for the stream of its changes. The
   rows that the join has emitted and not taken back are, after each txid, exactly the join of the
   two sides as of that txid, as a multiset: rows that are m times on the left and n times on the
   right are m * n times in the result. An inner join of two streams whose rows stay takes nothing
   back. So its rows have no column ``retracted``, unless they expire.
2. A left and a right row match if their keys are equal. With ``how="left"`` or ``"full"`` a left
   row without a match is in the result with NULLs, with ``"right"`` or ``"full"`` a right row. It
   is taken back when its first match comes, and comes again when its last match goes. A NULL or
   NaN in a key equals nothing: such a row has no match, now or later, so it needs no state.
3. Rows of a txid are added up first: what is put and taken back in the same txid, in whatever
   order, does not count. Then a row with a key that is taken back must be there. If it is not, the
   stream takes back what it never put, and the batch fails.
4. The state has a line for each distinct row, with its key, side and digest: how often it is there
   (``times``), and the values that are not the key (``row``, a JSON list). The digest stands for
   these values, so a row is found without a read of the others of its key. 0.0 and -0.0 are the
   same value, 0.0.
5. A txid reads the changed rows, and, of each key that changed on one side, the rows of the other
   side. So a new order reads its customer, not the customer's other orders. It writes the changed
   rows. Where rows without a match count, the line with an empty digest has the number of rows of a
   key and side, for sides whose first and last row make a difference.
6. Each pair of rows is emitted once for a txid, with the difference that the txid makes to it. The
   rows are in the order of their keys, and in each key those that are taken back come first. Their
   further order depends on the rows alone. Rows without a key come last.
7. With ``expire_after`` a row counts as taken back in the first txid in which it was not put or
   taken back for so long: it leaves the state, and what it gave to the result is taken back. The
   last time is ``seen``: the latest event time of its rows, compared with the watermark of both
   sides, if both have event time; else the planned time of the txid that changed it, compared with
   that of each later txid. Equal rows expire together. A row that is taken back and not there has
   expired before, so that changes nothing. Rows without a key are not kept, and do not expire.
8. Each row is taken back as it counted. So a changed program can neither join other columns, in
   another order or of another table, nor keep other rows without a match, on the same state.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, cast, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import ArrowBolt, Committer
from txtopo.collector import ArrowOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.durations import Duration, duration
from txtopo.errors import EmitError, TopologyError
from txtopo.state.keyed_columns import (
    Numbers,
    codes_of,
    flags_of,
    in_one_piece,
    is_key,
    order_of,
    order_of_all,
    positions,
    there,
    with_plain_zeros,
    without_keys,
)
from txtopo.state.lifetimes import LAST, SEEN, with_seen
from txtopo.state.registry import State
from txtopo.state.transaction import StateTransaction
from txtopo.streams.checks import check_new_columns
from txtopo.streams.draft import readable_state
from txtopo.streams.event_time import TimeColumn, event_times
from txtopo.streams.interval_join import LEFT, RIGHT, compared_columns
from txtopo.streams.late_rows import Watermark, microseconds_of
from txtopo.streams.nodes import BoltNode, Port, taken_back_above
from txtopo.streams.packed_rows import packed_rows, unpacked_columns
from txtopo.streams.tables import RETRACTED, Output
from txtopo.traits import Meaning, Traits
from txtopo.tuples import DEFAULT_STREAM, Fields

if TYPE_CHECKING:
    from txtopo.streams.stream import DataStream

RegularHow = Literal["inner", "left", "right", "full"]

SIDES = (LEFT, RIGHT)

SIDE_AND_DIGEST = Fields("side string, digest string")
"""The last columns of the key of the state."""

KEPT = Fields("times long, row string")
"""The value columns of the state; ``row`` is NULL in the line with the number of rows.

If rows expire, ``seen`` is there too, and NULL in that line.
"""

TOTAL = ""
"""The digest of the line with the number of rows of a key and side."""

DIGEST_BYTES = 16
"""Enough that two rows of a key never have the same: one in 10**20 for a billion rows."""

DIGEST, ROW = "digest", "row"

DELTA = ""
"""The column with how often a row is added: no declared field has an empty name."""

TIMES = pa.timestamp("us", tz="UTC")

NONE = -1
"""The place of the other side's row, for a row without a match."""


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One side of a join.

    Attributes:
        outputs: The streams of components that it is made of.
        fields: The fields of its rows.
        key: The names of its columns that are compared.
        others: Its other columns, without the one that marks rows as taken back.
        retracted: The column that marks rows as taken back; None if there is none.
        above: The tables whose rows are taken back, and the operators in between, in words.
        time: Its event time; None if it has none.
    """

    outputs: tuple[Output, ...]
    fields: Fields
    key: tuple[str, ...]
    others: Fields
    retracted: str | None
    above: str
    time: TimeColumn | None

    def __str__(self) -> str:
        columns = ", ".join(f"{each.name} {each.type}" for each in self.others)
        return f"({columns}) {'appended' if self.retracted is None else f'of {self.above}'}"


@dataclass(frozen=True, slots=True)
class RowsExpire:
    """When the rows of a join expire.

    Attributes:
        after: How long a row stays that is neither put nor taken back.
        by_event_time: Whether that is measured in event time; else it is in planned time.
    """

    after: datetime.timedelta
    by_event_time: bool

    def __str__(self) -> str:
        return f", rows expire by {'event' if self.by_event_time else 'planned'} time"


@dataclass(frozen=True, slots=True)
class RegularlyJoined:
    """What a join without a bound in time joins.

    Attributes:
        key: The columns of the key, by their names on the left.
        left: The left side.
        right: The right side.
        fields: What is emitted: the left columns in their order, those of the right side, and, if
            rows are taken back, the column that marks them.
        how: Which rows without a match are emitted.
        expiry: When rows expire; None for never.
    """

    key: Fields
    left: JoinSide
    right: JoinSide
    fields: Fields
    how: RegularHow
    expiry: RowsExpire | None

    @property
    def takes_back(self) -> bool:
        """Whether rows that were emitted are taken back."""
        stay = self.left.retracted is None and self.right.retracted is None
        return self.how != "inner" or not stay or self.expiry is not None

    def keeps(self, at: int) -> bool:
        """Return whether rows of the left (0) or right (1) side without a match are emitted."""
        return self.how in ("full", SIDES[at])


class RegularJoin(ArrowBolt, Committer):
    """Emits how the join of two sides changes.

    Delivery: after each txid the rows emitted and not taken back are exactly the join of the sides.

    Args:
        id: Its id, which is also the name of its state.
        joined: What it joins.
    """

    writes_nowhere_else = True

    def __init__(self, id: str, joined: RegularlyJoined) -> None:
        self._id, self._joined = id, joined
        self._sides = joined.left, joined.right
        self.output_fields = joined.fields
        expiry = joined.expiry
        self.needs_planned_time = expiry is not None and not expiry.by_event_time

    @property
    def traits(self) -> Traits:
        """The traits of the join, with what its stored rows mean."""
        joined = self._joined
        rows = f"{joined.how} join on {', '.join(joined.key.names)}"
        fixed = (
            "a row would be taken back in a different way than it was counted; join the same "
            "columns of the same tables as before, or give the state, and those below it, "
            "another table"
        )
        return Traits(
            operators=(rows,),
            rows=Meaning(
                f"{rows}, left {joined.left}, right {joined.right}{joined.expiry or ''}", fixed
            ),
            retractions=DEFAULT_STREAM if joined.takes_back else None,
            needs_planned_time=self.needs_planned_time,
            expires=joined.expiry is not None,
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
        self._batches: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = [], []
        self._keys = list(self._joined.key.names)
        expiry = self._joined.expiry
        columns = [*self._joined.key, *SIDE_AND_DIGEST, *KEPT]
        stored = Fields.of(columns if expiry is None else [*columns, *SEEN])
        self._stored = stored.arrow_schema()
        self._watermark = Watermark()
        # A row that comes now was seen now, unless it has an event time.
        self._now = context.planned_time if self.needs_planned_time else None

    def execute(self, batch: pa.RecordBatch) -> None:
        """Never called, since :meth:`execute_from` takes the rows of all streams."""
        raise AssertionError("execute_from takes the rows")

    def execute_from(self, component: str, stream: str, batch: pa.RecordBatch) -> None:
        """Add rows to their side, or to both if a stream is joined with itself."""
        sides = zip(self._sides, self._batches, strict=True)
        takers = [batches for side, batches in sides if (component, stream) in side.outputs]
        for batches in takers:
            batches.append(batch)
        if not takers and not self._watermark.takes(batch):
            raise AssertionError(f"rows of {component!r}, to which {self._id!r} does not subscribe")

    def finish_batch(self) -> None:
        """Emit how the rows of the batch change the join, and write them."""
        changes, alone = [], []
        for at in (0, 1):
            rows, seen = self._arrived(at)
            fits = is_key(rows, self._keys)
            if fits is not None:
                if self._joined.keeps(at):
                    alone.append(self._without_key(rows.filter(pc.invert(fits))))
                rows, seen = rows.filter(fits), seen.filter(fits)
            changes.append(self._changes(at, rows, seen))
        with self._state.transaction(self._attempt) as values:
            joined = self._change(values, changes)
        for part in (joined, *alone):
            for batch in part.to_batches():
                if batch.num_rows:
                    self._collector.emit(batch)

    def _arrived(self, at: int) -> tuple[pa.Table, pa.Array]:
        """Return the rows of a side, and when each was seen, in microseconds since 1970.

        The columns are the key, named as on the left, the others, and 1 or -1 for each row.
        """
        side = self._sides[at]
        rows = pa.Table.from_batches(self._batches[at], side.fields.arrow_schema())
        signs = np.ones(rows.num_rows, np.int64)
        if side.retracted is not None:
            signs[flags_of(rows.column(side.retracted).fill_null(False))] = -1
        found = rows.select([*side.key, *side.others.names])
        names = [*self._keys, *side.others.names]
        found = with_plain_zeros(found.rename_columns(names), names)
        expiry = self._joined.expiry
        seen = np.zeros(rows.num_rows, np.int64)
        if expiry is not None and expiry.by_event_time:
            assert side.time is not None, "both sides have one"
            seen = event_times(self._id, rows, side.time)
        elif self._now is not None:
            seen += microseconds_of(self._now)
        return found.append_column(DELTA, pa.array(signs)), pa.array(seen)

    def _without_key(self, rows: pa.Table) -> pa.Table:
        """Return the rows of a side that equal nothing, as they are emitted."""
        rows = added_up(rows)
        taken_back = pa.table([pc.less(rows.column(DELTA), 0)], ["taken_back"])
        order = order_of_all(rows.drop_columns([DELTA]))
        later = order_of(taken_back.take(order), ["taken_back"], ["taken_back"])
        rows = rows.take(order.take(later))
        return self._emitted(rows, rows.column(DELTA).to_numpy())

    def _changes(self, at: int, rows: pa.Table, seen: pa.Array) -> pa.Table:
        """Return what a batch adds to a side: key, row, how often, last time, digest."""
        texts = packed_rows(rows.select(self._sides[at].others.names).columns, rows.num_rows)
        found = rows.select(self._keys).append_column(ROW, texts)
        found = added_up(found.append_column(DELTA, rows.column(DELTA)).append_column(LAST, seen))
        digests = pa.array(map(digest_of, found.column(ROW).to_pylist()), pa.string())
        return found.append_column(DIGEST, digests)

    def _change(self, values: StateTransaction, changes: Sequence[pa.Table]) -> pa.Table:
        """Write the changes of both sides; return the rows to emit."""
        up_to = self._expired_up_to()
        if up_to is not None:
            changes = self._with_expired(values, changes, up_to)
        stored = self._read(values, changes)
        parts = [each.select(self._keys) for each in (*changes, stored)]
        keys = pa.concat_tables(parts).combine_chunks()
        codes = codes_of(keys, in_order=True)
        _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
        keys = keys.take(pa.array(first))
        ends = np.cumsum([each.num_rows for each in parts])[:-1]
        *changed, held = np.split(numbers, ends)
        left, right = (
            Lines.of(SIDES[at], changes[at], changed[at], stored, held, len(first)) for at in (0, 1)
        )
        if self._joined.expiry is not None:
            left, right = left.expired(up_to), right.expired(up_to)
        for lines in (left, right):
            self._check(lines, keys)
        self._write(values, keys, (left, right))
        pairs = [left.pairs(right)]
        if self._joined.keeps(0):
            pairs.append(left.without_match(right))
        if self._joined.keeps(1):
            # Lines without a match come before the other side's, of which there is none.
            pairs.append(right.without_match(left)[[1, 0, 2]])
        lefts, rights, delta = np.concatenate(pairs, axis=1)
        keyed = np.where(lefts == NONE, right.code_at(rights), left.code_at(lefts))
        order = np.lexsort((rights, lefts, delta > 0, keyed))
        rows = keys.take(pa.array(keyed[order]))
        for at, lines, places in ((0, left, lefts), (1, right, rights)):
            for name, column in lines.values(places[order], self._sides[at].others).items():
                rows = rows.append_column(name, column)
        return self._emitted(rows, delta[order])

    def _expired_up_to(self) -> datetime.datetime | None:
        """Return the last time of rows that expire in this txid; None for no rows."""
        expiry = self._joined.expiry
        if expiry is None:
            return None
        now = self._watermark.after if self._now is None else self._now
        return None if now is None else now - expiry.after

    def _with_expired(
        self, values: StateTransaction, changes: Sequence[pa.Table], up_to: datetime.datetime
    ) -> list[pa.Table]:
        """Return the changes, with the rows that expire and are not among them."""
        expired = values.columns_between(LAST, None, up_to)
        names, together = [*self._keys, DIGEST], []
        for side, changed in zip(SIDES, changes, strict=True):
            lines = expired.filter(pc.equal(expired.column("side"), side))
            lines = without_keys(lines, changed, names)
            taken_back = pc.negate(lines.column("times"))
            lines = lines.set_column(
                lines.schema.get_field_index(LAST), LAST, lines.column(LAST).cast(pa.int64())
            ).append_column(DELTA, taken_back)
            together.append(pa.concat_tables([changed, lines.select(changed.column_names)]))
        return together

    def _read(self, values: StateTransaction, changes: Sequence[pa.Table]) -> pa.Table:
        """Return the stored lines that a batch needs, each once."""
        parts = [each.select(self._keys) for each in changes]
        keys = pa.concat_tables(parts)
        if not keys.num_rows:
            return self._stored.empty_table()
        codes = np.split(codes_of(keys), [changes[0].num_rows])
        prefixes, exact = [], []
        for at in (0, 1):
            prefixes.append(of_side(parts[at], SIDES[1 - at]))
            # Of a key that changed on both sides all lines are read already.
            own = changes[at].filter(pa.array(~np.isin(codes[at], codes[1 - at])))
            asked = of_side(own.select(self._keys), SIDES[at])
            digests = [own.column(DIGEST)]
            if self._counts(at):
                digests.append(pa.chunked_array([pa.repeat(pa.scalar(TOTAL), own.num_rows)]))
            exact += [asked.append_column(DIGEST, each) for each in digests]
        found = [values.columns_starting(pa.concat_tables(prefixes))]
        own = pa.concat_tables(exact)
        if own.num_rows:
            found.append(values.get_columns(own))
        return pa.concat_tables([each.select(self._stored.names) for each in found])

    def _counts(self, at: int) -> bool:
        """Return whether the state has the number of rows of each key of a side."""
        return self._joined.keeps(1 - at)

    def _check(self, lines: Lines, keys: pa.Table) -> None:
        """Check that the rows which are taken back were there.

        Raises:
            EmitError: One was not.
        """
        missing = np.flatnonzero(lines.after < 0)
        if len(missing):
            first = int(missing[0])
            (key,) = keys.slice(int(lines.codes[first]), 1).to_pylist()
            raise EmitError(
                f"the {lines.side} side of {self._id!r} takes back a row that does not exist; got "
                f"{key} with {lines.rows[first].as_py():.200}; expected a row that was put "
                "before, with the same values; let functions above depend only on the row, "
                "because they run again for a row that is taken back",
                component=self._id,
            )

    def _write(self, values: StateTransaction, keys: pa.Table, both: tuple[Lines, Lines]) -> None:
        """Write the lines that have changed."""
        written = []
        for at, lines in enumerate(both):
            chosen = np.flatnonzero(lines.delta)
            columns = [lines.digests.take(pa.array(chosen)), pa.array(lines.after[chosen])]
            columns.append(lines.rows.take(pa.array(chosen)))
            columns.append(pa.array(lines.seen[chosen]).cast(TIMES))
            written.append((lines.side, lines.codes[chosen], columns))
            if self._counts(at):
                moved = np.flatnonzero(lines.total_after != lines.total)
                total = pa.repeat(pa.scalar(TOTAL), len(moved))
                nothing = pa.nulls(len(moved), pa.string())
                never = pa.nulls(len(moved), TIMES)
                totals = [total, pa.array(lines.total_after[moved]), nothing, never]
                written.append((lines.side, moved, totals))
        kept = len(self._stored) - len(self._keys) - 1
        tables = [
            pa.table(
                [*of_side(keys.take(pa.array(codes)), side).columns, *columns[:kept]],
                schema=self._stored,
            )
            for side, codes, columns in written
        ]
        together = pa.concat_tables(tables)
        gone = pc.equal(together.column("times"), 0)
        values.put_columns(together.filter(pc.invert(gone)))
        if pc.any(gone, min_count=0).as_py():
            values.delete_columns(together.filter(gone).select([*self._keys, "side", DIGEST]))

    def _emitted(self, rows: pa.Table, delta: Numbers) -> pa.Table:
        """Return rows as they are emitted: each as often as it was added, or taken back.

        Args:
            rows: The key, and the other columns of one side or of both.
            delta: How often each is added; negative if it is taken back.
        """
        if self._joined.takes_back:
            rows = rows.append_column(RETRACTED.name, pa.array(delta < 0))
        schema = self._joined.fields.arrow_schema()
        columns = [
            rows.column(each.name)
            if each.name in rows.column_names
            else pa.nulls(rows.num_rows, each.type)
            for each in schema
        ]
        found = pa.table(columns, schema=schema)
        times = np.abs(delta)
        if (times == 1).all():
            return found
        return found.take(pa.array(np.repeat(np.arange(len(times)), times)))


@dataclass(frozen=True, slots=True)
class Lines:
    """Distinct rows of one side: the changed ones, and those that were read, sorted by key.

    Of a key that has not changed on the other side, only the changed rows are here.

    Attributes:
        side: The side.
        codes: The number of the key of each row, from 0, in the order of keys.
        digests: The digest of each row.
        rows: The values of each row that are not its key, as text.
        before: How often each row was there.
        delta: How often the batch adds it; negative if it takes it back.
        seen: When it was last put or taken back, in microseconds since 1970; 0 if none expires.
        total: How many rows of each key there were; 0 if that is not counted.
        total_after: How many there are after the batch.
    """

    side: str
    codes: Numbers
    digests: pa.Array
    rows: pa.Array
    before: Numbers
    delta: Numbers
    seen: Numbers
    total: Numbers
    total_after: Numbers

    @classmethod
    def of(
        cls,
        side: str,
        changes: pa.Table,
        changed: Numbers,
        stored: pa.Table,
        held: Numbers,
        keys: int,
    ) -> Lines:
        """Return the lines of a side.

        Args:
            side: The side.
            changes: What the batch adds to it.
            changed: The number of the key of each of these.
            stored: The stored lines of both sides.
            held: The number of the key of each of these.
            keys: How many keys there are.
        """
        own = flags_of(pc.equal(stored.column("side"), side))
        counting = flags_of(pc.equal(stored.column(DIGEST), TOTAL))
        times = stored.column("times").to_numpy()
        total = np.zeros(keys, np.int64)
        total[held[own & counting]] = times[own & counting]
        delta = changes.column(DELTA).to_numpy()
        total_after = total.copy()
        np.add.at(total_after, changed, delta)

        own &= ~counting
        known, before = stored.filter(pa.array(own)), times[own]
        names = ["code", DIGEST]
        place = positions(
            pa.table([changed, changes.column(DIGEST)], names),
            pa.table([held[own], known.column(DIGEST)], names),
        )
        found = there(place)
        added, seen = np.zeros(len(before), np.int64), np.zeros(len(before), np.int64)
        at, last = place.drop_null().to_numpy(), changes.column(LAST).to_numpy()
        added[at] = delta[found]
        if LAST in stored.column_names:
            seen = known.column(LAST).cast(pa.int64()).to_numpy().copy()
            seen[at] = np.maximum(seen[at], last[found])
        new = pa.array(~found)
        lines = pa.concat_tables(
            [known.select([DIGEST, ROW]), changes.select([DIGEST, ROW]).filter(new)]
        )
        codes = np.append(held[own], changed[~found])
        order = order_of(lines.append_column("code", pa.array(codes)), names)
        lines, places = lines.take(order).combine_chunks(), order.to_numpy()
        return cls(
            side,
            codes[places],
            in_one_piece(lines.column(DIGEST)),
            in_one_piece(lines.column(ROW)),
            np.append(before, np.zeros((~found).sum(), np.int64))[places],
            np.append(added, delta[~found])[places],
            np.append(seen, last[~found])[places],
            total,
            total_after,
        )

    def expired(self, up_to: datetime.datetime | None) -> Lines:
        """Return the lines, of which those last seen up to a time are gone after the batch."""
        changed = self.delta != 0
        after = np.maximum(self.after, 0)
        if up_to is not None:
            after[changed & (self.seen <= microseconds_of(up_to))] = 0
        delta, total_after = after - self.before, self.total.copy()
        np.add.at(total_after, self.codes, delta)
        return replace(self, delta=delta, total_after=total_after)

    @property
    def after(self) -> Numbers:
        """How often each row is there after the batch."""
        return self.before + self.delta

    def code_at(self, places: Numbers) -> Numbers:
        """Return the keys of some rows; a place that is ``NONE`` has any."""
        return self.codes[places] if len(self.codes) else np.zeros(len(places), np.int64)

    def pairs(self, right: Lines) -> Numbers:
        """Return the pairs of rows that the batch changes: left place, right place, how often."""
        changed, same = np.flatnonzero(self.delta), np.flatnonzero(self.delta == 0)
        every, moved = np.arange(len(right.codes)), np.flatnonzero(right.delta)
        parts = [self._matches(changed, right, every), self._matches(same, right, moved)]
        lefts, rights = np.concatenate(parts, axis=1)
        times = self.after[lefts] * right.after[rights] - self.before[lefts] * right.before[rights]
        return np.stack([lefts, rights, times])[:, times != 0]

    def without_match(self, other: Lines) -> Numbers:
        """Return the rows without a match that the batch changes: place, ``NONE``, how often."""
        alone, after = other.total[self.codes] == 0, other.total_after[self.codes] == 0
        times = self.after * after - self.before * alone
        places = np.flatnonzero(times)
        return np.stack([places, np.full(len(places), NONE), times[places]])

    def values(self, places: Numbers, fields: Fields) -> Mapping[str, pa.Array]:
        """Return the values of rows by name; NULL where the place is ``NONE``."""
        missing = places == NONE
        used, again = np.unique(places[~missing], return_inverse=True)
        # A row with several matches is unpacked once.
        columns = unpacked_columns(self.rows.take(pa.array(used)), fields)
        index = np.zeros(len(places), np.int64)
        index[~missing] = again
        taken = pa.array(index, mask=missing)
        return {name: column.take(taken) for name, column in columns.items()}

    def _matches(self, lefts: Numbers, right: Lines, rights: Numbers) -> Numbers:
        """Return the pairs of some left and right rows with equal keys."""
        known, wanted = right.codes[rights], self.codes[lefts]
        first = np.searchsorted(known, wanted, "left")
        counts = np.searchsorted(known, wanted, "right") - first
        begins = np.cumsum(counts) - counts
        which = np.repeat(first - begins, counts) + np.arange(counts.sum())
        return np.stack([np.repeat(lefts, counts), rights[which]])


def joined_regularly(
    left: DataStream,
    right: DataStream,
    on: object,
    how: object,
    state: State | None,
    late: object,
    expire_after: Duration | None,
    id: str | None,
) -> DataStream:
    """Return the join of two streams without a bound in time.

    Raises:
        TopologyError: An argument is wrong; the message says which.
    """
    if how not in get_args(RegularHow):
        raise TopologyError(
            f"join has no how={how!r:.100}; expected 'inner', 'left', 'right' or 'full'",
            setting="how",
        )
    if late is not None:
        raise TopologyError(
            f"a join without within takes no late; got {late!r:.100}; expected none, because no "
            "row is late there; remove it, or give the interval in which rows match with within=",
            setting="late",
        )
    if state is None:
        raise TopologyError(
            "a join of two streams needs a state that keeps their rows; got none; pass "
            "state=open_state(url, table='…'), and within=(…) if rows match for a limited time"
        )
    plain = [_without_mark(each) for each in (left, right)]
    key, right_key = compared_columns(plain[0], plain[1], on)
    check_new_columns("the state of join", key, [*SIDE_AND_DIGEST, *KEPT, *SEEN])
    lefts, rights = (
        Fields.of([field for field in fields if field.name not in names])
        for fields, names in zip(plain, (key.names, right_key), strict=True)
    )
    fields = check_new_columns("join", plain[0], rights)
    sides = [
        JoinSide(
            tuple(port.output for port in each.ports),
            each.fields,
            names,
            others,
            each.retracted,
            taken_back_above(each.ports),
            each.time,
        )
        for each, names, others in (
            (left, tuple(key.names), lefts),
            (right, right_key, rights),
        )
    ]
    draft = left.draft
    with draft.all_or_nothing():
        taken = draft.id_of_table(id, "join", state)
        kept = readable_state("join", state).named(taken)
        kept = kept.with_columns(Fields.of([*key, *SIDE_AND_DIGEST]), KEPT)
        ports, expiry = tuple(dict.fromkeys(left.ports + right.ports)), None
        if expire_after is not None:
            after = duration("expire_after, of join,", expire_after)
            kept = with_seen(kept)
            times = [each.time for each in (left, right) if each.time is not None]
            expiry = RowsExpire(after, by_event_time=len(times) == 2)
            if expiry.by_event_time:
                ports += (draft.watermark(times[0].together(times[1]), kept, kept.table or ""),)
        joined = RegularlyJoined(key, sides[0], sides[1], fields, cast(RegularHow, how), expiry)
        if joined.takes_back:
            joined = replace(joined, fields=check_new_columns("join", fields, [RETRACTED]))
        bolt = RegularJoin(taken, joined)
        node = draft.add(BoltNode(taken, ports, 1, bolt, (), {taken: kept}))
        return replace(
            left,
            name=taken,
            ports=(Port(node),),
            fields=joined.fields,
            time=None,
            retracted=RETRACTED.name if joined.takes_back else None,
            changes_of=None,
        )


def _without_mark(stream: DataStream) -> Fields:
    """Return the fields of a stream without the column that marks rows as taken back.

    Raises:
        TopologyError: The stream has each row of a table again each time that it changes.
    """
    # A merge may have both, if a table has a column with the name of the mark.
    if stream.changes_of is not None:
        raise TopologyError(
            f"join would keep a row of table {stream.changes_of!r} again each time it changes; got "
            f"the stream {stream.name!r} as it is; expected the table itself, or "
            "changes(retracted=True), which takes the old row back; to join the changes "
            "themselves, put select(…) or another operator in between",
            table=stream.changes_of,
            stream=stream.name,
        )
    return Fields.of([each for each in stream.fields if each.name != stream.retracted])


def added_up(rows: pa.Table) -> pa.Table:
    """Return distinct rows with the sum of their column ``DELTA``, without those with sum 0.

    Columns behind it are not compared; their largest values count.
    """
    at = rows.schema.get_field_index(DELTA)
    codes = codes_of(rows.select(range(at)))
    _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
    sums = np.zeros(len(first), np.int64)
    np.add.at(sums, numbers, rows.column(DELTA).to_numpy())
    left = sums != 0
    found = rows.select(range(at)).take(pa.array(first[left])).append_column(DELTA, [sums[left]])
    for name in rows.column_names[at + 1 :]:
        values = rows.column(name).to_numpy()
        largest = values[first]
        np.maximum.at(largest, numbers, values)
        found = found.append_column(name, [largest[left]])
    return found


def of_side(keys: pa.Table, side: str) -> pa.Table:
    """Return keys with a side."""
    return keys.append_column("side", pa.repeat(pa.scalar(side), keys.num_rows))


def digest_of(row: str) -> str:
    """Return the digest of the values of a row; states depend on it."""
    return blake2b(row.encode(), digest_size=DIGEST_BYTES).hexdigest()
