"""The diagram in the header of a state machine, drawn from its table of transitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TypeVar

P = TypeVar("P", bound=Enum)
C = TypeVar("C", bound="Enum | type")


def drawn(table: Mapping[tuple[P, C], P]) -> str:
    """Draw one line for each status and what leads to it, from all statuses where it does."""
    causes: dict[tuple[P, P], list[str]] = {}
    for (status, cause), target in table.items():
        name = cause.name if isinstance(cause, Enum) else cause.__name__
        causes.setdefault((status, target), []).append(name)
    sources: dict[tuple[str, P], list[P]] = {}
    for (status, target), names in causes.items():
        sources.setdefault((", ".join(names), target), []).append(status)
    lines = [(_named(statuses, to), text, to.name) for (text, to), statuses in sources.items()]
    width = max(len(named) for named, _, _ in lines)
    return "\n".join(f"    {named:<{width}} --{text}--> {to}" for named, text, to in lines)


def _named(statuses: Iterable[P], target: P) -> str:
    """Return the names of some statuses, in the order in which their class has them."""
    found = set(statuses)
    every = list(type(target))
    if found == set(every) - {target}:
        return "any other"
    return ", ".join(each.name for each in every if each in found)
