"""TrackedTopology: waits until all that was emitted is processed (Storm ``TrackedTopology``)."""

from __future__ import annotations

from collections.abc import Sequence

from txtopo.builders.at_least_once import ReliableTopology
from txtopo.config import Config
from txtopo.runtime.progress import TopologyListener
from txtopo.testing.cluster import SimulatedCluster


class TrackedTopology:
    """A topology in simulated time that knows how much of it is under way.

    Args:
        topology: The topology.
        config: How to run.
        listeners: Who is told of every change.
        seed: The interleaving.
    """

    def __init__(
        self,
        topology: ReliableTopology,
        config: Config | None = None,
        listeners: Sequence[TopologyListener] = (),
        *,
        seed: int = 0,
    ) -> None:
        self.cluster = SimulatedCluster(seed)
        self.run = self.cluster.start(topology, config, listeners)
        self._waited = 0

    @property
    def emitted(self) -> int:
        """How many tuples the spouts have emitted."""
        return self.cluster.progress.emitted

    @property
    def in_flight(self) -> int:
        """How many tuples slots have still to consume."""
        return self.cluster.progress.backlog

    def wait(self, tuples: int = 1, timeout_s: float = 3600.0) -> None:
        """Wait until the spouts have emitted so many more since the last wait, all processed.

        Raises:
            TimeoutError: It was not so within so much simulated time.
        """
        goal = self._waited + tuples
        self.cluster.run_until(lambda: self.emitted >= goal and not self.in_flight, timeout_s)
        self._waited = goal
