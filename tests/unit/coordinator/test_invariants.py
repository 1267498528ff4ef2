"""Each invariant objects to a table in which it is broken, and to no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.harness.metadata import CUTTING, of_one
from tests.unit.coordinator.script import OPAQUE, STORM, Script
from txtopo.attempt import TransactionAttempt
from txtopo.coordinator import CoordinatorSettings, Phase, Transaction
from txtopo.coordinator.invariants import check_invariants
from txtopo.coordinator.protocol import Tick
from txtopo.coordinator.transactions import TransactionTable

COMMITTING, PROCESSED, PROCESSING, PLANNED = (
    Phase.COMMITTING,
    Phase.PROCESSED,
    Phase.PROCESSING,
    Phase.PLANNED,
)
CHAINED = replace(STORM, cutting_spouts=CUTTING)
GROUPS = replace(STORM, group_txids_max=2)
RUNS = replace(STORM, window_txids=6, run_txids_max=3, jobs_max=1)
CUT = of_one(10, {"0": 1})


def row(txid: int, phase: Phase, *, cut: bool = False, run: int = 0, epoch: int = 1) -> Transaction:
    metadata = CUT if cut else of_one(10)
    attempt = TransactionAttempt(txid, 0, epoch)
    return Transaction(attempt, phase, metadata, durable=True, run=run)


def check(
    settings: CoordinatorSettings, rows: Sequence[Transaction], pinned: int | None = None
) -> None:
    table = TransactionTable(epoch=1, current=1, committed=None)
    table._rows = {each.txid: each for each in rows}
    table._in_order = None
    check_invariants(table, settings, epoch=1, end=5, pinned=pinned)


@pytest.mark.parametrize(
    ("settings", "rows", "pinned"),
    [
        (STORM, [], None),
        (STORM, [row(1, COMMITTING), row(2, PROCESSED), row(3, PROCESSING, run=3)], None),
        (GROUPS, [row(1, COMMITTING), row(2, COMMITTING)], None),
        (GROUPS, [row(1, COMMITTING), row(2, COMMITTING), row(3, COMMITTING)], 3),
        (RUNS, [row(1, PROCESSED, run=1), row(2, PROCESSING, run=1)], None),
        (CHAINED, [row(1, PROCESSED, cut=True), row(2, PLANNED)], None),
        (OPAQUE, [row(1, PROCESSED, cut=True), row(2, PLANNED)], None),
    ],
)
def test_a_table_that_may_be_is_let_pass(
    settings: CoordinatorSettings, rows: Sequence[Transaction], pinned: int | None
) -> None:
    check(settings, rows, pinned)


@pytest.mark.parametrize(
    ("settings", "rows", "pinned", "broken"),
    [
        (STORM, [row(1, PLANNED), row(3, PLANNED)], None, "contiguous from current"),
        (STORM, [row(2, PLANNED)], None, "contiguous from current"),
        (STORM, [row(txid, PLANNED) for txid in range(1, 6)], None, "in the window"),
        (STORM, [row(1, PLANNED, epoch=2)], None, "of this epoch"),
        (STORM, [row(1, PROCESSED), row(2, COMMITTING)], None, "begins with the current txid"),
        (STORM, [replace(row(1, COMMITTING), durable=False)], None, "durable before commit work"),
        (STORM, [row(1, COMMITTING), row(2, COMMITTING)], None, "group size"),
        (STORM, [], 0, "pinned until it is committed"),
        (GROUPS, [row(1, COMMITTING)], 2, "never shortened"),
        (RUNS, [row(1, PROCESSING, run=1), row(2, PROCESSING, run=2)], None, "jobs_max"),
        (RUNS, [row(txid, PROCESSING, run=1) for txid in range(1, 5)], None, "run size"),
        (
            RUNS,
            [row(1, PROCESSING, run=1), row(2, PROCESSED, run=1), row(3, PROCESSING, run=1)],
            None,
            "consecutive",
        ),
        (
            RUNS,
            [replace(row(txid, PROCESSING, run=1), alone=True) for txid in (1, 2)],
            None,
            "alone in a job",
        ),
        (CHAINED, [row(1, PLANNED), row(2, PLANNED, cut=True)], None, "known in txid order"),
        (CHAINED, [row(1, PROCESSED)], None, "processed has an end"),
        (OPAQUE, [row(1, PLANNED, cut=True)], None, "cut again"),
    ],
)
@pytest.mark.rule("txtopo.coordinator.invariants", "Invariants", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
def test_a_table_in_which_an_invariant_is_broken_is_a_bug(
    settings: CoordinatorSettings,
    rows: Sequence[Transaction],
    pinned: int | None,
    broken: str,
) -> None:
    with pytest.raises(AssertionError, match=broken):
        check(settings, rows, pinned)


def test_a_coordinator_checks_them_after_each_event() -> None:
    script = Script(STORM)
    script.coordinator._pinned = 0

    with pytest.raises(AssertionError, match="pinned until it is committed"):
        script.coordinator.handle(Tick())
