"""Forks: an operator of a simulation forks the topology while it runs, with all its faults.

The fork is made in the world of the original, into stores of its own, by a process that may be
killed or frozen like any other; it is called again until it is done. Nothing of it is in the
history of the original, which the checkers judge as always: a fork must not be noticed there. What
a process of a fork writes to the original is reported.

The topology that was made then runs in a second world, which begins with its nodes and its stores
(:func:`begin_forked`), with faults of its own. The checkers judge that one as well, with the
records that the original had committed up to the txid of the fork.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from txtopo.config import Config
from txtopo.ensemble.memory import Nodes
from txtopo.errors import (
    CoordinatorActive,
    FencedError,
    InfrastructureError,
    StateUsageError,
    TxtopoError,
)
from txtopo.operations import Access, fork
from txtopo.state.backend import Database, StateBackend, StateTable
from txtopo.state.registry import register_backend
from txtopo.state.row_backend import Contents
from txtopo.testing.checkers.evidence import current_of
from txtopo.testing.simulation.clock import Crashed
from txtopo.testing.simulation.history import History
from txtopo.testing.simulation.outside import SimulatedBackend, SimulatedStore
from txtopo.testing.simulation.source import worlds

if TYPE_CHECKING:
    from txtopo.builders.transactional import Topology
    from txtopo.testing.simulation.world import SimulatedProcess, World

SCHEME = "simulated-fork"
"""The URLs of the stores of forks: the number of the world, and that of the store."""

FORKED_ID = "simulated-2"

BEGIN_S = (0.1, 20.0)
"""Virtual time at which the first call begins."""

AGAIN_S = 0.5
"""Virtual time after which a call that failed is repeated."""

WAIT_S = 5.0
"""Virtual time for which a call waits for states that agree."""


class Forks:
    """The fork of one world; there is none unless :meth:`begin` is called.

    Attributes:
        stores: The stores that it fills.
        history: What happened in them.
        done: Whether it is made.
        calls: How often it was called.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._wanted = False
        self._processes: list[SimulatedProcess] = []
        self.stores: list[SimulatedStore] = []
        self.history = History()
        self.done = False
        self.calls = 0

    def begin(self, chance: random.Random, *, shared: bool) -> None:
        """Let an operator fork the topology some time later.

        Args:
            chance: Draws when it begins.
            shared: Whether all copies are in one database, which they are written to together.
        """
        register_backend(SCHEME, open_forked)
        self._wanted = True
        count = 1 if shared else len(_states(self._world.topology))
        for number in range(count):
            store = SimulatedStore(self._world, f"fork {number}")
            store.history = self.history
            if shared:
                store.database = Database((SCHEME,))
            self.stores.append(store)
        self._world.timeline.after(chance.uniform(*BEGIN_S), self._begin)

    @property
    def settled(self) -> bool:
        """Whether the fork is made, or none was wanted."""
        return self.done or not self._wanted

    def takes(self, process: SimulatedProcess) -> bool:
        """Return whether a process makes the fork."""
        return process in self._processes

    def check_nodes(self, before: Nodes, after: Nodes) -> None:
        """Report nodes of the original that a process of a fork has changed."""
        changed = [path for path, node in after.items() if before.get(path) is not node]
        changed += [path for path in before if path not in after]
        if foreign := [path for path in changed if not path.startswith(f"/{FORKED_ID}/")]:
            self._world.leftovers.found.append(f"a fork wrote to {foreign}")

    def _begin(self) -> None:
        process = self._world.new_process(f"F.{len(self._processes) + 1}")
        self._processes.append(process)
        process.begin(lambda: self._run(process))

    def _run(self, process: SimulatedProcess) -> None:
        try:
            while not self._called(process):
                process.sleep(AGAIN_S)
        except Crashed:
            if not self.done:
                self._world.timeline.after(AGAIN_S, self._begin)
            return
        process.alive = False

    def _called(self, process: SimulatedProcess) -> bool:
        """Call ``fork`` once; return whether its outcome is known."""
        world, scheduler = self._world, process.scheduler
        assert world.topology is not None
        self.calls += 1
        names = _states(world.topology)
        places = {
            name: f"{SCHEME}:{world.number}/{at % len(self.stores)}"
            for at, name in enumerate(names)
        }
        access = Access(
            ensemble=world.ensemble_of(process),
            point=scheduler.point,
            seed=scheduler.seed,
            now=scheduler.now,
            sleep=process.sleep,
        )
        config = Config(carrier="local", zookeeper="memory")
        asked = world.topology, FORKED_ID, places, config
        try:
            fork(*asked, wait_s=WAIT_S, access=access).apply()
            self.done = True
        except (InfrastructureError, CoordinatorActive, FencedError, StateUsageError) as error:
            # Or it has committed nothing yet, or another call was quicker.
            world.history.note(world.timeline.now_s, process.name, "fork failed", repr(error))
        except TxtopoError as error:
            world.leftovers.found.append(f"a fork was refused with {error!r}")
            self.done = True
        return self.done


@dataclass(frozen=True, slots=True)
class Forked:
    """A topology that was forked.

    Attributes:
        txid: The txid that it continues from.
        nodes: Its nodes.
        tables: The contents of its tables.
    """

    txid: int
    nodes: Nodes
    tables: dict[str, Contents]

    @classmethod
    def of(cls, world: World) -> Forked | None:
        """Return the fork of a world that has ended; None if none was made."""
        if not world.forks.done:
            return None
        own = f"/{FORKED_ID}/"
        nodes = {path: node for path, node in world.ensemble.nodes.items() if path.startswith(own)}
        tables = {
            name: each for store in world.forks.stores for name, each in store.contents.items()
        }
        return cls(current_of(FORKED_ID, nodes) - 1, nodes, tables)


def begin_forked(world: World, topology: Topology, sharing: str, forked: Forked) -> None:
    """Let a new world begin with a topology that was forked; all records exist.

    Args:
        world: The world, which runs no topology yet.
        topology: The topology, as it was built for that world.
        sharing: See ``World.take``.
        forked: What the fork has made.
    """
    world.take(replace(topology, graph=replace(topology.graph, id=FORKED_ID)), sharing)
    world.ensemble.nodes = world.history.nodes = forked.nodes
    world.history.stores = dict(forked.tables)
    assert world.topology is not None
    for location, table in world.places():
        world.stores[location].contents[table] = forked.tables[table]
        for clone in world.stores[location].clones:
            clone.copies[table] = forked.tables[table]
    for source in world.sources:
        source.complete()


def open_forked(url: str, table: StateTable) -> StateBackend:
    """Open a state of a fork, for the process that runs now."""
    number, _, store = url.removeprefix(f"{SCHEME}:").partition("/")
    return SimulatedBackend(worlds[int(number)].forks.stores[int(store)], table)


def _states(topology: Topology | None) -> list[str]:
    assert topology is not None
    components = topology.graph.components.values()
    return [f"{component.id}.{name}" for component in components for name in component.states]
