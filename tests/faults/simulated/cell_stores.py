"""The stores of one simulated world: in memory, or in a real database under virtual time.

A call to a database blocks and takes no virtual time. A process that dies in a database transaction
leaves it by an exception that nobody catches, so that nothing of it is committed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from state_backends.sql.backend import SqlBackend
from state_backends.sql.dialect import SqlDialect
from txtopo.attempt import TransactionAttempt
from txtopo.errors import StoreUnavailable, UnknownOutcomeError
from txtopo.plugins.stores import Claim
from txtopo.state.backend import Snapshot, StateBackend, StateTable, Writes
from txtopo.state.ledger import Ledger
from txtopo.state.row_backend import Contents
from txtopo.testing.simulation.outside import SimulatedBackend, SimulatedStore

if TYPE_CHECKING:
    from txtopo.testing.simulation.world import SimulatedProcess


class CellStores(ABC):
    """The stores of one world."""

    @abstractmethod
    def open(self, store: SimulatedStore, table: StateTable) -> StateBackend:
        """Open a state for the process that runs now."""

    @abstractmethod
    def contents(self, table: str) -> Contents:
        """Read a table from outside, as anyone may who is no process of the world."""


@dataclass(slots=True)
class MemoryStores(CellStores):
    """The simulator's own stores."""

    _stores: dict[str, SimulatedStore] = field(default_factory=dict)

    def open(self, store: SimulatedStore, table: StateTable) -> StateBackend:
        self._stores[table.name] = store
        return SimulatedBackend(store, table)

    def contents(self, table: str) -> Contents:
        return self._stores[table].contents.get(table, Contents())


@dataclass(slots=True)
class SqlStores(CellStores):
    """A database for each table.

    Attributes:
        dialect_of: Says how to speak to the database of a table.
    """

    dialect_of: Callable[[StateTable], SqlDialect]
    _readers: dict[str, StateBackend] = field(default_factory=dict)
    _opened: list[StateBackend] = field(default_factory=list)

    def open(self, store: SimulatedStore, table: StateTable) -> StateBackend:
        dialect = self.dialect_of(table)
        if table.name not in self._readers:
            # Once a cell: what a later process finds is there, and to check it takes a while.
            reader = self._readers[table.name] = SqlBackend(dialect, "a simulated database")
            reader.create()
        backend = WatchedBackend(store, SqlBackend(dialect, "a simulated database"), table)
        self._opened.append(backend)
        return backend

    def contents(self, table: str) -> Contents:
        return contents_of(self._readers[table])

    def close(self) -> None:
        """Close every connection."""
        for backend in (*self._opened, *self._readers.values()):
            backend.close()


class WatchedBackend(StateBackend):
    """A backend of a database in a simulated process; each version goes into the history."""

    groups = True
    shared_by_processes = False

    def __init__(self, store: SimulatedStore, inside: StateBackend, table: StateTable) -> None:
        self._store = store
        self._process: SimulatedProcess = store.world.current
        self._inside = inside
        self._table = table.name
        self._open = True
        inside.point = self._step
        store.opened[self._process] = store.opened.get(self._process, 0) + 1

    def create(self) -> None:
        pass

    def claim(self, claim: Claim) -> Ledger:
        self._process.checkpoint("store")
        self.claimant = claim
        ledger = self._inside.claim(claim)
        self._note()
        return ledger

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        ledger = self._inside.commit(attempt, writes)
        self._note()
        if self._store.world.chaos.happens("store_after"):
            raise UnknownOutcomeError("the connection was lost; the write was done")
        return ledger

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        self._process.checkpoint("store")
        if self._store.world.chaos.happens("store_before"):
            raise StoreUnavailable("the connection was refused")
        return self._inside.snapshot()

    def close(self) -> None:
        self._inside.close()
        if self._open:
            self._open = False
            self._store.opened[self._process] -= 1

    def _step(self, step: str) -> None:
        self.point(step)
        if step == "write.before" and self._store.world.chaos.happens("store_lost"):
            raise UnknownOutcomeError("the connection was lost; the write was rolled back")

    def _note(self) -> None:
        world = self._store.world
        before = world.history.stores.get(self._table, Contents())
        after = contents_of(self._inside)
        if after != before:
            now_s = world.timeline.now_s
            world.history.stored(now_s, self._process, {self._table: (before, after)})


def contents_of(backend: StateBackend) -> Contents:
    """Read everything that a state holds."""
    with backend.snapshot() as snapshot:
        return Contents(snapshot.ledger, dict(snapshot.items()))
