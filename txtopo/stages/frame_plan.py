"""FramePlan: the part of a topology that Spark computes as plans, without envelopes.

The DataFrame spout and the DataFrame bolts are a plan each, made in the driver. Where another bolt
subscribes to one of them, its rows are cut into chunks, and these are emitted into envelopes by the
first level of the processing phase: from there on everything is as with any other source. What is
kept for DataFrame committers, and for aggregates whose store takes frames, stays in Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from txtopo.bolts.persistent_aggregate import PersistentAggregate
from txtopo.stages.pickling import dumps
from txtopo.state.aggregates import Aggregate, Count
from txtopo.topology.component import Component, Role
from txtopo.tuples import DEFAULT_STREAM, Fields

if TYPE_CHECKING:
    from txtopo.stages.program import TopologyGraph

Kind = Literal["count", "add", "min", "max"]


@dataclass(frozen=True, slots=True)
class FrameStep:
    """One plan.

    Attributes:
        id: Id of the component.
        prototype: The user's object, pickled: a fresh copy is one ``loads``.
        sources: Ids of the components whose frames it takes; none for the spout.
        fields: What it emits; None for a committer.
        states: Names of its states.
        shared: Whether several read its frame, so that it is computed once and kept meanwhile.
    """

    id: str
    prototype: bytes
    sources: tuple[str, ...]
    fields: Fields | None
    states: tuple[str, ...]
    shared: bool


@dataclass(frozen=True, slots=True)
class FrameAggregate:
    """A ``PersistentAggregate`` that Spark groups, since its store takes frames.

    Attributes:
        id: Its id, which is the name of its state too.
        sources: Ids of the components whose frames it takes.
        key: Names of the key fields.
        columns: Value column -> (what is computed, input field, stored type).
        retracted: Name of the field that says which rows are taken back; None if none are.
    """

    id: str
    sources: tuple[str, ...]
    key: tuple[str, ...]
    columns: Mapping[str, tuple[Kind, str | None, str]]
    retracted: str | None = None


@dataclass(frozen=True, slots=True)
class FramePlan:
    """All plans of a topology.

    Attributes:
        steps: The spout and the DataFrame bolts, sources first.
        emitting: Ids of those whose rows become envelopes, in this order.
        aggregates: The aggregates that Spark groups.
    """

    steps: tuple[FrameStep, ...]
    emitting: tuple[str, ...]
    aggregates: tuple[FrameAggregate, ...]

    def takes(self, target: str) -> bool:
        """Return whether a component gets frames, and so no envelopes."""
        return target in {each.id for each in self.steps} | {each.id for each in self.aggregates}


def frame_plan(graph: TopologyGraph) -> FramePlan | None:
    """Return the plans of a topology, or None if its spout is of another kind."""
    if not graph.spout.role.frame:
        return None
    components = graph.components
    aggregates = tuple(_aggregates(components))
    grouped = {each.id for each in aggregates}
    steps, emitting = [], []
    for component in components.values():
        if not component.role.frame:
            continue
        readers = [c for c in components.values() if component.id in _sources(c)]
        by_frame = [c for c in readers if c.role.frame or c.id in grouped]
        if len(by_frame) < len(readers):
            emitting.append(component.id)
        ways = len(by_frame) + (len(by_frame) < len(readers))
        stream = component.streams.get(DEFAULT_STREAM)
        steps.append(
            FrameStep(
                component.id,
                dumps(component.prototype),
                _sources(component),
                None if stream is None else stream.fields,
                tuple(component.states),
                shared=ways > 1,
            )
        )
    return FramePlan(tuple(steps), tuple(emitting), aggregates)


def _kind(aggregate: Aggregate) -> Kind:
    assert aggregate.operator is not None
    return "count" if isinstance(aggregate, Count) else aggregate.operator


def _sources(component: Component) -> tuple[str, ...]:
    return tuple(subscription.source for subscription in component.subscriptions)


def _aggregates(components: Mapping[str, Component]) -> Iterator[FrameAggregate]:
    for component in components.values():
        bolt = component.prototype
        if component.role is not Role.PERSISTENT_AGGREGATE:
            continue
        assert isinstance(bolt, PersistentAggregate)
        by_frames = all(components[source].role.frame for source in _sources(component))
        in_sql = all(each.operator is not None for each in bolt.aggregates.values())
        (state,) = component.states.values()
        if not by_frames or not in_sql or state.frames_refused() is not None:
            continue
        types = {field.name: field.type for field in state.value}
        columns = {
            name: (_kind(each), each.field, types[name]) for name, each in bolt.aggregates.items()
        }
        yield FrameAggregate(component.id, _sources(component), bolt.key, columns, bolt.retracted)
