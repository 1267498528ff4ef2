"""Answers: what slots tell each other of trees, between the bolts, the ackers and the spouts.

* :class:`BegunTrees` go from the slot of a spout to that of an acker in another slot.
* :class:`TreeAnswers` go from the slot of a bolt to that of an acker: acks, fails, new timeouts.
* :class:`TreeEnds` go from the slot of an acker to that of a spout, if they are two.

All that is told at once to one slot is one record, which travels like an envelope: a header of 16
bytes, then 16 bytes (root, XOR) for each root that began or of which tuples were acked, and 8 bytes
for each other root. An edge is acked once, so it costs 16 bytes at most, and less where several
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

# kind, and the lengths of three columns; the first one of BEGUN and ANSWERS has its XORs after it
_HEADER = struct.Struct("<Iiii")
_KIND = struct.Struct("<I")


class BegunTrees(NamedTuple):
    """Trees that have begun.

    Attributes:
        begun: Their roots with the XOR of the edges that the spout made.
    """

    begun: RootXors = RootXors()

    def seal(self, ackers: Ackers) -> Iterator[Sealed]:
        """Yield a record for each slot that has an acker of these."""
        yield from _sealed(BEGUN, self.begun, (), (ackers.slots_of(self.begun.roots),))


class TreeAnswers(NamedTuple):
    """What bolts have said of the trees of their inputs.

    Attributes:
        acked: One XOR for each root of which a tuple was acked.
        failed: Roots that were failed. A root may occur twice.
        renewed: Roots that were given a new timeout. A root may occur twice.
    """

    acked: RootXors = RootXors()
    failed: Column = NONE
    renewed: Column = NONE

    def seal(self, ackers: Ackers) -> Iterator[Sealed]:
        """Yield a record for each slot that has an acker of these."""
        columns = (self.failed, self.renewed)
        if ackers.slots == 1:
            if any(map(len, (self.acked.roots, *columns))):
                yield Sealed(0, _record(ANSWERS, self.acked, columns), 0)
            return
        to = tuple(map(ackers.slots_of, (self.acked.roots, *columns)))
        yield from _sealed(ANSWERS, self.acked, columns, to)


class TreeEnds(NamedTuple):
    """What an acker tells the spouts of its trees.

    Attributes:
        completed: Roots of trees that were completed.
        failed: Roots of trees that failed.
        renewed: Roots of trees that were given a new timeout. A root may occur twice.
    """

    completed: Column = NONE
    failed: Column = NONE
    renewed: Column = NONE

    def seal(self, ackers: Ackers) -> Iterator[Sealed]:
        """Yield a record for each slot that has a spout of these."""
        yield from _sealed(ENDS, None, self, tuple(map(ackers.spouts_of, self)))


def is_of_trees(record: bytes) -> bool:
    """Return whether a record tells of trees, and is not an envelope."""
    kind: int = _KIND.unpack_from(record)[0]
    return kind in (BEGUN, ANSWERS, ENDS)


def open_told(record: bytes) -> BegunTrees | TreeAnswers | TreeEnds:
    """Read a record that tells of trees."""
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
    """Yield a record for each slot; *to* has the slots of each root of the XORs and the columns."""
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
