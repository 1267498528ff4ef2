"""World: one simulation, from its first process to the history that the checkers judge.

The real runtime runs in it: coordinator, loop, takeover, commit phase, journal, ledgers, stages.
Simulated are time and threads (:class:`~txtopo.testing.simulation.clock.VirtualScheduler`), the
ensemble, the stores, and the losses of the carrier.

At first every fault may happen. After ``chaos_s`` of virtual time, or when everything is processed,
the world heals: frozen processes wake up, stores and ensemble answer, the source is complete. Then
the runs must process the rest and stop, each within a limit of virtual time.

A :class:`SimulatedProcess` is a driver with its run. It can be killed and frozen at any moment. A
killed process does nothing more, but its place in the election stays until its session expires, and
a write that it has sent may still arrive. A frozen process keeps every event that becomes due. When
it wakes up, it is a zombie that believes it leads. A :class:`Supervisor` starts a new process when
one has died, as an operator's tool would.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from txtopo.builders.transactional import Topology
from txtopo.config import Config
from txtopo.ensemble.memory import MemoryTransactionalState
from txtopo.runtime.driver import TopologyDriver
from txtopo.runtime.progress import Leading, TopologyEvent, TopologyListener
from txtopo.runtime.start import open_driver
from txtopo.stages.compiled_topology import CompiledTopology, compile_topology
from txtopo.state.backend import Database, StateBackend, StateTable
from txtopo.testing.simulation.clock import (
    BlockingWork,
    Crashed,
    Event,
    ThreadHandoff,
    Timeline,
    VirtualScheduler,
)
from txtopo.testing.simulation.faults import CLOCK_JUMP_S, Chaos, Faults
from txtopo.testing.simulation.forking import Forks
from txtopo.testing.simulation.history import History
from txtopo.testing.simulation.operators import Operators
from txtopo.testing.simulation.outside import (
    SESSION_S,
    SimulatedBackend,
    SimulatedCarrier,
    SimulatedEnsemble,
    SimulatedStore,
)
from txtopo.testing.simulation.restoring import Restorations
from txtopo.testing.simulation.source import RecordingSpout, SimulatedSource, worlds

LIVENESS_S = 300.0
"""Virtual time in which a healed world processes the rest. A running call takes up to 30 s; a time
limit, an election and a few batches may follow it, one after the other."""

STOP_S = 120.0
"""Virtual time in which a run stops. It may have to wait for a call, which takes up to 30 s."""

ASK_AGAIN_S = 1.0
"""Virtual time after which a run that was deactivated is asked again whether nothing is left."""

CHAOS_SALT = 0x5EED

TOKENS_SALT = 0x70CE2

CLOCKS_SALT = 0xC10C5

REBUILDS_SALT = 0x4EB01D

CLOCKS_WRONG_SHARE = 0.5

SHARING_SALT = 0x5A2ED

SHARINGS = ("apart", "shared", "clones")
"""Whether the states of one location share transactions. With ``clones``, every second state is in
another store with the same identity, so it must not share them with the others."""

TOLD_SHARE = 0.8
"""How often the store tells a backend its identity. So a term that shares transactions may follow
one that does not, and a state may have transactions of its own."""

_numbers = itertools.count()


@dataclass(slots=True)
class Leftovers:
    """What is wrong at the end of a simulation: open resources, goals not reached."""

    found: list[str] = field(default_factory=list)


class World:
    """Processes, an ensemble, stores and a source in virtual time.

    Args:
        seed: Seed of all random decisions.
        faults: How often each fault happens.
        config: How the topology runs.
        coordinators: How many processes run the topology at the same time.
        handoff: The threads of blocking work; worlds use it one after the other.
    """

    current: SimulatedProcess
    """The process whose code runs now."""

    def __init__(
        self, seed: int, faults: Faults, config: Config, coordinators: int, handoff: ThreadHandoff
    ) -> None:
        self.number = next(_numbers)
        self.handoff = handoff
        self.timeline = Timeline()
        self.history = History()
        self.chaos = Chaos(random.Random(seed ^ CHAOS_SALT), faults, self._note_fault)
        # A generator of its own, so that drawing a token does not change the faults of a seed.
        self.tokens = random.Random(seed ^ TOKENS_SALT)
        # A jump of a running clock is not trusted; one from before the process began is.
        self.clocks = random.Random(seed ^ CLOCKS_SALT) if faults.clock else None
        self._sharing = random.Random(seed ^ SHARING_SALT)
        self.ensemble = SimulatedEnsemble(self)
        self.leftovers = Leftovers()
        self.topology: Topology | None = None
        self._compiled: tuple[Topology | None, CompiledTopology | None] = (None, None)
        self.source: SimulatedSource | None = None
        self.further_sources: list[SimulatedSource] = []
        """The sources of the second spout and those after it."""
        self.stores: dict[str, SimulatedStore] = {}
        self.supervisors = [Supervisor(self, "ABCDEFGH"[at]) for at in range(coordinators)]
        self.operators = Operators(self)
        self.forks = Forks(self)
        self.restorations = Restorations(self, random.Random(seed ^ REBUILDS_SALT))
        self.begun: list[SimulatedProcess] = []
        """All processes; if the run of a process has ended, a call of it may still be running."""
        self._config = config
        worlds[self.number] = self

    def take(self, topology: Topology, sharing: str = "apart") -> None:
        """Use this topology, with its states replaced by simulated ones and its spouts recorded.

        States that share a location share a simulated store.

        Args:
            topology: The topology.
            sharing: One of :data:`SHARINGS`.
        """
        assert sharing in SHARINGS, sharing
        graph = topology.graph
        components = {}
        numbers = itertools.count()
        for component in graph.components.values():
            states = {}
            for name, state in component.states.items():
                in_clone = sharing == "clones" and next(numbers) % 2
                location = f"{state.location} clone" if in_clone else state.location
                store = self.stores.setdefault(location, SimulatedStore(self, name))
                states[name] = replace(
                    state, url="simulated:", _factory=_Factory(self.number, location)
                )
                assert store.world is self
            component = replace(component, states=states)
            if component.kind.spout:
                number = [each.id for each in graph.spouts].index(component.id)
                recording = RecordingSpout(self, component.prototype, number)
                component = replace(component, prototype=recording)
            components[component.id] = component
        if sharing != "apart":
            for store in self.stores.values():
                store.database = Database(("simulated",))
                store.clones = [other for other in self.stores.values() if other is not store]
        spout = components[graph.spout.id]
        self.topology = Topology(replace(graph, spout=spout, components=components))

    def run(self, chaos_s: float) -> History:
        """Run the simulation to its end and return what happened."""
        for supervisor in self.supervisors:
            supervisor.start()
        self._until_processed(chaos_s)
        self._heal()
        if not self._until_processed(LIVENESS_S):
            self.leftovers.found.append(
                f"not everything was processed {LIVENESS_S:g} s after the faults stopped"
            )
        forked = lambda: self.forks.settled  # noqa: E731 - a condition, as the timeline takes it
        if not self.timeline.run(forked, until_s=self.timeline.now_s + LIVENESS_S):
            self.leftovers.found.append(f"no fork was made {LIVENESS_S:g} s after that")
        self._stop()
        return self.history

    def open_driver(self, process: SimulatedProcess) -> TopologyDriver:
        """Open the driver of the topology in a process. Blocks in virtual time."""
        assert self.topology is not None
        slots = self._config.slots or 1
        topology, compiled = self._compiled
        if topology is not self.topology:  # not for each process: most exist only to be killed
            compiled = compile_topology(self.topology.graph, self._config, slots)
            self._compiled = (self.topology, compiled)
        return open_driver(
            self.topology.graph,
            self._config,
            [process],
            SimulatedCarrier(process, slots),
            lambda: MemoryTransactionalState(self.topology_id, self.ensemble_of(process)),
            process.scheduler,
            {"process": process.name},
            compiled=compiled,
        )

    def ensemble_of(self, process: SimulatedProcess) -> SimulatedEnsemble:
        """Return the ensemble that a process uses; tests override it."""
        return self.ensemble

    def places(self) -> Iterator[tuple[str, str]]:
        """Yield the location of each state, and its table."""
        assert self.topology is not None
        for component in self.topology.graph.components.values():
            for name, state in component.states.items():
                factory = state.factory
                assert isinstance(factory, _Factory)
                yield factory.location, state.layout(name).name

    def open_backend(self, location: str, table: StateTable) -> StateBackend:
        """Open a state for the process that runs now; tests override it."""
        return SimulatedBackend(self.stores[location], table)

    def tells_database(self) -> bool:
        """Draw whether a store tells its identity to a backend."""
        return self._sharing.random() < TOLD_SHARE

    @property
    def sources(self) -> list[SimulatedSource]:
        """The sources of all spouts; none if there is no simulated source."""
        return [] if self.source is None else [self.source, *self.further_sources]

    @property
    def topology_id(self) -> str:
        """Id of the topology."""
        assert self.topology is not None
        return self.topology.id

    @contextmanager
    def reading_otherwise(self) -> Iterator[None]:
        """While the block runs, let the source cut batches differently, if allowed."""
        for source in self.sources:
            source.otherwise = True
        yield
        for source in self.sources:
            source.otherwise = False

    def lost(self, process: SimulatedProcess) -> None:
        """Let the session of a killed process expire, and start another process."""
        self.timeline.after(SESSION_S, lambda: self.ensemble.expire(process))
        for supervisor in self.supervisors:
            supervisor.lost(process)

    def new_process(self, name: str) -> SimulatedProcess:
        """Return a process that runs no topology."""
        return SimulatedProcess(self, name)

    def processes(self) -> list[SimulatedProcess]:
        """Return the living processes that have started their run."""
        found = (supervisor.process for supervisor in self.supervisors)
        return [p for p in found if p is not None and p.alive and p.driver is not None]

    def _note_fault(self, kind: str) -> None:
        if kind != "switch":  # it happens at half of all checkpoints and would hide the rest
            self.history.note(self.timeline.now_s, "chaos", kind)

    def _until_processed(self, limit_s: float) -> bool:
        """Let time pass until a run reports that it has nothing left."""
        sources = self.sources
        said: set[SimulatedProcess] = set()
        asked: set[SimulatedProcess] = set()

        def processed() -> bool:
            for source in sources:
                if not source.is_complete:
                    return False
            if said:
                return True
            for supervisor in self.supervisors:
                process = supervisor.process
                if process is None or process in asked:
                    continue
                if process.alive and process.driver is not None:
                    asked.add(process)
                    self._ask_for_rest(process, said, asked)
            return False

        return self.timeline.run(processed, until_s=self.timeline.now_s + limit_s)

    def _ask_for_rest(
        self,
        process: SimulatedProcess,
        said: set[SimulatedProcess],
        asked: set[SimulatedProcess],
    ) -> None:
        """Add a process to *said* once its run has nothing left."""
        future: Future[None] = Future()
        driver = process.driver
        assert driver is not None

        def answered(_: Future[None]) -> None:
            if driver.status == "running":  # a stopped run resolves the future too
                said.add(process)
            elif process.alive:
                process.after(ASK_AGAIN_S, lambda: asked.discard(process))

        future.add_done_callback(answered)
        process.after(0.0, lambda: driver.wait_for_rest(future))

    def _heal(self) -> None:
        self.chaos.healed = True
        self.operators.heal()
        for source in self.sources:
            source.complete()
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
        # Writes that a dead process has sent, and the end of its session, arrive a little later.
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
    """Opens the states of one store of one world. Pickled, it finds its world by number."""

    world_number: int
    location: str
    shared_by_processes = False

    def __call__(self, url: str, table: StateTable) -> StateBackend:
        return worlds[self.world_number].open_backend(self.location, table)


class SimulatedProcess(TopologyListener):
    """One process of the simulation.

    Attributes:
        name: Name of its supervisor and number of the start, for instance ``B.3``.
        alive: Whether it has not been killed.
        frozen: Whether it is stopped (SIGSTOP) now.
        epoch: The last epoch in which it led; 0 for none.
        driver: The driver of its run; None before its start and after its end.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.frozen = False
        self.epoch = 0
        clocks = world.clocks
        self.clock_error_s = 0.0
        if clocks is not None and clocks.random() < CLOCKS_WRONG_SHARE:
            self.clock_error_s = clocks.uniform(-CLOCK_JUMP_S, CLOCK_JUMP_S)
        self.driver: TopologyDriver | None = None
        self.scheduler = VirtualScheduler(self)
        self._works: list[BlockingWork] = []
        self._kept: list[Event] = []
        world.begun.append(self)

    def takes(self, event: Event) -> bool:
        """Return whether an event of this process may happen now; keep it if frozen."""
        if self.frozen and self.alive:
            self._kept.append(event)
        if not self.alive or self.frozen:
            return False
        self.world.current = self
        return True

    def after(self, delay_s: float, callback: Callable[[], None]) -> Event:
        """Call *callback* in this process after a delay."""
        return self.world.timeline.after(delay_s, callback, self)

    def begin(self, run: Callable[[], None]) -> None:
        """Begin blocking work after a random delay."""
        work = BlockingWork(run)
        self._works.append(work)
        self.after(self.world.chaos.latency_s(), lambda: self._go_on(work))

    def checkpoint(self, name: str) -> None:
        """Mark a point where the process may be killed, frozen or overtaken.

        Raises:
            Crashed: The process is dead.
        """
        if not self.alive:
            raise Crashed
        world = self.world
        world.history.note(world.timeline.now_s, self.name, name)
        if world.handoff.running is None:
            # Nothing can overtake the loop. It only crashes, where a test requests it.
            if world.chaos.passes(name):
                self.kill()
                raise Crashed
            return
        pause_s = world.chaos.at(self, name)
        if not self.alive:
            raise Crashed
        if pause_s is not None:
            self.sleep(pause_s)

    def sleep(self, delay_s: float) -> None:
        """Make the running work wait."""
        work = self.world.handoff.running
        assert work is not None, "only blocking work sleeps"
        event = self.after(delay_s, lambda: self._go_on(work))
        if self.frozen or not self.world.timeline.begins_with(event):
            self.world.handoff.park()

    def kill(self) -> None:
        """Kill the process at once (SIGKILL)."""
        if not self.alive:
            return
        self.alive = False
        self.world.history.note(self.world.timeline.now_s, self.name, "KILLED")
        works, self._works = self._works, []
        self._kept.clear()
        self.world.timeline.after(0.0, lambda: self._unwind(works))
        self.world.lost(self)

    def freeze(self, duration_s: float) -> None:
        """Stop the process for a while (SIGSTOP, SIGCONT)."""
        if self.frozen or not self.alive:
            return
        self.suspend()
        self.world.timeline.after(duration_s, self.wake)
        if duration_s > SESSION_S:
            self.world.timeline.after(SESSION_S, lambda: self.world.ensemble.expire(self))

    def suspend(self) -> None:
        """Stop the process until it is woken (SIGSTOP)."""
        self.frozen = True
        self.world.history.note(self.world.timeline.now_s, self.name, "frozen")

    def wake(self) -> None:
        """Let the process continue (SIGCONT): every event that it kept happens now."""
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

    def on_change(self, change: TopologyEvent) -> None:
        """Record a change of the run in the history."""
        if isinstance(change, Leading):
            self.epoch = change.epoch
        self.world.history.changed(self.world.timeline.now_s, self.name, change)

    def _go_on(self, work: BlockingWork) -> None:
        self.world.handoff.hand_to(work)
        if work.ended and work in self._works:
            self._works.remove(work)

    def _unwind(self, works: list[BlockingWork]) -> None:
        for work in works:
            if not work.ended:
                self.world.current = self
                self.world.handoff.crash(work)


RESTART_S = (0.0, 3.0)


class Supervisor:
    """Keeps one coordinator running until the simulation ends.

    Attributes:
        process: The process that runs, or ran last.
        finished: Whether the process has ended and no other will be started.
    """

    def __init__(self, world: World, name: str) -> None:
        self.process: SimulatedProcess | None = None
        self.finished = False
        self._world = world
        self._name = name
        self._incarnations = 0
        self._finishing = False

    def start(self) -> None:
        """Start a process after a random delay."""
        # A process that has ended and is then killed is replaced only once.
        self.process = None
        if self._finishing:
            self.finished = True
            return
        delay_s = self._world.chaos.between(*RESTART_S)
        self._world.timeline.after(delay_s, self._launch)

    def lost(self, process: SimulatedProcess) -> None:
        """Start another process if the one that ended belongs to this supervisor."""
        if process is self.process:
            self.start()

    def finish(self) -> None:
        """Ask the run to stop, and start no other process."""
        self._finishing = True
        process = self.process
        if process is None or not process.alive:
            self.finished = True
        elif process.driver is not None:
            process.after(0.0, process.driver.stop)

    def kill(self) -> None:
        """Kill the process if it still lives."""
        if self.process is not None:
            self.process.kill()

    def _launch(self) -> None:
        if self._finishing:
            self.finished = True
            return
        if self._world.restorations.stopped:
            self._world.timeline.after(RESTART_S[1], self._launch)
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
            except Exception as error:  # noqa: BLE001 - as the starter of a run would see it
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
        self._world.timeline.after(0.0, lambda: self.lost(process))
