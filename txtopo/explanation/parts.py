"""Parts: the components, edges and states of a topology as an explanation shows them.

They are plain values: text, numbers and tuples. They contain no password.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from txtopo.bolts.persistent_aggregate import PersistentAggregate
from txtopo.errors import escaped
from txtopo.groupings import CustomGrouping, Grouping
from txtopo.stages.compiled_topology import CompiledTopology
from txtopo.state.aggregates import Aggregate, MeanCount, MeanSum, PythonAggregate
from txtopo.state.registry import State
from txtopo.topology.bolt_kinds import PERSISTENT_AGGREGATE
from txtopo.topology.component import Component
from txtopo.topology.engine import EnginePart
from txtopo.topology.graph import Graph
from txtopo.tuples import Fields

Phase = Literal["process", "commit"]

Shape = Literal["spout", "bolt", "committer", "aggregate", "plan"]
"""The shape that identifies the kind of a component in a drawing."""


@dataclass(frozen=True, slots=True)
class CarrierChoice:
    """The carrier that a topology gets, and the number of its slots.

    Attributes:
        carrier: ``local``, ``rdd``, ``dataframe`` or ``resident``.
        why: Why it was chosen.
        slots: The number of slots; None if it depends on a session that does not exist yet.
        slots_why: What determines the number.
    """

    carrier: str
    why: str
    slots: int | None
    slots_why: str


@dataclass(frozen=True, slots=True)
class ExplainedStream:
    """A stream that a component declares.

    Attributes:
        name: Its name.
        fields: Its fields as (name, type).
        direct: Whether the emitter picks the receiving task.
    """

    name: str
    fields: tuple[tuple[str, str], ...]
    direct: bool


@dataclass(frozen=True, slots=True)
class ExplainedState:
    """A state of a committer.

    Attributes:
        state: Its name in messages, ``component.name``.
        url: Where its store is, without passwords.
        table: The name of its table.
        kind: ``opaque`` or ``transactional``.
        mode: ``table`` or ``log``.
        key: The key columns as (name, type).
        value: The value columns as (name, type).
        holds: What its rows contain in addition: nothing, the previous value, or partial
            aggregates.
    """

    state: str
    url: str
    table: str
    kind: str
    mode: str
    key: tuple[tuple[str, str], ...]
    value: tuple[tuple[str, str], ...]
    holds: str


@dataclass(frozen=True, slots=True)
class ExplainedAggregate:
    """A value column of a ``PersistentAggregate``.

    Attributes:
        column: The name of the column.
        aggregate: How it is computed, e.g. ``Sum(delay)``.
        combined: Where its rows are combined: ``columns`` (Arrow), ``Python`` or ``Spark``.
    """

    column: str
    aggregate: str
    combined: str


@dataclass(frozen=True, slots=True)
class ExplainedComponent:
    """A spout or bolt.

    Attributes:
        component: Its id.
        role: The kind of spout or bolt.
        class_name: The class of the user's object, with its module.
        shape: How it is drawn.
        level: Its longest distance from a spout.
        column: Its place in a drawing, from left to right; the commit phase is after the handover.
        phase: The phase in which it runs.
        committer: Whether it is itself a committer, not merely below one.
        parallelism: The number of its tasks; 0 if it has no tasks.
        runs: Where it runs.
        streams: The streams that it declares.
        states: Its states.
        aggregates: What it computes, if it is a ``PersistentAggregate``.
        key: The key fields of a ``PersistentAggregate``.
        dead_letters: Whether it makes dead letters of bad records.
        operators: The operators of a ``StreamBuilder`` that run in it, or the parts of a sequence
            of spouts, in order; otherwise empty.
    """

    component: str
    role: str
    class_name: str
    shape: Shape
    level: int
    column: int
    phase: Phase
    committer: bool
    parallelism: int
    runs: str
    streams: tuple[ExplainedStream, ...]
    states: tuple[ExplainedState, ...]
    aggregates: tuple[ExplainedAggregate, ...]
    key: tuple[str, ...]
    dead_letters: bool
    operators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExplainedEdge:
    """A stream from one component to a bolt.

    Attributes:
        source: Id of the component that emits.
        stream: Name of its stream.
        target: Id of the bolt that subscribes to it.
        grouping: How its tuples are divided among the tasks, e.g. ``fields (word)``.
    """

    source: str
    stream: str
    target: str
    grouping: str


def explained_components(
    graph: Graph, compiled: CompiledTopology, choice: CarrierChoice
) -> tuple[ExplainedComponent, ...]:
    """Return the components, sources before the bolts that subscribe to them."""
    columns = _columns(graph)
    return tuple(
        ExplainedComponent(
            component=id,
            role=one.kind.text,
            class_name=_class_name(one.prototype),
            shape=_shape(one),
            level=graph.levels[id],
            column=columns[id],
            phase="commit" if id in graph.committing else "process",
            committer=one.committer,
            parallelism=graph.parallelism[id],
            runs=_runs(one, graph, compiled, choice),
            streams=tuple(
                ExplainedStream(name, _columns_of(stream.fields), stream.direct)
                for name, stream in one.streams.items()
            ),
            states=tuple(_state(one, name, state) for name, state in one.states.items()),
            aggregates=tuple(_aggregates(one, compiled.engine)),
            key=one.prototype.key if isinstance(one.prototype, PersistentAggregate) else (),
            dead_letters=one.dead_letters is not None,
            operators=one.traits.operators,
        )
        for id, one in graph.components.items()
    )


def explained_edges(graph: Graph) -> tuple[ExplainedEdge, ...]:
    """Return the edges, in the order of the components that they lead to."""
    return tuple(
        ExplainedEdge(each.source, each.stream, each.target, grouping_text(each.grouping))
        for each in graph.edges()
    )


def grouping_text(grouping: Grouping) -> str:
    """Return a grouping in words, e.g. ``fields (word)``."""
    if isinstance(grouping, CustomGrouping):
        return f"custom {escaped(type(grouping.grouping).__name__)}"
    words = type(grouping).__name__.removesuffix("Grouping")
    spaced = "".join(f" {c.lower()}" if c.isupper() else c for c in words).strip()
    fields = getattr(grouping, "fields", ())
    return f"{spaced} ({', '.join(fields)})" if fields else spaced


def fields_text(fields: tuple[tuple[str, str], ...]) -> str:
    """Return fields as a text that ``Fields`` can read."""
    return ", ".join(f"{name} {kind}" for name, kind in fields)


def short_class(class_name: str) -> str:
    """Return the name of a class without its module."""
    return class_name.rpartition(".")[2]


def _columns(graph: Graph) -> Mapping[str, int]:
    """Return the column of each component: its level; the commit phase is right of the rest."""
    processing = [graph.levels[id] for id in graph.components if id not in graph.committing]
    first = 1 + max(processing, default=-1)
    columns: dict[str, int] = {}
    for id, component in graph.components.items():
        if id not in graph.committing:
            columns[id] = graph.levels[id]
            continue
        sources = (each.source for each in component.subscriptions)
        above = [columns[source] for source in sources if source in graph.committing]
        columns[id] = 1 + max(above) if above else first
    return columns


def _shape(component: Component) -> Shape:
    if component.kind.spout:
        return "spout"
    if component.kind == PERSISTENT_AGGREGATE:
        return "aggregate"
    if component.committer:
        return "committer"
    return "plan" if component.kind.frame else "bolt"


def _runs(
    component: Component, graph: Graph, compiled: CompiledTopology, choice: CarrierChoice
) -> str:
    """Return where a component runs, in words that follow "runs"."""
    engine = compiled.engine
    if engine is not None and engine.takes(component.id):
        return engine.described(component.id)
    if component.kind == PERSISTENT_AGGREGATE:
        return "without tasks: rows are combined where they are emitted, and merged in the driver"
    if component.kind.spout and component.spout_kind.runs is not None:
        return component.spout_kind.runs
    if component.id in graph.committing and compiled.commit_in_driver:
        return "in the driver"
    if choice.carrier == "local":
        return "in this process"
    return "in long-lived Spark tasks" if choice.carrier == "resident" else "in Spark tasks"


def _columns_of(fields: Fields) -> tuple[tuple[str, str], ...]:
    return tuple((each.name, each.type) for each in fields)


def _class_name(prototype: object) -> str:
    kind = type(prototype)
    return escaped(f"{kind.__module__}.{kind.__qualname__}".replace(".<locals>", ""))


def _state(component: Component, name: str, state: State) -> ExplainedState:
    table = state.layout(name)
    return ExplainedState(
        state=f"{component.id}.{name}",
        url=escaped(state.shown_url),
        table=escaped(table.name),
        kind=table.kind,
        mode=table.mode,
        key=_columns_of(table.key),
        value=_columns_of(table.value),
        holds=_holds(component, state),
    )


def _holds(component: Component, state: State) -> str:
    told = component.traits.holds
    if told is not None:
        return told
    if state.mode == "log":
        return "partial aggregates of each txid, which are combined later"
    if state.kind == "opaque":
        return "each value with its txid and the previous value"
    return "each value with its txid"


def _aggregates(component: Component, engine: EnginePart | None) -> list[ExplainedAggregate]:
    bolt = component.prototype
    if not isinstance(bolt, PersistentAggregate):
        return []
    by_spark = engine is not None and engine.takes(component.id)
    shown = []
    for column, each in bolt.aggregates.items():
        if isinstance(each, MeanCount):
            continue  # the column of the sum stands for both
        name = column.removesuffix("_sum") if isinstance(each, MeanSum) else column
        python = isinstance(each, PythonAggregate)
        combined = "Spark" if by_spark else "Python" if python else "columns"
        shown.append(ExplainedAggregate(name, _aggregate_text(each), combined))
    return shown


def _aggregate_text(aggregate: Aggregate) -> str:
    kind: Any = type(aggregate)
    name = "Mean" if isinstance(aggregate, MeanSum) else kind.__name__
    return escaped(f"{name}({', '.join(aggregate.inputs)})")
