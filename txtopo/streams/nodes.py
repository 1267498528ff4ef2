"""Nodes: what operators add to a program, and how each node becomes components."""

from __future__ import annotations

import datetime
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from txtopo.bolts.bolt import Committer
from txtopo.bolts.persistent_aggregate import PersistentAggregate
from txtopo.builders.declarer import BoltDeclarer
from txtopo.builders.transactional import Bolt, Spout, TransactionalTopologyBuilder
from txtopo.dead_letters import FIELDS
from txtopo.state.backend import StateTable
from txtopo.state.registry import State
from txtopo.streams.batch_aggregate import BatchPartials, partial_fields
from txtopo.streams.event_time import (
    MARKS,
    REFUSED,
    MeasureTimes,
    RefuseRows,
    SourceTime,
    TimeColumn,
    Watermarks,
)
from txtopo.streams.expiring_tables import ExpiringTable, TableExpiry, TimedPartials, without_seen
from txtopo.streams.largest_rows import LargestRows, MaxBy
from txtopo.streams.late_rows import LATE, UNUSABLE, UnusableRows
from txtopo.streams.materialized import Materializing
from txtopo.streams.operators import FusedOperators, Operator
from txtopo.streams.sessions import SessionCommitter
from txtopo.streams.tables import (
    CHANGES_RETRACTED,
    Aggregating,
    AnsweredQuery,
    Applies,
    Output,
    StoredRows,
    TableCommitter,
    Upserting,
)
from txtopo.streams.windows import Closing, Session, Window, WindowCommitter
from txtopo.traits import Meaning
from txtopo.tuples import DEFAULT_STREAM, Fields

TOLD_CHARACTERS_MAX = 300

Chooses = Upserting | MaxBy | Materializing
"""How a table without aggregates chooses the row of each key."""

Kept = TypeVar("Kept", PersistentAggregate, StoredRows | TableCommitter)


@dataclass(frozen=True, slots=True)
class Port:
    """An output of a node.

    Attributes:
        node: The node.
        stream: Name of the stream.
    """

    node: ProgramNode
    stream: str = DEFAULT_STREAM

    @property
    def name(self) -> str:
        """The name of the stream, in messages and as a part of ids."""
        return self.node.id if self.stream == DEFAULT_STREAM else f"{self.node.id}.{self.stream}"

    @property
    def output(self) -> Output:
        """Id of the component, and name of the stream."""
        return self.node.id, self.stream


@dataclass(eq=False, slots=True)
class ProgramNode(ABC):
    """A part of a program that becomes a component or a part of a component.

    Attributes:
        id: Id of the component.
        inputs: The streams that it reads.
        parallelism: How many tasks it has.
        committing: Whether it runs in the commit phase.
        taken_back: The tables whose rows its inputs take back, with the operators in between;
            empty if there are none.
    """

    id: str
    inputs: tuple[Port, ...]
    parallelism: int
    committing: bool = field(init=False)
    taken_back: str = field(init=False)

    def __post_init__(self) -> None:
        self.committing = self.commits or any(port.node.committing for port in self.inputs)
        self.taken_back = taken_back_above(self.inputs)

    def taken_back_in(self, stream: str) -> str:
        """Return the tables whose rows a stream of the node takes back; see ``taken_back``."""
        where = self.word if stream == DEFAULT_STREAM else f"{self.word} {stream}"
        return f"{self.taken_back} → {where}" if self.taken_back else ""

    @property
    def word(self) -> str:
        """The name of the node in ``taken_back``."""
        return self.id

    @property
    def reads(self) -> Iterator[Port]:
        """All streams that the node reads."""
        return iter(self.inputs)

    @property
    def commits(self) -> bool:
        """Whether the node itself becomes a committer, not merely a bolt below one."""
        return False

    @property
    def user_object(self) -> Any:
        """The user's spout or bolt, if the node has one."""
        return None

    @abstractmethod
    def declare(self, builder: TransactionalTopologyBuilder) -> None:
        """Add the component of the node to a builder."""

    def depends_on(self, other: ProgramNode) -> bool:
        """Return whether rows of this node may depend on another node; a node depends on itself."""
        waiting, seen = [self], set[int]()
        while waiting:
            node = waiting.pop()
            if node is other:
                return True
            if id(node) not in seen:
                seen.add(id(node))
                waiting += [port.node for port in node.reads]
        return False


@dataclass(eq=False, slots=True)
class SourceNode(ProgramNode):
    """A spout; the draft declares it."""

    spout: Spout

    @property
    def user_object(self) -> Any:
        """The spout."""
        return self.spout

    def declare(self, builder: TransactionalTopologyBuilder) -> None:
        """Do nothing: the builder already has its spouts."""


@dataclass(eq=False, slots=True)
class TimesNode(ProgramNode):
    """Measures the event times of a source.

    Attributes:
        time: What the source declares.
        fields: The fields of its rows.
        unusable: The state of rows without a usable time that the source names, if it does.
        kept: Whether an ``UnusableNode`` keeps such rows.
    """

    time: SourceTime
    fields: Fields
    unusable: State | None
    kept: bool = False

    def declare(self, builder: TransactionalTopologyBuilder) -> None:
        """Add the bolt that measures, and the bolt that takes rows without a usable time."""
        declarer = builder.set_bolt(self.id, MeasureTimes(self.time, self.fields), self.parallelism)
        for port in self.inputs:
            declarer.local_or_shuffle_grouping(*port.output)
        refused = f"{self.id}.{REFUSED}"
        if self.unusable is None:
            refusing = builder.set_bolt(refused, RefuseRows(self.time, kept=self.kept))
            refusing.local_or_shuffle_grouping(self.id, REFUSED)
        else:
            keeping = builder.set_bolt(refused, UnusableRows(self.fields))
            keeping.global_grouping(self.id, REFUSED).with_state(UNUSABLE, self.unusable)


@dataclass(eq=False, slots=True)
class UnusableNode(ProgramNode):
    """Keeps the rows without a usable time of all sources that name no state for them.

    They have different columns, so they are kept as dead letters are.

    Attributes:
        state: The state.
    """

    state: State

    @property
    def commits(self) -> bool:
        """Always true, since the bolt is a committer."""
        return True

    def declare(self, builder: TransactionalTopologyBuilder) -> None:
        """Add the committer."""
        declarer = builder.set_bolt(self.id, UnusableRows(FIELDS))
        for port in self.inputs:
            declarer.global_grouping(f"{port.node.id}.{REFUSED}")
        declarer.with_state(UNUSABLE, self.state)


@dataclass(eq=False, slots=True)
class WatermarksNode(ProgramNode):
    """Keeps the watermarks of a program.

    Attributes:
        state: Its state; None until the program has one.
        times: The nodes that measure event times.
        clocks: Spouts that produce txids while a source is silent.
        wanted: The event time of each table that reads a watermark, by the table's name.
    """

    state: State | None = None
    times: list[TimesNode] = field(default_factory=list)
    clocks: list[Port] = field(default_factory=list)
    wanted: dict[str, TimeColumn] = field(default_factory=dict)

    @property
    def reads(self) -> Iterator[Port]:
        """The marks of all sources, and the clocks."""
        yield from (Port(each, MARKS) for each in self.times)
        yield from self.clocks

    @property
    def commits(self) -> bool:
        """Always true, since the bolt is a committer."""
        return True

    def of(self, time: TimeColumn, table: str) -> Port:
        """Return the stream with a table's watermark for an event time."""
        self.wanted[table] = time
        return Port(self, table)

    def declare(self, builder: TransactionalTopologyBuilder) -> None:
        """Add the committer, if anything reads a watermark."""
        if not self.wanted:
            return
        assert self.state is not None, "set when a watermark is first requested"
        sources = {each.id: each.time for each in self.times}
        declarer = builder.set_bolt(self.id, Watermarks(self.id, sources, self.wanted))
        for port in self.reads:
            declarer.global_grouping(*port.output)
        declarer.with_state(self.id, self.state)


@dataclass(eq=False, slots=True)
class StatelessNode(ProgramNode):
    """An operator without state; several in a row become one bolt.

    Attributes:
        operator: What it does.
        begins: Whether it starts a bolt, since the user gave it a parallelism.
        chain: All operators of its bolt, if it is the last one there; set by the draft.
    """

    operator: Operator
    begins: bool
    chain: tuple[StatelessNode, ...] = ()

    @property
    def word(self) -> str:
        """The operator's word, so that its id may change."""
        return self.operator.word

    def declare(self, builder: TransactionalTopologyBuilder) -> None:
        """Add the bolt, if this is its last operator."""
        first = self.chain[0]
        bolt = FusedOperators(tuple(each.operator for each in self.chain))
        declarer = builder.set_bolt(self.id, bolt, first.parallelism)
        near = not first.begins
        for port in first.inputs:
            subscribe = declarer.local_or_shuffle_grouping if near else declarer.shuffle_grouping
            subscribe(*port.output)


@dataclass(eq=False, slots=True)
class BoltNode(ProgramNode):
    """A bolt with one kind of input: the user's bolt, or the bolt of an operator.

    Attributes:
        bolt: The bolt.
        by: The fields of its grouping; empty to send all rows to one task; None for any task.
        states: Its states by name.
        own: Whether it is the user's.
    """

    bolt: Bolt
    by: tuple[str, ...] | None = None
    states: Mapping[str, State] = field(default_factory=dict)
    own: bool = False

    @property
    def commits(self) -> bool:
        """Whether the bolt is a committer."""
        return isinstance(self.bolt, Committer)

    def taken_back_in(self, stream: str) -> str:
        """Return the table of the bolt, if the stream takes back rows that it has emitted."""
        state = None if self.own else self.states.get(self.id)
        if state is not None and self.bolt.traits.retractions == stream:
            return repr(state.table)
        return ProgramNode.taken_back_in(self, stream)

    @property
    def user_object(self) -> Any:
        """The user's bolt."""
        return self.bolt if self.own else None

    def declare(self, builder: TransactionalTopologyBuilder) -> None:
        """Add the bolt."""
        declarer = builder.set_bolt(self.id, self.bolt, self.parallelism)
        for port in self.inputs:
            if self.by is None and not self.own:
                declarer.local_or_shuffle_grouping(*port.output)
            else:
                _subscribe(declarer, port, self.by)
        for name, state in self.states.items():
            declarer.with_state(name, state)


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of a table.

    Attributes:
        time: The event time of the rows.
        watermark: The stream with their watermark.
        window: The windows.
        late: The state of late rows; None if they are dropped.
        keep: How long after its end a window is kept; None for forever.
    """

    time: TimeColumn
    watermark: Port
    window: Window | Session
    late: State | None
    keep: datetime.timedelta | None


@dataclass(eq=False, slots=True)
class TableNode(ProgramNode):
    """A state with one row per key, together with what reads it.

    Attributes:
        state: The state, with its columns.
        chooses: Which row of a key counts; None if they are aggregated.
        aggregate: How rows are aggregated; None if they are not.
        rows: The fields of the rows that the table is made of.
        columns: The value columns as readers see them.
        queries: The streams that query it, by the name of the stream with the answers.
        changes: The streams of changes that are read.
        windows: Its windows, if it has some.
        final: Whether its closed windows are read.
        expiry: When its values expire; None for never.
        expires_by: The stream with the watermark by which they do; None for planned time.
    """

    state: State
    chooses: Chooses | None
    aggregate: PersistentAggregate | None
    rows: Fields
    columns: Fields
    queries: dict[str, AskedQuery] = field(default_factory=dict)
    changes: set[str] = field(default_factory=set)
    windows: Windows | None = None
    final: bool = False
    expiry: TableExpiry | None = None
    expires_by: Port | None = None

    @property
    def layout(self) -> StateTable:
        """The table as the streams of the program see it."""
        table = self.state.layout(self.id)
        return table if self.expiry is None else without_seen(table)

    @property
    def removes(self) -> bool:
        """Whether the table removes keys: their rows are taken back, or their values expire."""
        return self.expiry is not None or (self.chooses is not None and self.chooses.removes)

    @property
    def reads(self) -> Iterator[Port]:
        """The streams that feed the table, its watermark, and the streams that query it."""
        yield from self.inputs
        if self.windows is not None:
            yield self.windows.watermark
        if self.expires_by is not None:
            yield self.expires_by
        for query in self.queries.values():
            yield from query.ports

    @property
    def commits(self) -> bool:
        """Always true, since the bolt is a committer."""
        return True

    def taken_back_in(self, stream: str) -> str:
        """Return the table, if the stream takes back its rows."""
        return repr(self.state.table) if stream == CHANGES_RETRACTED else ""

    @property
    def combines_in_store(self) -> bool:
        """Whether the store can combine the rows, since nothing reads the table."""
        return not (self.queries or self.changes or self.windows or self.expiry)

    def declare(self, builder: TransactionalTopologyBuilder) -> None:
        """Add a ``PersistentAggregate`` if nothing reads the table, else a committer."""
        if self.aggregate is None:
            assert self.chooses is not None
            if isinstance(self.chooses, MaxBy):
                fields = Fields.of([*self.state.key, *self.state.value])
                above = self._above(builder, LargestRows(self.chooses, fields))
                self._commit(builder, self.chooses, fields, above)
            else:
                outputs = tuple(port.output for port in self.inputs)
                self._commit(builder, self.chooses, self.rows, outputs)
        elif self.combines_in_store:
            declarer = builder.set_bolt(self.id, self._meant(self.aggregate))
            for port in self.inputs:
                _subscribe(declarer, port, self.aggregate.key)
        else:
            aggregate, rows = self.aggregate, self.rows
            partials = BatchPartials(aggregate, rows)
            if self.expiry is not None and self.expiry.time is not None:
                partials = TimedPartials(self.id, self.expiry, aggregate, rows)
                aggregate, rows = partials.aggregates, partials.inputs
            above = self._above(builder, partials)
            applies = Aggregating(aggregate, rows)
            self._commit(builder, applies, partial_fields(aggregate, rows), above)

    def _above(
        self, builder: TransactionalTopologyBuilder, partials: BatchPartials | LargestRows
    ) -> tuple[Output, ...]:
        """Add a bolt that combines rows where they are, and return its stream."""
        above = f"{self.id}.partials"
        declarer = builder.set_bolt(above, partials, parallelism_below(self.inputs))
        for port in self.inputs:
            declarer.local_or_shuffle_grouping(*port.output)
        return ((above, DEFAULT_STREAM),)

    def _commit(
        self,
        builder: TransactionalTopologyBuilder,
        applies: Applies,
        rows: Fields,
        inputs: tuple[Output, ...],
    ) -> None:
        queries = {
            name: AnsweredQuery(tuple(port.output for port in each.ports), each.fields, each.on)
            for name, each in self.queries.items()
        }
        parts = self.id, self.layout, inputs, rows, applies, queries, frozenset(self.changes)
        windows = self.windows
        bolt: StoredRows | TableCommitter
        if isinstance(applies, Upserting) and self.combines_in_store:
            bolt = StoredRows(self.id, applies, self.rows)
        elif self.expiry is not None:
            bolt = ExpiringTable(self.expiry, *parts)
        elif windows is None:
            bolt = self.committer(*parts)
        else:
            late = None if windows.late is None else LATE
            output = windows.watermark.output
            closing = Closing(output, windows.window, late, windows.keep, self.final)
            kind = SessionCommitter if isinstance(windows.window, Session) else WindowCommitter
            bolt = kind(closing, *parts)
        if isinstance(applies, MaxBy):
            assert isinstance(bolt, TableCommitter)
            bolt.meaning = Meaning(
                f"largest by {applies}",
                "stored rows were chosen in another order; compare the same columns as before, "
                "or give the state another table",
            )
        declarer = builder.set_bolt(self.id, self._meant(bolt))
        asking = (output for each in queries.values() for output in each.sources)
        # A stream may query the table twice.
        for output in dict.fromkeys((*inputs, *asking)):
            declarer.global_grouping(*output)
        declarer.with_state(self.id, self.state)
        for name, state in self.beside.items():
            declarer.with_state(name, state)
        if self.expires_by is not None:
            declarer.global_grouping(*self.expires_by.output)
        if windows is not None:
            declarer.global_grouping(*windows.watermark.output)
            if windows.late is not None:
                declarer.with_state(LATE, windows.late)

    @property
    def beside(self) -> Mapping[str, State]:
        """Further states of the committer, by name; windows of event time add their own."""
        return {}

    def committer(self, *arguments: Any) -> TableCommitter:
        """Return the committer of a table without windows of event time."""
        return TableCommitter(*arguments)

    @property
    def _made_of_changes(self) -> str:
        """The columns that are made of rows that are put and taken back; empty if none are."""
        if isinstance(self.chooses, Materializing):
            return ", ".join((*self.chooses.key, *self.chooses.value))
        if self.aggregate is not None and self.aggregate.retracted is not None:
            return ", ".join(self.aggregate.aggregates)
        return ""

    def _meant(self, bolt: Kept) -> Kept:
        """Record in a bolt what its rows mean, if they take back rows of a table.

        A row must be taken back exactly as it counted. So between the two a changed program must
        not have other columns, other operators or another table there.
        """
        if self._made_of_changes and self.taken_back:
            assert not isinstance(bolt, StoredRows), "it takes no rows back"
            bolt.meaning = Meaning(
                f"{self._made_of_changes} of the rows of {self.taken_back}",
                "a row would be taken back in a different way than it was counted; declare it as "
                "before, or give another table to it and to the table whose rows it takes back",
            )
        return bolt


@dataclass(frozen=True, slots=True)
class AskedQuery:
    """A stream whose rows query a table.

    Attributes:
        ports: The stream.
        fields: Its fields.
        on: The fields that are the key, in the order of the key columns.
    """

    ports: tuple[Port, ...]
    fields: Fields
    on: tuple[str, ...]


def taken_back_above(ports: tuple[Port, ...]) -> str:
    """Return the tables whose rows some streams take back; see ``ProgramNode.taken_back``."""
    above = (port.node.taken_back_in(port.stream) for port in ports)
    told = " and ".join(sorted(filter(None, above)))
    # A fingerprint only has to be compared, so a digest does instead of a long text.
    digest = hashlib.sha256(told.encode()).hexdigest()[:16]
    return told if len(told) <= TOLD_CHARACTERS_MAX else digest


def parallelism_below(ports: tuple[Port, ...]) -> int:
    """Return how many tasks an operator below some streams has by default.

    In the commit phase it is one task: committers with several tasks cannot commit groups of txids.
    """
    if any(port.node.committing for port in ports):
        return 1
    return max(port.node.parallelism for port in ports)


def _subscribe(declarer: BoltDeclarer, port: Port, by: tuple[str, ...] | None) -> None:
    if by:
        declarer.fields_grouping(port.node.id, by, stream=port.stream)
    elif by is None:
        declarer.shuffle_grouping(*port.output)
    else:
        declarer.global_grouping(*port.output)
