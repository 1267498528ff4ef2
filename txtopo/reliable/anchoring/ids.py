"""Ids: the random numbers of edges and roots, drawn for a whole column (8 ns each)."""

from __future__ import annotations

import numpy as np

from txtopo.reliable.acking import Column


class Ids:
    """Draws random ids. An edge never gets 0: its loss would go unnoticed.

    Args:
        seed: Determines the ids; two objects of a run must not have the same seed.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def draw(self, count: int) -> Column:
        """Return *count* ids of edges."""
        ids: Column = self._generator.integers(0, 1 << 64, count, dtype=np.uint64)
        ids[ids == 0] = 1
        return ids

    def draw_roots(self, count: int, slot: int, slots: int) -> Column:
        """Return *count* roots of trees whose spout is in *slot*."""
        drawn: Column = self._generator.integers(0, (1 << 64) // slots, count, dtype=np.uint64)
        return drawn * np.uint64(slots) + np.uint64(slot)
