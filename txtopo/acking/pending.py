"""Pending trees: what the spouts wait for, and the ackers that know when it has come. No I/O.

A tree is pending from its begin until it is complete, failed, or timed out: between one and two
timeouts after it was begun or given more time, since the list is rotated once a timeout. Whichever
comes first ends it, once; what comes later finds nothing. The ackers share the trees by *root mod
number of ackers*; one that is lost takes what it knew with it, and its trees time out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from txtopo.acking.acker import Acker, Ended
from txtopo.acking.rotating_map import Places, RotatingMap
from txtopo.acking.tuple_tree import Column, Xors

BUCKETS = 2


@dataclass(frozen=True, slots=True)
class EndedTrees:
    """Trees that have ended, in no order.

    Attributes:
        owners: Whose each was.
        messages: Its message id.
        started_s: When it began.
    """

    owners: npt.NDArray[np.int32]
    messages: list[Any]
    started_s: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.messages)


class PendingTrees:
    """All pending trees of a topology. Used on one thread.

    Args:
        owners: How many spout tasks there are.
        ackers: How many ackers.
        ended: Called with trees that were completed and trees that failed.
    """

    def __init__(
        self, owners: int, ackers: int, ended: Callable[[EndedTrees, EndedTrees], None]
    ) -> None:
        self._pending = RotatingMap(
            BUCKETS, {"owner": np.int32, "message": object, "started_s": np.float64}
        )
        self._ackers = [Acker() for _ in range(ackers)]
        self._ended = ended
        self.by_owner: npt.NDArray[np.int64] = np.zeros(owners, dtype=np.int64)
        """How many trees of each owner are pending."""

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def nbytes(self) -> int:
        """Bytes that the trees take, without the message ids themselves."""
        return self._pending.nbytes + sum(acker.nbytes for acker in self._ackers)

    def begin(self, owner: int, begun: Xors, messages: Sequence[Any], now_s: float) -> None:
        """Begin trees of an owner."""
        places = self._pending.put(begun.roots)
        self._column("owner")[places] = owner
        # Message ids may be tuples, which numpy would else take for rows.
        self._column("message")[places] = np.fromiter(messages, object, len(messages))
        self._column("started_s")[places] = now_s
        self.by_owner[owner] += len(places)
        for acker, (roots, values) in self._shared(*begun):
            self._end(acker.init(Xors(roots, values)))

    def ack(self, acked: Xors) -> None:
        """Take note of acks, one XOR per root."""
        for acker, (roots, values) in self._shared(*acked):
            self._end(acker.ack(Xors(roots, values)))

    def fail(self, roots: Column) -> None:
        """Take note of failed trees."""
        for acker, (failed,) in self._shared(roots):
            self._end(acker.fail(failed))

    def renew(self, roots: Column) -> None:
        """Give trees that are still pending a new timeout."""
        for acker, (renewed,) in self._shared(roots):
            acker.reset(renewed)
        wanted = np.unique(roots)
        self._pending.put(wanted[self._pending.find(wanted) >= 0])

    def rotate(self) -> EndedTrees:
        """Go on by one timeout; return the trees whose time is up."""
        for acker in self._ackers:
            acker.rotate()
        return self._take(self._pending.rotate())

    def forget(self, owner: int) -> int:
        """Forget the trees of an owner that is lost; return how many there were."""
        roots = np.array(list(self._pending), dtype=np.uint64)
        places = self._pending.find(roots)
        return len(self._take(places[self._column("owner")[places] == owner]))

    def lose_acker(self, acker: int) -> None:
        """Put an acker that knows nothing in place of one."""
        self._ackers[acker] = Acker()

    def _end(self, ended: Ended) -> None:
        if len(ended.completed) or len(ended.failed):
            taken = []
            for roots in ended:
                places = self._pending.find(roots)
                taken.append(self._take(places[places >= 0]))
            self._ended(*taken)

    def _take(self, places: Places) -> EndedTrees:
        owners = self._column("owner")[places]
        messages = self._column("message")[places].tolist()
        taken = EndedTrees(owners, messages, self._column("started_s")[places])
        self.by_owner -= np.bincount(owners, minlength=len(self.by_owner))
        self._pending.remove(places)
        return taken

    def _shared(self, roots: Column, *more: Column) -> list[tuple[Acker, tuple[Column, ...]]]:
        """Return for each acker its share of some columns, the roots first."""
        if not len(roots):
            return []
        if len(self._ackers) == 1:
            return [(self._ackers[0], (roots, *more))]
        which = roots % np.uint64(len(self._ackers))
        shares = []
        for at, acker in enumerate(self._ackers):
            mine = which == at
            if mine.any():
                shares.append((acker, tuple(column[mine] for column in (roots, *more))))
        return shares

    def _column(self, name: str) -> npt.NDArray[Any]:
        return cast("npt.NDArray[Any]", self._pending.column(name))
