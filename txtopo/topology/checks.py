"""The checks that a topology must pass before it runs: components, inputs, states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from txtopo.bolts.persistent_aggregate import PersistentAggregate
from txtopo.errors import FieldsError, TopologyError, nearest
from txtopo.groupings import (
    DirectGrouping,
    FieldsGrouping,
    PartialKeyGrouping,
)
from txtopo.state.aggregates import Aggregate
from txtopo.state.registry import State
from txtopo.topology.bolt_kinds import PERSISTENT_AGGREGATE
from txtopo.topology.component import Component, Subscription, check_id
from txtopo.tuples import Fields, Stream


def check_components(components: Sequence[Component]) -> Component:
    """Check each component by itself, and return the first spout.

    Raises:
        TopologyError: An id, a parallelism or the number of spouts is wrong.
    """
    seen: set[str] = set()
    for component in components:
        check_id("component", component.id)
        if component.id in seen:
            raise TopologyError(
                f"component id {component.id!r} is used twice; ids must be distinct; rename one "
                "of them",
                component=component.id,
            )
        seen.add(component.id)
        check_parallelism(component.id, component.parallelism)
        for name in component.streams:
            check_id(f"in component {component.id!r}: stream", name)
    spouts = [component for component in components if component.kind.spout]
    if not spouts:
        raise TopologyError("a topology needs at least one spout; got none; add one", spouts=())
    alone = next((spout for spout in spouts if spout.spout_kind.alone is not None), None)
    if alone is not None and len(spouts) > 1:
        others = ", ".join(repr(spout.id) for spout in spouts if spout is not alone)
        raise TopologyError(
            f"{alone.kind.text} {alone.id!r} cannot share its txids with another spout; got "
            f"{others} as well; expected it to be the only spout: {alone.spout_kind.alone}; use "
            "another kind of spout, or one topology for each",
            component=alone.id,
            spouts=tuple(spout.id for spout in spouts),
        )
    return spouts[0]


def check_inputs(component: Component, components: Mapping[str, Component]) -> None:
    """Check the inputs of a component.

    Raises:
        TopologyError: A source, stream or field does not exist, a grouping does not fit, or the
            bolt cannot use the fields of an input.
    """
    if not component.subscriptions and not component.kind.spout:
        raise TopologyError(
            f"bolt {component.id!r} has no input, so it would never get a tuple; give it a "
            "grouping, e.g. .shuffle_grouping(source)",
            component=component.id,
        )
    seen: set[tuple[str, str]] = set()
    for subscription in component.subscriptions:
        source = _subscribed(component, subscription, components)
        pair = (subscription.source, subscription.stream)
        if pair in seen:
            raise TopologyError(
                f"bolt {component.id!r} subscribes twice to stream {subscription.stream!r} of "
                f"{subscription.source!r}; a bolt has one grouping for each stream; remove one",
                component=component.id,
                source=subscription.source,
                stream=subscription.stream,
            )
        seen.add(pair)
        _check_grouping(component, subscription, source)
    _check_fields(component, components)


def with_own_state(component: Component, components: Mapping[str, Component]) -> Component:
    """Return a component with the state that its bolt brings; unchanged if it brings none.

    The columns of the state of a PersistentAggregate follow from the fields of its inputs.

    Raises:
        TopologyError: An input lacks a field, or two inputs have it with different types.
    """
    bolt, own = component.prototype, component.traits.state
    if own is not None:
        states = {**component.states, component.id: own.named(component.id)}
        return replace(component, states=states)
    if not isinstance(bolt, PersistentAggregate):
        return component
    columns: dict[tuple[Fields, Fields, tuple[Aggregate, ...]], str] = {}
    for subscription in component.subscriptions:
        where = f"stream {subscription.stream!r} of {subscription.source!r}"
        fields = components[subscription.source].streams[subscription.stream].fields
        try:
            key, value = bolt.key_fields(fields), bolt.value_fields(fields)
            columns.setdefault((key, value, bolt.stored_aggregates(fields)), where)
        except FieldsError as error:
            raise TopologyError(
                f"PersistentAggregate {component.id!r} cannot use {where}: {error}",
                component=component.id,
            ) from error
    if len(columns) > 1:
        shapes = "; ".join(
            f"{where} gives {key}, {value}, {', '.join(map(repr, kinds))}"
            for (key, value, kinds), where in columns.items()
        )
        raise TopologyError(
            f"inputs of PersistentAggregate {component.id!r} differ in the fields that it uses; "
            f"got {shapes}; expected equal types; cast in the bolt above",
            component=component.id,
        )
    ((key, value, kinds),) = columns
    named = bolt.state.named(component.id)
    state = named.with_columns(key, value, kinds)
    return replace(component, states={component.id: state})


def check_states(components: Mapping[str, Component]) -> None:
    """Check the states of all components.

    Args:
        components: All components, sources before the bolts that subscribe to them.

    Raises:
        TopologyError: A bolt that is not a committer has a state, two states share a table, a
            transactional state is below an opaque spout or may feed another state, a store cannot
            keep its state, or a bolt has another parallelism or spout than it needs.
    """
    opaque = opaque_above(components)
    owners: dict[tuple[str, str], str] = {}
    labels: dict[str, str] = {}
    for component in components.values():
        _check_demands(opaque[component.id], component)
        for name, state in component.states.items():
            _check_committer(component, name)
            _check_kind(opaque[component.id], component, name, state)
            _check_alone(component, name, state, components)
            _check_mode(component, name, state)
            state.check(name)
            # Some stores do not tell upper from lower case in a table's name.
            place = (state.location, state.layout(name).name.casefold())
            owner = f"{name!r} of {component.id!r}"
            _check_label(component, name, owner, labels)
            if place in owners:
                raise TopologyError(
                    f"two states use the same table; got {owners[place]} and {owner}, both table "
                    f"{state.table!r} of {state!r}; expected one table for each, because each has "
                    "its own ledger; give one of them another table",
                    component=component.id,
                    state=name,
                    table=state.table,
                )
            owners[place] = owner
    _check_names(components)


def check_stamp(components: Mapping[str, Component]) -> None:
    """Check that whatever asks for planned time or lookups has batches that somebody plans.

    Raises:
        TopologyError: The spout has none.
    """
    asking = [
        each
        for each in components.values()
        if each.traits.needs_planned_time or each.traits.lookups
    ]
    spouts = (each for each in components.values() if each.kind.spout)
    spout = next((each for each in spouts if each.spout_kind.unplanned is not None), None)
    if asking and spout is not None:
        asks = "planned time" if asking[0].traits.needs_planned_time else "a lookup"
        raise TopologyError(
            f"{asking[0].id!r} asks for {asks}, which {spout.kind.text} {spout.id!r} cannot give: "
            f"{spout.spout_kind.unplanned}; expected a transactional, a partitioned or an opaque "
            "spout, whose plan of a batch is stored together with these facts",
            component=asking[0].id,
            spout=spout.id,
        )


def check_parallelism(component: str, parallelism: object) -> None:
    """Check a number of tasks.

    Raises:
        TopologyError: It is not a whole number of at least 1.
    """
    if type(parallelism) is not int or parallelism < 1:
        raise TopologyError(
            f"parallelism of {component!r} is wrong; got {parallelism!r}; expected a whole number "
            "of at least 1",
            component=component,
            got=repr(parallelism),
        )


def _subscribed(
    component: Component, subscription: Subscription, components: Mapping[str, Component]
) -> Component:
    source = components.get(subscription.source)
    if source is None:
        others = (id for id in components if id != component.id)
        raise TopologyError(
            f"bolt {component.id!r} subscribes to unknown component {subscription.source!r}; "
            f"{nearest(subscription.source, others)}",
            component=component.id,
            source=subscription.source,
        )
    if subscription.stream not in source.streams:
        raise TopologyError(
            f"bolt {component.id!r} subscribes to unknown stream {subscription.stream!r} of "
            f"{source.id!r}; {_declared(subscription.stream, source)}",
            component=component.id,
            source=source.id,
            stream=subscription.stream,
        )
    return source


def _declared(stream: str, source: Component) -> str:
    if source.kind == PERSISTENT_AGGREGATE:
        return "a PersistentAggregate does not emit; read its state instead"
    if not source.streams:
        return "it declares no stream; give it output_fields = Fields(…)"
    return nearest(stream, source.streams)


def _check_grouping(component: Component, subscription: Subscription, source: Component) -> None:
    grouping, stream = subscription.grouping, source.streams[subscription.stream]
    where = f"bolt {component.id!r} on stream {subscription.stream!r} of {subscription.source!r}"
    facts = {"component": component.id, "source": subscription.source}
    if isinstance(grouping, DirectGrouping) and not stream.direct:
        raise TopologyError(
            f"direct grouping of {where} needs a direct stream, but this one is not; declare it "
            "with Stream(fields, direct=True), or use another grouping",
            **facts,
        )
    if stream.direct and not isinstance(grouping, DirectGrouping):
        raise TopologyError(
            f"{type(grouping).__name__} of {where} is not possible: the stream is declared "
            "direct, so its emitter picks the tasks; use direct_grouping",
            **facts,
        )
    if not isinstance(grouping, FieldsGrouping | PartialKeyGrouping):
        return
    if not grouping.fields:
        raise TopologyError(
            f"{type(grouping).__name__} of {where} names no field; expected at least one; use "
            "global_grouping to send all tuples to one task",
            **facts,
        )
    for field in grouping.fields:
        if field not in stream.fields.index:
            raise TopologyError(
                f"{type(grouping).__name__} of {where} names undeclared field {field!r}; "
                f"{_field_hint(field, stream, source)}",
                field=field,
                **facts,
            )


def _field_hint(field: str, stream: Stream, source: Component) -> str:
    # Storm's fieldsGrouping takes the stream in this place.
    if field in source.streams:
        return (
            f"it is a stream of {source.id!r}; write stream={field!r} after the fields, which are "
            f"{', '.join(map(repr, source.streams[field].fields.names))}"
        )
    return nearest(field, stream.fields.names)


def _check_names(components: Mapping[str, Component]) -> None:
    """Refuse two states of one store if a table of one has a name that the other needs.

    The store would refuse the second state, or mix the tables of the two.
    """
    taken: dict[tuple[str, str], tuple[str, str]] = {}
    for component in components.values():
        for name, state in component.states.items():
            owner = f"{name!r} of {component.id!r}"
            for text, use in state.names_taken(name).items():
                other, its_use = taken.setdefault((state.location, text), (owner, use))
                if other != owner:
                    raise TopologyError(
                        f"two states collide in their store; {text!r} is {its_use} of {other} and "
                        f"{use} of {owner}, both in {state!r}; expected names that the store can "
                        "tell apart; give one of them another table",
                        component=component.id,
                        state=name,
                        table=state.layout(name).name,
                    )


def _check_label(component: Component, name: str, owner: str, labels: dict[str, str]) -> None:
    """Refuse two states with the same name in messages and operators' verbs."""
    label = f"{component.id}.{name}"
    other = labels.setdefault(label, owner)
    if other != owner:
        raise TopologyError(
            f"two states have the same name; {other} and {owner} are both called {label!r}; "
            "expected names that can be told apart; rename a component or a state",
            component=component.id,
            state=name,
        )


def _check_committer(component: Component, name: str) -> None:
    if component.committer:
        return
    raise TopologyError(
        f"state {name!r} is on bolt {component.id!r}, which is not a committer; but only the "
        "commit phase may write; derive the bolt from Committer as well, or use "
        "set_committer_bolt",
        component=component.id,
        state=name,
    )


def opaque_above(components: Mapping[str, Component]) -> dict[str, str | None]:
    """Return the first opaque spout upstream of each component; None where all are transactional.

    Args:
        components: All components, sources before the bolts that subscribe to them.
    """
    above: dict[str, str | None] = {}
    for component in components.values():
        if component.kind.spout:
            above[component.id] = None if component.traits.repeatable else component.id
        else:
            found = (above[each.source] for each in component.subscriptions)
            above[component.id] = next((spout for spout in found if spout is not None), None)
    return above


def _check_fields(component: Component, components: Mapping[str, Component]) -> None:
    """Check that a bolt can use the fields of its inputs, as far as it says which it needs."""
    check = component.traits.check_input
    if check is None:
        return
    for subscription in component.subscriptions:
        try:
            check(components[subscription.source].streams[subscription.stream].fields)
        except FieldsError as error:
            raise TopologyError(
                f"{type(component.prototype).__name__} {component.id!r} cannot write stream "
                f"{subscription.stream!r} of {subscription.source!r}: {error}",
                component=component.id,
            ) from error


def _check_kind(opaque: str | None, component: Component, name: str, state: State) -> None:
    if opaque is None or state.kind != "transactional":
        return
    raise TopologyError(
        f"state {name!r} of {component.id!r} is transactional and the spout {opaque!r} is opaque; "
        "a replay of an opaque spout may deliver another batch under the same txid, and a "
        "transactional state would keep the effect of the old batch, because it does not keep "
        'the value before it; use open_state(…, kind="opaque")',
        component=component.id,
        state=name,
    )


def _check_demands(opaque: str | None, component: Component) -> None:
    """Check that a bolt which needs one task, or no opaque spout above it, has that."""
    traits, what = component.traits, f"{type(component.prototype).__name__} {component.id!r}"
    if traits.one_task is not None and component.parallelism != 1:
        raise TopologyError(
            f"{what} has parallelism {component.parallelism}; expected 1: {traits.one_task}",
            component=component.id,
        )
    if traits.refuses_opaque is not None and opaque is not None:
        raise TopologyError(
            f"{what} depends on the opaque spout {opaque!r}; a replay of an opaque spout may "
            f"deliver another batch under the same txid, and {traits.refuses_opaque}",
            component=component.id,
        )


def _check_mode(component: Component, name: str, state: State) -> None:
    if state.mode == "table" or component.kind == PERSISTENT_AGGREGATE:
        return
    raise TopologyError(
        f"state {name!r} of {component.id!r} is in mode 'log', whose rows are partial aggregates; "
        "a committer of your own reads and writes the value of a key; use a PersistentAggregate, "
        "or open_state(…, mode='table')",
        component=component.id,
        state=name,
    )


def _check_alone(
    component: Component, name: str, state: State, components: Mapping[str, Component]
) -> None:
    """Refuse a transactional state from which a user's committer may feed another state.

    A crash may leave the two states a txid apart, unless they share a transaction, which only a
    takeover can tell. A transactional state does not keep its previous value, so the replay would
    read its value *after* the txid and derive the other state from that.
    """
    if state.kind != "transactional" or component.kind == PERSISTENT_AGGREGATE:
        return
    other = next(_others(component, name, components), None)
    if other is None:
        return
    raise TopologyError(
        f"state {name!r} of {component.id!r} is transactional and may feed state {other}; if the "
        "run is killed between the writes of the two, the replay would read the value after the "
        "txid from the transactional state, which does not keep the one before it, and the other "
        'state would become wrong; use open_state(…, kind="opaque")',
        component=component.id,
        state=name,
    )


def _others(component: Component, name: str, components: Mapping[str, Component]) -> Iterator[str]:
    """Yield the states that values of a state may reach: others of its bolt, and those below it."""
    yield from (f"{other!r} of {component.id!r}" for other in component.states if other != name)
    reached = {component.id}
    for bolt in components.values():
        if bolt.id in reached or not any(s.source in reached for s in bolt.subscriptions):
            continue
        reached.add(bolt.id)
        yield from (f"{other!r} of {bolt.id!r}" for other in bolt.states)
