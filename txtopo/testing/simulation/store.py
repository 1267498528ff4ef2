"""SimulatedStore: a store that outlives the processes, and fails before, in and after writes.

Its backends are :class:`~txtopo.state.row_backend.RowBackend`, so the protocol that runs is the one
that plug-ins run. Every version that the store ever holds goes into the history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from txtopo.errors import StoreUnavailable, UnknownOutcomeError
from txtopo.state.backend import Key, StateTable
from txtopo.state.ledger import Ledger
from txtopo.state.row_backend import Contents, RowBackend
from txtopo.state.values import Row
from txtopo.testing.simulation.chaos import AWAY_S, SLOW_S

if TYPE_CHECKING:
    from txtopo.testing.simulation.process import SimulatedProcess
    from txtopo.testing.simulation.world import World


class SimulatedStore:
    """The tables of one store of a simulation."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.world = world
        self.contents: dict[str, Contents] = {}
        self.opened: dict[SimulatedProcess, int] = {}
        self._away_until_s = 0.0

    def check_reachable(self) -> None:
        """Fail now and then, and for a while now and then."""
        chaos = self.world.chaos
        if chaos.happens("store_away"):
            self.go_away()
        away = self.world.timeline.now_s < self._away_until_s and not chaos.healed
        if away or chaos.happens("store_before"):
            raise StoreUnavailable(f"the simulated store {self.name!r} does not answer")

    def go_away(self) -> None:
        """Answer nobody for a while."""
        self._away_until_s = self.world.timeline.now_s + self.world.chaos.between(*AWAY_S)

    def lost(self, fate: str) -> UnknownOutcomeError:
        """Lose a connection; often the next one cannot be made at once either."""
        if self.world.chaos.below(2):
            self.go_away()
        return UnknownOutcomeError(f"the simulated connection was lost; the write was {fate}")

    def swap(
        self,
        writer: SimulatedProcess,
        table: str,
        expected: Ledger | None,
        contents: Contents,
    ) -> bool:
        """Compare and set the contents of a table."""
        before = self.contents.get(table, Contents())
        if before.ledger != expected:
            return False
        self.contents[table] = contents
        self.world.history.stored(self.world.timeline.now_s, writer, table, before, contents)
        return True


class SimulatedBackend(RowBackend):
    """One state in a :class:`SimulatedStore`, opened by one process."""

    shared_by_processes = False

    def __init__(self, store: SimulatedStore, table: StateTable) -> None:
        super().__init__(table)
        self._store = store
        self._process = store.world.current
        store.opened[self._process] = store.opened.get(self._process, 0) + 1
        self._open = True

    def load(self) -> Contents:
        """Read the contents."""
        self._process.checkpoint("store")
        self._store.check_reachable()
        return self._store.contents.get(self.table.name, Contents())

    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> bool:
        """Compare and set; what becomes of it may be unknown."""
        self._process.checkpoint("store write")
        store, chaos, process = self._store, self._store.world.chaos, self._process
        store.check_reachable()
        rows = dict(store.contents.get(self.table.name, Contents()).rows)
        for key, row in changes.items():
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
        contents = Contents(ledger, rows)
        if chaos.happens("store_lost"):
            raise store.lost("lost")
        if chaos.happens("store_late"):
            delay_s = chaos.between(0.0, SLOW_S[0])

            def arrive() -> None:
                store.swap(process, self.table.name, expected, contents)

            store.world.timeline.after(delay_s, arrive)
            raise store.lost("still on its way")
        written = store.swap(process, self.table.name, expected, contents)
        process.checkpoint("store written")
        if chaos.happens("store_after"):
            raise store.lost("done" if written else "refused")
        return written

    def close(self) -> None:
        """Take note: what is opened is closed, unless the process dies."""
        if self._open:
            self._open = False
            self._store.opened[self._process] -= 1
