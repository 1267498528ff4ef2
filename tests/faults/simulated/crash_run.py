"""Run one cell of the crash matrix, and judge it.

Only the fault of the cell happens: a process dies at the checkpoint, another one is started and
continues to the end. An opaque spout cuts each attempt again, as it may.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.faults.simulated.cell_stores import CellStores
from tests.faults.simulated.crash_cells import Cell
from tests.faults.simulated.crash_deaths import Death, adopts, stands
from txtopo.config import Config
from txtopo.runtime.progress import Leading
from txtopo.state import open_state
from txtopo.state.backend import StateBackend, StateTable
from txtopo.state.row_backend import Contents
from txtopo.testing.checkers import Evidence
from txtopo.testing.checkers.evidence import Source, current_of, epoch_of, stored_attempt, visible
from txtopo.testing.simulation.campaign import quiet, verdict
from txtopo.testing.simulation.clock import ThreadHandoff
from txtopo.testing.simulation.faults import Chaos, Faults
from txtopo.testing.simulation.outside import SimulatedStore
from txtopo.testing.simulation.source import SimulatedSource, record
from txtopo.testing.simulation.topologies import ORACLES, Shape, build
from txtopo.testing.simulation.world import SimulatedProcess, World

PARTITIONS = 2
RECORDS = 10
BATCH_RECORDS_MAX = 3
"""Three of ten: there are four txids at least, however they are cut."""
GROUPS_RECORDS = 24
"""Three of these: there are eight at least, two full groups and more."""
FAULTS = Faults(recut=0.5)
CHAOS_S = 60.0
LOSSES = {
    "landed": ("store_after",),
    "lost": ("store_lost",),
    "retried": ("store_after", "store_before"),
}
"""Faults that a story of a lost answer consists of, one after the other."""
CONFIG = Config(
    carrier="local",
    zookeeper="memory",
    slots=1,
    max_spout_pending=3,
    group_txids_max=1,
    batch_timeout_s=5.0,
    poll_interval_s=0.5,
    backoff_s=0.05,
)


def config_of(cell: Cell) -> Config:
    """Return how the topology of a cell runs: in runs and groups of the cell's size.

    Batches are planned and processed ahead of the commits. Jobs take no time, so each checkpoint is
    passed in txid order.
    """
    return replace(CONFIG, max_spout_pending=3 * cell.size, group_txids_max=cell.size)


class OrderedChaos(Chaos):
    """Nothing goes wrong but what was ordered.

    Attributes:
        crashed: The checkpoints where processes died, and the how manieth passing it was.
    """

    def __init__(self, seed: int, cell: Cell, stored: Callable[[int], bool]) -> None:
        super().__init__(random.Random(seed), FAULTS, lambda kind: None)
        self.crash_at = cell.crashes
        self.crashed: list[tuple[str, int]] = []
        self._cell, self._stored = cell, stored
        self._losing: list[str] = []
        self._times: Counter[str] = Counter()

    def passes(self, checkpoint: str) -> bool:
        """Note crashes, and begin to lose the answer of a write."""
        crash = super().passes(checkpoint)
        self._times[checkpoint] += 1
        if (checkpoint, self._times[checkpoint]) == self._cell.lost_answer:
            self._losing = list(LOSSES[self._cell.story])
        if crash:
            self.crashed.append((checkpoint, self._times[checkpoint]))
        elif self._cell.crashes == [(checkpoint, 0)] and not self.crashed:
            txid, before = self._cell.txid, checkpoint.endswith(".before")
            crash = self._stored(txid - 1 if before else txid)
            self.crashed += [(checkpoint, 0)] if crash else []
        return crash

    def at(self, process: SimulatedProcess, checkpoint: str) -> float | None:
        """Do nothing to a process but kill it where it was ordered."""
        if self.passes(checkpoint):
            process.kill()
        return None

    def happens(self, kind: str, times: int = 1) -> bool:
        """Lose the one answer that was ordered."""
        if self._losing and kind == self._losing[0]:
            del self._losing[0]
            return True
        return super().happens(kind, times)


class SteadyStore(SimulatedStore):
    """A store that answers again at once, whatever was lost."""

    def go_away(self) -> None:
        """Stay."""


class CrashWorld(World):
    """A world in which one cell happens."""

    def __init__(self, cell: Cell, stores: CellStores, handoff: ThreadHandoff) -> None:
        seed = zlib.crc32(str(cell).encode())
        super().__init__(seed, FAULTS, config_of(cell), 1, handoff)
        self.cell = cell
        self.deaths: list[Death] = []
        self.ordered = OrderedChaos(seed, cell, self._stored)
        self.chaos = self.ordered
        self.records = RECORDS if cell.size == 1 else GROUPS_RECORDS
        self.source = SimulatedSource(self, PARTITIONS, self.records, BATCH_RECORDS_MAX)
        self.source.complete()
        self._stores = stores

    def open_backend(self, location: str, table: StateTable) -> StateBackend:
        """Open a state in a store of the cell's kind."""
        return self._stores.open(self.stores[location], table)

    def lost(self, process: SimulatedProcess) -> None:
        """Look around when a process has just died; its database transaction is still open."""
        if len(self.deaths) < len(self.ordered.crashed):
            self.deaths.append(self._look())
        super().lost(process)

    def tables(self) -> dict[str, Contents]:
        """Read all tables from outside."""
        return {name: self._stores.contents(name) for name in self.cell.committers}

    def _stored(self, txid: int) -> bool:
        return stored_attempt(self.topology_id, self.ensemble.nodes, txid) is not None

    def _look(self) -> Death:
        id, nodes = self.topology_id, self.ensemble.nodes
        planned = {
            txid: stored_attempt(id, nodes, txid) for txid in range(self.records * PARTITIONS)
        }
        return Death(
            tables=self.tables(),
            known={name: self.history.stores.get(name, Contents()) for name in self.tables()},
            current=current_of(id, nodes),
            epoch=epoch_of(id, nodes),
            planned={txid: attempt for txid, attempt in planned.items() if attempt is not None},
            emitted=frozenset(attempt.txid for attempt in self.history.emissions),
        )


def run_cell(cell: Cell, stores: CellStores, handoff: ThreadHandoff) -> list[str]:
    """Run a cell; return what is wrong, which is nothing if all is well."""
    world = CrashWorld(cell, stores, handoff)
    shape = Shape(
        spout=cell.kind,
        kind=cell.state_kind,
        committers=cell.committers,
        relay=False,
        parallelism=1,
    )
    state = open_state("memory:", kind=cell.state_kind)
    world.stores[state.location] = SteadyStore(world, "cell")
    topology, oracles = build(shape, world.number, state)
    world.take(topology)
    with quiet():
        history = world.run(CHAOS_S)
    evidence = Evidence(
        topology_id=topology.id,
        history=history,
        oracles=oracles,
        source=Source(PARTITIONS, world.records),
        leftovers=world.leftovers.found,
        expected=(),
    )
    judged = verdict(0, world, evidence)
    wrong = [f"{each.checker}: {each.what}" for each in judged.violations]
    return [*wrong, *_crashes(world), *_outside(world)]


def _crashes(world: CrashWorld) -> Iterator[str]:
    """Yield the ordered faults that did not happen; a cell that kills nothing proves nothing."""
    cell, crashed = world.cell, world.ordered.crashed
    if crashed != cell.crashes:
        yield f"processes died at {crashed}; expected {cell.crashes}"
        return
    for death in world.deaths:
        if death.tables != death.known:
            yield f"from outside, at a death: {death.tables}; expected {death.known}"
    if not stands(cell, world.deaths[-1]):
        yield f"the process did not die at {cell}; it was {world.deaths[-1]}"
    leading = [change for *_, change in world.history.trace if isinstance(change, Leading)]
    adopted = adopts(world.deaths[-1])
    if leading[-1].adopted != adopted:
        yield f"the last process adopted txid {leading[-1].adopted}; expected {adopted}"


def _outside(world: CrashWorld) -> Iterator[str]:
    """Yield what is wrong at the end in the stores, compared with the source."""
    tables = world.tables()
    for name, contents in tables.items():
        if contents != world.history.stores[name]:
            yield f"from outside, table {name} holds {contents}; expected {world.history.stores}"
    ledgers = {name: contents.ledger for name, contents in tables.items()}
    if len({ledger and ledger.txid for ledger in ledgers.values()}) > 1:
        yield f"the ledgers differ: {ledgers}"
    if "aggregates" in tables:
        everything = [
            record(at, offset) for at in range(PARTITIONS) for offset in range(world.records)
        ]
        expected = ORACLES["aggregates"]({}, everything)
        if visible(tables["aggregates"]) != expected:
            yield f"the aggregates are {visible(tables['aggregates'])}; expected {expected}"
