"""Program: a topology compiled for the stage functions; travels to every worker.

A *chain* is the processing phase of a run or the commit phase of one txid. A chain is a line of
levels with one shuffle between two of them: a component stands at its longest distance from the
start of its chain, and what is sent further than one level is passed on by the slots in between.
Tasks live in slots: task i in slot ``i mod slots``.

A ``PersistentAggregate`` has no tasks. What is sent to it is combined by its senders, and the
partial results go to the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

from txtopo.bolts.persistent_aggregate import PersistentAggregate
from txtopo.config import Config
from txtopo.groupings import CustomGrouping, Grouping
from txtopo.stages.aggregation import Aggregation
from txtopo.stages.frame_plan import FramePlan, frame_plan
from txtopo.stages.pickling import dumps
from txtopo.state.registry import State
from txtopo.topology.component import Component, Role
from txtopo.tuples import Fields, Stream

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.topology.graph import Edge

Chain = Literal["processing", "commit"]
Levels = tuple[tuple[str, ...], ...]


class TopologyGraph(Protocol):
    """What is compiled: a :class:`~txtopo.topology.graph.Graph`."""

    @property
    def id(self) -> str:
        """Id of the topology."""
        ...

    @property
    def spout(self) -> Component:
        """Its spout."""
        ...

    @property
    def components(self) -> Mapping[str, Component]:
        """All components, sources before those who subscribe to them."""
        ...

    @property
    def committing(self) -> frozenset[str]:
        """Ids of the committers and of all that hangs below them."""
        ...

    def edges(self) -> tuple[Edge, ...]:
        """Return all edges."""
        ...


@dataclass(frozen=True, slots=True)
class PlannedEdge:
    """A stream on its way to a bolt.

    Attributes:
        index: Its number, which stands for it in envelopes.
        source: Id of the component that emits.
        stream: Name of its stream.
        target: Id of the bolt.
        fields: Fields of the stream.
        grouping: How tuples are shared; one of the user's own as pickled bytes.
        tasks: How many tasks the bolt has.
        chain: Chain of the bolt; None for a ``PersistentAggregate``, which lives in the driver.
        level: Level of the bolt in that chain.
        schema: What an envelope of it holds.
    """

    index: int
    source: str
    stream: str
    target: str
    fields: Fields
    grouping: Grouping | bytes
    tasks: int
    chain: Chain | None
    level: int
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class PlannedComponent:
    """A spout or bolt, ready for its tasks.

    Attributes:
        id: Its id.
        role: What it is.
        tasks: How many tasks it has.
        prototype: The user's object, pickled: a fresh copy is one ``loads``.
        streams: Its declared outputs.
        schemas: The same as Arrow schemas.
        inputs: Numbers of the edges that lead to it, in canonical order.
        outputs: Numbers of the edges that leave each of its streams.
        states: Its states, where its tasks open them themselves.
        compared: Whether what it emits is compared with what it brought before.
    """

    id: str
    role: Role
    tasks: int
    prototype: bytes
    streams: Mapping[str, Stream]
    schemas: Mapping[str, pa.Schema]
    inputs: tuple[int, ...]
    outputs: Mapping[str, tuple[int, ...]]
    states: Mapping[str, State]
    compared: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """Everything that a stage function needs to know about a topology. Picklable.

    Attributes:
        topology_id: Id of the topology.
        spout_id: Id of its spout.
        config: The settings, without secrets.
        slots: Spark partitions that host the tasks.
        components: All components that have tasks.
        aggregations: What is combined for each ``PersistentAggregate``.
        edges: All edges, by number.
        processing: Component ids by level, from the spout on.
        commit: Component ids by level of the commit phase; empty if there are only aggregates.
        commit_in_driver: Whether the commit phase runs in the driver, in one slot.
        frames: What Spark computes as plans; None if the spout is no DataFrame spout.
    """

    topology_id: str
    spout_id: str
    config: Config
    slots: int
    components: Mapping[str, PlannedComponent]
    aggregations: Mapping[str, Aggregation]
    edges: tuple[PlannedEdge, ...]
    processing: Levels
    commit: Levels
    commit_in_driver: bool
    frames: FramePlan | None = None

    def levels_of(self, chain: Chain) -> Levels:
        """Return the levels of a chain."""
        return self.processing if chain == "processing" else self.commit

    def slots_of(self, chain: Chain) -> int:
        """Return how many slots a chain has."""
        return 1 if chain == "commit" and self.commit_in_driver else self.slots


def compile_program(graph: TopologyGraph, config: Config, slots: int) -> Program:
    """Compile a checked topology for a number of slots."""
    frames = frame_plan(graph)
    working = {id: c for id, c in graph.components.items() if _has_tasks(c, frames)}
    aggregations = {
        id: _aggregation(component, graph.components)
        for id, component in graph.components.items()
        if _aggregate(component) and not (frames and frames.takes(id))
    }
    depths = _commit_depths(graph, working)
    processing = _processing_depths(graph, working)
    in_driver = all(working[id].parallelism == 1 for id in depths)
    edges = _edges(graph, frames, aggregations, processing, depths)
    return Program(
        topology_id=graph.id,
        spout_id=graph.spout.id,
        config=replace(config, zookeeper_digest=None, zookeeper_sasl=None, zookeeper_tls=None),
        slots=slots,
        components={
            id: replace(
                _component(component, edges, slots, with_states=not in_driver),
                compared=config.check_replays and _repeatable(component),
            )
            for id, component in working.items()
        },
        aggregations=aggregations,
        edges=edges,
        processing=_levels(processing),
        commit=_levels(depths),
        commit_in_driver=in_driver,
        frames=frames,
    )


def _has_tasks(component: Component, frames: FramePlan | None) -> bool:
    """Whether a component works on envelopes: a plan does where it emits into them."""
    if frames is not None and component.role.frame:
        return component.role.spout or component.id in frames.emitting
    return not _aggregate(component)


def _processing_depths(graph: TopologyGraph, working: Mapping[str, Component]) -> dict[str, int]:
    """Return the level of each component: its distance from the spout, or from the plans."""
    depths: dict[str, int] = {}
    for id, component in working.items():
        if id not in graph.committing:
            above = [depths[s.source] for s in component.subscriptions if s.source in depths]
            depths[id] = 1 + max(above) if above and not component.role.frame else 0
    return depths


def _aggregate(component: Component) -> bool:
    return component.role is Role.PERSISTENT_AGGREGATE


def _repeatable(component: Component) -> bool:
    """Whether it is a spout that promises to bring the same batch again."""
    if component.role is Role.TRANSACTIONAL_SPOUT:
        return bool(getattr(component.prototype, "repeatable", True))
    return component.role is Role.PARTITIONED_SPOUT


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
    frames: FramePlan | None,
    aggregations: Mapping[str, Aggregation],
    processing: Mapping[str, int],
    depths: Mapping[str, int],
) -> tuple[PlannedEdge, ...]:
    order = {id: at for at, id in enumerate(graph.components)}
    edges = [each for each in graph.edges() if not (frames and frames.takes(each.target))]
    edges.sort(key=lambda e: (order[e.source], e.stream, order[e.target]))
    planned = []
    for index, edge in enumerate(edges):
        fields = graph.components[edge.source].streams[edge.stream].fields
        grouping: Grouping | bytes = edge.grouping
        if isinstance(grouping, CustomGrouping):
            grouping = dumps(grouping.grouping)
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
    component: Component, edges: tuple[PlannedEdge, ...], slots: int, *, with_states: bool
) -> PlannedComponent:
    streams = component.streams
    return PlannedComponent(
        id=component.id,
        role=component.role,
        # Each slot emits what it gets of a frame.
        tasks=slots if component.role.frame else component.parallelism,
        prototype=dumps(component.prototype),
        streams=dict(streams),
        schemas={name: stream.fields.arrow_schema() for name, stream in streams.items()},
        inputs=tuple(edge.index for edge in edges if edge.target == component.id),
        outputs={
            name: tuple(e.index for e in edges if (e.source, e.stream) == (component.id, name))
            for name in streams
        },
        states=dict(component.states) if with_states else {},
    )
