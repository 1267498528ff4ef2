"""SimulatedProcess: one driver with its run, which can be killed and frozen at any moment.

A killed process does nothing more, but its place in the election stays until its session expires,
and a write that it had sent may still arrive. A frozen one keeps everything that is due for it, and
wakes up as a zombie that believes to lead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from txtopo.runtime.progress import Change, Leading, TopologyListener
from txtopo.testing.simulation.baton import Crashed, Work
from txtopo.testing.simulation.ensemble import SESSION_S
from txtopo.testing.simulation.scheduler import VirtualScheduler
from txtopo.testing.simulation.timeline import Event

if TYPE_CHECKING:
    from txtopo.runtime.driver import TopologyDriver
    from txtopo.testing.simulation.world import World


class SimulatedProcess(TopologyListener):
    """One process of the simulation.

    Attributes:
        name: Coordinator and incarnation, for instance ``B.3``.
        alive: Whether it has not been killed.
        frozen: Whether it is stopped (SIGSTOP) for now.
        epoch: The last epoch that it led in; 0 for none.
        driver: The loop of its run, once started.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.frozen = False
        self.epoch = 0
        self.clock_error_s = 0.0
        self.driver: TopologyDriver | None = None
        self.scheduler = VirtualScheduler(self)
        self._works: list[Work] = []
        self._kept: list[Event] = []

    def takes(self, event: Event) -> bool:
        """Return whether an event of this process may happen now."""
        if self.frozen and self.alive:
            self._kept.append(event)
        return self.alive and not self.frozen

    def after(self, delay_s: float, callback: Callable[[], None]) -> Event:
        """Have something happen in this process after a delay."""

        def happen() -> None:
            self.world.current = self
            callback()

        return self.world.timeline.after(delay_s, happen, self)

    def begin(self, run: Callable[[], None]) -> None:
        """Begin blocking work after a random delay."""
        work = Work(run)
        self._works.append(work)
        self.after(self.world.chaos.latency_s(), lambda: self._go_on(work))

    def checkpoint(self, place: str) -> None:
        """Mark a place where the process may be killed, frozen or overtaken.

        Raises:
            Crashed: The process is dead.
        """
        if not self.alive:
            raise Crashed
        self.world.history.note(self.world.timeline.now_s, self.name, place)
        if self.world.baton.holder is None:
            # On the loop nothing waits, so nothing overtakes it; it crashes where it was ordered.
            if self.world.chaos.passes(place):
                self.kill()
                raise Crashed
            return
        pause_s = self.world.chaos.at(self, place)
        if not self.alive:
            raise Crashed
        if pause_s is not None:
            self.sleep(pause_s)

    def sleep(self, delay_s: float) -> None:
        """Let the work that runs wait."""
        work = self.world.baton.holder
        assert work is not None, "only blocking work sleeps"
        self.after(delay_s, lambda: self._go_on(work))
        self.world.baton.park()

    def kill(self) -> None:
        """Kill it at once (SIGKILL)."""
        if not self.alive:
            return
        self.alive = False
        self.world.history.note(self.world.timeline.now_s, self.name, "KILLED")
        works, self._works = self._works, []
        self._kept.clear()
        self.world.timeline.after(0.0, lambda: self._unwind(works))
        self.world.lost(self)

    def freeze(self, duration_s: float) -> None:
        """Stop it for a while (SIGSTOP, SIGCONT)."""
        if self.frozen or not self.alive:
            return
        self.suspend()
        self.world.timeline.after(duration_s, self.wake)
        if duration_s > SESSION_S:
            self.world.timeline.after(SESSION_S, lambda: self.world.ensemble.expire(self))

    def suspend(self) -> None:
        """Stop it until it is woken (SIGSTOP)."""
        self.frozen = True
        self.world.history.note(self.world.timeline.now_s, self.name, "frozen")

    def wake(self) -> None:
        """Let it go on (SIGCONT): all that was due meanwhile happens now."""
        if not self.alive:
            return
        self.frozen = False
        self.world.history.note(self.world.timeline.now_s, self.name, "woken")
        kept, self._kept = self._kept, []
        for event in kept:
            self.world.timeline.put_back(event)

    def ask_to_stop(self) -> None:
        """Ask the run to stop, as SIGTERM does."""
        if self.driver is not None:
            self.after(0.0, self.driver.stop)

    def pause(self, duration_s: float) -> None:
        """Deactivate the run for a while."""
        driver = self.driver
        if driver is not None:
            self.after(0.0, lambda: driver.set_active(False))
            self.after(duration_s, lambda: driver.set_active(True))

    def activate(self) -> None:
        """Activate the run."""
        if self.driver is not None:
            driver = self.driver
            self.after(0.0, lambda: driver.set_active(True))

    def on_change(self, change: Change) -> None:
        """Listen to the run, for the history."""
        if isinstance(change, Leading):
            self.epoch = change.epoch
        self.world.history.changed(self.world.timeline.now_s, self.name, change)

    def _go_on(self, work: Work) -> None:
        self.world.baton.hand_to(work)
        if work.ended and work in self._works:
            self._works.remove(work)

    def _unwind(self, works: list[Work]) -> None:
        for work in works:
            if not work.ended:
                self.world.current = self
                self.world.baton.crash(work)
