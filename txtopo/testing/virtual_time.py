"""VirtualTime: the scheduler of at-least-once topologies in simulated time, from one seed.

Nothing blocks and nothing runs beside anything else: a work on a lane is done at a moment of
virtual time, drawn from the seed, and its outcome is heard at a later one. Time goes by only when
the test says so. (The simulator of transactional topologies runs real blocking code and needs
threads for that, see ``txtopo.testing.simulation``; here user code just runs.)
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from txtopo.runtime.scheduler import Callback, Done, Lane, Timer
from txtopo.testing.simulation.timeline import Timeline

T = TypeVar("T")

# A work begins and is heard after up to so long: about what threads and networks take.
LATENCY_MAX_S = 0.004


class VirtualTime:
    """What ``ThreadScheduler`` is in real time, for one run or several."""

    def __init__(self, seed: int = 0) -> None:
        self.timeline = Timeline()
        self._chance = random.Random(seed)
        self._crashed: Callable[[BaseException], None] | None = None

    def now(self) -> float:
        """Return virtual seconds."""
        return self.timeline.now_s

    def wall_clock(self) -> float:
        """Return virtual seconds since 1970."""
        return 1.6e9 + self.timeline.now_s

    def post(self, callback: Callback) -> None:
        """Have *callback* called on the loop."""
        self.timeline.after(0.0, partial(self._call, callback))

    def on_loop(self) -> bool:
        """Return false: nobody has to wait in simulated time."""
        return False

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        """Have *callback* called on the loop after a delay."""
        return self.timeline.after(delay_s, partial(self._call, callback))

    def submit(self, work: Callable[[], T], done: Done) -> None:
        """Do a work somewhat later, then call *done*."""
        self.lane("").submit(work, done)

    def lane(self, name: str) -> Lane:
        """Return a lane, whose works are done one after the other."""
        return _VirtualLane(self)

    def seed(self) -> int:
        """Return a number of 64 bits that follows from the seed."""
        return self._chance.getrandbits(64)

    def latency_s(self) -> float:
        """Return how long something takes."""
        return self._chance.random() * LATENCY_MAX_S

    def point(self, name: str) -> None:
        """Do nothing."""

    def start(self, first: Callback, crashed: Callable[[BaseException], None]) -> None:
        """Start the loop."""
        self._crashed = crashed
        self.post(first)

    def stop(self) -> None:
        """Do nothing: timers that ring later find that the run has ended."""

    def _call(self, callback: Callback) -> None:
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - as the real loop does
            assert self._crashed is not None
            self._crashed(error)


class _VirtualLane:
    """Works in order, each at a moment of its own."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._waiting: deque[tuple[Callable[[], Any], Done]] = deque()

    def submit(self, work: Callable[[], T], done: Done) -> None:
        self._waiting.append((work, done))
        if len(self._waiting) == 1:
            self._begin()

    def close(self) -> None:
        """The works that wait are still done."""

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
