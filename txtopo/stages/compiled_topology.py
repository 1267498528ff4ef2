"""CompiledTopology: a topology compiled for its stages. It is sent to every worker.

A *chain* is the processing phase of a run, or the commit phase of one txid. A chain has *levels*,
with one shuffle between two of them, except where all tuples stay in their slot. The level of a
component is its longest distance from the start of its chain. Tuples for a component more than one
level away are passed on by the slots in between. Task i lives in slot ``i mod slots``. The
processing phase begins with all spouts of the topology, on level 0.

A ``PersistentAggregate`` has no tasks. Its rows are combined where they are emitted, and the
partial aggregates go to the driver.

What an engine computes (:mod:`txtopo.topology.engine`) has no tasks either. If a bolt subscribes to
a component of the engine, the rows come as records to the first level of the processing phase,
which emits them into envelopes. From there on they are tuples like any others.

A :class:`Run` is what it is applied to: consecutive attempts that one job processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Protocol

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.persistent_aggregate import PersistentAggregate
from txtopo.config import AnyConfig, Config, for_tasks
from txtopo.context import Stamp, TaskContext, never, no_stamp, no_states
from txtopo.dead_letters import DeadLetterRule
from txtopo.groupings import CustomGrouping, CustomStreamGrouping, Grouping, LocalOrShuffleGrouping
from txtopo.metadata import BatchMetadata
from txtopo.stages.aggregation import Aggregation
from txtopo.stages.pickling import Prototype
from txtopo.state.registry import State
from txtopo.topology.bolt_kinds import PERSISTENT_AGGREGATE, BoltKind
from txtopo.topology.component import Component
from txtopo.topology.engine import EnginePart, engine_part
from txtopo.tuples import Fields, Stream

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.state.transaction import StateHandle
    from txtopo.topology.graph import Edge
from txtopo.topology.spout_kinds import SpoutKind

Chain = Literal["processing", "commit"]

Levels = tuple[tuple[str, ...], ...]


class TopologyGraph(Protocol):
    """The topology to compile: a :class:`~txtopo.topology.graph.Graph`."""

    @property
    def id(self) -> str:
        """Id of the topology."""
        ...

    @property
    def spout(self) -> Component:
        """The spout of the topology; the first of several."""
        ...

    @property
    def spouts(self) -> tuple[Component, ...]:
        """All spouts."""
        ...

    @property
    def components(self) -> Mapping[str, Component]:
        """All components; a source comes before the components that subscribe to it."""
        ...

    @property
    def committing(self) -> frozenset[str]:
        """Ids of the committers and of all components below them."""
        ...

    @property
    def repeating(self) -> frozenset[str]:
        """Ids of the components above which all spouts repeat their batches."""
        ...

    @property
    def parallelism(self) -> Mapping[str, int]:
        """The number of tasks of each component; 0 for those that have none."""
        ...

    def edges(self) -> tuple[Edge, ...]:
        """Return all edges."""
        ...


@dataclass(frozen=True, slots=True)
class PlannedEdge:
    """A subscription of a bolt to a stream.

    Attributes:
        index: Number of the edge, which envelopes contain.
        source: Id of the component that emits.
        stream: Name of its stream.
        target: Id of the bolt.
        fields: Fields of the stream.
        grouping: The grouping; a user's own one as prototype.
        tasks: Number of tasks of the bolt.
        chain: Chain of the bolt; None for a ``PersistentAggregate``, which lives in the driver.
        level: Level of the bolt in that chain.
        schema: Schema of the record batches in envelopes.
    """

    index: int
    source: str
    stream: str
    target: str
    fields: Fields
    grouping: Grouping | Prototype[CustomStreamGrouping]
    tasks: int
    chain: Chain | None
    level: int
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class PlannedComponent:
    """A spout or bolt, with all that its tasks need.

    Attributes:
        id: Id of the component.
        kind: What the framework does with it.
        tasks: Number of its tasks.
        prototype: The user's object. Each task has a copy.
        streams: Its output streams.
        schemas: Arrow schemas of its output streams.
        inputs: Numbers of the edges that lead to it, in canonical order.
        outputs: Numbers of the edges that leave each of its streams.
        states: Its states, if its tasks open them themselves; otherwise empty.
        repeats: Whether all spouts above it repeat their batches.
        compared: Whether replays are compared with the first attempt: what a spout emits, or what
            a bolt was answered outside.
        dead_letters: When it makes a dead letter of a record; None for never.
    """

    id: str
    kind: SpoutKind | BoltKind
    tasks: int
    prototype: Prototype[Any]
    streams: Mapping[str, Stream]
    schemas: Mapping[str, pa.Schema]
    inputs: tuple[int, ...]
    outputs: Mapping[str, tuple[int, ...]]
    states: Mapping[str, State]
    repeats: bool = False
    compared: bool = False
    dead_letters: DeadLetterRule | None = None

    @property
    def spout_kind(self) -> SpoutKind:
        """The kind of the spout, which decides what the framework does with it."""
        assert isinstance(self.kind, SpoutKind)
        return self.kind


@dataclass(frozen=True, slots=True)
class CompiledTopology:
    """Everything that a stage needs to know about a topology. Picklable.

    Attributes:
        topology_id: Id of the topology.
        spouts: Ids of its spouts.
        config: The settings, without secrets.
        slots: Number of slots that host the tasks.
        components: All components that have tasks.
        aggregations: How rows are combined for each ``PersistentAggregate``.
        edges: All edges, by number.
        processing: Ids of the components on each level of the processing phase.
        commit: Ids of the components on each level of the commit phase. Empty if no component
            with tasks commits.
        commit_in_driver: Whether the commit phase runs in the driver, in one slot.
        parallelism: The number of tasks of each component, as its bolts are told.
        staying: The levels of the processing phase whose records all stay in their slot.
        engine: The part that an engine computes, which is opaque here; None if there is none.
    """

    topology_id: str
    spouts: tuple[str, ...]
    config: AnyConfig
    slots: int
    components: Mapping[str, PlannedComponent]
    aggregations: Mapping[str, Aggregation]
    edges: tuple[PlannedEdge, ...]
    processing: Levels
    commit: Levels
    commit_in_driver: bool
    parallelism: Mapping[str, int]
    staying: frozenset[int] = frozenset()
    engine: EnginePart | None = None

    @property
    def only_spout(self) -> str | None:
        """Id of the topology's only spout; None if it has several."""
        return self.spouts[0] if len(self.spouts) == 1 else None

    @property
    def answering(self) -> tuple[str, ...]:
        """Ids of the bolts whose answers are compared in a replay."""
        return tuple(
            id for id, each in self.components.items() if each.compared and not each.kind.spout
        )

    def context(
        self,
        component: PlannedComponent,
        task: int,
        stamp: Callable[[], Stamp] = no_stamp,
        states: Callable[[str], StateHandle] = no_states,
        abandoned: Callable[[], bool] = never,
    ) -> TaskContext:
        """Return the context of a task.

        Args:
            component: The component.
            task: The number of the task.
            stamp: Returns the stamp of the batch that it works on.
            states: Opens its states.
            abandoned: Returns whether the attempt is abandoned.
        """
        return TaskContext(
            self.topology_id,
            component.id,
            task,
            component.tasks,
            states=states,
            parallelism=self.parallelism,
            stamp=stamp,
            abandoned=abandoned,
        )

    def levels_of(self, chain: Chain) -> Levels:
        """Return the levels of a chain."""
        return self.processing if chain == "processing" else self.commit

    def divided_levels(self, chain: Chain) -> list[range]:
        """Return the levels of a chain, divided where tuples may leave their slot.

        A slot can compute the levels of one part without the other slots.
        """
        count = len(self.levels_of(chain))
        staying = self.staying if chain == "processing" else frozenset()
        starts = [level for level in range(count) if level - 1 not in staying]
        return [range(start, end) for start, end in pairwise([*starts, count])]

    def slots_of(self, chain: Chain) -> int:
        """Return the number of slots of a chain."""
        return 1 if chain == "commit" and self.commit_in_driver else self.slots


def compile_topology(
    graph: TopologyGraph, config: AnyConfig, slots: int, *, commit_in_driver: bool = False
) -> CompiledTopology:
    """Compile a checked topology for a number of slots.

    Args:
        graph: The topology.
        config: Its settings.
        slots: The number of slots.
        commit_in_driver: Whether the commit phase runs in the driver even if committers have
            several tasks.
    """
    engine = engine_part(graph.components)
    working = {id: c for id, c in graph.components.items() if _has_tasks(c, engine)}
    aggregations = {
        id: _aggregation(component, graph.components)
        for id, component in graph.components.items()
        if _aggregate(component) and not (engine and engine.takes(id))
    }
    depths = _commit_depths(graph, working)
    processing = _processing_depths(graph, working, engine)
    in_driver = commit_in_driver or all(working[id].parallelism == 1 for id in depths)
    edges = _edges(graph, engine, aggregations, processing, depths)
    components = {
        id: replace(
            _component(component, edges, slots, engine, with_states=not in_driver),
            repeats=id in graph.repeating,
            compared=isinstance(config, Config)
            and config.check_replays
            and _compared(component, graph),
        )
        for id, component in working.items()
    }
    return CompiledTopology(
        topology_id=graph.id,
        spouts=tuple(each.id for each in graph.spouts),
        config=for_tasks(config),
        slots=slots,
        components=components,
        aggregations=aggregations,
        edges=edges,
        processing=_levels(processing),
        commit=_levels(depths),
        commit_in_driver=in_driver,
        parallelism=graph.parallelism,
        staying=_staying(_levels(processing), edges, components, slots),
        engine=engine,
    )


def _staying(
    levels: Levels,
    edges: tuple[PlannedEdge, ...],
    components: Mapping[str, PlannedComponent],
    slots: int,
) -> frozenset[int]:
    """Return the levels below which every tuple is for a task in its own slot."""

    def stays(edge: PlannedEdge) -> bool:
        local = isinstance(edge.grouping, LocalOrShuffleGrouping)
        # Else a slot has tasks of the source and none of the target.
        return slots == 1 or (local and min(components[edge.source].tasks, slots) <= edge.tasks)

    return frozenset(
        level
        for level in range(len(levels) - 1)
        if all(
            stays(edge) for edge in edges if edge.chain == "processing" and edge.level == level + 1
        )
    )


def _has_tasks(component: Component, engine: EnginePart | None) -> bool:
    """Return whether a component has tasks. One of the engine has some if it emits envelopes."""
    if engine is not None and engine.computes(component.id):
        return component.kind.spout or component.id in engine.emitting
    return not _aggregate(component)


def _processing_depths(
    graph: TopologyGraph, working: Mapping[str, Component], engine: EnginePart | None
) -> dict[str, int]:
    """Return the level of each component: its distance from the spout or the engine."""
    depths: dict[str, int] = {}
    for id, component in working.items():
        if id not in graph.committing:
            above = [depths[s.source] for s in component.subscriptions if s.source in depths]
            computed = engine is not None and engine.computes(id)
            depths[id] = 1 + max(above) if above and not computed else 0
    return depths


def _aggregate(component: Component) -> bool:
    return component.kind == PERSISTENT_AGGREGATE


def _compared(component: Component, graph: TopologyGraph) -> bool:
    if component.kind.spout:
        return component.spout_kind.compared(component.traits)
    return component.traits.asks_outside and component.id in graph.repeating


def _aggregation(component: Component, components: Mapping[str, Component]) -> Aggregation:
    assert isinstance(component.prototype, PersistentAggregate)
    first = component.subscriptions[0]
    inputs = components[first.source].streams[first.stream].fields
    return Aggregation.of(component.prototype, inputs)


def _commit_depths(graph: TopologyGraph, working: Mapping[str, Component]) -> dict[str, int]:
    depths: dict[str, int] = {}
    for id, component in working.items():
        if id in graph.committing:
            above = [depths[s.source] for s in component.subscriptions if s.source in depths]
            depths[id] = 1 + max(above) if above else 0
    return depths


def _levels(levels: Mapping[str, int]) -> Levels:
    count = 1 + max(levels.values(), default=-1)
    return tuple(tuple(id for id, at in levels.items() if at == level) for level in range(count))


def _edges(
    graph: TopologyGraph,
    engine: EnginePart | None,
    aggregations: Mapping[str, Aggregation],
    processing: Mapping[str, int],
    depths: Mapping[str, int],
) -> tuple[PlannedEdge, ...]:
    order = {id: at for at, id in enumerate(graph.components)}
    edges = [each for each in graph.edges() if not (engine and engine.takes(each.target))]
    edges.sort(key=lambda e: (order[e.source], e.stream, order[e.target]))
    planned = []
    for index, edge in enumerate(edges):
        fields = graph.components[edge.source].streams[edge.stream].fields
        grouping: Grouping | Prototype[CustomStreamGrouping] = edge.grouping
        if isinstance(grouping, CustomGrouping):
            grouping = Prototype(grouping.grouping)
        chain: Chain | None = "processing" if edge.target in processing else "commit"
        aggregation = aggregations.get(edge.target)
        planned.append(
            PlannedEdge(
                index=index,
                source=edge.source,
                stream=edge.stream,
                target=edge.target,
                fields=fields,
                grouping=grouping,
                tasks=graph.components[edge.target].parallelism,
                chain=None if aggregation else chain,
                level=processing.get(edge.target, depths.get(edge.target, 0)),
                schema=aggregation.schema if aggregation else fields.arrow_schema(),
            )
        )
    return tuple(planned)


def _component(
    component: Component,
    edges: tuple[PlannedEdge, ...],
    slots: int,
    engine: EnginePart | None,
    *,
    with_states: bool,
) -> PlannedComponent:
    streams = component.streams
    computed = engine is not None and engine.computes(component.id)
    return PlannedComponent(
        id=component.id,
        kind=component.kind,
        # Each slot emits the rows of the engine that come to it.
        tasks=slots if computed else component.parallelism,
        prototype=Prototype(component.prototype),
        streams=dict(streams),
        schemas={name: stream.fields.arrow_schema() for name, stream in streams.items()},
        inputs=tuple(edge.index for edge in edges if edge.target == component.id),
        outputs={
            name: tuple(e.index for e in edges if (e.source, e.stream) == (component.id, name))
            for name in streams
        },
        states=dict(component.states) if with_states else {},
        dead_letters=component.dead_letters,
    )


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive attempts that one job processes. Their tuples are never mixed.

    Attributes:
        tag: The job's tag: ``txtopo:<topology>:<epoch>:<first txid>-<last txid>:<job number>``.
        attempts: The attempts, in txid order, without gaps.
        metadata: The metadata of each attempt. A transactional spout whose metadata has a cut emits
            the same batch again.
        previous: Metadata of the txid before the first one. The first batch begins where its cut
            ends.
    """

    tag: str
    attempts: tuple[TransactionAttempt, ...]
    metadata: tuple[BatchMetadata, ...]
    previous: BatchMetadata | None

    def only(self, attempt: TransactionAttempt) -> Run:
        """Return the run that consists of only this attempt, for its commit phase."""
        at = self.attempts.index(attempt)
        return Run(self.tag, (attempt,), (self.metadata[at],), None)

    def tag_of(self, chain: Chain) -> str:
        """Return the tag of the jobs of a chain. The manifests of its levels contain it.

        The commit phases of the attempts of a run have different tags. So a manifest of one of them
        cannot replace one that another lost.
        """
        return self.tag if chain == "processing" else self.commit_tag(self.attempts[0])

    def commit_tag(self, attempt: TransactionAttempt) -> str:
        """Return the tag of the jobs that commit one attempt.

        It differs from the run's tag, so that these jobs can be cancelled and no others.
        """
        return f"{self.tag}:commit-{attempt.txid}"
