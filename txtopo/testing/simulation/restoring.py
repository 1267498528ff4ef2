"""Restorations: the ensemble or stores of a simulation are set back to what they held before.

An operator stops all processes, brings back an earlier version of something, and starts them again:

* ``zookeeper``: the ensemble, and no store;
* ``stores``: all tables, to what they held at one moment, and not the ensemble;
* ``store``: one table alone.

Whoever starts then has to refuse, with an error that says what is wrong, or continue with the right
result. So if nothing is planned or committed for a while, the operator brings back the newer data,
and what happened meanwhile leaves the history. If something is, what was taken back leaves it, and
the checkers judge the rest as always: they find each record that is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.errors import (
    CorruptNodeError,
    FencedError,
    InfrastructureError,
    PoisonBatchError,
    PromiseError,
    StoreAheadOfCoordinator,
    StoreBehindCoordinator,
    TwoHistoriesError,
)
from txtopo.state.row_backend import Contents
from txtopo.testing.simulation.faults import SLOW_S
from txtopo.testing.simulation.history import NodesWrite, StoreWrite

if TYPE_CHECKING:
    from txtopo.attempt import TransactionAttempt
    from txtopo.testing.simulation.world import World
    from txtopo.transactional_state.memory import Nodes

KINDS = ("zookeeper", "stores", "store")

RIGHT_ERRORS: dict[str, tuple[type[Exception], ...]] = {
    # A snapshot may be of a moment in which the metadata of what a store holds had no end yet.
    "zookeeper": (StoreAheadOfCoordinator, TwoHistoriesError, CorruptNodeError),
    "stores": (StoreBehindCoordinator, TwoHistoriesError),
    # The other tables may be ahead of it by more than a group, as if ZooKeeper had lost that.
    "store": (StoreBehindCoordinator, TwoHistoriesError, StoreAheadOfCoordinator),
}
"""The errors that say what is wrong after a restoration."""

USUAL_ERRORS: tuple[type[Exception], ...] = (FencedError, PoisonBatchError, InfrastructureError)

TIMES_MAX = 2
"""How often something is restored in one simulation."""

LATE_S = SLOW_S[0] + 0.1
"""Virtual time after which no write of a killed process arrives any more."""

WAIT_S = 25.0
"""Virtual time in which starts are tried until the newer data are brought back."""

RECENT_WRITES = 30
"""Half of all restorations go back by this many writes at the most: near misses are the hardest."""


@dataclass(frozen=True, slots=True)
class _Restored:
    """A restoration that is under way.

    Attributes:
        kind: One of :data:`KINDS`.
        nodes: The nodes of the ensemble before it.
        stores: The contents of the tables before it.
        tables: The tables that were set back.
        since: Number of the first write that was taken back.
        until: Number of writes before it.
        endings: Number of runs that had ended before it.
        set_back_to: The nodes of the ensemble after it.
        attempts: The attempts of which something was emitted before it.
    """

    kind: str
    nodes: Nodes
    stores: dict[str, Contents]
    tables: tuple[str, ...]
    since: int
    until: int
    endings: int
    set_back_to: Nodes
    attempts: tuple[TransactionAttempt, ...]


class Restorations:
    """The restorations of one world.

    Attributes:
        refused: How many ended with the newer data, since nobody continued.
        let_in: How many were gone on from.
        stopped: Whether no process may start, since something is being restored.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._begun = 0
        self._busy = self.stopped = False
        self.refused = self.let_in = 0

    def begin(self) -> None:
        """Stop all processes, and restore something when no late write arrives any more."""
        if self._busy or self._begun == TIMES_MAX or not self._world.history.stores:
            return
        self._busy = True
        self._begun += 1
        self._stop_all()
        self._world.timeline.after(LATE_S, self._restore)

    def _stop_all(self) -> None:
        self.stopped = True
        for process in tuple(self._world.begun):
            process.kill()

    def _restore(self) -> None:
        world, history, chaos = self._world, self._world.history, self._world.chaos
        self.stopped = False
        if chaos.healed:
            self._busy = False
            return
        kind = KINDS[chaos.below(len(KINDS))]
        count = len(history.writes)
        back = min(count, RECENT_WRITES if chaos.below(2) else count)
        since = count - chaos.below(back)
        tables = tuple(sorted(history.stores))
        if kind == "store":
            tables = (tables[chaos.below(len(tables))],)
        elif kind == "zookeeper":
            tables = ()
        before = history.writes[:since]
        nodes = _nodes_after(before) if kind == "zookeeper" else world.ensemble.nodes
        restored = _Restored(
            kind,
            world.ensemble.nodes,
            dict(history.stores),
            tables,
            since,
            count,
            len(history.endings),
            nodes,
            tuple({*history.emissions, *history.times}),
        )
        if kind == "zookeeper":
            self._put(nodes, history.stores)
        else:
            found = {name: _contents_after(before, name) for name in tables}
            self._put(world.ensemble.nodes, {**history.stores, **found})
        history.note(world.timeline.now_s, "operator", f"RESTORED {kind}", (count - since, tables))
        world.timeline.after(WAIT_S, lambda: self._look(restored))

    def _look(self, restored: _Restored) -> None:
        """Bring back the newer data, if nobody has gone on."""
        world, history = self._world, self._world.history
        if any(map(_goes_on, history.writes[restored.until :])):
            history.writes[restored.since : restored.until] = [
                write
                for write in history.writes[restored.since : restored.until]
                if not _taken_back(write, restored)
            ]
            if restored.kind == "zookeeper":
                self._forget_plans(restored)
            self.let_in += 1
            self._busy = False
            history.note(world.timeline.now_s, "operator", "LET IN")
            return
        self._stop_all()
        world.timeline.after(LATE_S, lambda: self._bring_back(restored))

    def _forget_plans(self, restored: _Restored) -> None:
        """Forget what was emitted of txids whose plan was taken back before a state took them."""
        history, id = self._world.history, self._world.topology_id
        held = max(
            (each.ledger.txid for each in restored.stores.values() if each.ledger), default=0
        )
        for attempt in restored.attempts:
            path = f"/{id}/batches/{attempt.txid:020d}"
            if attempt.txid > held and path not in restored.set_back_to:
                history.emissions.pop(attempt, None)
                history.times.pop(attempt, None)

    def _bring_back(self, restored: _Restored) -> None:
        world, history = self._world, self._world.history
        self.stopped = False
        right: tuple[type[Exception], ...] = USUAL_ERRORS + RIGHT_ERRORS[restored.kind]
        for ending in history.endings[restored.endings :]:
            if isinstance(ending.error, PromiseError) and not isinstance(ending.error, right):
                world.leftovers.found.append(
                    f"after the restoration of {restored.kind}, {ending.process} ended with "
                    f"{ending.error!r}"
                )
        del history.endings[restored.endings :]
        del history.writes[restored.until :]
        self._put(restored.nodes, restored.stores)
        self.refused += 1
        self._busy = False
        history.note(world.timeline.now_s, "operator", "BROUGHT BACK")

    def _put(self, nodes: Nodes, stores: dict[str, Contents]) -> None:
        world, history = self._world, self._world.history
        world.ensemble.nodes = history.nodes = nodes
        history.stores = dict(stores)
        for store in world.stores.values():
            for table in store.contents:
                store.contents[table] = stores.get(table, Contents())


def _goes_on(write: StoreWrite | NodesWrite) -> bool:
    """Return whether a write plans or commits something, and is not only a claim."""
    if isinstance(write, StoreWrite):
        before, after = write.before.ledger, write.after.ledger
        held = None if before is None or not before.txid else before.writer
        return after is not None and after.txid > 0 and after.writer != held
    claims = {path for path in write.after if write.before.get(path) != write.after[path]}
    return any(not path.endswith("/epoch") for path in claims)


def _taken_back(write: StoreWrite | NodesWrite, restored: _Restored) -> bool:
    if isinstance(write, StoreWrite):
        return write.table in restored.tables
    return restored.kind == "zookeeper"


def _nodes_after(writes: list[StoreWrite | NodesWrite]) -> Nodes:
    return next((w.after for w in reversed(writes) if isinstance(w, NodesWrite)), {})


def _contents_after(writes: list[StoreWrite | NodesWrite], table: str) -> Contents:
    found: Iterator[StoreWrite] = (w for w in reversed(writes) if isinstance(w, StoreWrite))
    return next((write.after for write in found if write.table == table), Contents())
