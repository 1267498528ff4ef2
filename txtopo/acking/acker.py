"""Acker: which trees of tuples are complete or failed. No I/O, no clock.

What it is told, in any order and from anybody who makes edges:

* ``init(roots, xors)``: these trees have begun; the XOR of the edges that the spout made.
* ``ack(xors)``: inputs were acked; for each root the XOR of their ids and of the edges made below.
* ``fail(roots)``: a bolt failed a tuple of these trees.
* ``reset(roots)``: a bolt asks for more time.

Who tells may be overtaken, so a tree may be acked or failed before its init: it is known then, but
ends only when its init has come. Each tree ends once: *completed* when its value is 0 (even if it
was failed as well, as Storm does), else *failed*. A tree that is done is forgotten, and what comes
for it later makes an entry without an init, which never ends and expires.

``rotate`` is called every message timeout; a tree that was begun, failed or reset more than two
timeouts ago is forgotten silently: its spout has long given it up. Acks do not make it younger.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from txtopo.acking.rotating_map import Places, RotatingMap
from txtopo.acking.tuple_tree import NONE, Column, Xors, distinct

BUCKETS = 3
_BEGUN = np.uint8(1)
_FAILED = np.uint8(2)


class Ended(NamedTuple):
    """Trees that have ended; each is named once."""

    completed: Column = NONE
    failed: Column = NONE


class Acker:
    """Keeps one XOR for each pending tree (Storm's ``__acker``). Used by one thread."""

    def __init__(self) -> None:
        self._trees = RotatingMap(BUCKETS, {"value": np.uint64, "flags": np.uint8})

    def __len__(self) -> int:
        """Return how many trees it knows of."""
        return len(self._trees)

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return self._trees.nbytes

    def init(self, begun: Xors) -> Ended:
        """Begin trees, each once.

        Args:
            begun: The roots with the XOR of the edges that the spout made; 0 if the tuple reached
                no task, which completes the tree.
        """
        places = self._trees.put(begun.roots)
        self._value[places] ^= begun.values
        self._flags[places] |= _BEGUN
        return self._end(places)

    def ack(self, acked: Xors) -> Ended:
        """Take note of acks, one XOR per root."""
        places = self._trees.find(acked.roots)
        unknown = places < 0
        if unknown.any():
            self._trees.put(acked.roots[unknown])
            places = self._trees.find(acked.roots)
        self._value[places] ^= acked.values
        return self._end(places)

    def fail(self, roots: Column) -> Ended:
        """Take note that tuples of these trees were failed."""
        places = self._trees.put(distinct(roots))
        self._flags[places] |= _FAILED
        return self._end(places)

    def reset(self, roots: Column) -> None:
        """Give trees a new timeout."""
        self._trees.put(distinct(roots))

    def rotate(self) -> None:
        """Forget the trees of the oldest cohort."""
        self._trees.remove(self._trees.rotate())

    @property
    def _value(self) -> npt.NDArray[np.uint64]:
        return cast("npt.NDArray[np.uint64]", self._trees.column("value"))

    @property
    def _flags(self) -> npt.NDArray[np.uint8]:
        return cast("npt.NDArray[np.uint8]", self._trees.column("flags"))

    def _end(self, places: Places) -> Ended:
        flags = self._flags[places]
        begun = flags & _BEGUN != 0
        complete = begun & (self._value[places] == 0)
        failed = begun & ~complete & (flags & _FAILED != 0)
        ended = Ended(self._trees.keys_at(places[complete]), self._trees.keys_at(places[failed]))
        self._trees.remove(places[complete | failed])
        return ended
