"""Each checker objects where a group of txids is split, mixed or forgotten, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.unit.testing.scenarios import clean
from txtopo.ensemble.nodes import encode
from txtopo.state.ledger import Ledger
from txtopo.state.row_backend import Contents
from txtopo.testing.checkers import Evidence
from txtopo.testing.checkers.evidence import members_of
from txtopo.testing.simulation.campaign import CHECKERS, Simulator
from txtopo.testing.simulation.history import History, NodesWrite, StoreWrite
from txtopo.testing.simulation.topologies import Shape

SHAPE = Shape("opaque", "opaque", ("totals", "logs"), relay=False, parallelism=1)
Tamper = Callable[[Evidence], None]


@cache
def untouched() -> Evidence:
    simulator = Simulator()
    try:
        scenario = clean(
            shape=SHAPE, records=8, batch_rows_max=1, max_spout_pending=30, group_txids_max=10
        )
        return simulator.evidence(scenario)[1]
    finally:
        simulator.close()


def copied() -> Evidence:
    evidence = untouched()
    history = evidence.history
    emissions = {attempt: list(each) for attempt, each in history.emissions.items()}
    copy = History(list(history.writes), emissions, stores=dict(history.stores))
    return replace(evidence, history=copy)


def objections(evidence: Evidence) -> set[str]:
    return {each.checker for checker in CHECKERS for each in checker.check(evidence)}


def group_at(evidence: Evidence, table: str) -> int:
    """Return where in the history a table gets its second group, which has at least four txids."""
    for at, write in enumerate(evidence.history.writes):
        if isinstance(write, StoreWrite) and write.table == table:
            ledger = write.after.ledger
            if ledger is not None and ledger.first_txid > 1:
                assert len(ledger.attempts) >= 4
                return at
    raise AssertionError(f"{table} never holds a second group")


def written_at(evidence: Evidence, at: int) -> tuple[StoreWrite, Ledger]:
    write = evidence.history.writes[at]
    assert isinstance(write, StoreWrite)
    assert write.after.ledger is not None
    return write, write.after.ledger


def change(evidence: Evidence, at: int, **fields: Any) -> None:
    """Change the ledger that a write left."""
    write, ledger = written_at(evidence, at)
    after = replace(write.after, ledger=replace(ledger, **fields))
    evidence.history.writes[at] = replace(write, after=after)


def begin_within_a_group(evidence: Evidence) -> None:
    at = group_at(evidence, "totals")
    _, ledger = written_at(evidence, at)
    change(evidence, at, first_txid=ledger.first_txid + 1, attempts=ledger.attempts[1:])


def write_with_a_member_of_another_attempt(evidence: Evidence) -> None:
    at = group_at(evidence, "totals")
    _, ledger = written_at(evidence, at)
    change(evidence, at, attempts=(*ledger.attempts[:1], 7, *ledger.attempts[2:]))


def redo(evidence: Evidence, at: int, ledger: Ledger, rows: Any = None) -> None:
    """Let the group that a write left be written again."""
    write, _ = written_at(evidence, at)
    again = Contents(ledger, write.after.rows if rows is None else rows)
    evidence.history.writes.insert(at + 1, replace(write, before=write.after, after=again))


def redo_less_of_a_group(evidence: Evidence) -> None:
    at = group_at(evidence, "totals")
    write, ledger = written_at(evidence, at)
    assert write.before.ledger is not None
    shorter = replace(ledger, txid=ledger.txid - 1, attempts=ledger.attempts[:-1])
    redo(evidence, at, shorter)


def redo_more_than_the_group(evidence: Evidence) -> None:
    at = group_at(evidence, "totals")
    _, ledger = written_at(evidence, at)
    redo(evidence, at, replace(ledger, txid=ledger.txid + 1, attempts=(*ledger.attempts, 0)))


def redo_a_group_without_undo(evidence: Evidence) -> None:
    at = group_at(evidence, "totals")
    write, ledger = written_at(evidence, at)
    rows = {
        key: replace(row, previous=row.current, previous_txid=ledger.txid)
        for key, row in write.after.rows.items()
    }
    redo(evidence, at, replace(ledger, attempts=(1,) * len(ledger.attempts), attempt=1), rows)


def tag_a_row_with_a_txid_within_the_group(evidence: Evidence) -> None:
    at = group_at(evidence, "totals")
    write, ledger = written_at(evidence, at)
    rows = {key: replace(row, txid=ledger.txid - 1) for key, row in write.after.rows.items()}
    evidence.history.writes[at] = replace(write, after=Contents(ledger, rows))


def lose_what_one_member_brought(evidence: Evidence) -> None:
    _, ledger = written_at(evidence, group_at(evidence, "totals"))
    emissions = evidence.history.emissions[members_of(ledger)[1]]
    emissions[:] = [replace(each, records=()) for each in emissions]


def advance_to_the_middle_of_a_group(evidence: Evidence) -> None:
    at = max(group_at(evidence, "totals"), group_at(evidence, "logs"))
    _, ledger = written_at(evidence, at)
    write = next(each for each in evidence.history.writes[at:] if isinstance(each, NodesWrite))
    middle = encode("/current", {"current": ledger.txid}, "middle")
    nodes = {**write.after, "/simulated/current": (middle, 1)}
    evidence.history.writes.insert(at + 1, replace(write, after=nodes))


def forget_the_metadata_of_one_member(evidence: Evidence) -> None:
    _, ledger = written_at(evidence, group_at(evidence, "totals"))
    path = f"/simulated/batches/{ledger.first_txid + 1:020d}"
    writes = evidence.history.writes
    for at, write in enumerate(writes):
        if isinstance(write, NodesWrite):
            before, after = dict(write.before), dict(write.after)
            before.pop(path, None)
            after.pop(path, None)
            writes[at] = replace(write, before=before, after=after)


def let_two_tables_hold_different_groups(evidence: Evidence) -> None:
    """One table gets the first half of the group that the other one holds."""
    at = max(group_at(evidence, "totals"), group_at(evidence, "logs"))
    _, ledger = written_at(evidence, at)
    change(evidence, at, txid=ledger.txid - 1, attempts=ledger.attempts[:-1])


@pytest.mark.parametrize(
    ("tamper", "checkers"),
    [
        (begin_within_a_group, {"C2", "C3"}),
        (write_with_a_member_of_another_attempt, {"C1", "C2", "C3"}),
        (redo_less_of_a_group, {"C2", "C3"}),
        (redo_more_than_the_group, {"C2", "C3"}),
        (redo_a_group_without_undo, {"C7"}),
        (tag_a_row_with_a_txid_within_the_group, {"C3"}),
        (lose_what_one_member_brought, {"C1", "C2", "C4"}),
        (forget_the_metadata_of_one_member, {"C3"}),
        (advance_to_the_middle_of_a_group, {"C3"}),
        (let_two_tables_hold_different_groups, {"C6"}),
    ],
)
def test_a_group_that_is_not_one_is_seen(tamper: Tamper, checkers: set[str]) -> None:
    evidence = copied()

    tamper(evidence)

    assert checkers <= objections(evidence)


def test_nobody_objects_to_groups() -> None:
    assert objections(copied()) == set()
