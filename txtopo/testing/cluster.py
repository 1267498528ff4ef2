"""SimulatedCluster: runs at-least-once topologies in simulated time, in one thread.

It is Storm's ``Testing.withSimulatedTimeLocalCluster`` with ``advanceClusterTime``.

:class:`VirtualTime` is its scheduler, driven by one seed. Nothing blocks and nothing runs in
parallel: a work on a serial executor is done at a moment of virtual time that the seed decides, and
its outcome is reported at a later moment. Time passes only when the test lets it. (The simulator of
transactional topologies in ``txtopo.testing.simulation`` runs code that really blocks, and needs
threads for that. Here user code just runs.)
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from txtopo.config import AtLeastOnceConfig
from txtopo.reliable.builder import ReliableTopology
from txtopo.reliable.start import Opened, start_local
from txtopo.runtime.progress import ReliableProgress, TopologyListener
from txtopo.runtime.scheduler import Callback, Done, SerialExecutor, Timer, settled
from txtopo.testing.simulation.clock import Timeline
from txtopo.testing.spouts import FeederSpout

if TYPE_CHECKING:
    from txtopo.runtime.handle import ReliableRun


class SimulatedCluster:
    """Runs one at-least-once topology after the other in simulated time.

    The handle of a run works as usual, except for its methods that wait: time passes only in
    :meth:`advance` and :meth:`run_until`, as fast as the machine allows.

    Args:
        seed: Decides the ids of tuples and how long each work takes. The same seed gives the same
            run.

    Example:
        >>> cluster = SimulatedCluster()
        >>> run = cluster.start(topology, AtLeastOnceConfig(message_timeout_s=10))
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
        config: AtLeastOnceConfig | None = None,
        listeners: Sequence[TopologyListener] = (),
        *,
        active: bool = True,
    ) -> ReliableRun:
        """Start a topology. An earlier one must be stopped first.

        Raises:
            ConfigError: As ``ReliableTopology.start``.
        """
        for spout in topology.graph.spouts:
            if isinstance(spout.prototype, FeederSpout):
                spout.prototype.attach(self)
        self._opened = start_local(
            topology.graph,
            config or AtLeastOnceConfig(),
            listeners,
            active=active,
            scheduler=self.time,
        )
        return self._opened.run

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.time.timeline.run(lambda: False, until_s=self.time.now() + seconds)
        self._raise()

    def run_until(self, done: Callable[[], bool], timeout_s: float = 3600.0) -> None:
        """Let time pass until *done* returns true.

        Raises:
            TimeoutError: It did not do so within *timeout_s* of simulated time.
            Exception: The error that ended the run.
        """

        def stop() -> bool:
            return done() or self._crashed() is not None

        ended = self.time.timeline.run(stop, until_s=self.time.now() + timeout_s)
        self._raise()
        if not ended:
            raise TimeoutError(f"it did not become true in {timeout_s:g} s of simulated time")

    def process_all_available(self, timeout_s: float = 3600.0) -> None:
        """Let time pass until the spouts have nothing left and every tuple tree has ended.

        Raises:
            TimeoutError: They have not within *timeout_s* of simulated time.
            Exception: The error that ended the run.
        """
        driver = self._live().driver
        asked = driver.asks
        driver.post(driver.ask_all)
        self.run_until(lambda: driver.at_rest and driver.dry_ask > asked, timeout_s)

    def stop(self) -> None:
        """Stop the run; ``close`` of its spouts and ``cleanup`` of its bolts are called."""
        driver = self._live().driver
        driver.post(driver.stop)
        self.run_until(driver.ended.done)

    @property
    def progress(self) -> ReliableProgress:
        """The progress of the run at this moment."""
        driver = self._live().driver
        return driver.progress

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return self._live().driver.slots

    @property
    def spout_slots(self) -> int:
        """How many slots have spouts and an acker for their trees; they are the first ones."""
        return self._live().driver.spout_slots

    def kill_slot(self, slot: int) -> None:
        """Kill a slot, with the memory of its bolts, its spouts and the acker of their trees.

        It is started again half a second later, with new spouts and bolts.
        """
        self._live().slots.kill(slot)

    def lose_acker(self, slot: int = 0) -> None:
        """Erase the acker of a slot; its trees time out. On Spark only a whole slot can be lost."""
        self._live().slots.lose_acker(slot)

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


T = TypeVar("T")

# The longest delay before a work begins, and before its outcome is reported. Threads and networks
# take about as long.
LATENCY_MAX_S = 0.004


class VirtualTime:
    """The scheduler of runs in simulated time; see :mod:`txtopo.runtime.scheduler`."""

    def __init__(self, seed: int = 0) -> None:
        self.timeline = Timeline()
        self._chance = random.Random(seed)
        self._crashed: Callable[[BaseException], None] | None = None

    def now(self) -> float:
        """Return the simulated time in seconds."""
        return self.timeline.now_s

    def steady(self) -> float:
        """Return the simulated time in seconds."""
        return self.timeline.now_s

    def wall_clock(self) -> float:
        """Return the simulated time in seconds since 1970."""
        return 1.6e9 + self.timeline.now_s

    def post(self, callback: Callback) -> None:
        """Call *callback* on the loop."""
        self.timeline.after(0.0, partial(self._call, callback))

    def on_loop(self) -> bool:
        """Return False, since nothing has to wait for the loop in simulated time."""
        return False

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        """Call *callback* on the loop after a delay."""
        return self.timeline.after(delay_s, partial(self._call, callback))

    def submit(self, work: Callable[[], T], done: Done) -> None:
        """Do a work after a random delay, then call *done*."""
        self.serial_executor("").submit(work, done)

    def serial_executor(self, name: str) -> SerialExecutor:
        """Return an executor that does one work after the other."""
        return _VirtualExecutor(self)

    def beside(self, work: Callable[[], T]) -> Future[T]:
        """Do blocking *work* at once, before the caller continues."""
        return settled(work)

    def seed(self) -> int:
        """Return 64 random bits, which the seed decides."""
        return self._chance.getrandbits(64)

    def latency_s(self) -> float:
        """Return the random delay of one call."""
        return self._chance.random() * LATENCY_MAX_S

    def point(self, name: str) -> None:
        """Do nothing."""

    def start(self, first: Callback, crashed: Callable[[BaseException], None]) -> None:
        """Start the loop."""
        self._crashed = crashed
        self.post(first)

    def stop(self) -> None:
        """Do nothing: a timer that fires later finds that the run has ended."""

    def _call(self, callback: Callback) -> None:
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - as the real loop does
            assert self._crashed is not None
            self._crashed(error)


class _VirtualExecutor:
    """Does works in order, each at its own moment."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._waiting: deque[tuple[Callable[[], Any], Done]] = deque()

    def submit(self, work: Callable[[], T], done: Done) -> None:
        self._waiting.append((work, done))
        if len(self._waiting) == 1:
            self._begin()

    def close(self) -> None:
        """Waiting works are still done."""

    def _begin(self) -> None:
        self._time.timeline.after(self._time.latency_s(), self._do)

    def _do(self) -> None:
        work, done = self._waiting[0]
        future: Future[Any] = Future()
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - every outcome goes back to the loop
            future.set_exception(error)
        self._time.timeline.after(self._time.latency_s(), partial(self._done, done, future))

    def _done(self, done: Done, future: Future[Any]) -> None:
        self._waiting.popleft()
        if self._waiting:
            self._begin()
        self._time._call(lambda: done(future))
