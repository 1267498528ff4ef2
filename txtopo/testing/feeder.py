"""FeederSpout: a spout that a test feeds, one tuple at a time (Storm ``FeederSpout``)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txtopo.collector import SpoutOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.spouts.spout import Spout
from txtopo.testing.shared import Shared
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from txtopo.testing.cluster import SimulatedCluster


class _Feed(Shared):
    """What all tasks and the test share."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Sequence[Any], Any]] = deque()
        self.acked: list[Any] = []
        self.failed: list[Any] = []
        self.opened = 0
        self.changed = threading.Condition()
        self.cluster: SimulatedCluster | None = None


class FeederSpout(Spout):
    """Emits what it is fed, and keeps a list of what was acked and what failed.

    It never replays by itself: feed it again. All its tasks share what it is fed. The methods for
    tests may be called from any thread.

    Args:
        fields: Fields of its tuples.
    """

    def __init__(self, fields: Fields) -> None:
        self.output_fields = fields
        self._feed = _Feed()

    @property
    def acked(self) -> list[Any]:
        """Message ids in the order in which they were acked."""
        return self._feed.acked

    @property
    def failed(self) -> list[Any]:
        """Message ids in the order in which they failed."""
        return self._feed.failed

    @property
    def opened(self) -> int:
        """How often a task of it was opened."""
        return self._feed.opened

    def feed(self, values: Sequence[Any], message_id: Any = None) -> None:
        """Have a tuple emitted, tracked under *message_id* if it is given."""
        self._feed.waiting.append((values, message_id))

    def attach(self, cluster: SimulatedCluster) -> None:
        """Wait in the simulated time of a cluster; called by it."""
        self._feed.cluster = cluster

    def wait_until_acked(self, *message_ids: Any, timeout_s: float = 60.0) -> None:
        """Wait until all of these are acked, in simulated time in a ``SimulatedCluster``.

        Raises:
            TimeoutError: They are not within so many seconds; the message names those missing.
        """
        feed = self._feed

        def missing() -> list[Any]:
            return [each for each in message_ids if each not in feed.acked]

        try:
            if feed.cluster is not None:
                feed.cluster.run_until(lambda: not missing(), timeout_s)
                return
            with feed.changed:
                if feed.changed.wait_for(lambda: not missing(), timeout_s):
                    return
            raise TimeoutError
        except TimeoutError:
            raise TimeoutError(
                f"not acked within {timeout_s:g} s: {missing()!r:.200}; failed are "
                f"{feed.failed!r:.200}"
            ) from None

    def open(self, config: Config, context: TaskContext, collector: SpoutOutputCollector) -> None:
        """Keep the collector of the task."""
        self._feed.opened += 1
        self._collector = collector

    def next_tuple(self) -> None:
        """Emit what was fed first."""
        if self._feed.waiting:
            values, message_id = self._feed.waiting.popleft()
            self._collector.emit(values, message_id)

    def ack(self, message_id: Any) -> None:
        """Put it on the list."""
        with self._feed.changed:
            self._feed.acked.append(message_id)
            self._feed.changed.notify_all()

    def fail(self, message_id: Any) -> None:
        """Put it on the list."""
        with self._feed.changed:
            self._feed.failed.append(message_id)
            self._feed.changed.notify_all()
