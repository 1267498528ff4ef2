"""Supervisor: starts a process again when it has died, as an operator's tool would."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from txtopo.testing.simulation.baton import Crashed
from txtopo.testing.simulation.process import SimulatedProcess

if TYPE_CHECKING:
    from txtopo.testing.simulation.world import World

RESTART_S = (0.0, 3.0)


class Supervisor:
    """Keeps one coordinator running until the simulation comes to its end.

    Attributes:
        process: The process that runs, or has just ended.
        finished: Whether it has ended and will not be started again.
    """

    def __init__(self, world: World, name: str) -> None:
        self.process: SimulatedProcess | None = None
        self.finished = False
        self._world = world
        self._name = name
        self._incarnations = 0
        self._finishing = False

    def start(self) -> None:
        """Start a process, a little later."""
        if self._finishing:
            self.finished = True
            return
        delay_s = self._world.chaos.between(*RESTART_S)
        self._world.timeline.after(delay_s, self._launch)

    def lost(self, process: SimulatedProcess) -> None:
        """Start another process in place of a killed one."""
        if process is self.process:
            self.start()

    def finish(self) -> None:
        """Ask the run to stop; nothing is started any more."""
        self._finishing = True
        process = self.process
        if process is None or not process.alive:
            self.finished = True
        elif process.driver is not None:
            process.after(0.0, process.driver.stop)

    def kill(self) -> None:
        """End whatever is left."""
        if self.process is not None:
            self.process.kill()

    def _launch(self) -> None:
        if self._finishing:
            self.finished = True
            return
        self._incarnations += 1
        process = SimulatedProcess(self._world, f"{self._name}.{self._incarnations}")
        self.process = process
        process.begin(self._running(process))

    def _running(self, process: SimulatedProcess) -> Callable[[], None]:
        def run() -> None:
            try:
                driver = self._world.open_driver(process)
            except Crashed:
                return
            except Exception as error:  # noqa: BLE001 - as whoever starts a run would see it
                self._ended(process, error)
                return
            process.driver = driver
            driver.ended.add_done_callback(lambda ended: self._run_ended(process, ended))
            driver.start()
            if self._finishing:
                process.after(0.0, driver.stop)

        return run

    def _run_ended(self, process: SimulatedProcess, ended: Future[Exception | None]) -> None:
        self._ended(process, ended.result())

    def _ended(self, process: SimulatedProcess, error: Exception | None) -> None:
        self._world.history.ended(self._world.timeline.now_s, process.name, error)
        process.driver = None
        # The process ends a little later, as the last callbacks of its loop do.
        self._world.timeline.after(0.0, self._again if process is self.process else _nothing)

    def _again(self) -> None:
        self.start()


def _nothing() -> None:
    pass
