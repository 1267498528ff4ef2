"""SimulatedCluster: runs at-least-once topologies in simulated time, in one thread.

Storm's users know it as ``Testing.withSimulatedTimeLocalCluster`` with ``advanceClusterTime``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from txtopo.builders.at_least_once import ReliableTopology
from txtopo.config import Config
from txtopo.runtime.progress import ReliableProgress, TopologyListener
from txtopo.runtime.reliable.start import Opened, start_local
from txtopo.testing.virtual_time import VirtualTime

if TYPE_CHECKING:
    from txtopo.runtime.handle import ReliableRun


class SimulatedCluster:
    """Simulated time for one at-least-once topology after the other.

    The run's handle works as ever, but for its methods that wait: time goes by only in
    :meth:`advance` and :meth:`run_until`, and there as fast as the machine can.

    Args:
        seed: What follows from it: the ids of tuples, and how long each work takes. The same seed
            gives the same run.

    Example:
        >>> cluster = SimulatedCluster()
        >>> run = cluster.start(topology, Config(message_timeout_s=10))
        >>> feeder.feed(["the cow"], "id 1")
        >>> cluster.advance(9)
        >>> feeder.acked
        ['id 1']
    """

    def __init__(self, seed: int = 0) -> None:
        self.time = VirtualTime(seed)
        self._opened: Opened | None = None

    def start(
        self,
        topology: ReliableTopology,
        config: Config | None = None,
        listeners: Sequence[TopologyListener] = (),
        *,
        active: bool = True,
    ) -> ReliableRun:
        """Start a topology; stop the one before first.

        Raises:
            ConfigError: As ``ReliableTopology.start``.
        """
        for spout in topology.graph.spouts:
            prototype = spout.prototype
            if hasattr(prototype, "attach"):
                prototype.attach(self)
        self._opened = start_local(
            topology.graph, config or Config(), listeners, active=active, scheduler=self.time
        )
        return self._opened.run

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.time.timeline.run(lambda: False, until_s=self.time.now() + seconds)
        self._raise()

    def run_until(self, done: Callable[[], bool], timeout_s: float = 3600.0) -> None:
        """Let time pass until *done*.

        Raises:
            TimeoutError: It was not within so much virtual time.
            Exception: The run ended with it.
        """

        def stop() -> bool:
            return done() or self._crashed() is not None

        ended = self.time.timeline.run(stop, until_s=self.time.now() + timeout_s)
        self._raise()
        if not ended:
            raise TimeoutError(f"it has not happened in {timeout_s:g} s of simulated time")

    def process_all_available(self, timeout_s: float = 3600.0) -> None:
        """Let time pass until the spouts have nothing left and every tree has ended.

        Raises:
            TimeoutError: It was not so within so much virtual time.
            Exception: The run ended with it.
        """
        driver = self._live().driver
        asked = driver.asks
        self.run_until(lambda: driver.at_rest and driver.dry_ask > asked, timeout_s)

    def stop(self) -> None:
        """Stop the run, with ``close`` of its spouts and ``cleanup`` of its bolts."""
        driver = self._live().driver
        driver.post(driver.stop)
        self.run_until(driver.ended.done)

    @property
    def progress(self) -> ReliableProgress:
        """How far the run is at this moment."""
        driver = self._live().driver
        return driver.meter.progress(len(driver.trees), driver.backlog)

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return self._live().driver.slots

    @property
    def ackers(self) -> int:
        """How many ackers there are."""
        return self._live().driver.ackers

    @property
    def spouts(self) -> int:
        """How many spout tasks there are."""
        return self._live().driver.spouts

    def kill_slot(self, slot: int) -> None:
        """Lose a slot with its bolts' memory; it is back half a second later."""
        self._live().slots.kill(slot)

    def lose_acker(self, acker: int = 0) -> None:
        """Lose all that an acker knew."""
        self._live().driver.trees.lose_acker(acker)

    def lose_spout(self, task: int = 0) -> None:
        """Lose a spout task, counted over all spouts; a fresh one is opened half a second later."""
        self._live().driver.lose_spout(task)

    def _live(self) -> Opened:
        if self._opened is None:
            raise RuntimeError("no topology was started; call start(topology) first")
        return self._opened

    def _crashed(self) -> Exception | None:
        return self._opened.run.exception() if self._opened is not None else None

    def _raise(self) -> None:
        error = self._crashed()
        if error is not None:
            raise error
