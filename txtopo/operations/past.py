"""The states of a topology as they were before a txid, as far as their stores can still tell.

* An opaque state has the values from before the group that it holds: those are read. (One in mode
  ``"log"`` has them in rows of their own, which readers combine, and cannot tell.)
* A store with history, such as Delta, is read as of the version of then.
* A state that does not hold the txid yet is read as it is. If it also lacks txids that are
  committed, it is not of them: the topology did not have it then.
* A sink is empty: no bolt reads it, and nothing connects to it. So is a state that the topology did
  not have when it ran.
* Any other state is read as it is now. Whoever looks at the result is told so.

Nothing is created, claimed or written. All that is read of a store is of one moment.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.errors import StateUsageError
from txtopo.operations.overlay import OverlayState, PastRows
from txtopo.operations.program import known_topology
from txtopo.state.backend import Snapshot, StateBackend, StateTable
from txtopo.state.ledger import Ledger
from txtopo.topology.graph import fingerprint

if TYPE_CHECKING:
    from txtopo.fingerprint import StateName
    from txtopo.operations.session import OperatorSession


@dataclass(frozen=True, slots=True)
class PastState:
    """A state as it was before a txid.

    Attributes:
        overlay: Takes the writes of the txids that are computed again.
        after: The txid after which it is read; None if it is not of one txid before.
        how: What is read, in words.
        afterwards: The rows as they were after the txid; None if the store no longer has them.
    """

    overlay: OverlayState
    after: int | None
    how: str
    afterwards: Snapshot | None


def open_past(
    session: OperatorSession, first: int, txid: int, current: int, stack: ExitStack
) -> tuple[int, dict[StateName, PastState]]:
    """Return the txid to begin with, and each state as it was before that.

    It is earlier than the given one if that is within a group, or if a state lacks those before it.

    Args:
        session: The topology and its stores.
        first: The first txid that is computed again.
        txid: The last one; the states are also read as they were after it.
        current: The lowest txid that is not committed.
        stack: Closes the snapshots.

    Raises:
        StoreUnavailable: A store cannot be reached.
    """
    stores, new = {}, _new_states(session)
    for name, owner in session.owners.items():
        is_sink = session.graph.components[owner.component].traits.state is not None
        if not is_sink and (owner.component, owner.state) not in new:
            backend = session.backends[name]
            now = stack.enter_context(backend.snapshot())
            stores[name] = PastStore(session.table(name), backend, now, current, stack)
    # Where one state has to begin with an earlier txid, all of them have to.
    while True:
        views = {name: store.before(first) for name, store in stores.items()}
        known = [view.after for view in views.values() if view.after is not None]
        begins = 1 + min(known, default=first - 1)
        if begins == first:
            break
        first = begins
    found: dict[StateName, PastState] = {}
    for name, owner in session.owners.items():
        ledger = Ledger(session.graph.id, 0, first - 1)
        if name in stores:
            view, store = views[name], stores[name]
            check = store.backend.check_statement
            overlay = OverlayState(store.table, view.rows, ledger, check)
            past = PastState(overlay, view.after, view.how, store.after(txid))
        else:
            overlay = OverlayState(session.table(name), PastRows(), ledger)
            is_new = (owner.component, owner.state) in new
            how = "empty, because it is new" if is_new else "empty, because it is a sink"
            past = PastState(overlay, None, how, None)
        found[owner.component, owner.state] = past
    return first, found


def _new_states(session: OperatorSession) -> set[StateName]:
    """Return the states that the topology did not have when it ran; their tables may be missing."""
    known, now = known_topology(session), fingerprint(session.graph).states
    if known is None:
        return set()
    tables = {state.table for state in known.states.values()}
    return {name for name in now if name not in known.states and now[name].table not in tables}


@dataclass(frozen=True, slots=True)
class PastView:
    """What is read of a state: the rows, after which txid, and both in words."""

    rows: PastRows
    after: int | None
    how: str


@dataclass(frozen=True, slots=True)
class PastStore:
    """A state in its store.

    Attributes:
        table: Its schema.
        backend: Reads its history.
        now: The state as it is now.
        current: The lowest txid that is not committed.
        stack: Closes the snapshots.
    """

    table: StateTable
    backend: StateBackend
    now: Snapshot
    current: int
    stack: ExitStack

    def before(self, txid: int) -> PastView:
        """Return the state as it was before a txid, or before the group that it is in."""
        ledger = self.now.ledger or Ledger(self.table.name, 0)
        held, first = ledger.txid, ledger.writer.first_txid
        if held < min(txid, self.current - 1):
            # A state that the topology did not have then, and that begins with the next start.
            how = f"as it is, with txid {held}: it lacks what was committed since"
            return PastView(PastRows(self.now), None, how)
        if held < txid:
            return PastView(PastRows(self.now), held, f"as it is, with txid {held}")
        opaque = self.table.kind == "opaque" and self.table.mode == "table" and not ledger.is_empty
        if opaque and first <= txid:
            how = f"as of txid {first - 1}, by its earlier values"
            return PastView(PastRows(self.now, held), first - 1, how)
        if (found := _version(self.backend, txid - 1, self.stack)) is not None:
            version, at = found
            return PastView(PastRows(version), at, f"as of txid {at}, by the history of its store")
        how = f"as it is now, with txid {held}: its store keeps no earlier values"
        return PastView(PastRows(self.now), None, how)

    def after(self, txid: int) -> Snapshot | None:
        """Return the state as it was after a txid; None if the store no longer has that."""
        held = 0 if self.now.ledger is None else self.now.ledger.txid
        if held <= txid:
            return self.now if held == txid else None
        found = _version(self.backend, txid, self.stack)
        return found[0] if found is not None and found[1] == txid else None


def rows_after(
    table: StateTable, backend: StateBackend, txid: int, stack: ExitStack
) -> PastRows | None:
    """Return the rows as they were after a txid; None if the store no longer has them.

    Args:
        table: The schema of the state, as its store has it.
        backend: The state.
        txid: The txid.
        stack: Closes the snapshots.
    """
    if table.mode == "log":
        return None  # it has the parts of all txids, and no values of one
    now = stack.enter_context(backend.snapshot())
    if now.ledger is None:
        return None
    held, first = now.ledger.txid, now.ledger.writer.first_txid
    if held == txid:
        return PastRows(now)
    if table.kind == "opaque" and first == txid + 1 and not now.ledger.is_empty:
        return PastRows(now, held)
    found = _version(backend, txid, stack) if held > txid else None
    return PastRows(found[0]) if found is not None and found[1] == txid else None


def _version(backend: StateBackend, txid: int, stack: ExitStack) -> tuple[Snapshot, int] | None:
    """Return the state as of a txid, or as of the end of the group before; None if it is gone."""
    try:
        return stack.enter_context(backend.snapshot_of(txid)), txid
    except StateUsageError as error:
        match error.facts.get("group"):
            case (int(first), int()):
                try:
                    return stack.enter_context(backend.snapshot_of(first - 1)), first - 1
                except StateUsageError:
                    return None
        return None
