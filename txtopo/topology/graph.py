"""The checked, acyclic graph of a topology, and the cut between its two phases.

A batch flows through the graph by *levels*: a component's level is its longest distance from the
spout, so everything that a component can get comes from lower levels. Committers, and all that
hangs below them, are the commit phase; the rest is the processing phase. So the edges between the
two phases lead downward only, and a batch crosses the cut once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from txtopo.errors import TopologyError
from txtopo.groupings import Grouping
from txtopo.topology.checks import check_components, check_inputs
from txtopo.topology.component import Component
from txtopo.topology.frames import check_frames
from txtopo.topology.ids import check_id
from txtopo.topology.states import check_states, with_aggregate_state


@dataclass(frozen=True, slots=True)
class Edge:
    """A stream on its way to a bolt.

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


@dataclass(frozen=True, slots=True)
class Graph:
    """A topology that can run; made with :meth:`of`, which checks it.

    Attributes:
        id: Id of the topology.
        spout: Its only spout; the first one of an at-least-once topology.
        components: All of them by id, the spout too, sources before those who subscribe to them.
        levels: Longest distance of each component from the spout, which is 0.
        committing: Ids of the committers and of all that hangs below them.
    """

    id: str
    spout: Component
    components: Mapping[str, Component]
    levels: Mapping[str, int]
    committing: frozenset[str]

    @classmethod
    def of(cls, topology_id: str, components: Iterable[Component]) -> Graph:
        """Check the components and join them.

        Raises:
            TopologyError: The topology cannot run; the message says which component to mend.
        """
        check_id("topology", topology_id)
        listed = list(components)
        spout = check_components(listed)
        by_id = {component.id: component for component in listed}
        for component in listed:
            check_inputs(component, by_id)
        ordered = _sources_first(by_id)
        ordered = {id: with_aggregate_state(one, ordered) for id, one in ordered.items()}
        check_states(spout, ordered)
        check_frames(ordered)
        return cls(topology_id, spout, ordered, _levels(ordered), _committing(ordered))

    @property
    def spouts(self) -> tuple[Component, ...]:
        """All spouts; an at-least-once topology may have several."""
        return tuple(one for one in self.components.values() if one.role.spout)

    def edges(self) -> tuple[Edge, ...]:
        """Return all edges, in the order of the components that they lead to."""
        return tuple(
            Edge(subscription.source, subscription.stream, component.id, subscription.grouping)
            for component in self.components.values()
            for subscription in component.subscriptions
        )


def _sources_first(components: Mapping[str, Component]) -> dict[str, Component]:
    waiting = dict(components)
    ordered: dict[str, Component] = {}
    while waiting:
        free = [c for c in waiting.values() if all(s.source in ordered for s in c.subscriptions)]
        if not free:
            path = _cycle(waiting)
            raise TopologyError(
                f"the topology has a cycle; got {' -> '.join(map(repr, path))}; expected streams "
                "that lead away from the spout; take one of these groupings out",
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
