"""Beginnings: the states of programs as they are before the txids that are tried.

Rules
-----
1. Programs that have a table begin with the same rows: each table is read once, as of one txid, by
   :mod:`txtopo.operations.past`.
2. A state that is new to the topology begins empty, as at a start. So does one whose table a start
   would refuse; what the start would say is told.
3. Rows have the columns that the program declares: one that is added has the default of
   :mod:`txtopo.state.evolution`, one that is removed is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from txtopo.errors import SchemaDrift
from txtopo.fingerprint import Fingerprint, StateName, in_words
from txtopo.operations.overlay import OverlayState, PastRows
from txtopo.operations.past import PastStore, PastView, rows_after
from txtopo.state.declaration import declaration
from txtopo.state.evolution import table_change
from txtopo.state.ledger import Ledger
from txtopo.topology.changes import added_states
from txtopo.topology.graph import fingerprint

if TYPE_CHECKING:
    from txtopo.state.backend import StateBackend, StateTable
    from txtopo.state.registry import State
    from txtopo.topology.graph import Graph


@dataclass(frozen=True, slots=True)
class Beginning:
    """A state as it is before the first txid that is computed.

    Attributes:
        overlay: Takes the writes.
        table: The schema that the program declares.
        how: What it begins with, in words.
        exact: Whether the running program began that txid with the same rows.
        stored: The table as the store has it; None for a state that begins empty.
        refused: What a start would say against it; None for nothing.
    """

    overlay: OverlayState
    table: StateTable
    how: str
    exact: bool
    stored: StoredTable | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table as its store has it.

    Attributes:
        table: Its schema.
        backend: Reads it.
        owner: Id of the topology that it belongs to.
        view: It before the first txid that is computed.
        is_snapshot: Whether all its rows are read as of one moment.
    """

    table: StateTable
    backend: StateBackend
    owner: str
    view: PastView
    is_snapshot: bool

    def rows_after(self, txid: int, stack: ExitStack) -> PastRows | None:
        """Return its rows after a txid; None if the store no longer has them."""
        return rows_after(self.table, self.backend, txid, stack)


class Beginnings:
    """The states of programs of one topology before one txid.

    Args:
        topology_id: Id of the topology.
        known: The program that ran; None if ZooKeeper does not have it.
        txid: The txid.
        current: The lowest txid that is not committed.
        stack: Closes what is opened.
    """

    def __init__(
        self,
        topology_id: str,
        known: Fingerprint | None,
        txid: int,
        current: int,
        stack: ExitStack,
    ) -> None:
        self._topology_id, self._known = topology_id, known
        self._txid, self._current = txid, current
        self._stack = stack
        self._read: dict[tuple[str, str], StoredTable | None] = {}

    def of(self, graph: Graph) -> dict[StateName, Beginning]:
        """Return the beginning of each state of a program.

        Raises:
            StoreUnavailable: A store cannot be reached.
        """
        added = () if self._known is None else added_states(fingerprint(graph), self._known)
        found: dict[StateName, Beginning] = {}
        for component in graph.components.values():
            for name, state in component.states.items():
                at = (component.id, name)
                if component.traits.state is not None:
                    how = "empty, because it is a sink, to which nothing is sent"
                    found[at] = self._empty(state, how, exact=True)
                elif at in added:
                    found[at] = self._empty(state, "empty, because it is new", exact=True)
                else:
                    found[at] = self._kept(at, state)
        return found

    def first_txid(self, found: Mapping[StateName, Beginning]) -> int:
        """Return the txid that is computed first, since states can be read only as of before it."""
        afters = [
            each.stored.view.after
            for each in found.values()
            if each.stored is not None and each.stored.view.after is not None
        ]
        return min([self._txid, *(after + 1 for after in afters)])

    def _empty(
        self, state: State, how: str, *, exact: bool, refused: str | None = None
    ) -> Beginning:
        table, backend = state.layout(), state.open()
        self._stack.callback(backend.close)
        ledger = Ledger(self._topology_id, 0, self._txid - 1)
        overlay = OverlayState(table, PastRows(), ledger, backend.check_statement)
        return Beginning(overlay, table, how, exact, refused=refused)

    def _kept(self, name: StateName, state: State) -> Beginning:
        table = state.layout()
        place = (state.location, table.name)
        if place not in self._read:
            self._read[place] = self._opened(state)
        if (read := self._read[place]) is None:
            why = (
                f"the table of {in_words(name)} is missing or empty, but had rows in another store"
            )
            return self._empty(state, "empty, as its table is", exact=False, refused=why)
        if (other := read.owner) != self._topology_id:
            why = f"the table of {in_words(name)} belongs to topology {other!r}"
            how = "empty, because its table belongs to another topology"
            return self._empty(state, how, exact=False, refused=why)
        change = None
        if (text := declaration(read.table)) != declaration(table):
            try:
                change = table_change(text, table, in_words(name))
            except SchemaDrift as error:
                how = "empty, because its table has different columns"
                return self._empty(state, how, exact=False, refused=str(error))
        rows, how = replace(read.view.rows, change=change), read.view.how
        if not read.is_snapshot:
            how = f"{how}; its store has no snapshots, so rows may be of later txids"
        ledger = Ledger(self._topology_id, 0, self._txid - 1)
        overlay = OverlayState(table, rows, ledger, read.backend.check_statement)
        return Beginning(overlay, table, how, read.view.after is not None, read)

    def _opened(self, state: State) -> StoredTable | None:
        """Return the table of a state; None if it is missing, or was never written."""
        declared = state.layout()
        with closing(state.open()) as backend:
            tables = backend.stored()
        if tables is not None:
            stored = next((each for each in tables if each.name == declared.name), None)
            if stored is None:
                return None
            if declaration(stored) != declaration(declared):
                state = _as_stored(state, stored)
        table, backend = state.layout(), state.open()
        self._stack.callback(backend.close)
        now = self._stack.enter_context(backend.snapshot())
        held = now.ledger
        if self._txid > 1 and (held is None or not held.txid):
            return None
        owner = self._topology_id if held is None else held.topology
        view = PastStore(table, backend, now, self._current, self._stack).before(self._txid)
        return StoredTable(table, backend, owner, view, now.is_snapshot)


def _as_stored(state: State, stored: StateTable) -> State:
    """Return a state with the columns that its store has."""
    names = (*stored.key.names, *stored.value.names)
    return replace(
        state,
        kind=stored.kind,
        key=stored.key,
        value=stored.value,
        aggregates=stored.aggregates,
        mode=stored.mode,
        range_by=state.range_by if state.range_by in names else None,
        defaults=(),
    )
