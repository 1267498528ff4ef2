"""The checked graph of a topology: its levels, the cut between its phases, and its fingerprint.

A batch flows through the graph by *levels*: the level of a component is its longest distance from
the spouts, so all of its inputs come from lower levels. The committers and everything below them
run in the commit phase, the rest in the processing phase. So edges between the two phases lead
downward only, and a batch crosses the cut once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from txtopo.errors import TopologyError
from txtopo.groupings import Grouping
from txtopo.metadata import Json
from txtopo.state.backend import StateTable
from txtopo.state.registry import KINDS, MODES
from txtopo.topology.checks import (
    check_components,
    check_facts,
    check_frames,
    check_inputs,
    check_states,
    with_own_state,
)
from txtopo.topology.component import Component, Role, check_id
from txtopo.traits import Meaning, VersionedTable


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
        check_frames(ordered)
        check_facts(ordered)
        return cls(topology_id, spout, ordered, _levels(ordered), _committing(ordered))

    @property
    def spouts(self) -> tuple[Component, ...]:
        """All spouts, in the order in which they were declared."""
        return tuple(one for one in self.components.values() if one.role.spout)

    @property
    def needs_planned_time(self) -> bool:
        """Whether a component asks for the time at which a batch was planned."""
        return any(each.traits.needs_planned_time for each in self.components.values())

    @property
    def asks(self) -> bool:
        """Whether facts are planned with each batch (:mod:`txtopo.metadata`)."""
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
        for what, meaning in _meanings(component).items():
            parts[f"{what} of {component.id!r}"] = meaning.text
        for name, state in component.states.items():
            parts[state_part(component.id, name)] = _state(state.layout(name))
    return parts


_BUFFERED = "buffered rows"
"""What a fingerprint calls the rows that a join has packed into a column of its first state."""


def _meanings(component: Component) -> dict[str, Meaning]:
    """Return what a component says of its rows, by what a fingerprint calls them."""
    said = {"rows": component.traits.rows, _BUFFERED: component.traits.buffered}
    return {what: meaning for what, meaning in said.items() if meaning is not None}


def added_states(graph: Graph, known: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the states of a topology that a fingerprint does not know, as their parts of its own.

    A state is known by its table. So one with the table of a state that is gone is that state,
    renamed; and one that has another table than before is new.
    """
    tables = {
        state_part(component.id, name): state.layout(name).name
        for component in graph.components.values()
        for name, state in component.states.items()
    }
    kept = {part for part, table in tables.items() if is_in_table(known.get(part), table)}
    left = [text for part, text in known.items() if part not in kept]
    return tuple(
        part
        for part, table in tables.items()
        if part not in kept and not any(is_in_table(text, table) for text in left)
    )


def refused_change(graph: Graph, known: Mapping[str, Json], added: Sequence[str]) -> str | None:
    """Return why a topology cannot be right after a change, even if that is meant; None if it can.

    The traits of a bolt say why: ``fixed`` of its ``rows`` and of what it has ``buffered``, while
    it keeps its states; ``begins_with_below``, while a bolt below it keeps its own. The states that
    its ``retractions`` come to begin together with its own.

    Args:
        graph: The topology.
        known: The fingerprint of before.
        added: What :func:`added_states` returns.
    """
    now = fingerprint(graph)
    if (why := other_spouts(known, now)) is not None:
        return why
    for component in graph.components.values():
        if (why := _other_meaning(component, known, now, added)) is not None:
            return why
        own = [state_part(component.id, name) for name in component.states]
        why = component.traits.begins_with_below
        if why and own[0] in added and (kept := _kept_below(graph, component, added)):
            return (
                f"{own[0]} would begin anew, and {kept[0]} would not; got {now[own[0]]}; "
                f"expected the table of before; {why}"
            )
        if (why := _other_beginning(graph, component, added)) is not None:
            return why
    return None


def other_spouts(known: Mapping[str, Json], now: Mapping[str, Json]) -> str | None:
    """Return why what is stored of the spouts does not fit those of now; None if it does."""
    gone, new = (
        [part for part, text in there.items() if _is_spout(text) and part not in others]
        for there, others in ((known, now), (now, known))
    )
    if gone and new:
        return (
            f"{', '.join(gone)} is gone and {', '.join(new)} is new, but what is stored says where "
            "the old one was; expected another id only for another source; keep the id if the "
            "source is the same; else start once with both spouts, each time with "
            "Config(allow_change=True), and without the old one when it has no more"
        )
    for part, text in known.items():
        if _is_spout(text) and now.get(part, text) != text:
            return (
                f"{part} was {text} and is {now[part]}, to which the stored positions of the other "
                "kind mean nothing; expected the kind of before; give the spout another id"
            )
    return None


def _other_meaning(
    component: Component, known: Mapping[str, Json], now: Mapping[str, Json], added: Sequence[str]
) -> str | None:
    """Return why a bolt cannot go on with the states that it keeps; None if it can."""
    before = _before(component, known, added)
    if before is None:
        return None
    own = state_part(component.id, next(iter(component.states)))
    for what, meaning in _meanings(component).items():
        part = f"{what} of {component.id!r}"
        was = known.get(f"{what} of {before}")
        kept = meaning.fixed is None or was == now[part]
        if kept or (what == _BUFFERED and own in added):
            continue
        expected = "a new table" if was is None else was
        return (
            f"{part} would mean something else; got {now[part]}; expected {expected}; "
            f"{meaning.fixed}"
        )
    return None


def _is_spout(text: Json) -> bool:
    return isinstance(text, str) and text.endswith(" spout")


def _before(component: Component, known: Mapping[str, Json], added: Sequence[str]) -> str | None:
    """Return, in quotation marks, the component that had a state of this one; None if all are new.

    It is this one, unless it was renamed.
    """
    for name, state in component.states.items():
        part, table = state_part(component.id, name), state.layout(name).name
        if part not in added:
            if is_in_table(known.get(part), table):
                return repr(component.id)
            renamed = (each for each, text in known.items() if is_in_table(text, table))
            return next(renamed).rpartition(" of ")[2]
    return None


def _kept_below(graph: Graph, above: Component, added: Sequence[str]) -> list[str]:
    """Return the states that are not new of the bolts below a component."""
    return [
        part
        for each in graph.components.values()
        if any(subscription.source == above.id for subscription in each.subscriptions)
        for name in each.states
        if (part := state_part(each.id, name)) not in added
    ]


def _other_beginning(graph: Graph, above: Component, added: Sequence[str]) -> str | None:
    """Return why a state cannot take back the rows of a table; None if both begin together."""
    stream = above.traits.retractions
    if stream is None:
        return None
    own = state_part(above.id, next(iter(above.states)))
    for part in _states_fed_by(graph, (above.id, stream)):
        if (part in added) != (own in added):
            new, old = (part, own) if part in added else (own, part)
            return (
                f"{new} would begin anew, and {old} would not, but {part} takes back what changes "
                f"in {own}; expected both in the tables of before, or both in new ones; else a "
                "row would be taken back where it never counted, or count again where it did"
            )
    return None


def _states_fed_by(graph: Graph, output: tuple[str, str]) -> list[str]:
    """Return the states that a stream comes to, through bolts without a state."""
    outputs, found = {output}, list[str]()
    for each in graph.components.values():  # what is above comes first
        if any((one.source, one.stream) in outputs for one in each.subscriptions):
            found += [state_part(each.id, name) for name in each.states]
            if not each.states:
                outputs |= {(each.id, name) for name in each.streams}
    return found


def state_part(component: str, name: str) -> str:
    """Return the name of a state in a fingerprint."""
    return f"state {name!r} of {component!r}"


def is_in_table(text: Json, table: str) -> bool:
    """Return whether a part of a fingerprint is a state in a table of this name."""
    begins = tuple(f"{kind} {mode} {table!r} (" for kind in KINDS for mode in MODES)
    return isinstance(text, str) and text.startswith(begins)


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
