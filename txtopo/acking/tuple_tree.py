"""Tuple trees: 64-bit ids in columns, and one XOR that says when all of them were seen twice.

A spout tuple with a message id is the *root* of a tree. Each copy of a tuple that is delivered to a
task is an *edge* with a random id, one for each tree that it hangs in. An id is XORed into the
tree's value twice: when the edge is made and when the task acks it. So the value is 0 when every
edge was acked, whatever the order, and else it is 0 by chance once in 2^64.

Who makes edges tells the acker of them only when the input that they hang on is acked: an input's
ack is *its own id XOR the ids of all edges that were anchored to it*. Therefore the value cannot
get to 0 before the last edge is acked, even when acks overtake each other.

Nothing here is per tuple: ids are drawn for a whole column (8 ns each), and what goes to an acker
is merged to one XOR per root first (:func:`merged`, 10 ns each). In Python, an id per tuple costs
more than counting a word does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]

NONE: Column = np.empty(0, dtype=np.uint64)
NONE.setflags(write=False)


class Xors(NamedTuple):
    """One XOR for each of some distinct roots.

    Attributes:
        roots: The roots.
        values: What is to be XORed into the value of each.
    """

    roots: Column = NONE
    values: Column = NONE


class Ids:
    """Draws random ids, never 0, which would be an edge that nobody misses.

    Args:
        seed: What the ids follow from; two makers of ids must not share one.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def draw(self, count: int) -> Column:
        """Return so many ids."""
        ids: Column = self._generator.integers(0, 1 << 64, count, dtype=np.uint64)
        ids[ids == 0] = 1
        return ids


def merged(roots: Column, values: Column) -> Xors:
    """Return one XOR per root of values that belong to roots in any order, doubled ones too."""
    # Most values of a root stand side by side, and to sort them costs more than all the rest.
    runs = _runs(roots, values)
    order = np.argsort(runs.roots)
    ordered = _runs(runs.roots[order], runs.values[order])
    return runs if len(ordered.roots) == len(runs.roots) else ordered


def joined(parts: Iterable[Xors]) -> Xors:
    """Return one XOR per root of several such lists."""
    listed = [part for part in parts if len(part.roots)]
    if not listed:
        return Xors()
    if len(listed) == 1:
        return listed[0]
    return merged(
        np.concatenate([part.roots for part in listed]),
        np.concatenate([part.values for part in listed]),
    )


def _runs(roots: Column, values: Column) -> Xors:
    """Return one XOR for each run of equal roots."""
    if len(roots) < 2:
        return Xors(roots, values)
    starts = np.flatnonzero(np.concatenate(([True], roots[1:] != roots[:-1])))
    if len(starts) == len(roots):
        return Xors(roots, values)
    return Xors(roots[starts], np.bitwise_xor.reduceat(values, starts))


def distinct(roots: Column) -> Column:
    """Return roots once each."""
    return roots if len(roots) < 2 else np.unique(roots)


def spans(starts: Rows, rows: Rows) -> tuple[Rows, Rows]:
    """Return the links of some rows, where row r has the links ``starts[r]`` to ``starts[r + 1]``.

    Returns:
        (position in *rows*, link) of each link, in the order of *rows*.
    """
    counts = starts[rows + 1] - starts[rows]
    position = np.repeat(np.arange(len(rows)), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    return position, starts[rows][position] + np.arange(len(position)) - first
