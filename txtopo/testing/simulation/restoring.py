"""Restorations: the ensemble or stores of a simulation are reverted to an earlier version.

An operator stops all processes, restores an earlier version of something, and starts them again:

* ``zookeeper``: the ensemble, and no store;
* ``stores``: all tables, to what they held at one moment, and not the ensemble;
* ``store``: one table alone.

The processes that then start must refuse, with an error that explains what is wrong, or continue
with the right result. So if nothing is planned or committed for a while, the operator restores the
newer data, and whatever happened meanwhile is removed from the history. Otherwise, whatever was
reverted is removed from it, and the checkers check the rest as always: they find each record that
is lost or doubled.

If an ensemble or all stores were reverted and nobody continued, half of the operators call
``rebuild`` instead, with the metadata that they have kept, unless bolts may write elsewhere than to
states, which nobody reverts. Its process may be killed, and it is called again. What it wrote is
removed from the history, and so are the plans that it dropped. A rebuild that is not done in time,
or that reports that it cannot help, ends with the newer data as well.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from txtopo.config import Config
from txtopo.ensemble.nodes import BATCHES, batch_path, decode, txid_of
from txtopo.errors import (
    CoordinatorActive,
    CorruptNodeError,
    FencedError,
    InfrastructureError,
    PoisonBatchError,
    PromiseError,
    StoreAheadOfCoordinator,
    StoreBehindCoordinator,
    TwoHistoriesError,
    TxtopoError,
)
from txtopo.metadata import Json
from txtopo.operations import Access, rebuild
from txtopo.state.row_backend import Contents
from txtopo.testing.checkers.evidence import stored_attempts
from txtopo.testing.simulation.clock import Crashed
from txtopo.testing.simulation.faults import SLOW_S
from txtopo.testing.simulation.history import NodesWrite, StoreWrite
from txtopo.topology.elsewhere import may_write_elsewhere

if TYPE_CHECKING:
    from txtopo.attempt import TransactionAttempt
    from txtopo.ensemble.memory import Nodes
    from txtopo.testing.simulation.world import SimulatedProcess, World

KINDS = ("zookeeper", "stores", "store")

RIGHT_ERRORS: dict[str, tuple[type[Exception], ...]] = {
    # A snapshot may be from a moment at which the metadata of a txid that a store holds had no end
    # yet.
    "zookeeper": (StoreAheadOfCoordinator, TwoHistoriesError, CorruptNodeError),
    "stores": (StoreBehindCoordinator, TwoHistoriesError),
    # The other tables may be ahead of it by more than a group, as if ZooKeeper had lost that.
    "store": (StoreBehindCoordinator, TwoHistoriesError, StoreAheadOfCoordinator),
}
"""The errors that explain what is wrong after a restoration."""

USUAL_ERRORS: tuple[type[Exception], ...] = (FencedError, PoisonBatchError, InfrastructureError)

TIMES_MAX = 2
"""How often something is restored in one simulation."""

LATE_S = SLOW_S[0] + 0.1
"""Virtual time after which no write of a killed process can arrive."""

WAIT_S = 25.0
"""Virtual time in which starts are tried until the newer data is restored."""

REBUILD_S = 60.0
"""Virtual time in which a rebuild must be done, however often it is called again."""

AGAIN_S = 1.0
"""Virtual time after which it is called again."""

RECENT_WRITES = 30
"""Half of all restorations go back by this many writes at the most: near misses are the hardest."""


@dataclass(frozen=True, slots=True)
class _Restored:
    """A restoration in progress.

    Attributes:
        kind: One of :data:`KINDS`.
        nodes: The nodes of the ensemble before it.
        stores: The contents of the tables before it.
        tables: The tables that were reverted.
        since: Number of the first write that was reverted.
        until: Number of writes before it.
        endings: Number of runs that had ended before it.
        set_back_to: The nodes of the ensemble after it.
        kept: The nodes of the ensemble with the metadata that operators have kept.
        attempts: The attempts that emitted something before it.
    """

    kind: str
    nodes: Nodes
    stores: dict[str, Contents]
    tables: tuple[str, ...]
    since: int
    until: int
    endings: int
    set_back_to: Nodes
    kept: Nodes
    attempts: tuple[TransactionAttempt, ...]


class Restorations:
    """The restorations of one world.

    Attributes:
        refused: How many ended with the newer data, since nobody continued.
        let_in: How many runs continued from.
        rebuilt: How many ended with a rebuild.
        stopped: Whether no process may start, since something is being restored.
    """

    def __init__(self, world: World, choices: random.Random) -> None:
        self._world = world
        # A generator of its own, so that a choice does not change the faults of a seed.
        self._choices = choices
        self._begun = 0
        self._busy = self.stopped = False
        self.refused = self.let_in = self.rebuilt = 0

    def begin(self) -> None:
        """Stop all processes, and restore something when no late write can arrive."""
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
        while 0 < since < count and _of_one_instant(*history.writes[since - 1 : since + 1]):
            since -= 1
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
            world.ensemble.nodes if kind == "zookeeper" else _nodes_after(before),
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
        """Restore the newer data, if nobody has continued."""
        world, history = self._world, self._world.history
        if any(map(_goes_on, history.writes[restored.until :])):
            kept: list[StoreWrite | NodesWrite] = []
            for write in history.writes[restored.since : restored.until]:
                if not _taken_back(write, restored):
                    kept.append(write)
                elif isinstance(write, NodesWrite):
                    history.lost_attempts |= stored_attempts(world.topology_id, write)
            history.writes[restored.since : restored.until] = kept
            if restored.kind == "zookeeper":
                self._forget_plans(restored, restored.set_back_to, restored.stores)
            self.let_in += 1
            self._busy = False
            history.note(world.timeline.now_s, "operator", "LET IN")
            return
        self._stop_all()
        rebuilds = restored.kind != "store" and self._choices.random() < 0.5
        if rebuilds and world.topology and not may_write_elsewhere(world.topology.graph):
            world.timeline.after(LATE_S, lambda: self._rebuild(restored))
        else:
            world.timeline.after(LATE_S, lambda: self._bring_back(restored))

    def _rebuild(self, restored: _Restored) -> None:
        """Let an operator call ``rebuild`` until it is done."""
        world = self._world
        metadata = _metadata_in(restored.kept)
        end_s = world.timeline.now_s + REBUILD_S
        done: list[bool] = []

        def begin() -> None:
            process = world.new_process(f"R.{len(world.begun)}")
            process.begin(lambda: run(process))

        def run(process: SimulatedProcess) -> None:
            try:
                while not done and world.timeline.now_s < end_s:
                    if not self._called(process, metadata, done):
                        process.sleep(AGAIN_S)
            except Crashed:
                if not done and world.timeline.now_s < end_s:
                    world.timeline.after(AGAIN_S, begin)

        def look() -> None:
            if not done and world.timeline.now_s < end_s:
                world.timeline.after(AGAIN_S, look)
                return
            self._stop_all()
            finish = self._take_rebuilt if done == [True] else self._bring_back
            world.timeline.after(LATE_S, lambda: finish(restored))

        begin()
        look()

    def _called(
        self, process: SimulatedProcess, metadata: dict[int, Json], done: list[bool]
    ) -> bool:
        """Call ``rebuild`` once; return whether its outcome is known, and then set *done*."""
        world = self._world
        assert world.topology is not None
        config = Config(carrier="local", zookeeper="memory")
        scheduler = process.scheduler
        access = Access(
            ensemble=world.ensemble_of(process), point=scheduler.point, seed=scheduler.seed
        )
        try:
            rebuild(world.topology, config, metadata=metadata, access=access).apply()
            done.append(True)
        except (InfrastructureError, CoordinatorActive) as error:  # or a session has not ended yet
            world.history.note(world.timeline.now_s, process.name, "rebuild failed", repr(error))
        except TxtopoError as error:
            world.history.note(world.timeline.now_s, process.name, "rebuild refused", repr(error))
            done.append(False)
        return bool(done)

    def _take_rebuilt(self, restored: _Restored) -> None:
        world, history = self._world, self._world.history
        before, now = _plans_in(restored.kept), _plans_in(world.ensemble.nodes)
        if any(before[path] != now[path] for path in before.keys() & now.keys()):
            # An opaque batch that is redone has another limit or time than before.
            self._bring_back(restored)
            return
        self.stopped = False
        self._check_endings(restored)
        del history.writes[restored.until :]
        if restored.kind == "stores":
            del history.writes[restored.since :]
            for source in world.sources:
                source.keep_all()
        history.nodes = world.ensemble.nodes
        gone = self._forget_plans(restored, history.nodes, history.stores)
        history.writes[:] = [_without(write, gone) for write in history.writes]
        self.rebuilt += 1
        self._busy = False
        history.note(world.timeline.now_s, "operator", "REBUILT")

    def _forget_plans(
        self, restored: _Restored, nodes: Nodes, stores: dict[str, Contents]
    ) -> set[str]:
        """Forget what was emitted of txids without a plan in *nodes*, which no state held.

        Returns:
            The paths of these plans.
        """
        history, id = self._world.history, self._world.topology_id
        held = max((each.ledger.txid for each in stores.values() if each.ledger), default=0)
        gone = set()
        for path in restored.nodes.keys() - nodes.keys():
            if path.startswith(f"/{id}{BATCHES}/") and txid_of(path) > held:
                gone.add(path)
        for attempt in restored.attempts:
            path = f"/{id}{batch_path(attempt.txid)}"
            if attempt.txid > held and path not in nodes:
                gone.add(path)
                history.emissions.pop(attempt, None)
                history.times.pop(attempt, None)
        return gone

    def _bring_back(self, restored: _Restored) -> None:
        world, history = self._world, self._world.history
        self.stopped = False
        self._check_endings(restored)
        del history.writes[restored.until :]
        self._put(restored.nodes, restored.stores)
        self.refused += 1
        self._busy = False
        history.note(world.timeline.now_s, "operator", "BROUGHT BACK")

    def _check_endings(self, restored: _Restored) -> None:
        """Check that the refused runs have explained what is wrong, and forget their ends."""
        world, history = self._world, self._world.history
        right: tuple[type[Exception], ...] = USUAL_ERRORS + RIGHT_ERRORS[restored.kind]
        if self.rebuilt:  # what is restored may be of an ensemble that was given up
            right += (StoreAheadOfCoordinator,)
        for ending in history.endings[restored.endings :]:
            if isinstance(ending.error, PromiseError) and not isinstance(ending.error, right):
                world.leftovers.found.append(
                    f"after the restoration of {restored.kind}, {ending.process} ended with "
                    f"{ending.error!r}"
                )
        del history.endings[restored.endings :]

    def _put(self, nodes: Nodes, stores: dict[str, Contents]) -> None:
        world, history = self._world, self._world.history
        world.ensemble.nodes = history.nodes = nodes
        history.stores = dict(stores)
        for store in world.stores.values():
            for table in store.contents:
                store.contents[table] = stores.get(table, Contents())


def _goes_on(write: StoreWrite | NodesWrite) -> bool:
    """Return whether a write plans or commits something, and is more than a claim."""
    if isinstance(write, StoreWrite):
        before, after = write.before.ledger, write.after.ledger
        held = None if before is None or not before.txid else before.writer
        return after is not None and after.txid > 0 and after.writer != held
    claims = {path for path in write.after if write.before.get(path) != write.after[path]}
    return any(not path.endswith("/epoch") for path in claims)


def _plans_in(nodes: Nodes) -> dict[str, object]:
    """Return the limits and stamps of the batches of an ensemble, by path."""
    found: dict[str, object] = {}
    for path, (data, _) in nodes.items():
        record = decode(path, data) if f"{BATCHES}/" in path else None
        value = None if record is None else record.value
        metadata = value.get("metadata") if isinstance(value, dict) else None
        if isinstance(metadata, dict):
            found[path] = metadata.get("pace"), metadata.get("stamp")
    return found


def _metadata_in(nodes: Nodes) -> dict[int, Json]:
    """Return the batches of an ensemble as ``show`` returns them, which operators keep."""
    found: dict[int, Json] = {}
    for path, (data, _) in nodes.items():
        if f"{BATCHES}/" in path and (record := decode(path, data)) is not None:
            found[txid_of(path)] = record.value
    return found


def _without(write: StoreWrite | NodesWrite, gone: set[str]) -> StoreWrite | NodesWrite:
    """Return a write as if some nodes had never been there."""

    def rest(nodes: Nodes) -> Nodes:
        return {path: node for path, node in nodes.items() if path not in gone}

    if isinstance(write, NodesWrite):
        return replace(write, before=rest(write.before), after=rest(write.after))
    return replace(write, nodes=rest(write.nodes))


def _taken_back(write: StoreWrite | NodesWrite, restored: _Restored) -> bool:
    if isinstance(write, StoreWrite):
        return write.table in restored.tables
    return restored.kind == "zookeeper"


def _of_one_instant(write: StoreWrite | NodesWrite, other: StoreWrite | NodesWrite) -> bool:
    both = isinstance(write, StoreWrite) and isinstance(other, StoreWrite)
    return both and write.stores is other.stores


def _nodes_after(writes: list[StoreWrite | NodesWrite]) -> Nodes:
    return next((w.after for w in reversed(writes) if isinstance(w, NodesWrite)), {})


def _contents_after(writes: list[StoreWrite | NodesWrite], table: str) -> Contents:
    found: Iterator[StoreWrite] = (w for w in reversed(writes) if isinstance(w, StoreWrite))
    return next((write.after for write in found if write.table == table), Contents())
