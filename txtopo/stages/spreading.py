"""Spreading: the tuples of a batch in the order of their slots and tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from txtopo.stages.envelopes import Segment


@dataclass(frozen=True, slots=True)
class Share:
    """What goes to one slot: consecutive tuples of the ordered batch."""

    slot: int
    start: int
    tuples: int
    segments: list[Segment]


def spread(
    tasks: npt.NDArray[np.int64], count: int, slots: int, sender: int
) -> tuple[npt.NDArray[np.int64], list[Share]]:
    """Sort tuples by slot and task, in their order within a task, and cut at the slots.

    Args:
        tasks: Receiving task of each tuple.
        count: How many tasks the bolt has; task i is in slot ``i mod slots``.
        slots: How many slots there are.
        sender: Sending task.

    Returns:
        The order, and what goes to each slot that gets something.
    """
    ranked = sorted(range(count), key=lambda task: (task % slots, task))
    rank = np.empty(count, dtype=np.int32)
    rank[ranked] = np.arange(count, dtype=np.int32)
    # Sorting small numbers is a radix sort: 0.4 ms for 100,000.
    ranks = rank[tasks].astype(np.int16 if count < 2**15 else np.int32)
    counts = np.bincount(ranks, minlength=count).tolist()
    shares = []
    start = at = 0
    for slot in range(min(slots, count)):
        segments = []
        while at < count and ranked[at] % slots == slot:
            if counts[at]:
                segments.append(Segment(sender, ranked[at], counts[at]))
            at += 1
        tuples = sum(segment.tuples for segment in segments)
        if tuples:
            shares.append(Share(slot, start, tuples, segments))
        start += tuples
    return np.argsort(ranks, kind="stable"), shares
