"""Meter: what an at-least-once run has done so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from txtopo.acking import EndedTrees
from txtopo.runtime.reliable.progress import ReliableProgress
from txtopo.stages.anchoring.envelope import Count

# A spout that never replays must not fill the memory with what it has failed.
_FAILED_IDS_MAX = 100_000


class Meter:
    """Counts, and times what was acked. Used on the loop.

    Args:
        now: Seconds on a clock that only goes forward.
        wall_clock: Seconds since 1970.
    """

    def __init__(self, now: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        self._now = now
        self._wall_clock = wall_clock
        self._counts: Counter[Count] = Counter()
        self._latencies: list[npt.NDArray[np.float64]] = []
        self._failed_ids: dict[tuple[int, Any], None] = {}
        self._since_s = now()
        self.acked = self.failed = self.timed_out = self.replays = 0
        self.emitted = self.slots_lost = 0

    def count(self, counts: Counter[Count]) -> None:
        """Add counts of tasks."""
        self._counts.update(counts)

    def begun(self, owner: int, messages: Sequence[Any]) -> None:
        """Take note of trees that have begun; of a message id that had failed it is a replay."""
        if not self._failed_ids:
            return
        for message in messages:
            if _hashable(message) and (owner, message) in self._failed_ids:
                del self._failed_ids[owner, message]
                self.replays += 1

    def complete(self, trees: EndedTrees) -> None:
        """Take note of trees that were processed to the end."""
        if len(trees):
            self.acked += len(trees)
            self._latencies.append(self._now() - trees.started_s)

    def fail(self, trees: EndedTrees, *, timed_out: bool) -> None:
        """Take note of trees that failed."""
        if timed_out:
            self.timed_out += len(trees)
        else:
            self.failed += len(trees)
        for owner, message in zip(trees.owners.tolist(), trees.messages, strict=True):
            if _hashable(message) and len(self._failed_ids) < _FAILED_IDS_MAX:
                self._failed_ids[owner, message] = None

    def progress(self, pending: int, backlog: int) -> ReliableProgress:
        """Return the progress; rates and latencies are those since the window began."""
        now_s = self._now()
        latencies = np.concatenate(self._latencies) if self._latencies else np.empty(0)
        elapsed_s = now_s - self._since_s
        p50, p99 = np.percentile(latencies, (50, 99)).tolist() if len(latencies) else (None, None)
        return ReliableProgress(
            timestamp_s=self._wall_clock(),
            emitted=self.emitted,
            acked=self.acked,
            failed=self.failed,
            timed_out=self.timed_out,
            replays=self.replays,
            pending=pending,
            backlog=backlog,
            slots_lost=self.slots_lost,
            acked_per_second=len(latencies) / elapsed_s if elapsed_s > 0 else 0.0,
            latency_p50_s=p50,
            latency_p99_s=p99,
            executed=self._by("executed"),
            emitted_by=self._by("emitted"),
            acked_by=self._by("acked"),
            failed_by=self._by("failed"),
        )

    def begin_window(self) -> None:
        """Forget the latencies so far: a progress was told."""
        self._since_s, self._latencies = self._now(), []

    def _by(self, what: str) -> dict[str, int]:
        return {id: count for (kind, id), count in self._counts.items() if kind == what}


def _hashable(message: Any) -> bool:
    try:
        hash(message)
    except TypeError:
        return False
    return True
