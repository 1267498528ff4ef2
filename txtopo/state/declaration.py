"""What a store keeps of a state's columns, so that anyone can read it later: JSON, never a pickle.

Stores compare the text with that of the state as it is declared now, so a declaration that has not
changed must give the same text as before.
"""

from __future__ import annotations

import json

from txtopo.state.aggregates import Aggregate, Count, Max, Min, Sum
from txtopo.state.backend import StateTable
from txtopo.tuples import Field, Fields

_AGGREGATES: dict[str, type[Aggregate]] = {kind.__name__: kind for kind in (Count, Sum, Min, Max)}


def declaration(state: StateTable) -> str:
    """Return the columns of a state as JSON."""
    text: dict[str, object] = {
        "kind": state.kind,
        "key": [[field.name, field.type] for field in state.key],
        "value": [[field.name, field.type] for field in state.value],
        "aggregates": [[type(one).__name__, one.field] for one in state.aggregates],
    }
    if state.mode != "table":
        text["mode"] = state.mode
    return json.dumps(text)


def declared(name: str, text: str) -> StateTable:
    """Return the state that a declaration describes."""
    found = json.loads(text)
    return StateTable(
        name,
        found["kind"],
        Fields.of([Field(*column) for column in found["key"]]),
        Fields.of([Field(*column) for column in found["value"]]),
        tuple(_AGGREGATES[kind](field) for kind, field in found["aggregates"]),
        found.get("mode", "table"),
    )
