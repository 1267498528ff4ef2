"""The states of a topology as they were before a txid, as far as their stores can still tell.

* An opaque state has the values from before the group that it holds: those are read. (One in mode
  ``"log"`` has them in rows of their own, which readers combine, and cannot tell.)
* A store with history, such as Delta, is read as of the version of then.
* A state that does not hold the txid yet is read as it is.
* A sink is empty: no bolt reads it, and nothing connects to it.
* Any other state is read as it is now. Whoever looks at the result is told so.

Nothing is created, claimed or written. All that is read of a store is of one moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from txtopo.errors import StateUsageError
from txtopo.operations.overlay import OverlayState, PastRows
from txtopo.state.backend import Snapshot, StateBackend, StateTable
from txtopo.state.ledger import Ledger

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


def open_past(session: OperatorSession, txid: int, stack: ExitStack) -> dict[StateName, PastState]:
    """Return each state as it was before a txid, or before the group that the txid is in.

    Args:
        session: The topology and its stores.
        txid: The txid.
        stack: Closes the snapshots.

    Raises:
        StoreUnavailable: A store cannot be reached.
    """
    found: dict[StateName, PastState] = {}
    for name, owner in session.owners.items():
        component = session.graph.components[owner.component]
        table, backend = session.table(name), session.backends[name]
        if component.traits.state is not None:
            empty = OverlayState(table, PastRows(), Ledger(session.graph.id, 0, txid - 1))
            past = PastState(empty, None, "a sink, to which nothing was sent", None)
        else:
            past = _past(session.graph.id, table, backend, txid, stack)
        found[owner.component, owner.state] = past
    return found


def first_to_replay(past: Mapping[StateName, PastState], txid: int) -> int:
    """Return the txid with which a replay of *txid* has to begin."""
    return 1 + min(
        (each.after for each in past.values() if each.after is not None), default=txid - 1
    )


def _past(
    topology: str, table: StateTable, backend: StateBackend, txid: int, stack: ExitStack
) -> PastState:
    now = stack.enter_context(backend.snapshot())
    ledger = now.ledger or Ledger(topology, 0)
    held, first = ledger.txid, ledger.writer.first_txid

    def afterwards() -> Snapshot | None:
        if held <= txid:
            return now if held == txid else None
        found = _version(backend, txid, stack)
        return found[0] if found is not None and found[1] == txid else None

    def past(rows: PastRows, after: int | None, how: str) -> PastState:
        at = txid - 1 if after is None else after
        then = replace(ledger, txid=at, first_txid=at, attempts=(), writer_epoch=0, attempt=0)
        overlay = OverlayState(table, rows, then, backend.check_statement)
        return PastState(overlay, after, how, afterwards())

    if held < txid:
        return past(PastRows(now), held, f"as it is, with txid {held}")
    opaque = table.kind == "opaque" and table.mode == "table" and not ledger.is_empty
    if opaque and first <= txid:
        return past(
            PastRows(now, held), first - 1, f"as of txid {first - 1}, by its earlier values"
        )
    found = _version(backend, txid - 1, stack)
    if found is not None:
        version, at = found
        return past(PastRows(version), at, f"as of txid {at}, by the history of its store")
    return past(
        PastRows(now), None, f"as it is now, with txid {held}: its store keeps no earlier values"
    )


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
