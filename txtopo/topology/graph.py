"""The checked graph of a topology: its levels, the cut between its phases, and its fingerprint.

A batch flows through the graph by *levels*: the level of a component is its longest distance from
the spouts, so all of its inputs come from lower levels. The committers and everything below them
run in the commit phase, the rest in the processing phase. So edges between the two phases lead
downward only, and a batch crosses the cut once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from txtopo.errors import TopologyError
from txtopo.groupings import Grouping
from txtopo.metadata import Json
from txtopo.state.backend import StateTable
from txtopo.topology.checks import (
    check_components,
    check_frames,
    check_inputs,
    check_states,
    with_aggregate_state,
)
from txtopo.topology.component import Component, Role, check_id


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
        check_states(ordered)
        check_frames(ordered)
        return cls(topology_id, spout, ordered, _levels(ordered), _committing(ordered))

    @property
    def spouts(self) -> tuple[Component, ...]:
        """All spouts, in the order in which they were declared."""
        return tuple(one for one in self.components.values() if one.role.spout)

    @property
    def parallelism(self) -> dict[str, int]:
        """The number of tasks of each component; 0 for those that have none."""
        without = Role.PERSISTENT_AGGREGATE
        return {
            id: 0 if one.role is without or one.role.frame else one.parallelism
            for id, one in self.components.items()
        }

    @property
    def slots_max(self) -> int | None:
        """The most slots that have a task; None if there is no such limit, with DataFrames."""
        if any(one.role.frame for one in self.components.values()):
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


def fingerprint(graph: Graph) -> dict[str, Json]:
    """Return a description of a topology, to notice another one under the same id.

    It describes everything that the metadata in ZooKeeper and the rows in the stores depend on: the
    role and the inputs of each component, and the table and columns of each state, as one line of
    text each. It leaves out whatever may change from one start to the next (parallelism, classes,
    settings, and the place of a store, whose ledger says whether it is the right one) and secrets.
    """
    parts: dict[str, Json] = {}
    for component in graph.components.values():
        parts[f"component {component.id!r}"] = _component(component)
        for name, state in component.states.items():
            parts[f"state {name!r} of {component.id!r}"] = _state(state.layout(name))
    return parts


def advice(graph: Graph) -> tuple[str, ...]:
    """Return warnings about a topology that can run but is probably not what was meant."""
    if len(graph.components) == 1:
        return (
            f"topology {graph.id!r} has a spout and no bolts; its batches are emitted and "
            "forgotten; add a bolt with set_bolt",
        )
    if not graph.committing:
        return (
            f"topology {graph.id!r} has no committer; its batches are computed, but nothing is "
            "kept or ordered; add a PersistentAggregate or a bolt derived from Committer",
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


def _component(component: Component) -> str:
    inputs = sorted(
        f"{each.source!r}.{each.stream!r} by {_grouping(each.grouping)}"
        for each in component.subscriptions
    )
    return f"a {component.role.value}" + (f" of {', '.join(inputs)}" if inputs else "")


def _state(table: StateTable) -> str:
    key, value = (
        ", ".join(f"{f.name} {f.type}" for f in part) for part in (table.key, table.value)
    )
    combined = "".join(f" {type(each).__name__}" for each in table.aggregates)
    return f"{table.kind} {table.mode} {table.name!r} ({key}) -> ({value}){combined}"


def _grouping(grouping: Grouping) -> str:
    fields = getattr(grouping, "fields", ())
    return type(grouping).__name__ + (f"({', '.join(fields)})" if fields else "")
