"""DataStream, Grouped and Table: what the operators of a program are called on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txtopo.bolts.persistent_aggregate import PersistentAggregate
from txtopo.builders.transactional import Bolt
from txtopo.errors import FieldsError, TopologyError
from txtopo.state.aggregates import Aggregate
from txtopo.state.reader import ReaderView
from txtopo.state.registry import State
from txtopo.streams.batch_aggregate import (
    BatchAggregate,
    BatchPartials,
    stream_fields,
)
from txtopo.streams.checks import (
    check_function,
    check_new_columns,
    check_same_types,
    column_names,
    declared_fields,
    parallelism_of,
)
from txtopo.streams.draft import Draft
from txtopo.streams.nodes import (
    AskedQuery,
    BoltNode,
    Port,
    StatelessNode,
    TableNode,
    parallelism_below,
)
from txtopo.streams.operators import (
    MATCHING,
    OTHERS,
    AddColumns,
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
from txtopo.streams.tables import (
    CHANGES,
    CHANGES_BEFORE,
    RunningValues,
    Upserting,
    changed_fields,
)
from txtopo.topology.component import bolt_role, checked_streams
from txtopo.tuples import DEFAULT_STREAM, Field, Fields, Tuple

if TYPE_CHECKING:
    import pyarrow as pa

Names = str | Sequence[str]
"""One name of a column, or several."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class DataStream:
    """A stream of rows with declared fields; each operator returns what follows from it.

    A function that takes a row gets a ``Tuple``: ``row["word"]``, ``row[0]``, ``row.values``. One
    that returns a row returns a list with a value for each declared field. Functions run in tasks,
    perhaps several times for a row, and must be picklable; they should depend on the row alone.

    Operators without state that follow each other run in one bolt. With ``id=`` an operator gets an
    id of its own; by default it is made from the stream and the operator, as in ``sales.filter``.
    With ``parallelism=`` it begins a bolt with so many tasks; by default it has as many as what is
    above it, and one below a committer.

    Attributes:
        draft: The program that it belongs to.
        name: What it is called in messages and ids.
        ports: The components and streams that its rows come from.
        fields: The fields of its rows.
    """

    draft: Draft
    name: str
    ports: tuple[Port, ...]
    fields: Fields

    def map(
        self,
        function: Callable[[Tuple], Sequence[Any]],
        fields: str | Fields,
        *,
        id: str | None = None,
        parallelism: int | None = None,
    ) -> DataStream:
        """Return the rows that a function returns, one for each row.

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

    def flat_map(
        self,
        function: Callable[[Tuple], Iterable[Sequence[Any]]],
        fields: str | Fields,
        *,
        id: str | None = None,
        parallelism: int | None = None,
    ) -> DataStream:
        """Return the rows that a function returns, any number for each row.

        Args:
            function: Returns a list of rows, or yields them.
            fields: Their fields.
            id: See the class.
            parallelism: See the class.

        Raises:
            TopologyError: An argument is wrong; the message says which.
        """
        check_function("flat_map", function, "row")
        declared = declared_fields("flat_map", fields)
        return self._stateless(FlatMapRows, declared, function, id, parallelism)

    def filter(
        self,
        function: Callable[[Tuple], object],
        *,
        id: str | None = None,
        parallelism: int | None = None,
    ) -> DataStream:
        """Return the rows for which a function returns true.

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
        """Return the rows with further columns, or with new values of some.

        Args:
            function: Returns a list with the values of *fields*.
            fields: The columns. One that is there already is replaced, in its place.
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
        """Return some columns, in the order given, with new names if wanted.

        Args:
            names: Columns that keep their names.
            renamed: Columns by their new names: ``select("shop", pieces="amount")``.

        Raises:
            TopologyError: There is no such column, or a name stands twice.
        """
        kept = column_names("select", names, self.fields)
        others = [column_names("select", name, self.fields)[0] for name in renamed.values()]
        chosen = [self.fields[self.fields.index[name]] for name in (*kept, *others)]
        pairs = zip((*kept, *renamed), chosen, strict=True)
        if not chosen:
            raise FieldsError("select names no column; expected one at the least")
        fields = Fields.of([Field(name, field.type) for name, field in pairs])
        columns = (*kept, *others)
        return self._stateless(SelectColumns, fields, _no_function, None, None, columns)

    def map_batches(
        self,
        function: Callable[[pa.RecordBatch], pa.RecordBatch],
        fields: str | Fields,
        *,
        id: str | None = None,
        parallelism: int | None = None,
    ) -> DataStream:
        """Return the record batches that a function returns, each with as many rows.

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
        """Return the record batches that a function returns, with any number of rows.

        The arguments are those of :meth:`map_batches`.
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
        """Return the rows for which a boolean array that a function returns is true.

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
        """Return the rows for which a function returns true, and the others; each row is in one.

        Raises:
            TopologyError: An argument is wrong; the message says which.
        """
        check_function("branch", function, "row")
        both = self._stateless(BranchRows, self.fields, function, id, parallelism)
        (port,) = both.ports
        matching, others = Port(port.node, MATCHING), Port(port.node, OTHERS)
        return self._on(matching, self.fields), self._on(others, self.fields)

    def group_by(self, *names: str) -> Grouped:
        """Group the rows by some columns; without names all rows are one group.

        Raises:
            TopologyError: There is no such column, or it stands twice.
        """
        return Grouped(self, column_names("group_by", names, self.fields))

    def aggregate(self, *, id: str | None = None, **aggregates: Aggregate) -> DataStream:
        """Return the aggregates of all rows of a batch, as one row; none for a batch without rows.

        See :meth:`Grouped.aggregate`.
        """
        return Grouped(self, ()).aggregate(id=id, **aggregates)

    def store(
        self, state: State, key: Names, *, order_by: Names = (), id: str | None = None
    ) -> None:
        """Keep the last row of each key in a state.

        Args:
            state: The state; its columns are set here: *key*, then the other fields.
            key: The columns that are the key.
            order_by: The columns by which the rows of one batch are ordered; without it the last
                row that came counts, and rows of different tasks come in any order.
            id: Id of the committer; by default the name of the table.

        Raises:
            TopologyError: An argument is wrong, or the state is used elsewhere.
        """
        self._table("store", state, key, None, order_by, id)

    def as_table(
        self,
        state: State,
        key: Names,
        value: Names | None = None,
        *,
        order_by: Names = (),
        id: str | None = None,
    ) -> Table:
        """Keep the last row of each key in a state, and return it as a table.

        Args:
            state: The state; its columns are set here.
            key: The columns that are the key.
            value: The columns that are the value; by default all others.
            order_by: As in :meth:`store`.
            id: Id of the committer; by default the name of the table.

        Raises:
            TopologyError: An argument is wrong, or the state is used elsewhere.
        """
        return self._table("as_table", state, key, value, order_by, id)

    def query(self, table: Table, on: Names, *, id: str | None = None) -> DataStream:
        """Return the rows with the values that a table has for them.

        The table is read in the commit phase: as of the txid before, with the changes of the rows
        of the same txid that it is made of. Where it has no value, the columns are NULL.

        Args:
            table: The table; its state must be opaque.
            on: The columns that are compared with the key of the table, in its order.
            id: See the class.

        Raises:
            TopologyError: An argument is wrong, the types of the keys differ, a column would be
                there twice, or the stream depends on the table in the same txid.
        """
        self.draft.check_own("query", table, Table)
        names = column_names("query", on, self.fields)
        node, state = table.node, table.node.state
        check_same_types("query", self.fields.select(names), state.key)
        fields = check_new_columns("query", self.fields, node.columns)
        _check_reads("query", state)
        if any(port.node.depends_on(node) for port in self.ports):
            raise TopologyError(
                f"query asks table {table.name!r} with a stream that depends on it; got "
                f"{self.name!r}; expected one that does not, since a table answers once in a txid; "
                "keep what is asked again in a table of its own",
                component=table.name,
            )
        name = self.draft.id_of(id, self.name, "query")
        node.queries[name] = AskedQuery(self.ports, self.fields, names)
        return DataStream(self.draft, name, (Port(node, name),), fields)

    def to(
        self,
        sink: Bolt,
        *,
        by: Names | None = None,
        parallelism: int = 1,
        states: Mapping[str, State] | None = None,
        id: str | None = None,
    ) -> None:
        """Send the rows to a bolt at the end, such as a ``KafkaSink``.

        The arguments are those of :meth:`bolt`, but the id is made if there is none.
        """
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
        """Send the rows to a bolt of your own, and return its stream ``default``.

        ``builder.output(id, stream)`` returns its other streams.

        Args:
            id: Id of the bolt.
            bolt: Any bolt of a transactional topology, also a committer.
            by: The columns by which rows are shared among its tasks; by default any row goes to
                any task.
            parallelism: How many tasks it has.
            states: Its states by name, if it is a committer.

        Raises:
            TopologyError: An argument is wrong, or the bolt has no stream ``default``; use
                :meth:`to`.
        """
        node = self._bolt(self.draft.take_id(id, "bolt"), bolt, by, parallelism, states)
        streams = checked_streams(id, bolt)
        if DEFAULT_STREAM not in streams or streams[DEFAULT_STREAM].direct:
            raise TopologyError(
                f"bolt {id!r} has no stream 'default' to go on with; got "
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
        bolt_role(id, bolt)
        names = None if by is None else column_names(f"bolt {id!r}", by, self.fields)
        tasks = parallelism_of(id, parallelism, 1)
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
    ) -> Table:
        keys = column_names(f"{operator}, for its key,", key, self.fields)
        order = column_names(f"{operator}, for its order,", order_by, self.fields)
        if value is None:
            value = [name for name in self.fields.names if name not in keys]
        values = column_names(f"{operator}, for its value,", value, self.fields)
        if not keys or not values:
            what = "value" if keys else "key"
            raise FieldsError(
                f"{operator} has no {what} columns; got key={key!r} of the fields "
                f"{', '.join(self.fields.names)}; expected one at the least of key and value"
            )
        key_fields, value_fields = self.fields.select(keys), self.fields.select(values)
        check_new_columns(operator, key_fields, value_fields)
        taken = self.draft.id_of_table(id, operator, state)
        kept = state.named(taken).with_columns(key_fields, value_fields)
        upserts = Upserting(keys, values, order)
        node = TableNode(
            taken, self.ports, 1, kept, upserts, None, self.fields, stream_fields(value_fields)
        )
        return Table(self.draft, self.draft.add(node))

    def _on(self, port: Port, fields: Fields) -> DataStream:
        return DataStream(self.draft, port.name, (port,), fields)

    def __repr__(self) -> str:
        return f"DataStream({self.name!r}, {self.fields!r})"


@dataclass(frozen=True, eq=False, slots=True)
class Grouped:
    """A stream whose rows are grouped by some columns; ``group_by`` returns it.

    Attributes:
        stream: The stream.
        key: The columns; empty if all rows are one group.
    """

    stream: DataStream
    key: tuple[str, ...]

    def persistent_aggregate(
        self,
        state: State,
        *,
        retracted: str | None = None,
        id: str | None = None,
        **aggregates: Aggregate,
    ) -> Table:
        """Keep aggregates of each group in a state, over all batches.

        Args:
            state: The state; its columns are set here.
            retracted: A boolean column; a row where it is true takes an earlier one back.
            id: Id of the component; by default the name of the table.
            aggregates: The aggregates by name of their columns: ``sold=Sum("amount")``.

        Raises:
            TopologyError: An argument is wrong, an aggregate does not fit its column, or the state
                is used elsewhere.
        """
        operator, fields = "persistent_aggregate", self.stream.fields
        bolt = self._aggregates(operator, state, aggregates, retracted)
        taken = self.stream.draft.id_of_table(id, operator, state)
        key, value = bolt.key_fields(fields), bolt.value_fields(fields)
        kinds = tuple(bolt.aggregates.values())
        kept = state.named(taken).with_columns(key, value, kinds)
        columns = stream_fields(ReaderView(kept.layout(taken)).fields)
        node = TableNode(taken, self.stream.ports, 1, kept, None, bolt, fields, columns)
        return Table(self.stream.draft, self.stream.draft.add(node))

    def aggregate(self, *, id: str | None = None, **aggregates: Aggregate) -> DataStream:
        """Return the aggregates of each group of a batch: its columns, then the aggregates.

        Nothing is kept for the next batch. How the stream is cut into batches decides what is in
        one row, so add up what this returns, and do not take it for a window.

        Args:
            id: Id of the bolt.
            aggregates: The aggregates by name of their columns. What is ``json`` in a state, as
                the value of ``TopN``, is a string here.

        Raises:
            TopologyError: An argument is wrong, or an aggregate does not fit its column.
        """
        stream, draft = self.stream, self.stream.draft
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

    def update(
        self,
        function: Callable[[Any, Tuple], tuple[Any, Sequence[Any] | None]],
        fields: str | Fields,
        *,
        state: State,
        order_by: Names = (),
        id: str | None = None,
    ) -> DataStream:
        """Keep a running value of each group, and return the rows that follow from it.

        It runs in the commit phase, one txid after the other, and reads the value of the row
        before, whether that was in this batch or an earlier one.

        Args:
            function: Gets the value of the group (None for none; a dict, if the state has several
                value columns) and a row. Returns the next value (None to remove it) and the row to
                emit, a list of values, or None for none.
            fields: The fields of the emitted rows.
            state: The state, opaque; its value columns are those of
                ``open_state(…, value=Fields(…))``, its key columns are set here.
            order_by: The columns by which the rows of one batch are ordered; without it they come
                as they were emitted, those of different tasks in any order.
            id: Id of the committer; by default the name of the table.

        Raises:
            TopologyError: An argument is wrong, or the state is used elsewhere.
        """
        check_function("update", function, "value", "row")
        declared, stream = declared_fields("update", fields), self.stream
        if not self.key:
            raise FieldsError("update has no groups; got group_by(); expected names of columns")
        order = column_names("update, for its order,", order_by, stream.fields)
        taken = stream.draft.id_of_table(id, "update", state)
        kept = state.named(taken).with_columns(stream.fields.select(self.key), state.value)
        _check_reads("update", kept)
        bolt = RunningValues(taken, self.key, function, declared, order)
        node = stream.draft.add(BoltNode(taken, stream.ports, 1, bolt, (), {taken: kept}))
        return stream._on(Port(node), declared)

    def _aggregates(
        self,
        operator: str,
        state: State,
        aggregates: Mapping[str, Aggregate],
        retracted: str | None,
    ) -> PersistentAggregate:
        if not aggregates:
            raise TopologyError(
                f"{operator} has no aggregates; expected some by name, e.g. count=Count()"
            )
        bolt = PersistentAggregate(state, self.key, aggregates, retracted=retracted)
        fields = self.stream.fields
        try:
            check_new_columns(operator, bolt.key_fields(fields), bolt.value_fields(fields))
        except FieldsError as error:
            raise FieldsError(f"{operator} cannot use {self.stream.name!r}: {error}") from error
        return bolt


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Table:
    """A state whose values can be asked for, and whose changes are a stream.

    Attributes:
        draft: The program that it belongs to.
        node: The part of the program that keeps it.
    """

    draft: Draft
    node: TableNode

    @property
    def name(self) -> str:
        """Id of its component."""
        return self.node.id

    def changes(self, *, before: bool = False) -> DataStream:
        """Return what each txid changes: the key and the value of each key that has another value.

        It is the difference of the table between two txids, in the order of the keys. A table with
        changes or queries is kept by a committer that reads the keys that it touches.

        Args:
            before: Whether the values of before stand there as well, as ``before_<column>``; they
                are NULL for a new key.

        Raises:
            TopologyError: The state cannot be read by its committer.
        """
        _check_reads("changes", self.node.state)
        stream = CHANGES_BEFORE if before else CHANGES
        fields = changed_fields(self.node.state.layout(self.name), stream)
        self.node.changes.add(stream)
        port = Port(self.node, stream)
        return DataStream(self.draft, port.name, (port,), stream_fields(fields))

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {self.node.state.key!r}, {self.node.columns!r})"


def _check_reads(operator: str, state: State) -> None:
    """Check that a committer may emit what it reads in a state.

    Raises:
        TopologyError: It would read something else in a replay, or cannot read.
    """
    if state.kind != "opaque":
        raise TopologyError(
            f"{operator} reads a transactional state; got {state!r}; expected an opaque one, since "
            "in a replay a transactional state that holds the txid shows what is after it; use "
            'open_state(…, kind="opaque")'
        )
    if state.mode != "table":
        raise TopologyError(
            f"{operator} reads a state in mode 'log', whose rows are partial aggregates; got "
            f"{state!r}; expected open_state(…, mode='table')"
        )


def _no_function(row: Tuple) -> None:
    """Stand where an operator has no function."""


def _no_state() -> State:
    """Return the state of aggregates that are not kept."""
    return State("none:", table="batch")
