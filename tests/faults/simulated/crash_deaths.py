"""Check from outside that a process died at the step that its cell of the matrix names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.faults.simulated.crash_cells import Cell
from txtopo.attempt import TransactionAttempt, group_of
from txtopo.state.row_backend import Contents


@dataclass(frozen=True, slots=True)
class Death:
    """The stores, ZooKeeper and the spout at the moment when a process died.

    Attributes:
        tables: What the stores held, read from outside.
        known: What the history had as their last versions.
        current: The lowest txid that ZooKeeper did not know as committed.
        epoch: The epoch that ZooKeeper knew.
        planned: The attempt whose metadata ZooKeeper had, by txid.
        emitted: Txids that the spout had emitted.
    """

    tables: Mapping[str, Contents]
    known: Mapping[str, Contents]
    current: int
    epoch: int
    planned: Mapping[int, TransactionAttempt]
    emitted: frozenset[int]

    def held(self, state: int) -> int:
        """Return the txid that a state held."""
        ledger = [*self.tables.values()][state].ledger
        return ledger.txid if ledger is not None else 0

    def claimed(self, state: int) -> int:
        """Return the epoch that had claimed a state."""
        ledger = [*self.tables.values()][state].ledger
        return ledger.epoch if ledger is not None else 0


def adopts(death: Death) -> int | None:
    """Return what a successor takes over: the group that all stores hold from the stored attempts,
    and that ZooKeeper does not know as committed; its last txid."""
    held = {ledger.writer for each in death.tables.values() if (ledger := each.ledger) is not None}
    last = max((each.txid for each in held), default=0)
    stored = [death.planned.get(txid) for txid in range(death.current, last + 1)]
    members = [each for each in stored if each is not None]
    whole = bool(members) and len(members) == len(stored)
    return last if whole and held == {group_of(members)} else None


def stands(cell: Cell, death: Death) -> bool:
    """Return whether a death was where its cell says, by ZooKeeper, the stores and the spout."""
    txid, step = cell.txid, cell.point.partition(".")[0]
    first, before = txid - cell.size + 1, txid - cell.size
    held = [death.held(state) for state in range(cell.states)]
    if step == "claim":
        claims = {"claim.before-epoch": 0, "claim.after-epoch": 0, "claim.adopted": cell.states}
        count = claims[cell.point] if cell.state is None else cell.state + 1
        claimed = [death.claimed(state) for state in range(cell.states)]
        return (
            death.epoch == (1 if cell.point == "claim.before-epoch" else 2)
            and claimed == [2] * count + [1] * (cell.states - count)
            and held == ([txid] * cell.states if cell.story == "adopted" else [txid, before])
            and death.current == (txid + 1 if cell.point == "claim.adopted" else first)
        )
    if step in ("plan", "store-metadata", "process") or cell.point == "turn.before":
        return _stands_ahead(cell, death)
    if cell.story == "retried":
        return _stands_in_replay(cell, death)
    written = 0
    if cell.state is not None:
        there = cell.point == "write.after" or cell.story == "landed"
        written = cell.state + there
    elif step in ("advance", "cleanup"):
        written = cell.states
    advanced = step == "cleanup" or cell.point == "advance.after"
    return held == [txid] * written + [before] * (cell.states - written) and death.current == (
        txid + 1 if advanced else first
    )


def _stands_ahead(cell: Cell, death: Death) -> bool:
    """The same for what is done ahead of the commits; an opaque spout plans as it emits."""
    txid, opaque = cell.txid, cell.kind == "opaque"
    order = [
        "plan.before",
        "plan.after",
        "store-metadata.before",
        "store-metadata.after",
        "process.before",
        "process.after",
        "turn.before",
    ]
    if opaque:
        order = [*order[:2], *order[4:], *order[2:4]]
    at = order.index(cell.point)
    emitted, planned = at >= order.index("process.after"), at >= order.index("store-metadata.after")
    # The next batch may be planned for the second job while this one is processed.
    next_planned = txid + 1 in death.planned and cell.point != "turn.before"
    return (
        (txid in death.emitted) == emitted
        and (txid in death.planned) == planned
        and txid + 1 not in death.emitted
        and not next_planned
        and death.current <= txid
    )


def _stands_in_replay(cell: Cell, death: Death) -> bool:
    """The same for an attempt whose predecessor is in all stores."""
    written = 0 if cell.state is None else cell.state + (cell.point == "write.after")
    attempts = [1] * written + [0] * (cell.states - written)
    ledgers = [each.ledger for each in death.tables.values()]
    term = death.planned[cell.txid].term
    return (
        [each and each.writer for each in ledgers]
        == [_group(cell, attempt, term) for attempt in attempts]
        and death.planned[cell.txid].order == (1, cell.txid, 1)
        and death.current == cell.txid - cell.size + 1
    )


def _group(cell: Cell, attempt: int, term: str) -> TransactionAttempt:
    txids = range(cell.txid - cell.size + 1, cell.txid + 1)
    return group_of([TransactionAttempt(txid, attempt, 1, term=term) for txid in txids])
