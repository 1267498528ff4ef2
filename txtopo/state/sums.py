"""How far the sums of a log may grow: a log does not read what it adds to.

No key's sum is further from zero than the sum, over all batches, of the largest value in each. Only
when that bound reaches the limit of the column does a store have to add up the rows themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from txtopo.state.backend import StateTable

if TYPE_CHECKING:
    import pyarrow as pa

_BITS = {"byte": 7, "short": 15, "int": 31, "long": 63}


def limited_sums(state: StateTable) -> dict[str, int]:
    """Return the first whole number that is too large, by the value columns that are exact sums."""
    if not state.aggregates:
        return {}  # it is opened by a reader, who knows nothing of them
    pairs = zip(state.value, state.aggregates, strict=True)
    return {
        field.name: _limit(field.type)
        for field, aggregate in pairs
        if aggregate.operator == "add" and is_exact(field.type)
    }


def is_exact(kind: str) -> bool:
    """Whether a sum of a type may be too large for it, and is not rounded instead."""
    return kind in _BITS or kind.startswith("decimal")


def largest(column: pa.ChunkedArray) -> float:
    """Return how far from zero the values of a column are at most."""
    import pyarrow.compute as pc

    found: dict[str, Any] = pc.min_max(column).as_py()
    return max((abs(float(value)) for value in found.values() if value is not None), default=0.0)


def _limit(kind: str) -> int:
    if kind in _BITS:
        return int(2 ** _BITS[kind])
    precision, scale = (int(part) for part in kind[8:-1].split(","))
    return int(10 ** (precision - scale))
