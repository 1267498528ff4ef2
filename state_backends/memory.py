"""A state in this process's memory: the reference for every other backend, and for tests.

Delivery: exactly once, as long as the process lives. ``open_state("memory:")`` creates a new store,
and the :class:`~txtopo.state.State` holds it: topologies share the store by sharing that object,
and it vanishes with the object. ``memory://name`` is one store for all states that name it at the
same time. The states of a topology in one store share a transaction for each commit. Nothing here
is shared with other processes.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from weakref import WeakValueDictionary

from txtopo.errors import TopologyError
from txtopo.plugins.stores import (
    Contents,
    Database,
    Key,
    Ledger,
    Replacement,
    Row,
    RowBackend,
    StateTable,
)


class MemoryStore:
    """The tables of one store, by name."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tables: dict[str, tuple[StateTable, Contents]] = {}


class MemoryBackend(RowBackend):
    """One state in a :class:`MemoryStore`."""

    evolves = True
    shared_by_processes = False

    def __init__(self, store: MemoryStore, table: StateTable) -> None:
        super().__init__(table)
        self._store = store

    def load(self) -> Contents:
        """Return the contents; they are replaced, never changed."""
        return self._store.tables.get(self.table.name, (self.table, Contents()))[1]

    def database(self) -> Database:
        """Return the store."""
        return Database(("memory", str(id(self._store))))

    def load_together(self, backends: Sequence[RowBackend]) -> list[Contents]:
        """Return the contents of several states at one moment."""
        with self._store.lock:
            return [backend.load() for backend in backends]

    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> bool:
        """Put new contents in place of the old ones, if their ledger is still *expected*."""
        return self.replace_together([Replacement(self, expected, ledger, changes)])

    def replace_together(self, replacements: Sequence[Replacement]) -> bool:
        """Put new contents in place of the old ones, if all ledgers are still the expected ones."""
        with self._store.lock:
            held = [each.backend.load() for each in replacements]
            if any(
                one.ledger != each.expected for one, each in zip(held, replacements, strict=True)
            ):
                return False
            for one, each in zip(held, replacements, strict=True):
                rows = dict(one.rows)
                for key, row in each.changes.items():
                    if row is None:
                        rows.pop(key, None)
                    else:
                        rows[key] = row
                table = each.backend.table
                self._store.tables[table.name] = (table, Contents(each.ledger, rows))
        return True

    def stored(self) -> tuple[StateTable, ...]:
        """Return the states of the store."""
        return tuple(table for table, _ in self._store.tables.values())


class MemoryFactory:
    """Opens states in memory; ``open_backend`` is the entry point."""

    shared_by_processes = False

    def __init__(self) -> None:
        self._stores: WeakValueDictionary[str, MemoryStore] = WeakValueDictionary()
        self._lock = threading.Lock()

    def anchor(self, url: str) -> tuple[str, object]:
        """Return the URL of one store, and the store, which lives as long as a reference to it."""
        name = url.partition(":")[2].strip("/")
        url = f"memory://{name or uuid.uuid4().hex}"
        with self._lock:
            store = self._stores.get(url)
            if store is None:
                store = self._stores[url] = MemoryStore()
        return url, store

    def __call__(self, url: str, table: StateTable) -> MemoryBackend:
        """Open a state of a store that is in this process."""
        store = self._stores.get(url)
        if store is None:
            raise TopologyError(
                f"the state {table.name!r} in {url!r} is in the memory of another process, or its "
                "State object no longer exists; use sqlite:///… or postgresql://… where Spark "
                "tasks or other processes open the state",
                state=table.name,
                path=url,
            )
        return MemoryBackend(store, table)

    def __reduce__(self) -> str:
        return "open_backend"


open_backend = MemoryFactory()
