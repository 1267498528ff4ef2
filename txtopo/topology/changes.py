"""Changes of a topology: which of its states are new, and what no start may change.

What a start is *allowed* to change is a setting (``Config.allow_change``), which
:mod:`txtopo.fingerprint` compares with the differences. Here is what would be
wrong even if it is meant.
"""

from __future__ import annotations

from collections.abc import Collection

from txtopo.fingerprint import (
    BUFFERED,
    Fingerprint,
    StateName,
    in_words,
)
from txtopo.topology.component import Component
from txtopo.topology.graph import Graph, fingerprint


def added_states(now: Fingerprint, known: Fingerprint) -> tuple[StateName, ...]:
    """Return the states of a topology that are new.

    A state is known by its table. So one with the table of a state that is gone is that state,
    renamed; and one that has another table than before is new.
    """
    tables = {name: state.table for name, state in known.states.items()}
    kept = {name for name, state in now.states.items() if tables.get(name) == state.table}
    left = {table for name, table in tables.items() if name not in kept}
    return tuple(
        name for name, state in now.states.items() if name not in kept and state.table not in left
    )


def refused_change(graph: Graph, known: Fingerprint, added: Collection[StateName]) -> str | None:
    """Return why a topology would be wrong after a change, even an intended one; None if it is not.

    The traits of a bolt say why: ``fixed`` of its ``rows`` and of what it has ``buffered``, while
    it keeps its states; ``begins_with_below``, while a bolt below it keeps its own. The states that
    its ``retractions`` come to begin together with its own.

    Args:
        graph: The topology.
        known: The fingerprint of the one that ran.
        added: What :func:`added_states` returns.
    """
    now = fingerprint(graph)
    if (why := other_spouts(known, now)) is not None:
        return why
    for component in graph.components.values():
        if (why := _other_meaning(component, known, now, added)) is not None:
            return why
        why = component.traits.begins_with_below
        if why and (own := _first_state(component)) in added:
            kept = [name for name in _states_below(graph, component) if name not in added]
            if kept:
                return (
                    f"{in_words(own)} would begin from the start, but {in_words(kept[0])} would "
                    f"not; got {now.states[own]}; expected the same table as before; {why}"
                )
        if (why := _other_beginning(graph, component, added)) is not None:
            return why
    return None


def other_spouts(known: Fingerprint, now: Fingerprint) -> str | None:
    """Return why the stored spouts do not fit the declared ones; None if they do."""
    gone = [f"component {id!r}" for id in known.spouts if id not in now.spouts]
    new = [f"component {id!r}" for id in now.spouts if id not in known.spouts]
    if gone and new:
        return (
            f"{', '.join(gone)} is gone and {', '.join(new)} is new, but the stored positions "
            "belong to the old one; expected another id only for another source; if the source "
            "is the same, keep the id; otherwise first start with both spouts, and without the "
            "old one once it has nothing left, both times with Config(allow_change=True)"
        )
    for id, was in known.spouts.items():
        if id in now.components and now.components[id].role != was.role:
            return (
                f"component {id!r} was {was} and is {now.components[id]}, which cannot use the "
                "stored positions of the other kind; expected the same kind as before; give the "
                "spout another id"
            )
    return None


def _other_meaning(
    component: Component, known: Fingerprint, now: Fingerprint, added: Collection[StateName]
) -> str | None:
    """Return why a bolt cannot continue with the states that it keeps; None if it can."""
    # States that come from several components are compared with what each of those said.
    kept = [name for name in _states_of(component) if name not in added]
    owners = dict.fromkeys(_component_of(name, known, now) for name in kept)
    said = {"rows": component.traits.rows, BUFFERED: component.traits.buffered}
    for before in (known.components[owner].meanings for owner in owners):
        for what, meaning in said.items():
            if meaning is None or meaning.fixed is None or before.get(what) == meaning.text:
                continue
            if what == BUFFERED and _first_state(component) in added:
                continue
            return (
                f"{what} of {component.id!r} would mean something else; got {meaning.text}; "
                f"expected {before.get(what, 'a new table')}; {meaning.fixed}"
            )
    return None


def _component_of(state: StateName, known: Fingerprint, now: Fingerprint) -> str:
    """Return the component that had a state which is kept: this one, unless it was renamed."""
    table = now.states[state].table
    if state in known.states and known.states[state].table == table:
        return state[0]
    return next(id for (id, _), each in known.states.items() if each.table == table)


def _states_of(component: Component) -> list[StateName]:
    return [(component.id, name) for name in component.states]


def _first_state(component: Component) -> StateName:
    return _states_of(component)[0]


def _states_below(graph: Graph, above: Component) -> list[StateName]:
    """Return the states of the bolts directly below a component."""
    return [
        name
        for each in graph.components.values()
        if any(subscription.source == above.id for subscription in each.subscriptions)
        for name in _states_of(each)
    ]


def _other_beginning(graph: Graph, above: Component, added: Collection[StateName]) -> str | None:
    """Return why a state cannot take back the rows of a table; None if both begin together."""
    stream = above.traits.retractions
    if stream is None:
        return None
    own = _first_state(above)
    for below in _states_fed_by(graph, (above.id, stream)):
        if (below in added) != (own in added):
            new, old = (below, own) if below in added else (own, below)
            return (
                f"{in_words(new)} would begin from the start and {in_words(old)} would not, but "
                f"{in_words(below)} takes back what changes in {in_words(own)}; expected both in "
                "the same tables as before, or both in new ones; otherwise a row would be taken "
                "back where it was never counted, or be counted twice"
            )
    return None


def _states_fed_by(graph: Graph, output: tuple[str, str]) -> list[StateName]:
    """Return the states that a stream comes to, through bolts without a state."""
    outputs, found = {output}, list[StateName]()
    for each in graph.components.values():  # what is above comes first
        if any((one.source, one.stream) in outputs for one in each.subscriptions):
            found += _states_of(each)
            if not each.states:
                outputs |= {(each.id, name) for name in each.streams}
    return found
