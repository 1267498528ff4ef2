"""The checks of DataFrame spouts and bolts, and of the carrier and session that compute them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from txtopo.bolts.bolt import DataFrameBolt
from txtopo.errors import ConfigError, TopologyError
from txtopo.frames.plan import frame_plan
from txtopo.frames.states import FrameFactory, frames_refused
from txtopo.groupings import LocalOrShuffleGrouping, NoneGrouping, ShuffleGrouping
from txtopo.topology.bolt_kinds import DATAFRAME_BOLT
from txtopo.topology.component import COMMIT, Component, check_calls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.topology.graph import Graph

_FREE = (ShuffleGrouping, NoneGrouping, LocalOrShuffleGrouping)

_REASONS = {
    "local": "it has no Spark to create and compute the frames",
    "rdd": "it moves envelopes on RDDs, which would end the plan of a frame",
    "resident": "its slots occupy the cores that Spark would need to compute a frame",
}


def check_frames(components: Mapping[str, Component]) -> None:
    """Check the DataFrame spout and the DataFrame bolts of a topology.

    Args:
        components: All components, with inputs that are checked.

    Raises:
        TopologyError: One of them cannot work; the message says what to repair.
    """
    for component in components.values():
        if component.kind.frame:
            _check_frame_alone(component)
            _check_fields(component)
        if component.kind == DATAFRAME_BOLT:
            _check_methods(component)
            _check_inputs(component, components)
            _check_states(component)


def check_frame_carrier(graph: Graph, carrier: str) -> None:
    """Check that the carrier can compute the DataFrames of a topology.

    Raises:
        ConfigError: It cannot; the message says why.
    """
    reason = _REASONS.get(carrier)
    if reason is not None:
        raise ConfigError(
            f"topology {graph.id!r} has DataFrames, which carrier {carrier!r} cannot process: "
            f"{reason}; expected carrier='dataframe' or 'auto'",
            setting="carrier",
            got=carrier,
        )


def frame_session_conf(graph: Graph) -> dict[str, str]:
    """Return the settings of a session that can write the DataFrames of a topology.

    Raises:
        ConfigError: A package is not installed; the message says how to get it.
    """
    conf: dict[str, str] = {}
    for factory in _factories(graph):
        conf |= factory.session_conf()
    return conf


def check_frame_session(graph: Graph, session: SparkSession) -> None:
    """Check that a session can write the DataFrames of a topology.

    Raises:
        ConfigError: It lacks a setting or a package; the message names it.
    """
    for factory in _factories(graph):
        factory.check_session(session)


def _factories(graph: Graph) -> Iterator[FrameFactory]:
    plan = frame_plan(graph.components)
    for component in graph.components.values():
        if plan.takes(component.id):
            for state in component.states.values():
                assert isinstance(state.factory, FrameFactory), "checked with the components"
                yield state.factory


def _check_frame_alone(component: Component) -> None:
    what = "spout" if component.kind.spout else "bolt"
    if component.parallelism != 1:
        raise TopologyError(
            f"DataFrame {what} {component.id!r} has a parallelism; got {component.parallelism}; "
            "expected none, because it has no tasks: Spark divides the work of a plan; remove it",
            component=component.id,
        )
    if component.prototype.output_streams:  # type: ignore[attr-defined]
        raise TopologyError(
            f"DataFrame {what} {component.id!r} declares several streams; got output_streams; "
            "expected only output_fields, because a plan has one result; use a bolt for each "
            "stream",
            component=component.id,
        )


def _check_methods(component: Component) -> None:
    bolt = component.prototype
    if component.committer:
        if not callable(getattr(bolt, "commit", None)):
            raise TopologyError(
                f"DataFrame bolt {component.id!r} is a committer without commit; expected a "
                "method commit(frame, attempt), which is called in txid order",
                component=component.id,
            )
        check_calls("bolt", component.id, bolt, COMMIT)
        if component.streams:
            raise TopologyError(
                f"DataFrame bolt {component.id!r} is a committer and declares output_fields; "
                "a DataFrame committer emits nothing; remove them, and emit in a bolt above it",
                component=component.id,
            )
        return
    if type(bolt).transform is DataFrameBolt.transform:  # type: ignore[attr-defined]
        raise TopologyError(
            f"DataFrame bolt {component.id!r} does nothing: it has no transform; expected a method "
            "transform(frame, attempt) that returns a DataFrame",
            component=component.id,
        )
    if not component.streams:
        raise TopologyError(
            f"DataFrame bolt {component.id!r} declares no fields; expected output_fields = "
            "Fields(…) with the columns that transform returns",
            component=component.id,
        )


def _check_inputs(component: Component, components: Mapping[str, Component]) -> None:
    schemas: dict[object, str] = {}
    for subscription in component.subscriptions:
        source = components[subscription.source]
        if not source.kind.frame:
            raise TopologyError(
                f"DataFrame bolt {component.id!r} cannot subscribe to {source.id!r}, which is a "
                f"{source.kind.text}: its tuples are in Python and would have to go back into the "
                "JVM; expected a DataFrameTransactionalSpout or a DataFrameBolt above it; use an "
                "ArrowBolt here, or a DataFrameBolt there",
                component=component.id,
                source=source.id,
            )
        if not isinstance(subscription.grouping, _FREE):
            raise TopologyError(
                f"{type(subscription.grouping).__name__} of DataFrame bolt {component.id!r} on "
                f"{source.id!r} is impossible: the bolt has no tasks to divide rows among; use "
                "shuffle_grouping, and group in the plan",
                component=component.id,
                source=source.id,
            )
        fields = source.streams[subscription.stream].fields
        schemas.setdefault(frozenset(fields), f"{source.id!r} has {fields}")
    if len(schemas) > 1:
        raise TopologyError(
            f"inputs of DataFrame bolt {component.id!r} differ in their fields; got "
            f"{'; '.join(schemas.values())}; expected equal names and types, because the frames "
            "are combined by union; select or cast in the bolts above",
            component=component.id,
        )


def _check_fields(component: Component) -> None:
    for stream in component.streams.values():
        for name in stream.fields.required:
            raise TopologyError(
                f"field {name!r} of {component.id!r} is required, but Spark computes its rows, and "
                "nobody looks at them; leave out its !, and filter the frame",
                component=component.id,
            )


def _check_states(component: Component) -> None:
    for name, state in component.states.items():
        reason = frames_refused(state)
        if reason is not None:
            raise TopologyError(
                f"state {name!r} of DataFrame bolt {component.id!r} cannot take frames: {reason}",
                component=component.id,
                state=name,
            )
