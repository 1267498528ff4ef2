"""Operators: processes of a simulation that ask for commands, as ``txtopo kill`` does.

Each is a process of its own, with a client of the ensemble, and may be killed or frozen between any
two requests. Without a leader it leads and answers itself, so it takes part in elections and claims
epochs. When the world heals, one operator activates the topology until that is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo.ensemble.commands import RUNNING, Answer, ask
from txtopo.ensemble.memory import MemoryTransactionalState
from txtopo.errors import InfrastructureError, StateUsageError
from txtopo.metadata import Json
from txtopo.testing.simulation.clock import Crashed
from txtopo.testing.simulation.faults import AWAY_S

if TYPE_CHECKING:
    from txtopo.testing.simulation.world import SimulatedProcess, World

PLANS = (
    ("deactivate", "activate"),
    ("kill", "activate"),
    ("activate",),
    ("kill", "kill", "activate"),
)
"""What an operator asks for, one after the other."""

AGAIN_S = 1.0

AT_WORK_MAX = 2
"""How many operators may be at work when another one or two begin."""


class Operators:
    """The operators of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._processes: list[SimulatedProcess] = []

    def act(self) -> None:
        """Let an operator ask for something now, or two of them at the same time."""
        if sum(process.alive for process in self._processes) >= AT_WORK_MAX:
            return  # they pass checkpoints themselves, so they would beget each other
        chaos = self._world.chaos
        for _ in range(1 + chaos.below(2)):
            self.begin(PLANS[chaos.below(len(PLANS))])

    def heal(self) -> None:
        """Stop all operators, and activate the topology if any of them has been at work."""
        if not self._processes:
            return  # nobody asked for anything
        for process in self._processes:
            process.kill()
        self.begin(("activate",), until_done=True)

    def begin(self, verbs: tuple[str, ...], *, until_done: bool = False) -> None:
        """Let an operator ask for these verbs, one after the other; repeat each if *until_done*."""
        process = self._world.new_process(f"O.{len(self._processes) + 1}")
        self._processes.append(process)

        def run() -> None:
            try:
                for verb in verbs:
                    while self._ask(process, verb) is None and until_done:
                        process.sleep(AGAIN_S)
                    process.sleep(self._world.chaos.between(*AWAY_S))
            except Crashed:
                if until_done:  # another one takes its place
                    again = self._world.timeline.after
                    again(AGAIN_S, lambda: self.begin(verbs, until_done=True))
                return
            process.alive = False

        process.begin(run)

    def _ask(self, process: SimulatedProcess, verb: str) -> Answer | None:
        """Ask once; return the answer, or None if there was none."""
        world = self._world
        state = MemoryTransactionalState(world.topology_id, world.ensemble_of(process))
        try:
            wait_s = world.chaos.between(*AWAY_S)
            by: dict[str, Json] = {"host": process.name, "pid": 1}
            time = process.scheduler
            answer = ask(state, world.topology_id, verb, wait_s=wait_s, time=time, by=by)
        except StateUsageError:
            return Answer(0, RUNNING, None, None, None, None)  # nobody has ever run it
        except InfrastructureError as error:
            world.history.note(world.timeline.now_s, process.name, "not answered", repr(error))
            return None
        finally:
            state.close()
        world.history.answered(world.timeline.now_s, process.name, answer)
        return answer if answer.refused is None else None
