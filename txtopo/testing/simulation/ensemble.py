"""SimulatedEnsemble: the ZooKeeper of a simulation, with sessions that outlive their processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from txtopo.errors import CoordinatorUnavailable
from txtopo.testing.simulation.chaos import AWAY_S
from txtopo.transactional_state.memory import Contender, MemoryEnsemble, Nodes

if TYPE_CHECKING:
    from txtopo.testing.simulation.process import SimulatedProcess
    from txtopo.testing.simulation.world import World

SESSION_S = 6.0
NOTICE_S = 2.0
"""A process hears of the end of its session so much later at the most; meanwhile it goes on."""


class SimulatedEnsemble(MemoryEnsemble):
    """An ensemble whose clients are the processes of a simulation."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._owners: dict[Contender, SimulatedProcess] = {}
        self._away_until_s: dict[SimulatedProcess, float] = {}

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let others come first; afterwards nobody comes in between, since one runs at a time."""
        self._world.current.checkpoint("zookeeper")
        yield

    def check_reachable(self) -> None:
        """Fail now and then, and for a while now and then."""
        process, chaos = self._world.current, self._world.chaos
        now_s = self._world.timeline.now_s
        if chaos.happens("zookeeper_away"):
            self._away_until_s[process] = now_s + chaos.between(*AWAY_S)
        away = now_s < self._away_until_s.get(process, 0.0) and not chaos.healed
        if away or chaos.happens("zookeeper_before"):
            raise _lost("was not done")

    def write(self, nodes: Nodes) -> None:
        """Make *nodes* the contents; the answer may get lost."""
        process = self._world.current
        self._world.history.nodes_written(self._world.timeline.now_s, process, self.nodes, nodes)
        self.nodes = nodes
        process.checkpoint("zookeeper written")
        if self._world.chaos.happens("zookeeper_after"):
            raise _lost("was done")

    def contend(self, contender: Contender) -> bool:
        """Put a contender into the queue, and remember whose it is."""
        self._owners[contender] = self._world.current
        return super().contend(contender)

    def withdraw(self, contender: Contender) -> None:
        """Remove a contender."""
        self._owners.pop(contender, None)
        super().withdraw(contender)

    def wait(self, contender: Contender, timeout_s: float) -> None:
        """Wait in virtual time; nobody is woken early, which is one of the orders to be seen."""
        self._world.current.sleep(self._world.chaos.between(0.0, timeout_s))

    def contenders(self) -> list[SimulatedProcess]:
        """Return who has a place in the election."""
        return list(self._owners.values())

    def expire(self, process: SimulatedProcess, notice_s: float | None = None) -> None:
        """End the session of a process; it hears of it later, after *notice_s* if given."""
        for contender, owner in list(self._owners.items()):
            if owner is process:
                contender.released = True
                self.withdraw(contender)
                if contender.on_lost is not None:
                    delay_s = notice_s
                    if delay_s is None:
                        delay_s = self._world.chaos.between(0.0, NOTICE_S)
                    process.after(delay_s, contender.on_lost)


def _lost(outcome: str) -> CoordinatorUnavailable:
    return CoordinatorUnavailable(f"the simulated ensemble does not answer; the call {outcome}")
