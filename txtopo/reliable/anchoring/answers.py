"""Answers: what slots report to each other about trees, between bolts, ackers and spouts.

* :class:`BegunTrees` go from the slot of a spout to the slot of an acker, if it is another one.
* :class:`TreeAnswers` go from the slot of a bolt to the slot of an acker: acks, fails and new
  timeouts.
* :class:`TreeEnds` go from the slot of an acker to the slot of a spout, if it is another one.

Everything that is reported to one slot at one time is one record. It travels like an envelope: a
header of 16 bytes, then 16 bytes (root, XOR) for each root that began or has acked tuples, and 8
bytes for each other root. An edge is acked once, so it costs at most 16 bytes, and less if several
edges of a tree are acked in one part.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from txtopo.reliable.acking import NONE, Ackers, Column, RootXors
from txtopo.reliable.anchoring.sending import Sealed

BEGUN, ANSWERS, ENDS = 0x53, 0x54, 0x55

# kind, and the lengths of three columns; in BEGUN and ANSWERS the XORs follow the first column
_HEADER = struct.Struct("<Iiii")
_KIND = struct.Struct("<I")


class BegunTrees(NamedTuple):
    """Trees that have begun.

    Attributes:
        begun: Their roots with the XOR of the edges that the spout made.
    """

    begun: RootXors = RootXors()

    def seal(self, ackers: Ackers) -> Iterator[Sealed]:
        """Yield a record for each slot with an acker of these trees."""
        yield from _sealed(BEGUN, self.begun, (), (ackers.slots_of(self.begun.roots),))


class TreeAnswers(NamedTuple):
    """What bolts report about the trees of their inputs.

    Attributes:
        acked: One XOR for each root with acked tuples.
        failed: Roots that were failed. A root may occur twice.
        renewed: Roots that were given a new timeout. A root may occur twice.
    """

    acked: RootXors = RootXors()
    failed: Column = NONE
    renewed: Column = NONE

    def seal(self, ackers: Ackers) -> Iterator[Sealed]:
        """Yield a record for each slot with an acker of these trees."""
        columns = (self.failed, self.renewed)
        if ackers.slots == 1:
            if any(map(len, (self.acked.roots, *columns))):
                yield Sealed(0, _record(ANSWERS, self.acked, columns), 0)
            return
        to = tuple(map(ackers.slots_of, (self.acked.roots, *columns)))
        yield from _sealed(ANSWERS, self.acked, columns, to)


class TreeEnds(NamedTuple):
    """What an acker reports to the spouts of its trees.

    Attributes:
        completed: Roots of trees that were completed.
        failed: Roots of trees that failed.
        renewed: Roots of trees that were given a new timeout. A root may occur twice.
    """

    completed: Column = NONE
    failed: Column = NONE
    renewed: Column = NONE

    def seal(self, ackers: Ackers) -> Iterator[Sealed]:
        """Yield a record for each slot with a spout of these trees."""
        yield from _sealed(ENDS, None, self, tuple(map(ackers.spouts_of, self)))


def is_of_trees(record: bytes) -> bool:
    """Return whether a record is about trees, and is not an envelope."""
    kind: int = _KIND.unpack_from(record)[0]
    return kind in (BEGUN, ANSWERS, ENDS)


def open_told(record: bytes) -> BegunTrees | TreeAnswers | TreeEnds:
    """Read a record about trees."""
    kind, first, second, _ = _HEADER.unpack_from(record)
    column = np.frombuffer(record, np.uint64, offset=_HEADER.size)
    if kind == ENDS:
        return TreeEnds(column[:first], column[first : first + second], column[first + second :])
    xors = RootXors(column[:first], column[first : 2 * first])
    if kind == BEGUN:
        return BegunTrees(xors)
    rest = column[2 * first :]
    return TreeAnswers(xors, rest[:second], rest[second:])


def _sealed(
    kind: int, xors: RootXors | None, columns: tuple[Column, ...], to: tuple[Column, ...]
) -> Iterator[Sealed]:
    """Yield a record for each slot. *to* has, by column, the slot of each root, *xors* first."""
    for slot in np.unique(np.concatenate(to)).tolist():
        picked = [slots == slot for slots in to]
        mine = None
        if xors is not None:
            first = picked.pop(0)
            mine = RootXors(xors.roots[first], xors.values[first])
        rest = tuple(column[rows] for column, rows in zip(columns, picked, strict=True))
        yield Sealed(slot, _record(kind, mine, rest), 0)


def _record(kind: int, xors: RootXors | None, columns: tuple[Column, ...]) -> bytes:
    heads = columns if xors is None else (xors.roots, *columns)
    lengths = [*map(len, heads), 0, 0, 0][:3]
    written = columns if xors is None else (*xors, *columns)
    header = _HEADER.pack(kind, *lengths)
    return b"".join((header, *(np.ascontiguousarray(column).data for column in written)))
