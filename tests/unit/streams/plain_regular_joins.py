"""Joins without a bound in time in plain Python, as an oracle: it joins all rows there are again.

A row is a tuple: its key, then its other values. A side is a list of rows that are there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

Row = tuple[Any, ...]
Change = tuple[Row, bool]
"""A row, and whether it is taken back."""


def remaining(changes: Iterable[Change]) -> Counter[Row]:
    """Return the rows that are there after some changes, and how often."""
    found: Counter[Row] = Counter()
    for row, retracted in changes:
        found[row] += -1 if retracted else 1
    assert all(times >= 0 for times in found.values())
    return +found


def joined(
    left: Counter[Row], right: Counter[Row], how: str, widths: tuple[int, int], keys: int = 1
) -> Counter[Row]:
    """Return the join of two sides: key, other values of the left row, those of the right row.

    Args:
        left: The left rows, and how often each is there.
        right: The right rows.
        how: Which rows without a match are in the result.
        widths: How many values beside the key a left and a right row have.
        keys: How many of the first values of a row are its key.
    """
    found: Counter[Row] = Counter()
    for one, times in left.items():
        for other, again in right.items():
            if matches(one[:keys], other[:keys]):
                found[one + other[keys:]] += times * again
    for one, times in left.items():
        if how in ("left", "full") and not any(matches(one[:keys], row[:keys]) for row in right):
            found[one + (None,) * widths[1]] += times
    for other, times in right.items():
        if how in ("right", "full") and not any(matches(row[:keys], other[:keys]) for row in left):
            found[other[:keys] + (None,) * widths[0] + other[keys:]] += times
    return found


def matches(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return whether two keys are equal; NULL equals nothing."""
    return None not in one and one == other
