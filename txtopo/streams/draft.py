"""Draft: the program of a StreamBuilder so far, with the ids and tables in use; it also fuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from txtopo.bolts.bolt import Committer
from txtopo.bolts.dead_letters import DeadLetters
from txtopo.builders.dead_letters import checked_dead_letters
from txtopo.builders.transactional import Topology, TransactionalTopologyBuilder
from txtopo.dead_letters import FIELDS
from txtopo.errors import TopologyError
from txtopo.sources.clock import ClockTransactionalSpout
from txtopo.state.registry import State, redacted_url
from txtopo.streams.checks import check_new_columns
from txtopo.streams.event_time import KEY, VALUE, SourceTime, TimeColumn
from txtopo.streams.late_rows import LATE_KEY, UNUSABLE
from txtopo.streams.nodes import (
    Port,
    ProgramNode,
    SourceNode,
    StatelessNode,
    TimesNode,
    UnusableNode,
    WatermarksNode,
)
from txtopo.topology.component import ID_CHARACTERS_MAX, check_id
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from txtopo.streams.lookups import Lookup
    from txtopo.streams.stream import DataStream, Table

AnyNode = TypeVar("AnyNode", bound=ProgramNode)


class Draft:
    """The program of one ``StreamBuilder``.

    Attributes:
        nodes: What the operators have added, in order; the inputs of each come before it, except
            streams that query a table.
    """

    def __init__(
        self, id: str, dead_letters: State | Committer | DeadLetters | None, marks: State | None
    ) -> None:
        self._id = check_id("topology", id)
        self._dead_letters = checked_dead_letters(dead_letters)
        self._marks = None if marks is None else readable_state("marks", marks)
        self._watermarks: WatermarksNode | None = None
        self._first_state: State | None = None
        self.nodes: list[ProgramNode] = []
        self._ids: set[str] = set()
        self._tables: dict[tuple[str, str], str] = {}
        self._timed: dict[str, str] = {}

    @property
    def takes_dead_letters(self) -> bool:
        """Whether a row that cannot be processed becomes a dead letter."""
        return self._dead_letters is not None

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Forget the ids, tables and nodes of an operator that fails, so that it can be corrected.

        Operators should request a watermark last, since that request is not forgotten.
        """
        ids, tables, nodes = self._ids.copy(), self._tables.copy(), self.nodes.copy()
        watermarks, timed = self._watermarks, self._timed.copy()
        first_state = self._first_state
        try:
            yield
        except Exception:
            self._ids, self._tables, self.nodes = ids, tables, nodes
            self._watermarks, self._timed = watermarks, timed
            self._first_state = first_state
            raise

    def take_id(self, id: str, what: str) -> str:
        """Reserve an id that the user gave.

        Raises:
            TopologyError: It is taken, or is not a valid id.
        """
        check_id(what, id)
        if id in self._ids:
            raise TopologyError(
                f"{what} id {id!r} is used twice; ids must be distinct; rename one of them",
                component=id,
            )
        self._ids.add(id)
        return id

    def free_id(self, wanted: str) -> str:
        """Make an id for an operator without one; a number is added if the id is taken."""
        number, free = 1, wanted
        while free in self._ids:
            number += 1
            free = f"{wanted}-{number}"
        return self.take_id(free, "operator")

    def id_of(self, given: str | None, stream: str, operator: str) -> str:
        """Reserve the id of an operator: the user's, or ``<stream>.<operator>``."""
        if given is not None:
            return self.take_id(given, operator)
        made = f"{stream}.{operator}"
        if len(made) > ID_CHARACTERS_MAX:
            raise TopologyError(
                f"too many operators in a row: the id of {operator} would be too long; got "
                f"{made!r:.60}…, {len(made)} characters; expected at most {ID_CHARACTERS_MAX}; "
                "give one of the operators above its own id, e.g. map(…, id='clean')",
                component=made,
                got=len(made),
            )
        return self.free_id(made)

    def id_of_table(self, given: str | None, operator: str, state: object) -> str:
        """Reserve the id of a component with a state: the user's, or the name of the table.

        Raises:
            TopologyError: It is not a state, has no table, or is used already.
        """
        state = checked_state(operator, state)
        if given is None and state.table is None:
            raise TopologyError(
                f"the state of {operator} has no table; got {state!r}; expected "
                "open_state(url, table='counts'), or id='counts' here",
                name=operator,
            )
        table = given if state.table is None else state.table
        assert table is not None
        taken = self.take_id(given, operator) if given is not None else self.free_id(table)
        self.take_table(f"{operator} {taken!r}", state, table)
        return taken

    def take_table(self, where: str, state: object, name: str) -> None:
        """Record the table of a state as used.

        Args:
            where: What uses it, for messages.
            state: The state.
            name: The name of its table, if the state does not name one.

        Raises:
            TopologyError: It is not a state, or the table is used already.
        """
        state = checked_state(where, state)
        table = name if state.table is None else state.table
        place = (state.location, table.casefold())
        if place in self._tables:
            raise TopologyError(
                f"table {table!r} of {state!r} is used twice; got it in {self._tables[place]} and "
                f"in {where}; expected one table for each, because each has its own ledger; give "
                "one of them another table",
                table=table,
            )
        self._tables[place] = where
        self._first_state = self._first_state or state

    def check_own(self, where: str, given: object, kind: type[DataStream | Table | Lookup]) -> None:
        """Check that an object is a stream or table, and belongs to this builder.

        Raises:
            TopologyError: It is not, or it belongs to another builder.
        """
        if not isinstance(given, kind):
            raise TopologyError(
                f"{where} does not accept a {type(given).__name__}; got {given!r:.100}; expected "
                f"a {kind.__name__} that an operator of this StreamBuilder returned",
                name=where,
                got=type(given).__name__,
            )
        if given.draft is not self:
            raise TopologyError(
                f"{where} got {given.name!r} of another StreamBuilder, of topology "
                f"{given.draft._id!r}; expected one of {self._id!r}; build both parts with one "
                "builder",
                name=given.name,
                topology=given.draft._id,
            )

    def add(self, node: AnyNode) -> AnyNode:
        """Add a node."""
        self.nodes.append(node)
        return node

    def add_source(self, source: SourceNode) -> SourceNode:
        """Add a spout.

        Raises:
            TopologyError: It is not a spout, or the topology cannot have it.
        """
        self.nodes.append(source)
        self._builder()
        return source

    def table_aside(self, what: str, state: object, table: str, fields: Fields) -> State:
        """Reserve the table for rows that are set aside, and return its state.

        Args:
            what: What it is, for messages.
            state: The state.
            table: The name of its table, if the state does not name one.
            fields: The fields of the rows.

        Raises:
            TopologyError: A column has the name of a key column, the object is not a state, or the
                table is used already.
        """
        check_new_columns(what, LATE_KEY, fields)
        state = checked_state(what, state)
        # Rows that were set aside before a column was added get NULL in it.
        defaults = dict.fromkeys(fields.names) | dict(state.defaults)
        state = replace(state, defaults=tuple(defaults.items()))
        named = state.named(table).with_columns(LATE_KEY, fields)
        self.take_table(what, named, table)
        return named

    def measure_times(
        self, node: SourceNode, time: SourceTime, fields: Fields, unusable: State | None
    ) -> Port:
        """Add the node that measures the event times of a source, and return its rows."""
        id = self.take_id(f"{node.id}.times", "operator")
        if unusable is not None:
            what = f"the table of rows of source {node.id!r} without a usable time"
            unusable = self.table_aside(what, unusable, f"{node.id}_unusable", fields)
        times = self.add(TimesNode(id, (Port(node),), node.parallelism, time, fields, unusable))
        if time.clock is not None:
            clock = self.take_id(f"{node.id}.clock", "spout")
            spout = ClockTransactionalSpout(time.clock)
            self.watermarks.clocks.append(Port(self.add_source(SourceNode(clock, (), 1, spout))))
        self.watermarks.times.append(times)
        return Port(times)

    @property
    def watermarks(self) -> WatermarksNode:
        """The node that keeps the watermarks of all sources with event time."""
        if self._watermarks is None:
            self._watermarks = self.add(WatermarksNode(self.free_id("marks"), (), 1))
        return self._watermarks

    def watermark(self, time: TimeColumn, beside: State, table: str) -> Port:
        """Return the stream with the watermark for a table.

        Args:
            time: The event time of a stream.
            beside: The state of the operator: marks are stored next to the first such state.
            table: The name of its table.

        Raises:
            TopologyError: A table of that name in another store has a watermark, too.
        """
        node, name = self.watermarks, table.casefold()
        if self._timed.setdefault(name, beside.location) != beside.location:
            raise TopologyError(
                f"two tables {table!r} in different stores have windows, joins or other operators "
                f"with event time; got one of them in {beside!r}; expected distinct names, "
                "because watermarks are stored by table name; give one of them another table",
                table=table,
            )
        if node.state is None:
            marks = self._marks
            if marks is None:
                named_after_it = beside.beside(f"{self._id}_marks")
                marks = replace(named_after_it, after_topology=True)
            named = marks.named("marks")
            self.take_table("the watermarks", named, "marks")
            node.state = named.with_columns(KEY, VALUE)
        return node.of(time, name)

    def build_topology(self) -> Topology:
        """Return the topology.

        Raises:
            TopologyError: It cannot run; the message says what to repair.
        """
        self._keep_unusable_rows()
        builder = self._builder()
        inner = self._fused()
        for node in self.nodes:
            if node not in inner:
                node.declare(builder)
        return builder.build_topology()

    def _keep_unusable_rows(self) -> None:
        """Add the table of rows without a usable event time, if nothing else takes them.

        It is beside the marks that the user names, or else in the store of the first table of the
        program. A program without any table has no place for such rows.
        """
        marks = self._marks
        beside = self._first_state if marks is None else marks
        if self._watermarks is None or self.takes_dead_letters or beside is None:
            return
        keeping = [each for each in self._watermarks.times if each.unusable is None]
        if not keeping or any(each.kept for each in keeping):
            return  # the second case: the topology is built once more
        after = self._id if marks is None else marks.table or "marks"
        state = replace(beside.beside(f"{after}_{UNUSABLE}"), after_topology=marks is None)
        state = state.with_columns(LATE_KEY, FIELDS)
        self.take_table("the rows without a usable event time", state, UNUSABLE)
        for times in keeping:
            times.kept = True
        id = self.free_id(UNUSABLE)
        self.add(UnusableNode(id, tuple(Port(each) for each in keeping), 1, state))

    def _builder(self) -> TransactionalTopologyBuilder:
        sources = [node for node in self.nodes if isinstance(node, SourceNode)]
        if not sources:
            raise TopologyError(
                f"topology {self._id!r} has no source; expected one; add it with "
                "builder.source(id, spout)",
                topology=self._id,
            )
        first, *more = sources
        builder = TransactionalTopologyBuilder(
            self._id, first.id, first.spout, first.parallelism, dead_letters=self._dead_letters
        )
        for source in more:
            builder.set_spout(source.id, source.spout, source.parallelism)
        return builder

    def _fused(self) -> set[ProgramNode]:
        """Give the last operator of each bolt its chain; return the operators above the last."""
        readers = Counter(port for node in self.nodes for port in node.reads)
        inner: set[ProgramNode] = set()
        for node in self.nodes:
            if not isinstance(node, StatelessNode):
                continue
            above = _above(node, readers)
            node.chain = (node,) if above is None else (*above.chain, node)
            if above is not None:
                inner.add(above)
        return inner


def checked_state(where: str, state: object) -> State:
    """Return a state.

    Raises:
        TopologyError: It is not a state.
    """
    if not isinstance(state, State):
        raise TopologyError(
            f"the state of {where} is of the wrong type; got {redacted_url(repr(state)):.200}; "
            "expected what open_state(url) returns",
            name=where,
        )
    return state


def readable_state(operator: str, state: object) -> State:
    """Return a state, if a committer may emit values that it reads from the state.

    Raises:
        TopologyError: A replay would read other values, or the state cannot be read.
    """
    state = checked_state(operator, state)
    if state.kind != "opaque":
        raise TopologyError(
            f"{operator} reads a transactional state; got {state!r}; expected an opaque one, "
            "because in a replay a transactional state that already holds the txid shows the "
            'values after it; use open_state(…, kind="opaque")',
            name=operator,
            table=state.table,
        )
    if state.mode != "table":
        raise TopologyError(
            f"{operator} reads a state in mode 'log', whose rows are partial aggregates; got "
            f"{state!r}; expected open_state(…, mode='table')",
            name=operator,
            table=state.table,
        )
    return state


def _above(node: StatelessNode, readers: Counter[Port]) -> StatelessNode | None:
    """Return the operator that a node continues in the same bolt; None if it begins one."""
    if node.begins or len(node.inputs) > 1:
        return None
    (port,) = node.inputs
    above = port.node
    if not isinstance(above, StatelessNode) or above.operator.divides or readers[port] > 1:
        return None
    return above
