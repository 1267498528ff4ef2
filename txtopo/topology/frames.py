"""What must hold for the components of a topology that are plans of Spark's."""

from __future__ import annotations

from collections.abc import Mapping

from txtopo.bolts.bolt import DataFrameBolt
from txtopo.errors import TopologyError
from txtopo.groupings import LocalOrShuffleGrouping, NoneGrouping, ShuffleGrouping
from txtopo.topology.component import Component, Role
from txtopo.topology.roles import COMMIT, check_calls

_FREE = (ShuffleGrouping, NoneGrouping, LocalOrShuffleGrouping)


def check_frames(components: Mapping[str, Component]) -> None:
    """Check the DataFrame spout and the DataFrame bolts.

    Args:
        components: All components; what they subscribe to is there.

    Raises:
        TopologyError: One cannot be; the message says what to mend.
    """
    for component in components.values():
        if component.role.frame:
            _check_alone(component)
        if component.role is Role.DATAFRAME_BOLT:
            _check_methods(component)
            _check_inputs(component, components)
            _check_states(component)


def _check_alone(component: Component) -> None:
    what = "spout" if component.role.spout else "bolt"
    if component.parallelism != 1:
        raise TopologyError(
            f"DataFrame {what} {component.id!r} has a parallelism; got {component.parallelism}; "
            "expected none, since it has no tasks: Spark divides the work of a plan; leave it out",
            component=component.id,
        )
    if getattr(component.prototype, "output_streams", None):
        raise TopologyError(
            f"DataFrame {what} {component.id!r} declares several streams; got output_streams; "
            "expected output_fields alone, since a plan has one result; use a bolt for each",
            component=component.id,
        )


def _check_methods(component: Component) -> None:
    bolt = component.prototype
    if component.committer:
        if not callable(getattr(bolt, "commit", None)):
            raise TopologyError(
                f"DataFrame bolt {component.id!r} is a committer and lacks commit; expected a "
                "method commit(frame, attempt), which is called in txid order",
                component=component.id,
            )
        check_calls("bolt", component.id, bolt, COMMIT)
        if component.streams:
            raise TopologyError(
                f"DataFrame bolt {component.id!r} is a committer and declares output_fields; "
                "a DataFrame committer emits nothing; take them out, and emit in a bolt above it",
                component=component.id,
            )
        return
    if type(bolt).transform is DataFrameBolt.transform:  # type: ignore[attr-defined]
        raise TopologyError(
            f"DataFrame bolt {component.id!r} does nothing; it lacks transform; expected a method "
            "transform(frame, attempt) that returns a DataFrame",
            component=component.id,
        )
    if not component.streams:
        raise TopologyError(
            f"DataFrame bolt {component.id!r} declares no fields; expected output_fields = "
            "Fields(…) with the columns of what transform returns",
            component=component.id,
        )


def _check_inputs(component: Component, components: Mapping[str, Component]) -> None:
    schemas: dict[object, str] = {}
    for subscription in component.subscriptions:
        source = components[subscription.source]
        if not source.role.frame:
            raise TopologyError(
                f"DataFrame bolt {component.id!r} cannot stand below {source.id!r}, which is a "
                f"{source.role.value}: its tuples are in Python and would have to go back into the "
                "JVM; expected a DataFrameTransactionalSpout or a DataFrameBolt above it; use an "
                "ArrowBolt here, or a DataFrameBolt there",
                component=component.id,
                source=source.id,
            )
        if not isinstance(subscription.grouping, _FREE):
            raise TopologyError(
                f"{type(subscription.grouping).__name__} of DataFrame bolt {component.id!r} on "
                f"{source.id!r} cannot be: it has no tasks among which rows are shared; use "
                "shuffle_grouping, and group in the plan",
                component=component.id,
                source=source.id,
            )
        fields = source.streams[subscription.stream].fields
        schemas.setdefault(frozenset(fields), f"{source.id!r} gives {fields}")
    if len(schemas) > 1:
        raise TopologyError(
            f"inputs of DataFrame bolt {component.id!r} differ in their fields; got "
            f"{'; '.join(schemas.values())}; expected equal names and types, since the frames are "
            "united; select or cast in the bolts above",
            component=component.id,
        )


def _check_states(component: Component) -> None:
    for name, state in component.states.items():
        reason = state.frames_refused()
        if reason is not None:
            raise TopologyError(
                f"state {name!r} of DataFrame bolt {component.id!r} cannot take frames: {reason}",
                component=component.id,
                state=name,
            )
