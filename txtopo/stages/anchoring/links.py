"""Links: in which trees the tuples of an envelope hang, in columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from txtopo.acking import NONE, Column, Rows, Xors, spans


class Links(NamedTuple):
    """The trees of some tuples and the ids of the tuples in them.

    Attributes:
        roots: Root of each link; none at all if no tuple hangs in a tree.
        ids: Id of the tuple in that tree.
        starts: Tuple i has the links ``starts[i]`` to ``starts[i + 1]``; None if each has one.
    """

    roots: Column = NONE
    ids: Column = NONE
    starts: Rows | None = None

    def of(self, rows: Rows) -> tuple[Rows | None, Rows]:
        """Return the links of some tuples.

        Returns:
            (position in *rows* of each link, the link); None for positions that just count up.
        """
        if not len(self.roots):
            return _NO_ROWS, _NO_ROWS
        return (None, rows) if self.starts is None else spans(self.starts, rows)

    def slice(self, start: int, tuples: int) -> Links:
        """Return the links of consecutive tuples."""
        if not len(self.roots):
            return self
        if self.starts is None:
            return Links(self.roots[start : start + tuples], self.ids[start : start + tuples])
        starts = self.starts[start : start + tuples + 1]
        first, last = int(starts[0]), int(starts[-1])
        return Links(self.roots[first:last], self.ids[first:last], starts - first)


class TreeInputs:
    """The trees of tuples that a task was given together (``txtopo.collector.Inputs``).

    Lives as long as a bolt keeps one of the tuples.

    Attributes:
        done: For each of them whether it was acked or failed.
        acked: Which of them were acked and not answered for yet.
        links: Their trees; the ids are XORed with those of all that was anchored to them.
    """

    __slots__ = ("acked", "done", "links")

    def __init__(self, links: Links, tuples: int) -> None:
        # A copy of its own, since the ids change and the envelope is freed.
        self.links = links._replace(ids=links.ids.copy())
        self.done = bytearray(tuples)
        self.acked: list[int] = []

    def answer(self, rows: Rows) -> Xors:
        """Return what the ackers are told when these tuples are acked; a root may stand twice."""
        _, link = self.links.of(rows)
        return Xors(self.links.roots[link], self.links.ids[link])

    def take_acked(self) -> Rows:
        """Return which tuples were acked, and forget it."""
        rows, self.acked = np.array(self.acked, dtype=np.int64), []
        return rows

    def rest(self, tuples: int) -> Rows:
        """Return which of the first tuples were neither acked nor failed; mark them as done."""
        done = np.frombuffer(self.done, dtype=np.uint8)[:tuples]
        rows = np.flatnonzero(done == 0)
        done[:] = 1
        return rows


_NO_ROWS: Rows = np.empty(0, dtype=np.int64)
