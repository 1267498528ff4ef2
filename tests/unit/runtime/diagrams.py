"""The diagram in the header of a machine without I/O, drawn from its table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

Phase = TypeVar("Phase", bound=Enum)
Event = TypeVar("Event", bound=Enum)


def drawn(table: Mapping[tuple[Phase, Event], Phase]) -> str:
    """Draw one line for each move of a table."""
    width = max(len(phase.name) for phase, _ in table)
    return "\n".join(
        f"    {phase.name:<{width}} --{event.name}--> {target.name}"
        for (phase, event), target in table.items()
    )
