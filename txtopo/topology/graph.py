"""The checked graph of a topology: its levels, the handover between its phases, its fingerprint.

A batch flows through the graph by *levels*: the level of a component is its longest distance from
the spouts, so all of its inputs come from lower levels. The committers and everything below them
run in the commit phase, the rest in the processing phase. So edges between the two phases lead
downward only, and a batch crosses the handover once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass

from txtopo.errors import TopologyError
from txtopo.fingerprint import (
    Columns,
    ComponentForm,
    Fingerprint,
    InputForm,
    StateForm,
)
from txtopo.groupings import Grouping
from txtopo.state.backend import StateTable
from txtopo.topology.bolt_kinds import PERSISTENT_AGGREGATE
from txtopo.topology.checks import (
    check_components,
    check_inputs,
    check_stamp,
    check_states,
    opaque_above,
    with_own_state,
)
from txtopo.topology.component import Component, check_id
from txtopo.topology.engine import check_engine_part, has_engine_part
from txtopo.topology.spout_kinds import SpoutKind
from txtopo.traits import VersionedTable
from txtopo.tuples import Fields


@dataclass(frozen=True, slots=True)
class Graph:
    """A topology that can run; :meth:`of` makes and checks it.

    Attributes:
        id: Id of the topology.
        spout: Its spout; the first one of several.
        components: All components by id, sources before the bolts that subscribe to them.
        levels: The longest distance of each component from the spouts, which have level 0.
        committing: Ids of the committers and of all bolts below them.
    """

    id: str
    spout: Component
    components: Mapping[str, Component]
    levels: Mapping[str, int]
    committing: frozenset[str]

    @classmethod
    def of(cls, topology_id: str, components: Iterable[Component]) -> Graph:
        """Check the components and return their graph.

        Raises:
            TopologyError: The topology cannot run; the message says which component to repair.
        """
        check_id("topology", topology_id)
        listed = list(components)
        spout = check_components(listed)
        by_id = {component.id: component for component in listed}
        for component in listed:
            check_inputs(component, by_id)
        ordered = _sources_first(by_id)
        ordered = {id: with_own_state(one, ordered) for id, one in ordered.items()}
        check_states(ordered)
        check_engine_part(ordered)
        check_stamp(ordered)
        return cls(topology_id, spout, ordered, _levels(ordered), _committing(ordered))

    @property
    def spouts(self) -> tuple[Component, ...]:
        """All spouts, in the order in which they were declared."""
        return tuple(one for one in self.components.values() if one.kind.spout)

    @property
    def spout_kind(self) -> SpoutKind:
        """The kind of its spout; of several, each is driven in the same way."""
        return self.spout.spout_kind

    def run_txids_max(self, most: int) -> int:
        """Return how many of at most *most* consecutive txids one job may process."""
        limits = (each.spout_kind.run_txids_max for each in self.spouts)
        return min([most, *(each for each in limits if each is not None)])

    @property
    def repeating(self) -> frozenset[str]:
        """Ids of the components above which all spouts repeat their batches."""
        found = opaque_above(self.components)
        return frozenset(id for id, spout in found.items() if spout is None)

    @property
    def needs_planned_time(self) -> bool:
        """Whether a component asks for the time at which a batch was planned."""
        return any(each.traits.needs_planned_time for each in self.components.values())

    @property
    def asks(self) -> bool:
        """Whether each batch has a stamp (:mod:`txtopo.metadata`)."""
        return self.needs_planned_time or bool(self.lookups)

    @property
    def lookups(self) -> dict[str, VersionedTable]:
        """The tables whose versions are planned with each batch, by id."""
        every: dict[str, VersionedTable] = {}
        for each in self.components.values():
            every |= each.traits.lookups
        return every

    @property
    def client_modules(self) -> tuple[str, ...]:
        """The modules that the tasks import, such as the clients of sources."""
        every = (each.traits.client_modules for each in self.components.values())
        return tuple(name for names in every for name in names)

    @property
    def parallelism(self) -> dict[str, int]:
        """The number of tasks of each component; 0 for those that have none."""
        return {
            id: 0 if one.kind == PERSISTENT_AGGREGATE or one.kind.frame else one.parallelism
            for id, one in self.components.items()
        }

    @property
    def has_engine_part(self) -> bool:
        """Whether an engine computes a part of it (:mod:`txtopo.topology.engine`)."""
        return has_engine_part(self.components)

    @property
    def slots_max(self) -> int | None:
        """The most slots that have a task; None if there is no such limit, with an engine."""
        if self.has_engine_part:
            return None
        return max(1, *self.parallelism.values())

    def edges(self) -> tuple[Edge, ...]:
        """Return all edges, in the order of the components that they lead to."""
        return tuple(
            Edge(subscription.source, subscription.stream, component.id, subscription.grouping)
            for component in self.components.values()
            for subscription in component.subscriptions
        )


@dataclass(frozen=True, slots=True)
class Edge:
    """A stream from one component to a bolt.

    Attributes:
        source: Id of the component that emits.
        stream: Name of its stream.
        target: Id of the bolt that subscribes to it.
        grouping: How its tuples are shared among the tasks of the bolt.
    """

    source: str
    stream: str
    target: str
    grouping: Grouping


def fingerprint(graph: Graph) -> Fingerprint:
    """Return the parts of a topology that its stored txids and rows depend on."""
    return Fingerprint({id: _form(each) for id, each in graph.components.items()})


def advice(graph: Graph) -> tuple[str, ...]:
    """Return warnings about a topology that can run but is probably not what was meant."""
    if len(graph.components) == 1:
        return (
            f"topology {graph.id!r} has a spout but no bolts, so its batches are discarded; add a "
            "bolt with set_bolt",
        )
    if not graph.committing:
        return (
            f"topology {graph.id!r} has no committer; so its batches are computed, but nothing is "
            "stored; add a PersistentAggregate or a bolt derived from Committer",
        )
    return ()


def _sources_first(components: Mapping[str, Component]) -> dict[str, Component]:
    waiting = dict(components)
    ordered: dict[str, Component] = {}
    while waiting:
        free = [c for c in waiting.values() if all(s.source in ordered for s in c.subscriptions)]
        if not free:
            path = _cycle(waiting)
            raise TopologyError(
                f"the topology has a cycle; got {' -> '.join(map(repr, path))}; streams must lead "
                "away from the spout; remove one of these groupings",
                cycle=tuple(path),
            )
        for component in free:
            ordered[component.id] = waiting.pop(component.id)
    return ordered


def _cycle(stuck: Mapping[str, Component]) -> list[str]:
    """Walk upstream from any stuck component until one comes twice."""
    path = [next(iter(stuck))]
    while True:
        sources = (subscription.source for subscription in stuck[path[-1]].subscriptions)
        source = next(source for source in sources if source in stuck)
        if source in path:
            return [source, *reversed(path[path.index(source) :])]
        path.append(source)


def _levels(ordered: Mapping[str, Component]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for component in ordered.values():
        above = [levels[subscription.source] for subscription in component.subscriptions]
        levels[component.id] = 1 + max(above) if above else 0
    return levels


def _committing(ordered: Mapping[str, Component]) -> frozenset[str]:
    committing: set[str] = set()
    for component in ordered.values():
        below = any(subscription.source in committing for subscription in component.subscriptions)
        if component.committer or below:
            committing.add(component.id)
    return frozenset(committing)


def _form(component: Component) -> ComponentForm:
    inputs = (
        InputForm(
            each.source,
            each.stream,
            type(each.grouping).__name__,
            tuple(getattr(each.grouping, "fields", ())),
        )
        for each in component.subscriptions
    )
    rows, buffered = component.traits.rows, component.traits.buffered
    return ComponentForm(
        component.kind.text,
        tuple(sorted(inputs, key=astuple)),
        None if rows is None else rows.text,
        None if buffered is None else buffered.text,
        {name: _state(state.layout(name)) for name, state in component.states.items()},
    )


def _state(table: StateTable) -> StateForm:
    aggregates = tuple(type(each).__name__ for each in table.aggregates)
    key, value = _columns(table.key), _columns(table.value)
    return StateForm(table.name, table.kind, table.mode, key, value, aggregates)


def _columns(fields: Fields) -> Columns:
    return tuple((each.name, each.type) for each in fields)
