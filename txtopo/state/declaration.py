"""The declaration of a state as JSON: stores keep it, so that anyone can read the state later.

It is never a pickle. Stores compare the text with the current declaration, so an unchanged
declaration must have the same text in every version.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from txtopo.errors import SchemaDrift, TxtopoError
from txtopo.state.aggregates import (
    Aggregate,
    Count,
    Max,
    MeanCount,
    MeanSum,
    Min,
    NamedAggregate,
    OwnAggregate,
    Sum,
)
from txtopo.state.backend import StateTable
from txtopo.state.python_aggregates import CountDistinct, First, Last, TopN
from txtopo.tuples import Field, Fields

_READY_MADE: tuple[type[Aggregate], ...] = (
    *(Count, Sum, Min, Max, MeanSum, MeanCount),
    *(First, Last, TopN, CountDistinct),
)
_AGGREGATES = {kind.__name__: kind for kind in _READY_MADE}


def declaration(state: StateTable, retired: Sequence[str] = ()) -> str:
    """Return the columns of a state as JSON.

    Args:
        state: The state.
        retired: Value columns that its table still has but that are no longer written.
    """
    text: dict[str, object] = {
        "kind": state.kind,
        "key": [[field.name, field.type] for field in state.key],
        "value": [[field.name, field.type] for field in state.value],
        "aggregates": [_written(one) for one in state.aggregates],
    }
    if state.mode != "table":
        text["mode"] = state.mode
    if retired:
        text["retired"] = list(retired)
    return json.dumps(text)


def retired_of(text: str) -> tuple[str, ...]:
    """Return the value columns that a declaration lists as no longer written.

    Raises:
        SchemaDrift: txtopo did not write the text.
    """
    try:
        return tuple(map(str, json.loads(text).get("retired", ())))
    except (ValueError, TypeError, AttributeError) as error:
        raise _unreadable(text) from error


def parsed_declaration(name: str, text: str) -> StateTable:
    """Return the state that a declaration describes.

    Raises:
        SchemaDrift: txtopo did not write the text.
    """
    try:
        found = json.loads(text)
        return StateTable(
            name,
            found["kind"],
            Fields.of([Field(*column) for column in found["key"]]),
            Fields.of([Field(*column) for column in found["value"]]),
            tuple(_read(*parts) for parts in found["aggregates"]),
            found.get("mode", "table"),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _unreadable(text, name) from error


def _unreadable(text: str, name: str | None = None) -> SchemaDrift:
    which = "a state" if name is None else f"state {name!r}"
    return SchemaDrift(
        f"the columns of {which} cannot be read from its store; got {text!r:.200}; "
        "expected what txtopo wrote there; was it changed by hand?",
        state=name,
    )


def listed_states(
    own: str, states: Mapping[str, Callable[[], StateTable | None]]
) -> tuple[StateTable, ...]:
    """Return the states of a store, each as its own bookkeeping describes it.

    One damaged state must not keep the others from being read. So its error is raised only if it is
    the state that was opened, or the only one; otherwise the state is returned with default
    columns.

    Args:
        own: The name of the state that was opened.
        states: By name, a function that reads the declaration; it returns None if the state does
            not exist yet.

    Raises:
        TxtopoError: The bookkeeping of *own* cannot be read.
    """
    found = []
    for name, described in states.items():
        try:
            state = described()
        except TxtopoError:
            if name == own or len(states) == 1:
                raise
            state = StateTable(name, "opaque", Fields("key string"), Fields("value long"))
        if state is not None:
            found.append(state)
    return tuple(found)


def _written(aggregate: Aggregate) -> list[Any]:
    """Return the name of an aggregate, its field, and its parameters if it has any."""
    if isinstance(aggregate, OwnAggregate | NamedAggregate):
        return [aggregate.name, aggregate.field, {"fields": list(aggregate.fields)}]
    parts = [type(aggregate).__name__, aggregate.field]
    parameters = {
        part.name: getattr(aggregate, part.name)
        for part in dataclasses.fields(aggregate)
        if part.name != "field"
    }
    if parameters.get("scale", 0) is None:  # which earlier versions did not have
        del parameters["scale"]
    return [*parts, parameters] if parameters else parts


def _read(name: str, field: str | None, parameters: dict[str, Any] | None = None) -> Aggregate:
    given = {
        one: tuple(value) if isinstance(value, list) else value
        for one, value in (parameters or {}).items()
    }
    if name in _AGGREGATES:
        return _AGGREGATES[name](field, **given)
    # A user's own aggregate, or one of a newer txtopo. It is not imported; its values are read as
    # stored.
    return NamedAggregate(field, name, given.get("fields", ()))
