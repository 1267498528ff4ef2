"""The diagram in the header of a machine without I/O, drawn from its table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

Status = TypeVar("Status", bound=Enum)
Event = TypeVar("Event", bound=Enum)


def drawn(table: Mapping[tuple[Status, Event], Status]) -> str:
    """Draw one line for each move of a table."""
    width = max(len(status.name) for status, _ in table)
    return "\n".join(
        f"    {status.name:<{width}} --{event.name}--> {target.name}"
        for (status, event), target in table.items()
    )
