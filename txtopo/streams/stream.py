"""DataStream, Grouped and Table: the objects whose methods are the operators of a program."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

from txtopo.bolts.append import Append
from txtopo.bolts.persistent_aggregate import PersistentAggregate, check_expiring_aggregate
from txtopo.builders.transactional import Bolt
from txtopo.durations import MICROSECOND, Duration, duration
from txtopo.errors import FieldsError, TopologyError
from txtopo.instead import Instead
from txtopo.state.aggregates import Aggregate
from txtopo.state.lifetimes import SEEN, with_seen
from txtopo.state.reader import ReaderView
from txtopo.state.registry import State
from txtopo.streams.async_calls import LIMIT, TIMEOUT, map_async
from txtopo.streams.batch_aggregate import (
    BatchAggregate,
    BatchPartials,
    stream_fields,
)
from txtopo.streams.captured_changes import (
    OnNewTimeline,
    OnTruncate,
    Operation,
    captured_changes,
)
from txtopo.streams.checks import (
    check_function,
    check_new_columns,
    check_same_types,
    column_name,
    column_names,
    declared_fields,
    parallelism_of,
)
from txtopo.streams.deduplication import ENTRY, DropDuplicates
from txtopo.streams.draft import Draft, readable_state
from txtopo.streams.event_time import WATERMARK, TimeColumn, just_before
from txtopo.streams.expire_after import expiring, expiring_append
from txtopo.streams.expiring_values import ExpiringValues, TimeToLive
from txtopo.streams.interval_join import (
    BUFFERED,
    LATE_SIDE,
    SIDE_AND_TIME,
    How,
    IntervalJoin,
    JoinedStream,
    check_kept_by_time,
    check_of_streams,
    check_one_task,
    checked_how,
    interval,
    joined_fields,
)
from txtopo.streams.largest_rows import MaxBy
from txtopo.streams.late_rows import LATE
from txtopo.streams.lookups import JoinLookup, Lookup, joined_with
from txtopo.streams.materialized import Materializing
from txtopo.streams.nodes import (
    AskedQuery,
    BoltNode,
    Chooses,
    Port,
    StatelessNode,
    TableNode,
    Windows,
    parallelism_below,
)
from txtopo.streams.operators import (
    MATCHING,
    OTHERS,
    AddColumns,
    AddPlannedTime,
    BranchRows,
    FilterBatches,
    FilterRows,
    FlatMapBatches,
    FlatMapRows,
    MapBatches,
    MapRows,
    Operator,
    SelectColumns,
)
from txtopo.streams.regular_join import RegularHow, joined_regularly
from txtopo.streams.row_window_tables import (
    RowWindowsNode,
    check_row_windows,
    row_windows_node,
)
from txtopo.streams.row_windows import RowWindow
from txtopo.streams.sessions import AssignSessions
from txtopo.streams.tables import (
    CHANGES,
    CHANGES_BEFORE,
    CHANGES_RETRACTED,
    RETRACTED,
    RunningValues,
    Upserting,
    answer_fields,
    changed_fields,
)
from txtopo.streams.timers import DueTimer, Timers, processed
from txtopo.streams.top_rows import top_rows_node
from txtopo.streams.windows import (
    BOUNDS,
    END,
    FINAL,
    START,
    WINDOW_END,
    AssignWindows,
    Session,
    Window,
)
from txtopo.topology.component import bolt_kind, checked_streams
from txtopo.tuples import DEFAULT_STREAM, Field, Fields, Tuple

if TYPE_CHECKING:
    import pyarrow as pa

Names = str | Sequence[str]
"""One name of a column, or several."""


# Names of Spark's DataFrames. A count is one of a batch, or of all batches, which needs a state.
_AGGREGATED = "aggregate({0}) for each batch, or persistent_aggregate(open_state(url), {0})"
_IN_GROUPS = {
    "count": _AGGREGATED.format("count=Count()"),
    "sum": _AGGREGATED.format('total=Sum("column")'),
    "avg": _AGGREGATED.format('mean=Mean("column")'),
    "mean": _AGGREGATED.format('mean=Mean("column")'),
    "min": _AGGREGATED.format('least=Min("column")'),
    "max": _AGGREGATED.format('most=Max("column")'),
    "agg": _AGGREGATED.format('count=Count(), total=Sum("column")'),
}
_IN_STREAMS = {
    **{name: f"group_by(…).{written}" for name, written in _IN_GROUPS.items()},
    "groupBy": "group_by(…)",
    "groupby": "group_by(…)",
    "key_by": "group_by(…)",
    "keyBy": "group_by(…)",
    "where": "filter(lambda row: …)",
    "withColumn": "with_columns(…)",
    "withColumns": "with_columns(…)",
    "flatMap": "flat_map(…)",
    "dropDuplicates": "drop_duplicates(…)",
    "union": "merge(…) of the StreamBuilder",
    "writeStream": "store(…), append(…) or to(…)",
}


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class DataStream(Instead):
    """A stream of rows with declared fields; each operator returns a new stream.

    A function receives each row as a ``Tuple``: ``row["word"]``, ``row[0]``, ``row.values``. It
    returns a row as a list with one value per declared field. Functions run in tasks, possibly
    several times for the same row. They must be picklable, and their result should depend on the
    row only.

    Consecutive operators without state run in one bolt. ``id=`` sets the id of an operator; by
    default the id consists of the stream and the operator, such as ``sales.filter``.
    ``parallelism=`` starts a new bolt with that many tasks. By default, an operator has as many
    tasks as the operator upstream of it, but one task downstream of a committer.

    Attributes:
        draft: The program that it belongs to.
        name: Its name in messages and ids.
        ports: The components and streams that emit its rows.
        fields: The fields of its rows.
        time: Its event time; None if it has none. A stream keeps its event time as long as it keeps
            the column with its name and its type, ``timestamp``.
        retracted: The column that marks retracted rows, which ``changes(retracted=True)`` adds;
            None if there is none.
        changes_of: The table, if this stream is its ``changes()``; None once an operator has been
            applied.
    """

    draft: Draft
    name: str
    ports: tuple[Port, ...]
    fields: Fields
    time: TimeColumn | None = None
    retracted: str | None = None
    changes_of: str | None = None
    _instead: ClassVar = _IN_STREAMS

    def map(
        self,
        function: Callable[[Tuple], Sequence[Any]],
        fields: str | Fields,
        *,
        id: str | None = None,
        parallelism: int | None = None,
    ) -> DataStream:
        """Replace each row by the row that a function returns for it.

        Args:
            function: Returns a list of values.
            fields: Their fields, as in ``"word string, amount long"``.
            id: See the class.
            parallelism: See the class.

        Raises:
            TopologyError: An argument is wrong; the message says which.
        """
        check_function("map", function, "row")
        declared = declared_fields("map", fields)
        return self._stateless(MapRows, declared, function, id, parallelism)

    def map_async(
        self,
        function: Callable[[Tuple], object],
        fields: str | Fields,
        *,
        limit: int = LIMIT,
        timeout: Duration | None = TIMEOUT,
        retries: int = 0,
        dead_letters_on: Sequence[type[Exception]] | type[Exception] = (),
        id: str | None = None,
        parallelism: int | None = None,
    ) -> DataStream:
        """Replace each row by the result of an asynchronous call, with many calls at a time.

        The rows keep their order. If a call fails, the batch fails and is retried, or the row
        becomes a dead letter. If no spout upstream is opaque, the results must be the same in a
        replay; otherwise the run ends with ``NonRepeatableBatch``, and the batch is not committed.

        Args:
            function: An ``async def`` that returns a list of values. Any other function is called
                on a thread, once per row.
            fields: Their fields, as in ``"city string, degrees double"``.
            limit: The maximum number of calls at a time, per task.
            timeout: How long a call may take; None for no limit.
            retries: How many times a failed call is retried, after a growing pause.
            dead_letters_on: Exceptions that turn the row into a dead letter if the last try raises
                them. ``RecordFailed`` does so immediately, and need not be listed.
            id: See the class.
            parallelism: See the class.

        Raises:
            TopologyError: An argument is wrong, the stream is downstream of a committer, or some of
                its rows are retracted.
        """
        return map_async(
            self, function, fields, limit, timeout, retries, dead_letters_on, id, parallelism
        )

    def flat_map(
        self,
        function: Callable[[Tuple], Iterable[Sequence[Any]]],
        fields: str | Fields,
        *,
        id: str | None = None,
        parallelism: int | None = None,
    ) -> DataStream:
        """Replace each row by the rows that a function returns: none, one or more.

        Args:
            function: Returns a list of rows, or yields them.
            fields: Their fields.
            id: See the class.
            parallelism: See the class.

        Raises:
            TopologyError: An argument is wrong; the message says which.
        """
        check_function("flat_map", function, "row", may_yield=True)
        declared = declared_fields("flat_map", fields)
        return self._stateless(FlatMapRows, declared, function, id, parallelism)

    def filter(
        self,
        function: Callable[[Tuple], object],
        *,
        id: str | None = None,
        parallelism: int | None = None,
    ) -> DataStream:
        """Keep the rows for which a function returns true.

        Raises:
            TopologyError: An argument is wrong; the message says which.
        """
        check_function("filter", function, "row")
        return self._stateless(FilterRows, self.fields, function, id, parallelism)

    def with_columns(
        self,
        function: Callable[[Tuple], Sequence[Any]],
        fields: str | Fields,
        *,
        id: str | None = None,
        parallelism: int | None = None,
    ) -> DataStream:
        """Add columns to each row, or replace existing ones.

        Args:
            function: Returns a list with the values of *fields*.
            fields: The columns. A column that already exists is replaced and keeps its position.
            id: See the class.
            parallelism: See the class.

        Raises:
            TopologyError: An argument is wrong; the message says which.
        """
        check_function("with_columns", function, "row")
        made = declared_fields("with_columns", fields)
        kept = [made[made.index[f.name]] if f.name in made.index else f for f in self.fields]
        new = [field for field in made if field.name not in self.fields.index]
        all_fields = Fields.of([*kept, *new])
        return self._stateless(AddColumns, all_fields, function, id, parallelism, made)

    def select(self, *names: str, **renamed: str) -> DataStream:
        """Return some columns, in the order given, optionally renamed.

        Args:
            names: Columns that keep their names.
            renamed: Columns with new names: ``select("shop", pieces="amount")``.

        Raises:
            TopologyError: There is no such column, or a name is used twice.
        """
        kept = column_names("select", names, self.fields)
        others = [column_name("select", name, self.fields) for name in renamed.values()]
        chosen = [self.fields[self.fields.index[name]] for name in (*kept, *others)]
        pairs = zip((*kept, *renamed), chosen, strict=True)
        if not chosen:
            raise FieldsError("select names no column; expected at least one")
        fields = Fields.of([Field(name, field.type) for name, field in pairs])
        columns = (*kept, *others)
        if self.retracted is not None and self.retracted not in columns:
            raise self._leaves_out("select", columns)
        stream = self._stateless(SelectColumns, fields, _no_function, None, None, columns)
        new = dict(zip(columns, fields.names, strict=True))
        time = None
        if self.time is not None and self.time.column in new:
            time = replace(self.time, column=new[self.time.column])
        return replace(stream, time=time, retracted=new.get(self.retracted or ""))

    def map_batches(
        self,
        function: Callable[[pa.RecordBatch], pa.RecordBatch],
        fields: str | Fields,
        *,
        id: str | None = None,
        parallelism: int | None = None,
    ) -> DataStream:
        """Replace each record batch by one with the same number of rows, which a function returns.

        How rows are divided into record batches is not guaranteed.

        Args:
            function: Returns a ``pyarrow.RecordBatch`` with the columns *fields*, in any order.
            fields: The fields.
            id: See the class.
            parallelism: See the class.

        Raises:
            TopologyError: An argument is wrong; the message says which.
        """
        check_function("map_batches", function, "batch")
        declared = declared_fields("map_batches", fields)
        return self._stateless(MapBatches, declared, function, id, parallelism)

    def flat_map_batches(
        self,
        function: Callable[[pa.RecordBatch], pa.RecordBatch],
        fields: str | Fields,
        *,
        id: str | None = None,
        parallelism: int | None = None,
    ) -> DataStream:
        """Replace each record batch by one with any number of rows, which a function returns.

        The arguments are the same as for :meth:`map_batches`.
        """
        check_function("flat_map_batches", function, "batch")
        declared = declared_fields("flat_map_batches", fields)
        return self._stateless(FlatMapBatches, declared, function, id, parallelism)

    def filter_batches(
        self,
        function: Callable[[pa.RecordBatch], pa.BooleanArray],
        *,
        id: str | None = None,
        parallelism: int | None = None,
    ) -> DataStream:
        """Keep the rows for which a function returns true, as a boolean array per record batch.

        Raises:
            TopologyError: An argument is wrong; the message says which.
        """
        check_function("filter_batches", function, "batch")
        return self._stateless(FilterBatches, self.fields, function, id, parallelism)

    def branch(
        self,
        function: Callable[[Tuple], object],
        *,
        id: str | None = None,
        parallelism: int | None = None,
    ) -> tuple[DataStream, DataStream]:
        """Split the stream in two: the rows for which a function returns true, and all others.

        Raises:
            TopologyError: An argument is wrong; the message says which.
        """
        check_function("branch", function, "row")
        both = self._stateless(BranchRows, self.fields, function, id, parallelism)
        (port,) = both.ports
        matching, others = Port(port.node, MATCHING), Port(port.node, OTHERS)
        return self._on(matching, self.fields), self._on(others, self.fields)

    def group_by(self, *names: str) -> Grouped:
        """Group the rows by some columns; without names, all rows are one group.

        Raises:
            TopologyError: There is no such column, or it is given twice.
        """
        return Grouped(self, column_names("group_by", names, self.fields))

    def aggregate(self, *, id: str | None = None, **aggregates: Aggregate) -> DataStream:
        """Return one row per batch with the aggregates of its rows; none for an empty batch.

        See :meth:`Grouped.aggregate`.
        """
        return Grouped(self, ()).aggregate(id=id, **aggregates)

    def store(
        self,
        state: State,
        key: Names,
        *,
        order_by: Names = (),
        expire_after: Duration | None = None,
        id: str | None = None,
    ) -> None:
        """Keep the last row of each key in a state.

        If the stream retracts rows, the state keeps the rows that are not retracted; see
        :meth:`as_table`.

        If all columns are the key, the state keeps only keys; see :meth:`as_table`.

        Args:
            state: The state; this operator sets its columns: *key*, then the other fields.
            key: The key columns.
            order_by: The columns that order the rows of one batch. Without it, the row that arrived
                last counts, and rows of different tasks arrive in any order.
            expire_after: A key that has had no row for this long counts as absent; see
                :meth:`Grouped.persistent_aggregate`.
            id: Id of the committer; by default the name of the table.

        Raises:
            TopologyError: An argument is wrong, or the state is used elsewhere.
        """
        self._table("store", state, key, None, order_by, id, expire_after)

    def append(
        self,
        state: State,
        *,
        parallelism: int = 1,
        expire_after: Duration | None = None,
        id: str | None = None,
    ) -> None:
        """Append each row to a state, such as an outbox.

        The key of a row is ``batch`` (its txid) and ``number``; see :class:`~txtopo.bolts.Append`.

        Args:
            state: The state; this operator sets its columns.
            parallelism: The number of tasks. With several, txids are committed one at a time.
            expire_after: The minimum time for which a row is kept, after its event time, or, in a
                stream without event time, after its batch was planned. The key then begins with
                that time, ``seen``, and the table cannot be an outbox. By default, rows are kept
                forever.
            id: Id of the committer; by default the name of the table.

        Raises:
            TopologyError: An argument is wrong, or the state is used elsewhere.
        """
        with self.draft.all_or_nothing():
            taken = self.draft.id_of_table(id, "append", state)
            tasks = parallelism_of(taken, parallelism, 1)
            bolt, ports = Append(state.named(taken), self.fields), self.ports
            if expire_after is not None:
                bolt, more = expiring_append(self, state.named(taken), expire_after)
                ports = (*ports, *more)
            self.draft.add(BoltNode(taken, ports, tasks, bolt))

    def as_table(
        self,
        state: State,
        key: Names,
        value: Names | None = None,
        *,
        order_by: Names = (),
        expire_after: Duration | None = None,
        id: str | None = None,
    ) -> Table:
        """Keep the last row of each key in a state, and return it as a table.

        If the stream retracts rows, the table has the rows that are not retracted, and a key whose
        row is retracted is removed. The key must then identify each row: two rows with the same key
        at the same time are an error. See :mod:`txtopo.streams.materialized`.

        Without value columns, the state keeps only keys, each of them once. Readers and
        transactions see True as the value, ``changes()`` emits new keys, and ``query`` adds a
        column ``found``.

        Args:
            state: The state; this operator sets its columns. It must be opaque if rows are
                retracted.
            key: The key columns.
            value: The value columns; by default all others. ``()`` keeps only keys.
            order_by: As in :meth:`store`.
            expire_after: As in :meth:`store`.
            id: Id of the committer; by default the name of the table.

        Raises:
            TopologyError: An argument is wrong, or the state is used elsewhere.
        """
        return self._table("as_table", state, key, value, order_by, id, expire_after)

    def as_changes(
        self,
        state: State,
        key: Names,
        value: Names | None = None,
        *,
        op: str = "op",
        operations: Mapping[Any, Operation] | None = None,
        position: Names = (),
        timeline: str | None = None,
        on_truncate: OnTruncate = "refuse",
        on_new_timeline: OnNewTimeline = "refuse",
        expire_after: Duration | None = None,
        id: str | None = None,
    ) -> DataStream:
        """Return the rows of a captured table, with retractions, from the log of its changes.

        A row of this stream is an event: the columns of the table, an operation, and usually the
        position in the log. The result has the columns of the table and a boolean column
        ``retracted``, which is true in rows that retract an earlier one. After each txid, the rows
        that are not retracted are the current content of the captured table. ``as_table``,
        ``store``, ``persistent_aggregate`` and joins downstream apply retractions. Events that
        cannot be used become dead letters. See :mod:`txtopo.streams.captured_changes`.

        Args:
            state: The state, opaque; this operator sets its columns. It keeps the last position of
                each key, even after a delete. With *position* or *timeline*, the table
                ``<table>_log`` in the same store keeps the last truncate and the timelines.
            key: The key columns of the captured table.
            value: Its other columns; by default, all that no other argument names.
            op: The column with the operation.
            operations: A mapping from the values of *op* to "insert", "update", "read" (a row of a
                snapshot), "delete", "truncate" or "ignore". By default, *op* has Debezium's letters
                or these words.
            position: The columns whose order is that of the log, from left to right. An event
                counts only if it is later than the last one of its key, so repeated and reordered
                events do no harm. By default, events count in the order in which they arrive.
            timeline: The string column that names the log; positions in different logs cannot be
                compared.
            on_truncate: Whether a truncate ends the run, or clears the table.
            on_new_timeline: Whether a new timeline ends the run, or retracts all rows, so that its
                snapshot refills the table.
            expire_after: How long the position of a deleted key is remembered; it must be longer
                than events can be late. By default, forever. It is measured in event time if the
                stream has it, otherwise in planned time.
            id: Id of the committer; by default the name of the table.

        Raises:
            TopologyError: An argument is wrong, or the state is used elsewhere.
        """
        self._check_not_retracted("as_changes")
        port, fields = captured_changes(
            self,
            state,
            key=key,
            value=value,
            op=op,
            operations=operations,
            position=position,
            timeline=timeline,
            on_truncate=on_truncate,
            on_new_timeline=on_new_timeline,
            expire_after=expire_after,
            id=id,
        )
        return DataStream(self.draft, port.name, (port,), fields, retracted=RETRACTED.name)

    def query(self, table: Table, on: Names, *, id: str | None = None) -> DataStream:
        """Look up each row in a table, and add the value found to the row.

        The table is read in the commit phase, including its changes of the same txid. If the key
        has no value, the columns are NULL. A table that keeps only keys adds a boolean column
        ``found``, which is never NULL.

        Args:
            table: The table; its state must be opaque.
            on: The columns to compare with the key of the table, in the order of the key.
            id: See the class.

        Raises:
            TopologyError: An argument is wrong, the types of the keys differ, a column would occur
                twice, or the stream depends on the table in the same txid.
        """
        self.draft.check_own("query", table, Table)
        self._check_not_retracted("query")
        names = column_names("query", on, self.fields)
        node, state = table.node, table.node.state
        check_same_types("query", self.fields.select(names), state.key)
        fields = check_new_columns("query", self.fields, answer_fields(node.columns))
        readable_state("query", state)
        if any(port.node.depends_on(node) for port in self.ports):
            raise TopologyError(
                f"stream {self.name!r} cannot query table {table.name!r}, since it depends on "
                "that table; expected a stream that does not, since a table answers only once "
                "per txid; keep the values that you want to query a second time in a separate "
                "table",
                component=table.name,
            )
        name = self.draft.id_of(id, self.name, "query")
        node.queries[name] = AskedQuery(self.ports, self.fields, names)
        return replace(self._on(Port(node, name), fields), name=name)

    def drop_duplicates(
        self,
        *names: str,
        within: Duration,
        state: State,
        late: State | Literal[False] | None = None,
        id: str | None = None,
    ) -> DataStream:
        """Return the first row of each key, and drop its repetitions.

        A row is a duplicate if an earlier row with the same key passed and their event times differ
        by less than *within*. A NULL equals nothing. See :mod:`txtopo.streams.deduplication`.

        Args:
            names: The columns that identify a row, such as the id of an event.
            within: How long a row is remembered; at least as long as the source may repeat it.
            state: The state, opaque; this operator sets its columns. A key expires when the
                watermark has passed its time by *within*.
            late: The state for late rows, which may or may not be duplicates, because their keys
                may have expired. By default, it is the table ``<table>_late`` in the same store;
                False drops late rows. Its key is the txid and a number, its value the row.
            id: Id of the committer; by default the name of the table.

        Raises:
            TopologyError: The stream has no event time, there is no such column, or an argument is
                wrong.
        """
        operator, time = "drop_duplicates", checked_time("drop_duplicates", self)
        if not names:
            raise FieldsError(
                "drop_duplicates names no column; expected the columns that identify a row, e.g. "
                "'id'"
            )
        key = self.fields.select(column_names(operator, names, self.fields))
        length = duration("within, of drop_duplicates,", within)
        check_new_columns(operator, key, ENTRY)
        if self.fields.names == WATERMARK.names:
            raise FieldsError(
                f"drop_duplicates takes no rows whose only columns are {', '.join(WATERMARK.names)}"
                "; watermarks have exactly these; rename one with select()",
                stream=self.name,
            )
        with self.draft.all_or_nothing():
            taken = self.draft.id_of_table(id, operator, state)
            kept = readable_state(operator, state).named(taken).with_columns(key, ENTRY)
            kept_late = self._late_table(operator, kept, late, self.fields)
            bolt = DropDuplicates(
                taken, key.names, time, length, self.fields, late=kept_late is not None
            )
            node = self._timed(taken, self.ports, bolt, time, kept.ranged("time"), kept_late)
            return self._on(Port(node), self.fields)

    def join(
        self,
        other: DataStream | Table | Lookup,
        on: Names | Mapping[str, str],
        *,
        how: RegularHow = "inner",
        within: tuple[Duration, Duration] | None = None,
        state: State | None = None,
        late: State | Literal[False] | None = None,
        expire_after: Duration | None = None,
        id: str | None = None,
        parallelism: int | None = None,
    ) -> DataStream:
        """Join this stream with another stream, a table, or a lookup (an external table).

        *Without* ``within``, rows match if their keys are equal, whenever they arrive. The result
        is a stream of changes: a row that leaves the join is emitted again with true in the column
        ``retracted``, as in ``changes(retracted=True)``. So after each txid, the rows emitted and
        not retracted are the join of all rows of both sides. The result has the columns of the left
        row, those of the right row without its key, and ``retracted``; it has no event time. Each
        side may be a stream without retractions, a stream of changes, or a table. An inner join of
        two streams without retractions retracts nothing, so it has no column ``retracted``. See
        :mod:`txtopo.streams.regular_join`.

        *With a lookup*, rows match if their keys are equal. All rows of a txid see the same version
        of the lookup, in every attempt. The join runs where the stream runs: in tasks, or,
        downstream of a committer, in the commit phase. It accepts only *on*, *how*, *id* and
        *parallelism*.

        *With* ``within=(lower, upper)``, a left and a right row match if their keys are equal and
        their event times are close: ``left + lower <= right <= left + upper``. The result has the
        columns of the left row, then the columns of the right row without its key. Its event time
        is the event time of the left row. See :mod:`txtopo.streams.interval_join`.

        Args:
            other: The right stream or table, or what ``builder.lookup`` returned.
            on: The columns to compare: names, or a mapping from left to right names if they differ;
                for a lookup, in the order of its key. A NULL matches nothing.
            how: ``"inner"`` drops a left row without a match. ``"left"`` returns it with NULLs:
                with *within*, once no match can arrive any more; without, immediately, and retracts
                it when a match arrives. ``"right"`` does so for right rows, and ``"full"`` for
                both; these two need a join without *within*, and no lookup.
            within: The minimum and the maximum by which the right row is later. They may be
                negative: ``("-5 minutes", "1 hour")``.
            state: The state, opaque, that buffers rows as long as they may find a match (without
                *within*, forever); this operator sets its columns.
            late: Only with *within*: the state for rows that arrive after the watermark. By
                default, it is the table ``<table>_late`` in the same store; False drops late rows.
                Its key is the txid and a number, its value the side and the columns.
            expire_after: Only without *within*: a row that was neither put nor retracted for this
                long counts as retracted, in event time if both sides have it, otherwise in planned
                time. By default, rows are kept forever.
            id: Id of the committer; by default the name of the table. With a lookup, see the class.
            parallelism: Only with a lookup: see the class.

        Raises:
            TopologyError: A stream has no event time, the types of the keys differ, a column would
                occur twice, or an argument is wrong.
        """
        if isinstance(other, Lookup):
            checked = checked_how(how)
            check_of_streams(within=within, state=state, late=late, expire_after=expire_after)
            return self._join_lookup(other, on, checked, id, parallelism)
        if isinstance(other, Table):
            self.draft.check_own("join", other, Table)
            other = other.changes(retracted=True)
        self.draft.check_own("join", other, DataStream)
        check_one_task(parallelism)
        if within is None:
            return joined_regularly(self, other, on, how, state, late, expire_after, id)
        check_kept_by_time(expire_after)
        return self._join_stream(other, on, checked_how(how), within, state, late, id)

    def _join_lookup(
        self, lookup: Lookup, on: object, how: How, id: str | None, parallelism: int | None
    ) -> DataStream:
        self.draft.check_own("join", lookup, Lookup)
        self._check_not_retracted("join")
        names = column_names("join, for on,", on, self.fields)
        table, fields = joined_with("join", lookup.table, self.fields, names)
        more = (table, names, how == "left")
        return self._stateless(JoinLookup, fields, _no_function, id, parallelism, *more)

    def _join_stream(
        self,
        other: DataStream,
        on: Names | Mapping[str, str],
        how: How,
        within: tuple[Duration, Duration],
        state: State | None,
        late: State | Literal[False] | None,
        id: str | None,
    ) -> DataStream:
        times = checked_time("join", self), checked_time("join", other)
        for each in (self, other):
            each._check_not_retracted("join")
        lower, upper = interval("within, of join,", within)
        joined = joined_fields(self.fields, other.fields, on, lower, upper, how)
        if state is None:
            raise TopologyError(
                "a join of two streams needs a state that buffers their rows; got none; pass "
                "state=open_state(url, table='…')"
            )
        with self.draft.all_or_nothing():
            taken = self.draft.id_of_table(id, "join", state)
            kept = (
                readable_state("join", state)
                .named(taken)
                .with_columns(Fields.of([*joined.key, *SIDE_AND_TIME]), BUFFERED)
            )
            kept_late = self._late_table("join", kept, late, joined.fields, [*LATE_SIDE])
            left, right = (
                JoinedStream(tuple(port.output for port in each.ports), each.fields, time)
                for each, time in zip((self, other), times, strict=True)
            )
            both = times[0].together(times[1])
            bolt = IntervalJoin(taken, joined, (left, right), late=kept_late is not None)
            ports = tuple(dict.fromkeys(self.ports + other.ports))
            node = self._timed(taken, ports, bolt, both, kept.ranged("expires"), kept_late)
            time = both.later(max(upper, datetime.timedelta(0)))
            return DataStream(self.draft, taken, (Port(node),), joined.fields, time)

    def _timed(
        self,
        id: str,
        ports: tuple[Port, ...],
        bolt: Bolt,
        time: TimeColumn,
        state: State,
        late: State | None,
    ) -> BoltNode:
        """Add a committer with one task, which also receives the watermark."""
        watermark = self.draft.watermark(time, state, state.table or id)
        states = {id: state} if late is None else {id: state, LATE: late}
        return self.draft.add(BoltNode(id, (*ports, watermark), 1, bolt, (), states))

    def _late_table(
        self,
        operator: str,
        kept: State,
        late: State | Literal[False] | None,
        fields: Fields,
        before: Sequence[Field] = (),
    ) -> State | None:
        """Return the state of the late rows of an operator: columns *before*, then *fields*."""
        if late is False:
            return None
        what, table = f"the table of late rows of {operator}", f"{kept.table}_late"
        state = kept.beside(table) if late is None else readable_state("late", late)
        value = check_new_columns(what, Fields.of([*before]), fields)
        return self.draft.table_aside(what, state, table, value)

    def with_planned_time(
        self, column: str = "planned_time", *, id: str | None = None
    ) -> DataStream:
        """Add a column with the time at which the row's batch was planned: its processing time.

        All rows of a txid have the same planned time, in every attempt. It is never earlier than
        that of the previous txid.

        Args:
            column: The name of the column, a ``timestamp``.
            id: See the class.

        Raises:
            TopologyError: The name is invalid, or already used.
        """
        # Not empty, no spaces, and only one name.
        if not isinstance(column, str) or column.split() != column.split(","):
            raise FieldsError(
                f"with_planned_time makes one column; got {column!r:.100}; expected its name, e.g. "
                "'planned_time'",
                setting="column",
            )
        self._check_not_retracted("with_planned_time")
        made = declared_fields("with_planned_time", f"{column} timestamp")
        fields = check_new_columns("with_planned_time", self.fields, made)
        return self._stateless(AddPlannedTime, fields, _no_function, id, None)

    def to(
        self,
        sink: Bolt,
        *,
        by: Names | None = None,
        parallelism: int = 1,
        states: Mapping[str, State] | None = None,
        id: str | None = None,
    ) -> None:
        """Send the rows to a bolt that ends the stream, such as a ``KafkaSink``.

        The arguments are the same as for :meth:`bolt`, but the id is optional.
        """
        with self.draft.all_or_nothing():
            self._bolt(self.draft.id_of(id, self.name, "to"), sink, by, parallelism, states)

    def bolt(
        self,
        id: str,
        bolt: Bolt,
        *,
        by: Names | None = None,
        parallelism: int = 1,
        states: Mapping[str, State] | None = None,
    ) -> DataStream:
        """Send the rows to your own bolt, and return its stream ``default``.

        ``builder.output(id, stream)`` returns its other streams.

        Args:
            id: Id of the bolt.
            bolt: Any bolt of a transactional topology, including a committer.
            by: The columns that decide to which task a row goes; by default, any row goes to any
                task.
            parallelism: How many tasks it has.
            states: Its states by name, if it is a committer.

        Raises:
            TopologyError: An argument is wrong, or the bolt has no stream ``default``; then use
                :meth:`to`.
        """
        with self.draft.all_or_nothing():
            node = self._bolt(self.draft.take_id(id, "bolt"), bolt, by, parallelism, states)
            streams = checked_streams(id, bolt)
            if DEFAULT_STREAM not in streams or streams[DEFAULT_STREAM].direct:
                raise TopologyError(
                    f"bolt {id!r} has no stream 'default' to continue with; got "
                    f"{', '.join(map(repr, streams)) or 'no streams'}; expected output_fields; use "
                    "to() at the end, and builder.output(id, stream) for another stream",
                    component=id,
                )
            return self._on(Port(node), streams[DEFAULT_STREAM].fields)

    def _bolt(
        self,
        id: str,
        bolt: Bolt,
        by: Names | None,
        parallelism: int,
        states: Mapping[str, State] | None,
    ) -> BoltNode:
        bolt_kind(id, bolt)
        names = None if by is None else column_names(f"bolt {id!r}", by, self.fields)
        tasks = parallelism_of(id, parallelism, 1)
        if not isinstance(states, Mapping | None):
            raise TopologyError(
                f"the states of bolt {id!r} have no names; got {states!r:.100}; expected a "
                "dictionary, e.g. states={'counts': open_state(url)}",
                component=id,
                setting="states",
            )
        given = dict(states or {})
        for name, state in given.items():
            self.draft.take_table(f"bolt {id!r}", state, name)
        if isinstance(bolt, PersistentAggregate):
            self.draft.take_table(f"bolt {id!r}", bolt.state, id)
        return self.draft.add(BoltNode(id, self.ports, tasks, bolt, names, given, own=True))

    def _stateless(
        self,
        kind: type[Operator],
        fields: Fields,
        function: Callable[..., Any],
        id: str | None,
        parallelism: int | None,
        *more: object,
    ) -> DataStream:
        tasks = parallelism_of(kind.word, parallelism, parallelism_below(self.ports))
        if kind is not SelectColumns and not self._says_what_is_taken_back(fields):
            raise self._leaves_out(kind.word, fields.names)
        taken = self.draft.id_of(id, self.name, kind.word)
        operator = kind(taken, self.fields, fields, function, *more)
        begins = parallelism is not None
        node = self.draft.add(StatelessNode(taken, self.ports, tasks, operator, begins))
        return self._on(Port(node), fields)

    def _table(
        self,
        operator: str,
        state: State,
        key: Names,
        value: Names | None,
        order_by: Names,
        id: str | None,
        expire_after: Duration | None,
    ) -> Table:
        keys = column_names(f"{operator}, for its key,", key, self.fields)
        order = column_names(f"{operator}, for its order,", order_by, self.fields)
        values = self._values(operator, keys, value)
        if self.retracted is None:
            return self._kept(operator, state, Upserting(keys, values, order), id, expire_after)
        if order:
            raise TopologyError(
                f"{operator} takes no order_by where rows are taken back; got {order!r}; expected "
                "none, because a row and the one that it replaces come in one txid, in any order",
                setting="order_by",
                stream=self.name,
            )
        if self.retracted in (*keys, *values):
            raise FieldsError(
                f"{operator} would never find a row that is taken back; got {self.retracted!r}, "
                "which marks such rows, as a column of the table; expected a key and a value "
                "without it",
                name=operator,
                field=self.retracted,
            )
        chooses = Materializing(keys, values, self.retracted)
        return self._kept(operator, state, chooses, id, expire_after)

    def _values(self, operator: str, keys: tuple[str, ...], value: Names | None) -> tuple[str, ...]:
        """Return the columns that are a value: by default all that are not the key."""
        if value is None:
            value = [n for n in self.fields.names if n not in keys and n != self.retracted]
        values = column_names(f"{operator}, for its value,", value, self.fields)
        if not keys:
            raise FieldsError(
                f"{operator} has no key columns; got key={keys!r} of the fields "
                f"{', '.join(self.fields.names)}; expected at least one column",
                name=operator,
                setting="key",
            )
        check_new_columns(operator, self.fields.select(keys), self.fields.select(values))
        return values

    def _kept(
        self,
        operator: str,
        state: State,
        chooses: Chooses,
        id: str | None,
        expire_after: Duration | None = None,
    ) -> Table:
        """Return the table of the rows that count."""
        key, value = self.fields.select(chooses.key), self.fields.select(chooses.value)
        with self.draft.all_or_nothing():
            taken = self.draft.id_of_table(id, operator, state)
            kept = state.named(taken).with_columns(key, value)
            if chooses.reads:
                readable_state(operator, kept)
            columns = stream_fields(value)
            node = TableNode(taken, self.ports, 1, kept, chooses, None, self.fields, columns)
            if expire_after is not None:
                made = expiring(self, operator, kept, expire_after)
                node.state, node.expiry, node.expires_by = made
            return Table(self.draft, self.draft.add(node))

    def _on(self, port: Port, fields: Fields) -> DataStream:
        """Return a stream below this one with these fields."""
        retracted = self.retracted if self._says_what_is_taken_back(fields) else None
        time = self._time_in(fields)
        return DataStream(self.draft, port.name, (port,), fields, time, retracted)

    def _says_what_is_taken_back(self, fields: Fields) -> bool:
        """Return whether fields keep the column that marks rows as taken back, if there is one."""
        return self.retracted is None or Field(self.retracted, RETRACTED.type) in fields

    def _leaves_out(self, operator: str, columns: Sequence[str]) -> FieldsError:
        """Return the error of an operator that drops the column which marks rows as taken back."""
        return FieldsError(
            f"{operator} leaves out column {self.retracted!r}, which marks the rows that are "
            f"taken back; got {', '.join(columns)}; expected that column too, as a boolean; "
            "without it old rows would count as new ones; use changes() for new rows only, or "
            "changes(before=True) for the old and the new values in one row",
            field=self.retracted,
        )

    def _check_not_retracted(self, operator: str) -> None:
        """Refuse an operator below which a row would be taken back with other values."""
        if self.retracted is not None:
            raise TopologyError(
                f"{operator} may give a row different values when it is taken back than when it "
                f"was counted; got {self.name!r}, whose column {self.retracted!r} marks such "
                f"rows; expected changes(), for new rows only, or {operator} above the table",
                stream=self.name,
                field=self.retracted,
            )

    def _time_in(self, fields: Fields) -> TimeColumn | None:
        """Return the event time of a stream below this one with these fields."""
        if self.time is None or self.time.column not in fields.index:
            return None
        column = fields[fields.index[self.time.column]]
        return self.time if column.type == "timestamp" else None

    def __repr__(self) -> str:
        return f"DataStream({self.name!r}, {self.fields!r})"


@dataclass(frozen=True, eq=False, slots=True)
class Grouped(Instead):
    """A stream whose rows are grouped by some columns; ``group_by`` returns it.

    Attributes:
        stream: The stream.
        key: The columns; empty if all rows are one group.
    """

    stream: DataStream
    key: tuple[str, ...]
    _instead: ClassVar = _IN_GROUPS

    def persistent_aggregate(
        self,
        state: State,
        *,
        retracted: str | None = None,
        expire_after: Duration | None = None,
        id: str | None = None,
        **aggregates: Aggregate,
    ) -> Table:
        """Keep aggregates of each group in a state, over all batches.

        Args:
            state: The state; this operator sets its columns.
            retracted: A boolean column; a row where it is true retracts an earlier row. By default,
                the column that ``changes(retracted=True)`` adds, if that is upstream.
            expire_after: A value that has had no row for this long counts as absent: the next row
                of the group begins a new one, no query finds it, and ``changes`` removes it. It is
                measured in event time if the stream has it, otherwise in planned time; the state,
                which must be opaque, keeps that time in a column ``seen``. By default, values are
                kept forever.
            id: Id of the component; by default the name of the table.
            aggregates: The aggregates by column name: ``sold=Sum("amount")``.

        Raises:
            TopologyError: An argument is wrong, an aggregate does not fit its column, the state is
                used elsewhere, or rows of a table would be counted again each time they change.
        """
        table = self.stream.changes_of
        # A merge has both if it merges changes() of a table with rows that are taken back, and the
        # table has a column with the name of the mark.
        if table is not None and (retracted is None or self.stream.retracted is not None):
            columns = ", ".join(map(repr, self.stream.fields.names))
            raise TopologyError(
                f"persistent_aggregate would count a row of table {table!r} again each time it "
                f"changes; got the stream {self.stream.name!r} as it is; expected "
                "changes(retracted=True), which takes the old row back, with Count, Sum, "
                "Mean, or an OwnAggregate with remove(); to aggregate the changes themselves, for "
                f"example to count them, put select({columns}) or another operator in between",
                table=table,
                stream=self.stream.name,
            )
        retracted = self.stream.retracted if retracted is None else retracted
        return self._persistent_aggregate(
            state, retracted, id, aggregates, expire_after=expire_after
        )

    @overload
    def window(self, window: Window | Session) -> Windowed: ...
    @overload
    def window(self, window: RowWindow) -> RowWindowed: ...
    def window(self, window: Window | Session | RowWindow) -> Windowed | RowWindowed:
        """Also group the rows by windows, of event time or of a number of rows.

        Args:
            window: What :func:`~txtopo.streams.tumbling`, :func:`~txtopo.streams.sliding` or
                :func:`~txtopo.streams.session` returns.

        Raises:
            TopologyError: The windows are of event time, which the stream does not have; or they
                are of a number of rows, and the stream retracts rows; or a column has the name of a
                window's column.
        """
        stream = self.stream
        if isinstance(window, RowWindow):
            check_row_windows(stream)
            return RowWindowed(self, window)
        if not isinstance(window, Window | Session):
            raise TopologyError(
                f"window takes no {type(window).__name__}; got {window!r:.100}; expected "
                "tumbling('5 minutes'), sliding('10 minutes', every='1 minute'), "
                "session('30 minutes') or tumbling(rows=100)",
                setting="window",
                got=type(window).__name__,
            )
        time = checked_time("window", stream)
        fields = check_new_columns("window", BOUNDS, stream.fields)
        if isinstance(window, Session):
            parts: tuple[Any, ...] = AssignSessions, fields, _no_function, None, None
            assigned = stream._stateless(*parts, time, window.gap, self.key)
            return Windowed(Grouped(assigned, (*self.key, START)), time, window)
        assigned = stream._stateless(AssignWindows, fields, _no_function, None, None, time, window)
        return Windowed(Grouped(assigned, (START, *self.key)), time, window)

    def _persistent_aggregate(
        self,
        state: State,
        retracted: str | None,
        id: str | None,
        aggregates: Mapping[str, Aggregate],
        windows: Callable[[State], Windows] | None = None,
        expire_after: Duration | None = None,
    ) -> Table:
        operator, fields = "persistent_aggregate", self.stream.fields
        bolt = self._aggregates(operator, state, aggregates, retracted)
        with self.stream.draft.all_or_nothing():
            taken = self.stream.draft.id_of_table(id, operator, state)
            key, value = bolt.key_fields(fields), bolt.value_fields(fields)
            kinds = bolt.stored_aggregates(fields)
            kept = state.named(taken).with_columns(key, value, kinds)
            columns = stream_fields(ReaderView(kept.layout(taken)).fields)
            node = TableNode(taken, self.stream.ports, 1, kept, None, bolt, fields, columns)
            if windows is not None:
                readable_state(operator, kept)
                node.windows = windows(kept)
                column, _ = node.windows.window.ranged
                node.state = kept.ranged(column)
            if expire_after is not None:
                check_expiring_aggregate(operator, kept, retracted)
                made = expiring(self.stream, operator, kept, expire_after)
                node.state, node.expiry, node.expires_by = made
            return Table(self.stream.draft, self.stream.draft.add(node))

    def aggregate(self, *, id: str | None = None, **aggregates: Aggregate) -> DataStream:
        """Return one row per group and batch: the columns of the group, then the aggregates.

        Nothing is kept for the next batch. The rows depend on how the stream is divided into
        batches, so combine them downstream; they are not windows.

        Args:
            id: Id of the bolt.
            aggregates: The aggregates by column name. A value that is ``json`` in a state, such as
                the value of ``TopN``, is a string here.

        Raises:
            TopologyError: An argument is wrong, or an aggregate does not fit its column.
        """
        stream, draft = self.stream, self.stream.draft
        if stream.retracted is not None and stream.retracted not in self.key:
            raise TopologyError(
                f"aggregate cannot take rows back; got {stream.name!r}, whose column "
                f"{stream.retracted!r} marks such rows; expected persistent_aggregate, or "
                "changes() above, for new rows only",
                stream=stream.name,
                field=stream.retracted,
            )
        bolt = self._aggregates("aggregate", _no_state(), aggregates, None)
        taken = draft.id_of(id, stream.name, "aggregate")
        tasks = parallelism_below(stream.ports)
        partials = BatchPartials(bolt, stream.fields)
        above = draft.take_id(f"{taken}.partials", "operator")
        first = draft.add(BoltNode(above, stream.ports, tasks, partials))
        final = BatchAggregate(taken, bolt, stream.fields)
        tasks = tasks if self.key else 1
        node = draft.add(BoltNode(taken, (Port(first),), tasks, final, self.key))
        return stream._on(Port(node), final.fields)

    def max_by(
        self,
        state: State,
        by: Names,
        value: Names | None = None,
        *,
        smallest: Names = (),
        id: str | None = None,
    ) -> Table:
        """Keep the row of each group with the largest values of some columns, over all batches.

        The result depends neither on batches nor on the order of rows: of rows with equal *by*, the
        one with the larger values in its other columns is kept. NULL is smaller than all values,
        NaN larger. No Python function is called per row.

        Args:
            state: The state, opaque; this operator sets its columns.
            by: The columns to compare, from left to right.
            value: The columns to keep; by default, all but those of the group. They must include
                *by*, because later rows are compared with it.
            smallest: The columns of *by* of which the smallest value counts instead.
            id: Id of the committer; by default the name of the table.

        Raises:
            TopologyError: An argument is wrong, or the state is used elsewhere.

        Example:
            >>> prices = open_state("memory:", table="prices")
            >>> fields = Fields("item string, price double, at long")
            >>> spout = OpaqueMemoryTransactionalSpout({0: []}, fields, 10)
            >>> offers = StreamBuilder("shop").source("offers", spout)
            >>> table = offers.group_by("item").max_by(prices, by=("price", "at"), smallest="at")
        """
        stream, operator = self.stream, "max_by"
        stream._check_not_retracted(operator)
        if not self.key:
            raise FieldsError("max_by has no groups; got group_by(); expected names of columns")
        values = stream._values(operator, self.key, value)
        if not values:
            raise FieldsError(
                f"max_by has no value columns; got the groups {', '.join(self.key)} of the fields "
                f"{', '.join(stream.fields.names)}; expected at least the columns of by",
                name=operator,
                setting="value",
            )
        kept = stream.fields.select(values)
        compared = column_names("max_by, for by,", by, kept)
        if not compared:
            raise FieldsError("max_by compares no column; got an empty by; expected a name")
        falling = column_names("max_by, for smallest,", smallest, kept.select(compared))
        return stream._kept(
            operator, state, MaxBy(self.key, values, compared, frozenset(falling)), id
        )

    def update(
        self,
        function: Callable[[Any, Tuple], tuple[Any, Sequence[Any] | None]],
        fields: str | Fields,
        *,
        state: State,
        order_by: Names = (),
        expire_after: Duration | None = None,
        id: str | None = None,
    ) -> DataStream:
        """Keep a value of each group, which a function updates; it may also emit a row.

        The function runs in the commit phase, one txid after the other. It receives the value that
        the group's previous row left, in this batch or an earlier one.

        Args:
            function: Receives the value of the group and a row. The value is None if there is none,
                and a dict if the state has several value columns. Returns the next value (None to
                remove it) and the row to emit: a list of values, or None to emit nothing.
            fields: The fields of the emitted rows.
            state: The state, opaque. Its value columns are those of
                ``open_state(…, value=Fields(…))``; this operator sets its key columns.
            order_by: The columns that order the rows of one batch. Without it, rows stay in the
                order in which they were emitted; rows of different tasks are in any order.
            expire_after: A value that has had no row for this long counts as absent, and is deleted
                some time later. It is measured in event time if the stream has it, otherwise in
                planned time; the state keeps that time in a column ``seen``. By default, values are
                kept forever.
            id: Id of the committer; by default the name of the table.

        Raises:
            TopologyError: An argument is wrong, or the state is used elsewhere.
        """
        check_function("update", function, "value", "row")
        declared, stream = declared_fields("update", fields), self.stream
        if not self.key:
            raise FieldsError("update has no groups; got group_by(); expected names of columns")
        order = column_names("update, for its order,", order_by, stream.fields)
        with stream.draft.all_or_nothing():
            taken = stream.draft.id_of_table(id, "update", state)
            kept = readable_state("update", state).named(taken)
            kept = kept.with_columns(stream.fields.select(self.key), state.value)
            arguments, ports = (taken, self.key, function, declared, order), stream.ports
            bolt = RunningValues(*arguments)
            if expire_after is not None:
                check_new_columns("the state of update", Fields.of([*kept.key, *state.value]), SEEN)
                kept = with_seen(kept)
                expiry, watermark = self._time_to_live(kept, expire_after, state.value)
                bolt, ports = ExpiringValues(expiry, *arguments), (*ports, *watermark)
            node = stream.draft.add(BoltNode(taken, ports, 1, bolt, (), {taken: kept}))
            return stream._on(Port(node), declared)

    def process(
        self,
        function: Callable[[Any, list[Tuple], Timers], tuple[Any, Iterable[Sequence[Any]] | None]],
        fields: str | Fields,
        *,
        on_timer: Callable[[Any, DueTimer, Timers], tuple[Any, Iterable[Sequence[Any]] | None]],
        state: State,
        time: Literal["event", "planned"] | None = None,
        clock: Duration | None = None,
        order_by: Names = (),
        id: str | None = None,
    ) -> DataStream:
        """Keep a value of each group, with timers that call a function at times that you set.

        Both functions run in the commit phase, one txid after the other. In each txid, *function*
        is called once for each group that has rows. It may set timers, which are rows of a state.
        *on_timer* is called in the txid in which the time of a timer passes. See
        :mod:`txtopo.streams.timers`.

        Args:
            function: Receives the value of the group, its rows of this txid, and :class:`Timers`.
                The value is None if there is none, and a dict if the state has several value
                columns. Returns the next value (None to remove it, with all timers) and the rows to
                emit: a list of lists of values.
            fields: The fields of the emitted rows.
            on_timer: Receives the value of the group, a :class:`DueTimer`, and :class:`Timers`.
                Returns the same as *function*.
            state: The state, opaque. Its value columns are those of
                ``open_state(…, value=Fields(…))``; this operator sets its key columns. Timers are
                in the table ``<table>_timers`` beside it.
            time: Whether timers are in event time, which advances with the watermark, or in planned
                time, which advances with each txid. By default, event time if the stream has it.
            clock: With planned time: the time after the last txid at which another one is planned,
                even without rows; at least a second. By default, timers wait for the next rows.
            order_by: The columns that order the rows of one batch. Without it, rows stay in the
                order in which they were emitted; rows of different tasks are in any order.
            id: Id of the committer; by default the name of the table.

        Raises:
            TopologyError: An argument is wrong, the stream has no event time, or the state is used
                elsewhere.
        """
        return processed(self, function, fields, on_timer, state, time, clock, order_by, id)

    def _time_to_live(
        self, kept: State, after: Duration, value: Fields
    ) -> tuple[TimeToLive, tuple[Port, ...]]:
        """Return when the values of a state expire, and the watermark that decides it, if any."""
        stream, length = self.stream, duration("expire_after, of update,", after)
        if stream.time is None:
            return TimeToLive(length, value), ()
        watermark = stream.draft.watermark(stream.time, kept, kept.table or "")
        return TimeToLive(length, value, stream.time, watermark.output), (watermark,)

    def _aggregates(
        self,
        operator: str,
        state: State,
        aggregates: Mapping[str, Aggregate],
        retracted: str | None,
    ) -> PersistentAggregate:
        if not aggregates:
            raise TopologyError(
                f"{operator} has no aggregates; expected some by name, e.g. count=Count()",
                name=operator,
            )
        bolt = PersistentAggregate(state, self.key, aggregates, retracted=retracted)
        fields = self.stream.fields
        try:
            check_new_columns(operator, bolt.key_fields(fields), bolt.value_fields(fields))
        except FieldsError as error:
            raise FieldsError(
                f"{operator} cannot use {self.stream.name!r}: {error}", **error.facts
            ) from error
        return bolt


@dataclass(frozen=True, eq=False, slots=True)
class Windowed:
    """A stream whose rows are grouped by windows of event time; ``window`` returns it.

    Attributes:
        grouped: The stream with the bounds of the windows, grouped by their start and the key.
        time: The event time of the stream.
        declared: The windows.
    """

    grouped: Grouped
    time: TimeColumn
    declared: Window | Session

    def persistent_aggregate(
        self,
        state: State,
        *,
        late: State | Literal[False] | None = None,
        keep: Duration | None = None,
        id: str | None = None,
        **aggregates: Aggregate,
    ) -> Table:
        """Keep aggregates of each window and group in a state.

        The key of a row is ``window_start`` and the columns of the group (for sessions: the columns
        of the group, then ``window_start``). Its value is ``window_end`` and the aggregates. You
        can read a row while its window is open. It is final once the watermark has reached
        ``window_end``; then ``final()`` of the table emits it.

        Args:
            state: The state, opaque; this operator sets its columns.
            late: The state with the same aggregates for rows that arrived after their window
                closed. By default, it is the table ``<table>_late`` in the same store; False drops
                late rows.
            keep: How long a window and its late rows are kept after its end; by default, forever.
            id: Id of the component; by default the name of the table.
            aggregates: The aggregates by column name.

        Raises:
            TopologyError: An argument is wrong, or an aggregate does not fit its column.
        """
        draft = self.grouped.stream.draft
        kept_for = None if keep is None else duration("keep", keep, zero=True)

        def windows(kept: State) -> Windows:
            late_rows = _late(late, kept, self.declared.ranged[0])
            if late_rows is not None:
                draft.take_table(f"the late rows of {kept.table!r}", late_rows, kept.table or "")
            watermark = draft.watermark(self.time, kept, kept.table or "")
            return Windows(self.time, watermark, self.declared, late_rows, kept_for)

        named = _with_end(aggregates)
        return self.grouped._persistent_aggregate(state, None, id, named, windows)


@dataclass(frozen=True, eq=False, slots=True)
class RowWindowed:
    """A stream whose rows are grouped by windows of a number of rows; ``window`` returns it.

    Attributes:
        grouped: The stream, grouped by the key.
        declared: The windows.
    """

    grouped: Grouped
    declared: RowWindow

    def persistent_aggregate(
        self,
        state: State,
        *,
        order_by: Names = (),
        keep: int | None = None,
        id: str | None = None,
        **aggregates: Aggregate,
    ) -> Table:
        """Keep aggregates of each window and group in a state.

        The key of a row is the columns of the group, then ``window_number``, from 1 for each group.
        Its value is the aggregates. You can read a row while its window is not full; once it is,
        ``final()`` of the table emits it. See :mod:`txtopo.streams.row_windows`.

        Args:
            state: The state, opaque; this operator sets its columns. The table ``<table>_counts``
                in the same store keeps the number of rows of each group.
            order_by: The columns that order the rows of one batch. Without it, rows stay in the
                order in which they were emitted; rows of different tasks are in any order.
            keep: How many full windows of each group are kept; by default, all.
            id: Id of the component; by default the name of the table.
            aggregates: The aggregates by column name.

        Raises:
            TopologyError: An argument is wrong, or an aggregate does not fit its column.
        """
        more = state, order_by, keep, id, aggregates
        node = row_windows_node(self.grouped, self.declared, *more)
        return Table(self.grouped.stream.draft, node)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Table:
    """A state that can be queried, and whose changes are a stream.

    Attributes:
        draft: The program that it belongs to.
        node: The node of the program that maintains the table.
    """

    draft: Draft
    node: TableNode

    @property
    def name(self) -> str:
        """Id of the table's component."""
        return self.node.id

    def changes(self, *, before: bool = False, retracted: bool = False) -> DataStream:
        """Return the changes of each txid: each key whose value has changed, with its new value.

        The changes are the difference between two txids, in the order of the keys. The values of a
        removed key are NULL. The committer of a table with changes or queries reads the keys that
        it writes.

        Args:
            before: Whether rows also have the old values, as ``before_<column>``; for a new key
                they are NULL.
            retracted: Whether the old row is also emitted, as a separate row before the new one,
                with true in the boolean column ``retracted``. A ``persistent_aggregate`` downstream
                retracts it, and so aggregates exactly the current rows of the table.

        Raises:
            TopologyError: The committer cannot read the state, both arguments are given, or the
                table keeps only keys and removes some.
        """
        if before and retracted:
            raise TopologyError(
                f"changes of {self.name!r} would have the old values twice; got before=True and "
                "retracted=True; expected one of them: columns of the new row, or a separate row",
                component=self.name,
            )
        readable_state("changes", self.node.state)
        if self.node.removes and not (self.node.layout.value or retracted):
            raise TopologyError(
                f"changes of {self.name!r} could not tell a removed key from a new one; got a "
                "table of keys only, whose rows are taken back or expire; expected "
                "changes(retracted=True), or a value column",
                component=self.name,
            )
        windows = self.node.windows
        if windows is not None and isinstance(windows.window, Session):
            raise TopologyError(
                f"changes needs a table whose keys stay; got {self.name!r}, whose sessions merge, "
                "so that old rows would have to be taken back; expected another table; use "
                "final(), which returns each session once, when it closes",
                component=self.name,
            )
        stream = CHANGES_BEFORE if before else CHANGES_RETRACTED if retracted else CHANGES
        layout = self.node.layout
        if retracted:
            check_new_columns("changes", changed_fields(layout, CHANGES), [RETRACTED])
        fields = stream_fields(changed_fields(layout, stream))
        self.node.changes.add(stream)
        port = Port(self.node, stream)
        made = DataStream(self.draft, port.name, (port,), fields)
        if retracted:
            return replace(made, retracted=RETRACTED.name)
        return replace(made, changes_of=self.name)

    def join(
        self,
        other: DataStream | Table,
        on: Names | Mapping[str, str],
        *,
        how: RegularHow = "inner",
        state: State,
        expire_after: Duration | None = None,
        id: str | None = None,
    ) -> DataStream:
        """Join the rows of this table with those of another table or a stream.

        The same as ``changes(retracted=True).join(…)``; see :meth:`DataStream.join`.

        Args:
            other: The right table or stream.
            on: As in :meth:`DataStream.join`.
            how: Which rows without a match the result has: ``"inner"``, ``"left"``, ``"right"`` or
                ``"full"``.
            state: The state, opaque, that keeps both sides; this operator sets its columns.
            expire_after: A row that was neither put nor retracted for this long, in planned time,
                counts as retracted. By default, rows are kept forever.
            id: Id of the committer; by default the name of the table.

        Raises:
            TopologyError: The types of the keys differ, a column would occur twice, or an argument
                is wrong.
        """
        changes = self.changes(retracted=True)
        return changes.join(other, on, how=how, state=state, expire_after=expire_after, id=id)

    def top(
        self,
        n: int,
        by: Names,
        *,
        per: Names = (),
        smallest: Names = (),
        state: State | None = None,
        id: str | None = None,
    ) -> Table:
        """Keep the n rows of this table that have the largest values now.

        A row that falls, or is removed, makes room for the next one. The result is a table of its
        own: its key is the columns of *per* and ``rank``, from 1; its value is the other columns of
        this table. ``SELECT * FROM orders_top_view ORDER BY rank`` shows it in SQL. Of rows that
        are equal in *by*, the one with the smaller key comes first. NaN is the largest number; a
        row with a NULL in *by* has no rank. See :mod:`txtopo.streams.top_rows`.

        Beside the result, two tables keep what may come in: ``…_rows`` has all rows of this table
        again, and ``…_levels`` says where they are. A txid writes the rows that have changed, and
        the ranks that have. For each group with a change near the top it reads about 2n rows, at
        most 8n. From time to time it reads and writes more of them; over a long run that comes to
        a few times for each row, however large the table is.

        Args:
            n: How many rows: 1 to 10,000.
            by: The columns that are compared, from left to right.
            per: The columns of a group, if each group has a top of its own.
            smallest: Those of *by* of which the smallest value comes first.
            state: The state, opaque; this operator sets its columns. By default it is the table
                ``<table>_top`` in the same store.
            id: Id of the committer; by default the name of the table.

        Raises:
            TopologyError: An argument is wrong, or the state is used elsewhere.

        Example:
            >>> stock = open_state("memory:", table="stock")
            >>> fields = Fields("product string, shop string, pieces long")
            >>> spout = OpaqueMemoryTransactionalSpout({0: []}, fields, 10)
            >>> moves = StreamBuilder("shop").source("moves", spout).group_by("product", "shop")
            >>> pieces = moves.persistent_aggregate(stock, pieces=Sum("pieces"))
            >>> pieces.top(3, by="pieces", per="shop").name
            'stock_top'
        """
        return Table(self.draft, top_rows_node(self, n, by, per, smallest, state, id))

    def final(self) -> DataStream:
        """Return each window once: in the txid in which the watermark closes it, or it is full.

        A window of a number of rows is full with its last row; its row has no event time.

        A row has the key and the value of the window. Its event time is just before
        ``window_end``, so windows of windows are correct: the last five minutes of an hour belong
        to that hour.

        Raises:
            TopologyError: The table has no windows.
        """
        windows = self.node.windows
        if isinstance(self.node, RowWindowsNode):
            self.node.final, port = True, Port(self.node, FINAL)
            fields = Fields.of([*self.node.state.key, *self.node.columns])
            return DataStream(self.draft, port.name, (port,), fields)
        if windows is None:
            raise TopologyError(
                f"final needs a table of windows; got {self.name!r}, whose values are never final; "
                "expected group_by(…).window(…).persistent_aggregate(…); use changes() for what "
                "each batch changes",
                component=self.name,
            )
        self.node.final = True
        fields = Fields.of([*self.node.state.key, *self.node.columns])
        port, time = Port(self.node, FINAL), just_before(END, windows.time)
        if isinstance(windows.window, Session):
            # A session that ends at W(T - 1) closes in T, so its row is a microsecond behind it.
            time = time.later(MICROSECOND)
        return DataStream(self.draft, port.name, (port,), fields, time)

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {self.node.state.key!r}, {self.node.columns!r})"


def checked_time(operator: str, stream: DataStream) -> TimeColumn:
    """Return the event time of a stream.

    Raises:
        TopologyError: It has none.
    """
    if stream.time is None:
        raise TopologyError(
            f"{operator} needs event time; got stream {stream.name!r}, which has none; expected "
            "builder.source(…, event_time='ts', delay='1 minute') above it, and every operator "
            "in between to keep the column; merged streams have event time if all have the same "
            f"column; the columns here are {', '.join(stream.fields.names)}",
            name=operator,
            stream=stream.name,
        )
    return stream.time


def _with_end(aggregates: Mapping[str, Aggregate]) -> dict[str, Aggregate]:
    """Return the aggregates of windows, together with the end of the window.

    Raises:
        FieldsError: An aggregate has the name of that column.
    """
    if END in aggregates:
        raise FieldsError(
            f"persistent_aggregate would make column {END!r} twice; got an aggregate with that "
            "name, which the end of the window already has; rename the aggregate",
            field=END,
        )
    return {**WINDOW_END, **aggregates} if aggregates else {}


def _late(late: State | Literal[False] | None, kept: State, column: str) -> State | None:
    """Return the state of late rows, with the columns of the table that they missed."""
    if late is False:
        return None
    state = kept.beside(f"{kept.table}_late") if late is None else readable_state("late", late)
    named = state.named(f"{kept.table}_late")
    return named.with_columns(kept.key, kept.value, kept.aggregates).ranged(column)


def _no_function(row: Tuple) -> None:
    """Do nothing; operators without a function get this one."""


def _no_state() -> State:
    """Return the state of aggregates that are not kept."""
    return State("none:", table="batch")
