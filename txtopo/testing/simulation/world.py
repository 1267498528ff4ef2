"""World: one simulation, from its first process to the verdict's material.

The real runtime runs in it: coordinator, loop, takeover, commit phase, journal, ledgers, stages.
Only time and threads (:class:`~txtopo.testing.simulation.scheduler.VirtualScheduler`), the
ensemble, the stores and the carrier's reliability are simulated.

First everything may fail. After ``chaos_s`` of virtual time, or when all is processed, the world
heals: whoever is frozen wakes up, stores and ensemble answer, the source is complete. Then the runs
have to process what is left, and to stop, within a stated virtual time.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from txtopo.builders.transactional import Topology
from txtopo.config import Config
from txtopo.runtime.driver import TopologyDriver
from txtopo.runtime.start import open_driver
from txtopo.state.backend import StateBackend, StateTable
from txtopo.testing.simulation.baton import Baton
from txtopo.testing.simulation.carrier import SimulatedCarrier
from txtopo.testing.simulation.chaos import Chaos
from txtopo.testing.simulation.ensemble import SESSION_S, SimulatedEnsemble
from txtopo.testing.simulation.faults import Faults
from txtopo.testing.simulation.history import History
from txtopo.testing.simulation.process import SimulatedProcess
from txtopo.testing.simulation.source import SimulatedSource
from txtopo.testing.simulation.store import SimulatedBackend, SimulatedStore
from txtopo.testing.simulation.supervisor import Supervisor
from txtopo.testing.simulation.tap import TappedSpout, worlds
from txtopo.testing.simulation.timeline import Timeline
from txtopo.transactional_state.memory import MemoryTransactionalState

LIVENESS_S = 300.0
"""Virtual time in which a healed world processes what is left. The longest thing that may still be
under way takes 30 s; then a time limit, an election and a few batches come one after the other."""
STOP_S = 120.0
"""Virtual time in which a run stops; the longest call that it has to wait for takes 30 s."""

CHAOS_SALT = 0x5EED
TOKENS_SALT = 0x70CE2

_numbers = itertools.count()


@dataclass(slots=True)
class Leftovers:
    """What should be gone or reached at the end, and is not."""

    found: list[str] = field(default_factory=list)


class World:
    """Processes, an ensemble, stores and a source in virtual time.

    Args:
        seed: Where all chance comes from.
        faults: What may go wrong.
        config: How the topology runs.
        coordinators: How many processes run it at the same time.
        baton: Threads for blocking work; shared by worlds one after the other.
    """

    current: SimulatedProcess
    """Whose code runs now."""

    def __init__(
        self, seed: int, faults: Faults, config: Config, coordinators: int, baton: Baton
    ) -> None:
        self.number = next(_numbers)
        self.baton = baton
        self.timeline = Timeline()
        self.history = History()
        self.chaos = Chaos(random.Random(seed ^ CHAOS_SALT), faults, self._note_fault)
        # Chance of its own, so that a seed has the same faults however often a token is drawn.
        self.tokens = random.Random(seed ^ TOKENS_SALT)
        self.ensemble = SimulatedEnsemble(self)
        self.leftovers = Leftovers()
        self.topology: Topology | None = None
        self.source: SimulatedSource | None = None
        self.stores: dict[str, SimulatedStore] = {}
        self.supervisors = [Supervisor(self, "ABCDEFGH"[at]) for at in range(coordinators)]
        self._config = config
        worlds[self.number] = self

    def take(self, topology: Topology) -> None:
        """Take a topology in: its states and its spout are replaced by simulated ones.

        States of one location are in one store, as they were.
        """
        graph = topology.graph
        components = {}
        for component in graph.components.values():
            states = {}
            for name, state in component.states.items():
                store = self.stores.setdefault(state.location, SimulatedStore(self, name))
                states[name] = replace(
                    state, url="simulated:", _factory=_Factory(self.number, state.location)
                )
                assert store.world is self
            component = replace(component, states=states)
            if component.id == graph.spout.id:
                tapped = TappedSpout(self, component.prototype, component.role)
                component = replace(component, prototype=tapped)
            components[component.id] = component
        spout = components[graph.spout.id]
        self.topology = Topology(replace(graph, spout=spout, components=components))

    def run(self, chaos_s: float) -> History:
        """Run the simulation to its end; what is wrong at the end is in the leftovers."""
        for supervisor in self.supervisors:
            supervisor.start()
        self._until_processed(chaos_s)
        self._heal()
        if not self._until_processed(LIVENESS_S):
            self.leftovers.found.append(
                f"not everything was processed {LIVENESS_S:g} s after the faults stopped"
            )
        self._stop()
        return self.history

    def open_driver(self, process: SimulatedProcess) -> TopologyDriver:
        """Start the topology in a process; blocks in virtual time."""
        assert self.topology is not None
        return open_driver(
            self.topology,
            self._config,
            [process],
            SimulatedCarrier(process, self._config.slots or 1),
            lambda: MemoryTransactionalState(self.topology_id, self.ensemble_of(process)),
            process.scheduler,
            {"process": process.name},
        )

    def ensemble_of(self, process: SimulatedProcess) -> SimulatedEnsemble:
        """Return the ensemble that a process uses; each may have another one."""
        return self.ensemble

    def open_backend(self, location: str, table: StateTable) -> StateBackend:
        """Open a state for the process that runs now; another kind of store may stand here."""
        return SimulatedBackend(self.stores[location], table)

    @property
    def topology_id(self) -> str:
        """Id of the topology."""
        assert self.topology is not None
        return self.topology.id

    @contextmanager
    def reading_otherwise(self) -> Iterator[None]:
        """Let the source give other batches meanwhile, where it has the choice."""
        if self.source is None:
            yield
            return
        self.source.otherwise = True
        yield
        self.source.otherwise = False

    def lost(self, process: SimulatedProcess) -> None:
        """Let the session of a killed process expire, and start another process."""
        self.timeline.after(SESSION_S, lambda: self.ensemble.expire(process))
        for supervisor in self.supervisors:
            supervisor.lost(process)

    def processes(self) -> list[SimulatedProcess]:
        """Return the living processes that have started their run."""
        found = (supervisor.process for supervisor in self.supervisors)
        return [p for p in found if p is not None and p.alive and p.driver is not None]

    def _note_fault(self, kind: str) -> None:
        if kind != "switch":  # at half of all places; it would hide the rest
            self.history.note(self.timeline.now_s, "chaos", kind)

    def _until_processed(self, limit_s: float) -> bool:
        """Let time pass until a run says that nothing is left."""
        said: set[SimulatedProcess] = set()
        asked: set[SimulatedProcess] = set()

        def processed() -> bool:
            if self.source is not None and not self.source.is_complete:
                return False
            if said:
                return True
            for process in self.processes():
                if process not in asked:
                    asked.add(process)
                    self._ask_for_rest(process, said)
            return False

        return self.timeline.run(processed, until_s=self.timeline.now_s + limit_s)

    def _ask_for_rest(self, process: SimulatedProcess, said: set[SimulatedProcess]) -> None:
        """Have a process added to *said* when its run has nothing left."""
        future: Future[None] = Future()
        driver = process.driver
        assert driver is not None

        def answered(_: Future[None]) -> None:
            if driver.status == "running":  # a run that was stopped resolves it too
                said.add(process)

        future.add_done_callback(answered)
        process.after(0.0, lambda: driver.wait_for_rest(future))

    def _heal(self) -> None:
        self.chaos.healed = True
        if self.source is not None:
            self.source.complete()
        for process in self.processes():
            process.activate()
        self.history.note(self.timeline.now_s, "world", "HEALED")

    def _stop(self) -> None:
        for supervisor in self.supervisors:
            supervisor.finish()
        ended = self.timeline.run(
            lambda: all(supervisor.finished for supervisor in self.supervisors),
            until_s=self.timeline.now_s + STOP_S,
        )
        if not ended:
            self.leftovers.found.append(f"a run did not stop in {STOP_S:g} s")
        # What a dead process had sent, and the end of its session, come a little later.
        self.timeline.run(lambda: False, until_s=self.timeline.now_s + STOP_S)
        self._look_around()
        for supervisor in self.supervisors:
            supervisor.kill()
        self.timeline.run(lambda: False, until_s=self.timeline.now_s + 1.0)

    def _look_around(self) -> None:
        found = self.leftovers.found
        found += [
            f"{process.name} still has a place in the election"
            for process in self.ensemble.contenders()
        ]
        for store in self.stores.values():
            found += [
                f"{process.name} left {count} backends of store {store.name!r} open"
                for process, count in store.opened.items()
                if count and process.alive
            ]


@dataclass(frozen=True, slots=True)
class _Factory:
    """Opens states of one store of one world; found again by number when it was pickled."""

    world_number: int
    location: str
    shared_by_processes = False

    def __call__(self, url: str, table: StateTable) -> StateBackend:
        return worlds[self.world_number].open_backend(self.location, table)
