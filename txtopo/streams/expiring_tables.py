"""ExpiringTable: a table whose values expire after a time without a row of their key.

Rules
-----
1. A value is stored with ``seen``. With event time this is the latest event time of the rows of its
   key since the value was created; otherwise it is the planned time of the last txid that had such
   a row. Readers of the state see it; ``changes`` and ``query`` do not.
2. A value has expired at a time *now* if its ``seen + expire_after`` is at or before *now*. With
   event time, *now* is W(T - 1) before the rows of txid T and W(T) after them; otherwise both are
   the planned time of T. So all of it is the same in a replay.
3. The rows of T find no value that has expired before them. With event time, an aggregate has only
   the rows since the last gap: a row that is ``expire_after`` or more behind all earlier rows of
   its key finds no value, also within a batch, where rows count in the order of their event times.
   So as long as rows come in order, the cut of batches makes no difference.
4. A value that has expired after T is absent as of T: it is not written, and no query finds it. So
   a row that comes later than that leaves nothing, unless its key has a value that still counts.
5. If changes are read, T reads by range the values that expire in it, and removes them: they are
   part of what T changes. Otherwise T only declares them, and the store deletes them later. Rules 3
   and 4 do not depend on when it does. What is not deleted yet when changes are first read is
   removed by the first txid that does.
6. Rows must not be taken back, since their value may have expired: what is left of it would be less
   than nothing. Such rows expire in the table that takes them back.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.persistent_aggregate import (
    GLOBAL_KEY,
    PersistentAggregate,
)
from txtopo.collector import ArrowOutputCollector
from txtopo.config import Config
from txtopo.context import EPOCH, TaskContext
from txtopo.durations import MICROSECOND
from txtopo.stages.combining import BatchPartials
from txtopo.state.aggregates import Max
from txtopo.state.backend import StateTable
from txtopo.state.keyed_columns import (
    Flags,
    Numbers,
    codes_of,
    last_of_each,
    positions,
    without_keys,
)
from txtopo.state.lifetimes import LAST, OTHER_TIMES, SEEN, Lifetime
from txtopo.state.transaction import StateTransaction
from txtopo.streams.event_time import TimeColumn, event_times
from txtopo.streams.late_rows import Watermark, microseconds
from txtopo.streams.tables import Aggregating, Output, TableCommitter
from txtopo.traits import Meaning, Traits
from txtopo.tuples import Field, Fields

TIME = SEEN.arrow_schema().field(LAST).type
NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class TableExpiry:
    """When the values of a table expire.

    Attributes:
        lifetime: How long a value counts without a row of its key.
        time: The event time of the rows; None for planned time.
        watermark: The stream with its watermark; None for planned time.
    """

    lifetime: Lifetime
    time: TimeColumn | None = None
    watermark: Output | None = None


def without_seen(table: StateTable) -> StateTable:
    """Return the table without the column ``seen``, which is its last one."""
    columns = [each for each in table.value if each.name != LAST]
    return replace(
        table,
        value=Fields.of(columns),
        aggregates=table.aggregates[: len(columns)],
        defaults=(),
        range_by=None,
    )


class ExpiringTable(TableCommitter):
    """Keeps a table whose values expire, answers queries of it, and emits its changes.

    Delivery: each row counts exactly once in the value of its key, as long as that value lives.

    Args:
        expiry: When values expire.
        arguments: The arguments of ``TableCommitter``; the table is the one that users see, without
            ``seen``. Partial aggregates of rows with event time are those of ``TimedPartials``.
    """

    def __init__(self, expiry: TableExpiry, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._lifetime, self._time = expiry.lifetime, expiry.time
        self._marks = expiry.watermark
        self.needs_planned_time = expiry.time is None
        by = "planned" if expiry.time is None else "event"
        self.meaning = Meaning(f"values that expire by {by} time", OTHER_TIMES)

    @property
    def traits(self) -> Traits:
        """The traits of a table, with how long its values live."""
        return replace(super().traits, operators=(str(self._lifetime),), expires=True)

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        super().prepare(config, context, collector, attempt)
        self._now = Watermark()
        if self.needs_planned_time:
            self._now.before = self._now.after = context.planned_time

    def execute_from(self, component: str, stream: str, batch: pa.RecordBatch) -> None:
        """Add rows of the table, or of a query, to the batch, or receive the watermark."""
        if (component, stream) == self._marks:
            self._now.takes(batch)
        else:
            super().execute_from(component, stream, batch)

    def _apply(self, values: StateTransaction, rows: pa.Table) -> None:
        """Apply the rows of the table, let values expire, and answer the queries."""
        if self._keys[0] not in rows.column_names:  # all rows are one group
            one = pa.repeat(pa.scalar(GLOBAL_KEY), rows.num_rows)
            rows = rows.append_column(self._keys[0], one)
        keys = last_of_each(rows.select(self._keys), len(self._keys))
        stored = values.get_columns(keys)
        live = self._lifetime.live(stored, self._now.before)
        after = self._lifetime.live(self._combined(live, rows), self._now.after)
        bound = self._lifetime.bound(self._now.after)
        if self._changes:
            if bound is not None:
                due = values.columns_between(LAST, None, bound)
                due = without_keys(due, stored, self._keys).select(stored.column_names)
                stored = pa.concat_tables([stored, due])
            values.delete_columns(without_keys(stored, after, self._keys).select(self._keys))
            self._tell(stored.drop_columns([LAST]), after.drop_columns([LAST]))
        elif bound is not None:
            values.expire(bound)
        values.put_columns(after)
        for stream, query in self._queries.items():
            self._answer(values, stream, query)

    def _found(self, values: StateTransaction, keys: pa.Table) -> pa.Table:
        """Return the rows of some keys for a query, without those that have expired."""
        found = self._lifetime.live(super()._found(values, keys), self._now.after)
        return found.drop_columns([LAST])

    def _combined(self, live: pa.Table, rows: pa.Table) -> pa.Table:
        """Return the values of the keys of some rows, with ``seen``, given those that count."""
        if self._time is not None and isinstance(self._applies, Aggregating):
            return self._since_the_last_gap(self._applies, live, rows)
        changes = self._applies.changed(rows)
        after = self._applies.combined(live.drop_columns([LAST]), changes)
        return after.append_column(SEEN.arrow_schema().field(LAST), self._last(live, rows, after))

    def _last(self, live: pa.Table, rows: pa.Table, after: pa.Table) -> pa.Array:
        """Return when each key last had a row."""
        if self._time is None:
            return pa.repeat(pa.scalar(self._now.after, TIME), after.num_rows)
        keys = after.select(self._keys)
        last = np.full(after.num_rows, NEVER)
        place = positions(rows.select(self._keys), keys).to_numpy()
        np.maximum.at(last, place, event_times(self._id, rows, self._time))
        place = positions(live.select(self._keys), keys).to_numpy()
        np.maximum.at(last, place, microseconds(live.column(LAST)).to_numpy())
        return pa.array(last, pa.int64()).cast(TIME)

    def _since_the_last_gap(self, applies: Aggregating, live: pa.Table, rows: pa.Table) -> pa.Table:
        """Combine the partial aggregates behind the last gap of each key, and what is stored."""
        first = self._fields.names[len(self._keys) if self._keys[0] in self._fields.index else 0]
        spans = pa.concat_tables([live.select(self._keys), rows.select(self._keys)])
        starts = microseconds(rows.column(first)).to_numpy()
        newest = newest_spans(
            codes_of(spans),
            np.append(np.full(live.num_rows, NEVER), starts),
            np.concatenate([microseconds(each.column(LAST)).to_numpy() for each in (live, rows)]),
            self._lifetime.after // MICROSECOND,
        )
        before, rows = (
            _at_once(each.filter(pa.array(chosen)), first)
            for each, chosen in zip((live, rows), np.split(newest, [live.num_rows]), strict=True)
        )
        after = applies.combined(before, applies.changed(rows)).drop_columns([first])
        if self._keys[0] not in after.column_names:
            one = pa.repeat(pa.scalar(GLOBAL_KEY), after.num_rows)
            after = after.append_column(self._keys[0], one)
        return after


def _at_once(rows: pa.Table, first: str) -> pa.Table:
    """Return rows whose spans begin at the same time, so that those of a key are combined."""
    if first in rows.column_names:
        rows = rows.drop_columns([first])
    return rows.append_column(first, pa.repeat(pa.scalar(EPOCH, TIME), rows.num_rows))


def _new_names(count: int, taken: Collection[str]) -> list[str]:
    """Return names of columns that are not taken."""
    free = (name for name in map("span_{}".format, itertools.count()) if name not in taken)
    return list(itertools.islice(free, count))


def newest_spans(keys: Numbers, starts: Numbers, ends: Numbers, gap: int) -> Flags:
    """Return which spans are behind the last gap of their key.

    Args:
        keys: The number of the key of each span.
        starts: When it begins.
        ends: When it ends.
        gap: A span that begins this long after the end of all earlier ones begins anew.
    """
    found = np.zeros(len(keys), np.bool_)
    if not len(keys):
        return found
    order = np.lexsort((starts, keys))
    by_key, begins, ends = keys[order], starts[order], ends[order]
    first = np.append(True, np.diff(by_key) != 0)
    # The latest end so far, of the same key: as a place among all ends, so that those of the next
    # key are larger than all of this one.
    times = np.unique(ends)
    shift = (np.cumsum(first) - 1) * len(times)
    latest = times[np.maximum.accumulate(np.searchsorted(times, ends) + shift) - shift]
    again = first.copy()
    again[1:] |= begins[1:] >= latest[:-1] + gap
    run = np.cumsum(again)
    last_of_key = np.append(np.flatnonzero(first)[1:], len(run)) - 1
    found[order] = run == run[last_of_key][np.cumsum(first) - 1]
    return found


class TimedPartials(BatchPartials):
    """Combines rows with event time that have no gap between them, and emits partial aggregates.

    Delivery: the same as for any ``ArrowBolt``.

    Args:
        id: Id of the table, for messages.
        expiry: When the values of the table expire.
        aggregates: Key and aggregates.
        inputs: The fields of the rows.

    Attributes:
        aggregates: The same for rows with the first and the last time of their span.
        inputs: The fields of these rows.
    """

    def __init__(
        self, id: str, expiry: TableExpiry, aggregates: PersistentAggregate, inputs: Fields
    ) -> None:
        assert expiry.time is not None
        first, last = _new_names(2, {*inputs.names, *aggregates.aggregates})
        self.inputs = Fields.of([*inputs, Field(first, "timestamp"), Field(last, "timestamp")])
        self.aggregates = PersistentAggregate(
            aggregates.state,
            [*aggregates.key, first],
            {**aggregates.aggregates, LAST: Max(last)},
        )
        super().__init__(self.aggregates, self.inputs)
        self._id, self._time, self._key = id, expiry.time, list(aggregates.key)
        self._gap = expiry.lifetime.after // MICROSECOND

    def execute(self, batch: pa.RecordBatch) -> None:
        """Add rows to the batch, each with the first time of its span."""
        times = event_times(self._id, batch, self._time)
        rows = pa.Table.from_batches([batch]).select(self._key)
        codes = codes_of(rows) if self._key else np.zeros(len(times), np.int64)
        order = np.lexsort((times, codes))
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (np.diff(times[order]) >= self._gap) | (np.diff(codes[order]) != 0)
        first = np.empty(len(order), np.int64)
        first[order] = times[order][np.flatnonzero(begins)][np.cumsum(begins) - 1]
        added = [pa.array(each, pa.int64()).cast(TIME) for each in (first, times)]
        schema = self.inputs.arrow_schema()
        super().execute(pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema))
