"""Tables of windows of a number of rows: the committer that numbers rows, and its assembly.

The rules are in :mod:`txtopo.streams.row_windows`. The committer has one task: where a window ends
depends on the rows of all tasks. So rows come to it as they are; a ``select`` of the columns that
are needed in between would have tasks of its own, which would change their order. It works on
columns, and reads the counts of the keys in a batch and the windows that they change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.persistent_aggregate import GLOBAL_KEY, PersistentAggregate
from txtopo.builders.transactional import TransactionalTopologyBuilder
from txtopo.collector import ArrowOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import TopologyError
from txtopo.stages.aggregation import Aggregation
from txtopo.state.aggregates import Aggregate
from txtopo.state.keyed_columns import (
    Numbers,
    codes_of,
    in_one_piece,
    order_of,
    positions,
    with_plain_zeros,
)
from txtopo.state.reader import ReaderView
from txtopo.state.registry import State
from txtopo.state.transaction import StateTransaction
from txtopo.streams.batch_aggregate import stream_fields
from txtopo.streams.checks import check_new_columns, column_names
from txtopo.streams.draft import readable_state
from txtopo.streams.nodes import TableNode
from txtopo.streams.row_windows import RowWindow, numbers_within, ranges
from txtopo.streams.tables import Aggregating, TableCommitter, changed_fields
from txtopo.streams.windows import FINAL, SLICE_ROWS
from txtopo.traits import Meaning, Traits
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from txtopo.streams.stream import DataStream, Grouped, Names

NUMBER = Fields("window_number long")
"""The column with the number of a window, which comes after the columns of the group."""

COUNTS = "counts"
"""The name of the state that has the number of rows of each key."""

ROWS = Fields("rows long")
"""The value of that state."""

_ALL_ROWS = Fields("key string")

_OPERATOR = "persistent_aggregate"


@dataclass(frozen=True, slots=True)
class Filling:
    """How rows fill windows.

    Attributes:
        window: The windows.
        key: The columns of the group; empty if all rows are one group.
        aggregate: How the rows of a window are aggregated.
        order_by: The columns by which the rows of a batch are ordered.
        keep: How many full windows of a key are kept; None for all.
        final: Whether anything reads the full windows.
    """

    window: RowWindow
    key: tuple[str, ...]
    aggregate: PersistentAggregate
    order_by: tuple[str, ...]
    keep: int | None
    final: bool = False


@dataclass(frozen=True, slots=True)
class _Counted:
    """The keys of a batch: each once, with how many rows it had before and has now."""

    keys: pa.Table
    before: Numbers
    after: Numbers


class RowWindowCommitter(TableCommitter):
    """Keeps a table of windows of a number of rows, and emits the windows that are full.

    Delivery: each row counts exactly once in each of its windows.

    Args:
        filling: How rows fill windows.
        arguments: The arguments of ``TableCommitter``.
    """

    def __init__(self, filling: Filling, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._filling = filling
        windowed = Fields.of([*self._fields, *NUMBER])
        self._aggregation = Aggregation.of(filling.aggregate, windowed)
        self.meaning = Meaning(
            str(filling.window),
            "other windows contain other rows, so full windows would become full again; declare "
            "the windows as before, or give the state another table",
        )
        if filling.final:
            full = changed_fields(self._table, FINAL)
            self.output_streams = {**self.output_streams, FINAL: full}

    @property
    def traits(self) -> Traits:
        """The traits of a table, with its windows."""
        keep = self._filling.keep
        kept = () if keep is None else (f"the last {keep} full ones are kept",)
        return replace(super().traits, operators=(str(self._filling.window), *kept))

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        super().prepare(config, context, collector, attempt)
        self._counts = context.state(COUNTS)

    def finish_batch(self) -> None:
        """Number the rows, apply them to their windows, and emit the windows that are full."""
        rows = self._rows()
        if self._filling.order_by:
            rows = rows.take(order_of(rows, self._filling.order_by))
        with self._counts.transaction(self._attempt) as counts:
            counted, numbers = self._count(counts, rows)
        with self._state.transaction(self._attempt) as values:
            if rows.num_rows:
                self._fill(values, rows, counted, numbers)
            for stream, query in self._queries.items():
                self._answer(values, stream, query)

    def _count(self, counts: StateTransaction, rows: pa.Table) -> tuple[_Counted, Numbers]:
        """Return the keys of rows, and the number of each row within its key; write the counts."""
        keys = self._keys_of(rows)
        _, first, which = np.unique(codes_of(keys), return_index=True, return_inverse=True)
        distinct = keys.take(pa.array(first))
        found = counts.get_columns(distinct)
        place = positions(distinct, found.select(keys.column_names))
        (name,) = ROWS.names
        known = in_one_piece(found.column(name).take(place))
        before: Numbers = known.fill_null(0).to_numpy(zero_copy_only=False)
        after = before + np.bincount(which, minlength=len(first))
        counts.put_columns(distinct.append_column(name, pa.array(after, pa.int64())))
        return _Counted(distinct, before, after), before[which] + numbers_within(which)

    def _keys_of(self, rows: pa.Table) -> pa.Table:
        """Return the key of each row in the columns of the counts."""
        key = list(self._filling.key)
        if not key:
            return pa.table({_ALL_ROWS.names[0]: pa.repeat(GLOBAL_KEY, rows.num_rows)})
        return with_plain_zeros(rows.select(key), key)

    def _fill(
        self, values: StateTransaction, rows: pa.Table, counted: _Counted, numbers: Numbers
    ) -> None:
        """Apply rows to their windows; emit what they change, and the windows that are full."""
        changes = self._applies.changed(pa.Table.from_batches(self._partials(rows, numbers)))
        self._change(values, changes)
        if self._filling.final:
            windows = changes.select(self._keys)
            full = values.get_columns(windows.filter(pa.array(self._full(windows, counted))))
            full = full.take(order_of(full, self._keys))
            self._emit(self._shown(full).columns, FINAL)
        if self._filling.keep is not None:
            values.delete_columns(self._outlived(counted, self._filling.keep))

    def _partials(self, rows: pa.Table, numbers: Numbers) -> list[pa.RecordBatch]:
        """Return partial aggregates of windows, made slice by slice as a row is in many."""
        window, partials = self._filling.window, []
        portion = max(1, SLICE_ROWS // window.of_row)
        for start in range(0, rows.num_rows, portion):
            places, windows = window.assigned(numbers[start : start + portion])
            taken = rows.slice(start, portion).take(pa.array(places))
            taken = taken.append_column(NUMBER.names[0], pa.array(windows, pa.int64()))
            inputs = map(self._aggregation.inputs_of, taken.combine_chunks().to_batches())
            partials.append(self._aggregation.combine(list(inputs)))
        return partials

    def _full(self, windows: pa.Table, counted: _Counted) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which of some windows are full."""
        place = positions(self._keys_of(windows), counted.keys)
        rows = counted.after[place.to_numpy()]
        number = in_one_piece(windows.column(NUMBER.names[0])).to_numpy()
        full: np.ndarray[Any, np.dtype[np.bool_]] = number * self._filling.window.every <= rows
        return full

    def _outlived(self, counted: _Counted, keep: int) -> pa.Table:
        """Return the keys of the windows that this txid makes too old."""
        every = self._filling.window.every
        # Up to these numbers windows are gone already, and go now.
        gone, goes = (
            np.maximum(rows // every - keep, 0) for rows in (counted.before, counted.after)
        )
        places, numbers = ranges(gone + 1, goes - gone)
        keys = counted.keys.take(pa.array(places)).columns if self._filling.key else []
        return pa.table([*keys, pa.array(numbers, pa.int64())], names=self._keys)


@dataclass(eq=False, slots=True)
class RowWindowsNode(TableNode):
    """A table of windows of a number of rows.

    Attributes:
        filling: How rows fill windows.
        counts: The state with the number of rows of each key.
    """

    filling: Filling | None = None
    counts: State | None = None

    @property
    def beside(self) -> Mapping[str, State]:
        """The state with the counts."""
        assert self.counts is not None
        return {COUNTS: self.counts}

    def committer(self, *arguments: Any) -> TableCommitter:
        """Return the committer of the table."""
        assert self.filling is not None
        return RowWindowCommitter(replace(self.filling, final=self.final), *arguments)

    def declare(self, builder: TransactionalTopologyBuilder) -> None:
        """Add the committer, which gets all rows."""
        assert self.aggregate is not None
        applies = Aggregating(self.aggregate, Fields.of([*self.rows, *NUMBER]))
        self._commit(builder, applies, self.rows, tuple(port.output for port in self.inputs))


def count_key(fields: Fields, key: tuple[str, ...]) -> Fields:
    """Return the key columns of the counts; if all rows are one group, a key of its own."""
    return fields.select(key) if key else _ALL_ROWS


def check_row_windows(stream: DataStream) -> None:
    """Check that rows of a stream can be numbered.

    Raises:
        TopologyError: Rows are taken back, so that numbers would change, or a column has the name
            of that of the windows.
    """
    if stream.retracted is not None:
        raise TopologyError(
            "window numbers the rows of a key, and a row that is taken back would get a "
            f"different number than when it was counted; got {stream.name!r}, whose column "
            f"{stream.retracted!r} marks such rows; expected changes(), for new rows only, or "
            "windows above the table",
            stream=stream.name,
            field=stream.retracted,
        )
    check_new_columns("window", stream.fields, NUMBER)


def row_windows_node(
    grouped: Grouped,
    window: RowWindow,
    state: State,
    order_by: Names,
    keep: object,
    id: str | None,
    aggregates: Mapping[str, Aggregate],
) -> RowWindowsNode:
    """Add the node of a table of windows of a number of rows.

    Raises:
        TopologyError: An argument is wrong, an aggregate does not fit its column, or a state is
            used elsewhere.
    """
    stream, key = grouped.stream, grouped.key
    order = column_names(f"{_OPERATOR}, for its order,", order_by, stream.fields)
    if keep is not None and (not isinstance(keep, int) or isinstance(keep, bool) or keep < 0):
        raise TopologyError(
            f"keep, of windows of rows, is wrong; got {keep!r:.100}; expected how many full "
            "windows of a key are kept, e.g. keep=10",
            setting="keep",
            got=f"{keep!r:.100}",
        )
    numbered = replace(stream, fields=Fields.of([*stream.fields, *NUMBER]))
    wide = replace(grouped, stream=numbered, key=(*key, *NUMBER.names))
    bolt = wide._aggregates(_OPERATOR, state, aggregates, None)
    with stream.draft.all_or_nothing():
        taken = stream.draft.id_of_table(id, _OPERATOR, state)
        kept = readable_state(_OPERATOR, state).named(taken)
        counts = kept.beside(f"{kept.table}_counts")
        counts = counts.with_columns(count_key(stream.fields, key), ROWS)
        stream.draft.take_table(f"the counts of {kept.table!r}", counts, kept.table or taken)
        kept = kept.with_columns(
            bolt.key_fields(numbered.fields),
            bolt.value_fields(numbered.fields),
            bolt.stored_aggregates(numbered.fields),
        )
        columns = stream_fields(ReaderView(kept.layout(taken)).fields)
        filling = Filling(window, key, bolt, order, keep)
        parts = taken, stream.ports, 1, kept, None, bolt, stream.fields, columns
        node = RowWindowsNode(*parts, filling=filling, counts=counts)
        return stream.draft.add(node)
