"""FramePlan: the DataFrame plans of a topology, as part of its compiled form.

A DataFrame spout and its DataFrame bolts have no tasks: each is a plan that the driver creates and
Spark computes (:class:`FramePlan`). If another bolt subscribes to one of them, its rows are divided
into chunks, and the first level of the processing phase emits them into envelopes. DataFrames for
DataFrame committers stay in Spark, and so do DataFrames for aggregates whose store accepts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from txtopo.bolts.persistent_aggregate import PersistentAggregate
from txtopo.frames.chunks import Chunks
from txtopo.frames.states import frames_refused
from txtopo.stages.pickling import Prototype
from txtopo.state.aggregates import Aggregate, Count
from txtopo.topology.bolt_kinds import PERSISTENT_AGGREGATE
from txtopo.topology.component import Component
from txtopo.tuples import DEFAULT_STREAM, Fields

Kind = Literal["count", "add", "min", "max"]


@dataclass(frozen=True, slots=True)
class FrameStep:
    """A component that is a DataFrame plan.

    Attributes:
        id: Id of the component.
        prototype: The user's object. Each batch gets a copy.
        sources: Ids of the components whose DataFrames it reads; none for the spout.
        fields: Fields of its output; None for a committer.
        shared: Whether its DataFrame is read more than once, and therefore cached.
    """

    id: str
    prototype: Prototype[Any]
    sources: tuple[str, ...]
    fields: Fields | None
    shared: bool


@dataclass(frozen=True, slots=True)
class FrameAggregate:
    """A ``PersistentAggregate`` that Spark computes with ``groupBy``; its store accepts DataFrames.

    Attributes:
        id: Id of the component, which is also the name of its state.
        sources: Ids of the components whose DataFrames it reads.
        key: Names of the key fields.
        columns: (kind of aggregate, input field, stored type) of each value column.
        retracted: Name of the input field that marks rows as retracted; None if there is no such
            field.
    """

    id: str
    sources: tuple[str, ...]
    key: tuple[str, ...]
    columns: Mapping[str, tuple[Kind, str | None, str]]
    retracted: str | None = None


@dataclass(frozen=True, slots=True)
class FramePlan:
    """The part of a topology that Spark runs as DataFrame plans, without envelopes.

    Attributes:
        steps: The DataFrame spout and the DataFrame bolts, sources first.
        emitting: Ids of the steps whose rows become envelopes. Chunks contain the index in this
            list.
        aggregates: The aggregates that Spark computes.
    """

    steps: tuple[FrameStep, ...]
    emitting: tuple[str, ...]
    aggregates: tuple[FrameAggregate, ...]

    def computes(self, component: str) -> bool:
        """Return whether a component is a DataFrame plan."""
        return any(each.id == component for each in self.steps)

    def takes(self, target: str) -> bool:
        """Return whether a component reads DataFrames, and therefore no envelopes."""
        return self.computes(target) or any(each.id == target for each in self.aggregates)

    def rows(self, records: Iterable[bytes]) -> Chunks:
        """Return the rows in the chunks that a slot received."""
        return Chunks(records, self.emitting)

    def described(self, component: str) -> str:
        """Return how Spark computes a component, in words that follow "runs"."""
        step = next((each for each in self.steps if each.id == component), None)
        if step is None:
            return "as groupBy in Spark, which writes the result"
        told = ["as a Spark plan"]
        if step.shared:
            told.append("cached, since it is read more than once")
        if component in self.emitting:
            told.append("its rows become tuples for other bolts")
        return "; ".join(told)


def frame_plan(components: Mapping[str, Component]) -> FramePlan:
    """Return the DataFrame plans of a topology.

    Args:
        components: All components, sources before the bolts that subscribe to them.
    """
    aggregates = tuple(_aggregates(components))
    grouped = {each.id for each in aggregates}
    steps, emitting = [], []
    for component in components.values():
        if not component.kind.frame:
            continue
        readers = [c for c in components.values() if component.id in _sources(c)]
        by_frame = [c for c in readers if c.kind.frame or c.id in grouped]
        if len(by_frame) < len(readers):
            emitting.append(component.id)
        ways = len(by_frame) + (len(by_frame) < len(readers))
        stream = component.streams.get(DEFAULT_STREAM)
        steps.append(
            FrameStep(
                component.id,
                Prototype(component.prototype),
                _sources(component),
                None if stream is None else stream.fields,
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
        if component.kind != PERSISTENT_AGGREGATE:
            continue
        assert isinstance(bolt, PersistentAggregate)
        by_frames = all(components[source].kind.frame for source in _sources(component))
        in_sql = all(each.operator is not None for each in bolt.aggregates.values())
        (state,) = component.states.values()
        if not by_frames or not in_sql or frames_refused(state) is not None:
            continue
        types = {field.name: field.type for field in state.value}
        columns = {
            name: (_kind(each), each.field, types[name]) for name, each in bolt.aggregates.items()
        }
        yield FrameAggregate(component.id, _sources(component), bolt.key, columns, bolt.retracted)
