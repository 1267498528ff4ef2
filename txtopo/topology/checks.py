"""What must hold for the components of a topology and for what they subscribe to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from txtopo.errors import TopologyError
from txtopo.groupings import DirectGrouping, FieldsGrouping, PartialKeyGrouping
from txtopo.topology.component import Component, Role, Subscription
from txtopo.topology.ids import check_id
from txtopo.tuples import Stream


def check_components(components: Sequence[Component]) -> Component:
    """Check each component by itself and return the spout: the only one, or the first reliable.

    Raises:
        TopologyError: An id, a parallelism or the number of spouts is wrong.
    """
    seen: set[str] = set()
    for component in components:
        check_id("component", component.id)
        if component.id in seen:
            raise TopologyError(
                f"component id {component.id!r} stands twice; expected distinct ids; "
                "rename one of the two",
                component=component.id,
            )
        seen.add(component.id)
        check_parallelism(component.id, component.parallelism)
        for name in component.streams:
            check_id(f"in component {component.id!r}: stream", name)
    spouts = [component for component in components if component.role.spout]
    if spouts and all(spout.role is Role.SPOUT for spout in spouts):
        return spouts[0]
    if len(spouts) != 1:
        got = ", ".join(repr(spout.id) for spout in spouts) or "none"
        raise TopologyError(
            f"a transactional topology has exactly one spout; got {got}",
            spouts=tuple(spout.id for spout in spouts),
        )
    return spouts[0]


def check_parallelism(component: str, parallelism: object) -> None:
    """Check a number of tasks.

    Raises:
        TopologyError: It is no whole number of at least 1.
    """
    if type(parallelism) is not int or parallelism < 1:
        raise TopologyError(
            f"parallelism of {component!r} is wrong; got {parallelism!r}; expected a whole number "
            "of at least 1",
            component=component,
            parallelism=parallelism,
        )


def check_inputs(component: Component, components: Mapping[str, Component]) -> None:
    """Check what a component subscribes to.

    Raises:
        TopologyError: A source, stream or field does not exist, or a grouping does not fit.
    """
    if not component.subscriptions and not component.role.spout:
        raise TopologyError(
            f"bolt {component.id!r} has no input, so it would never get a tuple; give it a "
            "grouping, e.g. .shuffle_grouping(source)",
            component=component.id,
        )
    seen: set[tuple[str, str]] = set()
    for subscription in component.subscriptions:
        stream = _subscribed(component, subscription, components)
        pair = (subscription.source, subscription.stream)
        if pair in seen:
            raise TopologyError(
                f"bolt {component.id!r} subscribes twice to stream {subscription.stream!r} of "
                f"{subscription.source!r}; a stream has one grouping for each bolt; take one out",
                component=component.id,
                source=subscription.source,
                stream=subscription.stream,
            )
        seen.add(pair)
        _check_grouping(component, subscription, stream)


def nearest(name: object, known: Iterable[str]) -> str:
    """Return a hint for a name that is not known: the nearest one, or all there are."""
    names = list(known)
    close = get_close_matches(str(name), names, 1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known are {', '.join(map(repr, sorted(names))) or 'none'}"


def _subscribed(
    component: Component, subscription: Subscription, components: Mapping[str, Component]
) -> Stream:
    source = components.get(subscription.source)
    if source is None:
        others = (id for id in components if id != component.id)
        raise TopologyError(
            f"bolt {component.id!r} subscribes to unknown component {subscription.source!r}; "
            f"{nearest(subscription.source, others)}",
            component=component.id,
            source=subscription.source,
        )
    stream = source.streams.get(subscription.stream)
    if stream is None:
        raise TopologyError(
            f"bolt {component.id!r} subscribes to unknown stream {subscription.stream!r} of "
            f"{source.id!r}; {_declared(subscription.stream, source)}",
            component=component.id,
            source=source.id,
            stream=subscription.stream,
        )
    return stream


def _declared(stream: str, source: Component) -> str:
    if source.role is Role.PERSISTENT_AGGREGATE:
        return "a PersistentAggregate emits nothing; read its state instead"
    if not source.streams:
        return "it declares none; give it output_fields = Fields(…)"
    return nearest(stream, source.streams)


def _check_grouping(component: Component, subscription: Subscription, stream: Stream) -> None:
    grouping = subscription.grouping
    where = f"bolt {component.id!r} on stream {subscription.stream!r} of {subscription.source!r}"
    facts = {"component": component.id, "source": subscription.source}
    if isinstance(grouping, DirectGrouping) and not stream.direct:
        raise TopologyError(
            f"direct grouping of {where} needs a direct stream; got one that is not; declare it "
            "with Stream(fields, direct=True), or use another grouping",
            **facts,
        )
    if stream.direct and not isinstance(grouping, DirectGrouping):
        raise TopologyError(
            f"{type(grouping).__name__} of {where} cannot be: the stream is declared direct, its "
            "emitter picks the tasks; use direct_grouping",
            **facts,
        )
    if not isinstance(grouping, FieldsGrouping | PartialKeyGrouping):
        return
    if not grouping.fields:
        raise TopologyError(
            f"{type(grouping).__name__} of {where} names no field; expected one at the least; "
            "use global_grouping to bring all tuples to one task",
            **facts,
        )
    for field in grouping.fields:
        if field not in stream.fields.index:
            raise TopologyError(
                f"{type(grouping).__name__} of {where} names undeclared field {field!r}; "
                f"{nearest(field, stream.fields.names)}",
                field=field,
                **facts,
            )
