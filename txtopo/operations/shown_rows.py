"""How ``replay`` and ``try`` show counts, rows, and what user code raised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from txtopo.metadata import Json
from txtopo.state.plain_values import json_of

if TYPE_CHECKING:
    from txtopo.operations.recording import Raised
    from txtopo.state.backend import Key, Values
    from txtopo.tuples import Fields

CHARACTERS_MAX = 1_000
"""Longer texts in rows are truncated."""


def row_json(fields: Fields, values: Key | Values | None) -> Json:
    """Return values by the name of their column; None for no row."""
    if values is None:
        return None
    return json_of(dict(zip(fields.names, values, strict=True)), CHARACTERS_MAX)


def raised_lines(raised: Raised) -> Iterator[str]:
    """Yield the row on which user code failed, if it is known, and the traceback."""
    if raised.row is not None:
        yield f"  on the row of {raised.source}: {json_of(raised.row, CHARACTERS_MAX)}"
    yield from (f"  {line}" for line in raised.text.split("\n"))
