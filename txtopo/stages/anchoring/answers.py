"""Answers: acks, fails and new timeouts on their way from the slot of a bolt to that of an acker.

The acker of a tree is in slot *root mod slots*. All that a part of a work says of the trees of one
slot is one record, which travels like an envelope: a header of 16 bytes, then 16 bytes (root, XOR)
for each root of which tuples were acked, and 8 bytes for each root that was failed or given more
time. An edge is acked once, so it costs 16 bytes at most, and less where several edges of a tree
are acked in one part.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from txtopo.acking import NONE, Column, Xors
from txtopo.stages.anchoring.sending import Sealed

ANSWERS = 0x53

# kind, acked, failed, renewed
_HEADER = struct.Struct("<Iiii")
_KIND = struct.Struct("<I")


class TreeAnswers(NamedTuple):
    """What bolts have said of the trees of their inputs.

    Attributes:
        acked: One XOR for each root of which a tuple was acked.
        failed: Roots that were failed. A root may occur twice.
        renewed: Roots that were given a new timeout. A root may occur twice.
    """

    acked: Xors = Xors()
    failed: Column = NONE
    renewed: Column = NONE

    def seal(self, slots: int) -> Iterator[Sealed]:
        """Yield a record for each slot that has a tree of these; *slots* is the number of all."""
        columns = (*self.acked, self.failed, self.renewed)
        if slots == 1:
            if any(map(len, columns)):
                yield Sealed(0, _record(columns), 0)
            return
        homes = [roots % np.uint64(slots) for roots in (self.acked.roots, *columns[2:])]
        for slot in np.unique(np.concatenate(homes)).tolist():
            acked, failed, renewed = (home == slot for home in homes)
            mine = (acked, acked, failed, renewed)
            picked = tuple(column[rows] for column, rows in zip(columns, mine, strict=True))
            yield Sealed(slot, _record(picked), 0)


def has_answers(record: bytes) -> bool:
    """Return whether a record is one of answers, not an envelope."""
    kind: int = _KIND.unpack_from(record)[0]
    return kind == ANSWERS


def open_answers(record: bytes) -> TreeAnswers:
    """Read a record of answers."""
    _, acked, failed, renewed = _HEADER.unpack_from(record)
    column = np.frombuffer(record, np.uint64, 2 * acked + failed + renewed, _HEADER.size)
    rest = column[2 * acked :]
    return TreeAnswers(
        Xors(column[:acked], column[acked : 2 * acked]), rest[:failed], rest[failed:]
    )


def _record(columns: tuple[Column, ...]) -> bytes:
    acked, _, failed, renewed = map(len, columns)
    header = _HEADER.pack(ANSWERS, acked, failed, renewed)
    return b"".join((header, *(np.ascontiguousarray(column).data for column in columns)))
