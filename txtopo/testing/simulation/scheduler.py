"""VirtualScheduler: the runtime's scheduler in virtual time, for one simulated process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from txtopo.runtime.scheduler import Callback, Done, Timer
from txtopo.testing.simulation.baton import Crashed

if TYPE_CHECKING:
    from txtopo.testing.simulation.process import SimulatedProcess

T = TypeVar("T")


class VirtualScheduler:
    """What ``ThreadScheduler`` is in real time; see :mod:`txtopo.runtime.scheduler`."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self._crashed: Callable[[BaseException], None] = _not_started
        self._running = True

    def now(self) -> float:
        """Return virtual seconds."""
        return self._process.world.timeline.now_s

    def wall_clock(self) -> float:
        """Return what the clock of the process shows; it may jump."""
        return 1.6e9 + self._process.clock_error_s + self.now()

    def post(self, callback: Callback) -> None:
        """Have *callback* called on the loop, after all that was posted before."""
        self._process.after(0.0, lambda: self._call(callback))

    def on_loop(self) -> bool:
        """Return whether no blocking work runs, so that the caller is the loop."""
        return self._process.world.baton.holder is None

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        """Have *callback* called on the loop after a delay, unless the loop has ended."""

        def ring() -> None:
            if self._running:
                self._call(callback)

        return self._process.after(delay_s, ring)

    def submit(self, work: Callable[[], T], done: Done) -> None:
        """Do blocking *work* somewhat later, then call *done*."""

        def run() -> None:
            future: Future[T] = Future()
            try:
                future.set_result(work())
            except Crashed:
                return
            except BaseException as error:  # noqa: BLE001 - every outcome goes back to the loop
                future.set_exception(error)
            if self._process.alive:
                delay_s = self._process.world.chaos.latency_s()
                self._process.after(delay_s, lambda: self._call(lambda: done(future)))

        self._process.begin(run)

    def seed(self) -> int:
        """Return a number of 64 bits that follows from the seed."""
        return self._process.world.tokens.getrandbits(64)

    def point(self, name: str) -> None:
        """Let the process crash, freeze or be overtaken here."""
        self._process.checkpoint(name)

    def start(self, first: Callback, crashed: Callable[[BaseException], None]) -> None:
        """Start the loop."""
        self._crashed = crashed
        self.post(first)

    def stop(self) -> None:
        """End the loop: timers do not ring any more."""
        self._running = False

    def _call(self, callback: Callback) -> None:
        try:
            callback()
        except Crashed:
            pass
        except BaseException as error:  # noqa: BLE001 - as the real loop does
            self._crashed(error)


def _not_started(error: BaseException) -> None:
    raise AssertionError("the loop has not been started") from error
