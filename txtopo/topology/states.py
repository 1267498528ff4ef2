"""What must hold for the states of a topology, and the columns of a PersistentAggregate's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from txtopo.bolts.kafka import KafkaSink
from txtopo.bolts.persistent_aggregate import PersistentAggregate
from txtopo.errors import FieldsError, TopologyError
from txtopo.state.registry import State
from txtopo.topology.component import Component, Role
from txtopo.tuples import Fields


def with_aggregate_state(component: Component, components: Mapping[str, Component]) -> Component:
    """Return a PersistentAggregate with its state, whose columns follow from its inputs.

    A KafkaSink brings its own state as well.

    Any other component is returned as it is.

    Raises:
        TopologyError: An input lacks a field, or two inputs have it with different types.
    """
    bolt = component.prototype
    if isinstance(bolt, KafkaSink):
        return replace(component, states={**component.states, component.id: bolt.state})
    if not isinstance(bolt, PersistentAggregate):
        return component
    columns: dict[tuple[Fields, Fields], str] = {}
    for subscription in component.subscriptions:
        where = f"stream {subscription.stream!r} of {subscription.source!r}"
        fields = components[subscription.source].streams[subscription.stream].fields
        try:
            columns.setdefault((bolt.key_fields(fields), bolt.value_fields(fields)), where)
        except FieldsError as error:
            raise TopologyError(
                f"PersistentAggregate {component.id!r} cannot use {where}: {error}",
                component=component.id,
            ) from error
    if len(columns) > 1:
        shapes = "; ".join(
            f"{where} gives {key}, {value}" for (key, value), where in columns.items()
        )
        raise TopologyError(
            f"inputs of PersistentAggregate {component.id!r} differ in its fields; got {shapes}; "
            "expected equal types; cast in the bolt above",
            component=component.id,
        )
    ((key, value),) = columns
    state = bolt.state.with_columns(key, value, tuple(bolt.aggregates.values()))
    return replace(component, states={component.id: state.named(component.id)})


def check_states(spout: Component, components: Mapping[str, Component]) -> None:
    """Check who has which state.

    Args:
        spout: The spout.
        components: All components, sources before those who subscribe to them.

    Raises:
        TopologyError: A bolt that is no committer has one, two share a table, or a transactional
            state hangs on an opaque spout or may feed another state.
    """
    owners: dict[tuple[str, str], str] = {}
    labels: dict[str, str] = {}
    for component in components.values():
        for name, state in component.states.items():
            _check_committer(component, name)
            _check_kind(spout, component, name, state)
            _check_alone(component, name, state, components)
            _check_mode(component, name, state)
            # Some stores do not tell upper from lower case in a table's name.
            place = (state.location, state.layout(name).name.casefold())
            owner = f"{name!r} of {component.id!r}"
            _check_label(component, name, owner, labels)
            if place in owners:
                raise TopologyError(
                    f"two states share one table; got {owners[place]} and {owner}, both table "
                    f"{state.table!r} of {state!r}; expected a table for each, since each has a "
                    "ledger of its own; give one another table",
                    component=component.id,
                    state=name,
                    table=state.table,
                )
            owners[place] = owner
    _check_names(components)


def _check_names(components: Mapping[str, Component]) -> None:
    """Refuse two states of one store of which one takes a name that the other needs.

    Their store would refuse the second, or keep what stands beside the one in the other.
    """
    taken: dict[tuple[str, str], tuple[str, str]] = {}
    for component in components.values():
        for name, state in component.states.items():
            owner = f"{name!r} of {component.id!r}"
            for text, use in state.names_taken(name).items():
                other, its_use = taken.setdefault((state.location, text), (owner, use))
                if other != owner:
                    raise TopologyError(
                        f"two states clash in their store; {text!r} is {its_use} of {other} and "
                        f"{use} of {owner}, both in {state!r}; expected names that the store tells "
                        "apart; give one another table",
                        component=component.id,
                        state=name,
                        table=state.layout(name).name,
                    )


def _check_label(component: Component, name: str, owner: str, labels: dict[str, str]) -> None:
    """Refuse two states that messages and verbs would call the same."""
    label = f"{component.id}.{name}"
    other = labels.setdefault(label, owner)
    if other != owner:
        raise TopologyError(
            f"two states have one name; {other} and {owner} are both called {label!r}; expected "
            "names that can be told apart; rename a component or a state",
            component=component.id,
            state=name,
        )


def _check_committer(component: Component, name: str) -> None:
    if component.committer:
        return
    raise TopologyError(
        f"state {name!r} is on bolt {component.id!r}, which is no committer; only the commit phase "
        "may write; derive the bolt from Committer as well, or use set_committer_bolt",
        component=component.id,
        state=name,
    )


def _check_kind(spout: Component, component: Component, name: str, state: State) -> None:
    repeatable = getattr(spout.prototype, "repeatable", spout.role is not Role.OPAQUE_SPOUT)
    if isinstance(component.prototype, KafkaSink):
        _check_sink(spout, component, repeatable=repeatable)
    if repeatable or state.kind != "transactional":
        return
    raise TopologyError(
        f"state {name!r} of {component.id!r} is transactional and the spout {spout.id!r} is "
        "opaque; a replay of an opaque spout may bring another batch under the same txid, and a "
        "transactional state would keep the old one's effect, since it knows no value before it; "
        'use open_state(…, kind="opaque")',
        component=component.id,
        state=name,
    )


def _check_sink(spout: Component, component: Component, *, repeatable: bool) -> None:
    if component.parallelism != 1:
        raise TopologyError(
            f"KafkaSink {component.id!r} has parallelism {component.parallelism}; expected 1: the "
            "records of a txid are one transaction of one producer; do the work in bolts above it",
            component=component.id,
        )
    if not repeatable:
        raise TopologyError(
            f"KafkaSink {component.id!r} hangs on the opaque spout {spout.id!r}; a replay of an "
            "opaque spout may bring another batch under the same txid, and records that consumers "
            "have seen cannot be taken back; use a transactional spout, or keep the results in a "
            "state",
            component=component.id,
        )


def _check_mode(component: Component, name: str, state: State) -> None:
    if state.mode == "table" or component.role is Role.PERSISTENT_AGGREGATE:
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

    A crash may leave the two a txid apart. In the replay the transactional state, which keeps no
    value of before, shows what it holds *after* the txid, and the other would be made from that.
    """
    if state.kind != "transactional" or component.role is Role.PERSISTENT_AGGREGATE:
        return
    other = next(_others(component, name, components), None)
    if other is None:
        return
    raise TopologyError(
        f"state {name!r} of {component.id!r} is transactional and may feed state {other}; if the "
        "run is killed between the writes of the two, a transactional state, since it keeps no "
        "value of before, would show the replay what it holds after the txid, and the other would "
        'become wrong; use open_state(…, kind="opaque")',
        component=component.id,
        state=name,
    )


def _others(component: Component, name: str, components: Mapping[str, Component]) -> Iterator[str]:
    """Yield the states that get what the owner of a state reads: its own, and those below it."""
    yield from (f"{other!r} of {component.id!r}" for other in component.states if other != name)
    reached = {component.id}
    for bolt in components.values():
        if bolt.id in reached or not any(s.source in reached for s in bolt.subscriptions):
            continue
        reached.add(bolt.id)
        yield from (f"{other!r} of {bolt.id!r}" for other in bolt.states)
