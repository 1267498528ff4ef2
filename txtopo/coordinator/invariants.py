"""Invariants: assertions that hold after every event. A breach is a bug in txtopo.

Invariants
----------
1. The transactions in flight begin with ``current``, and no txid is missing between them.
2. All are in the window, and before the txid with which the topology ends.
3. All attempts are of the epoch of this coordinator.
4. Only a group commits that begins with ``current``.
5. The metadata of a group is durable.
6. A group has at most ``group_txids_max`` transactions. One that is pinned is committed whole, and
   pinned until then.
7. At most ``jobs_max`` runs are processed. Each has consecutive txids, and not too many.
8. A transaction that must have a job of its own has one.
9. Where batches are chained, cuts are known in txid order, and those of processed batches are
   known.
10. An opaque batch that is to be processed has no cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from txtopo.coordinator.runs import processing_runs
from txtopo.coordinator.transactions import (
    PROCESSED_PHASES,
    CoordinatorSettings,
    Phase,
    Transaction,
    TransactionTable,
)


def check_invariants(
    table: TransactionTable,
    settings: CoordinatorSettings,
    *,
    epoch: int,
    end: int,
    pinned: int | None = None,
) -> None:
    """Check all invariants.

    Args:
        table: The transactions in flight.
        settings: The limits.
        epoch: The epoch of all attempts.
        end: First txid after the window, or the txid of the ending.
        pinned: Last txid of the group that some state may hold; None for none.
    """
    check_order(table.rows, current=table.current, epoch=epoch, end=end)
    check_group(table, settings, pinned=pinned)
    check_runs(table.rows, settings)
    check_cuts(table.rows, settings)


def check_order(transactions: Sequence[Transaction], *, current: int, epoch: int, end: int) -> None:
    """Check that txids are in the window without a gap."""
    txids = [each.txid for each in transactions]
    assert txids == list(range(current, current + len(txids))), "contiguous from current"
    assert not txids or txids[-1] < end, "in the window, and before the ending"
    assert all(each.attempt.epoch == epoch for each in transactions), "of this epoch"


def check_group(
    table: TransactionTable, settings: CoordinatorSettings, *, pinned: int | None
) -> None:
    """Check that one group commits, from the current txid on, and that a pinned one is whole."""
    group = table.committing
    committing = sum(each.phase is Phase.COMMITTING for each in table.rows)
    assert committing == len(group), "only a group that begins with the current txid commits"
    assert all(each.durable for each in group), "metadata is durable before commit work"
    if pinned is None:
        assert len(group) <= settings.group_txids_max, "group size"
    else:
        assert pinned >= table.current, "a group is pinned until it is committed"
        assert not group or group[-1].txid == pinned, "a pinned group is never shortened"


def check_runs(transactions: Sequence[Transaction], settings: CoordinatorSettings) -> None:
    """Check the limits of jobs and runs, and that a run has consecutive txids."""
    runs = processing_runs(transactions)
    assert len(runs) <= settings.jobs_max, "jobs_max"
    for first in runs:
        run = [each for each in transactions if each.run == first]
        run = [each for each in run if each.phase is Phase.PROCESSING]
        assert len(run) <= settings.run_txids_max, "run size"
        assert run[-1].txid - run[0].txid == len(run) - 1, "a run is consecutive"
        assert len(run) == 1 or not any(each.alone for each in run), "alone in a job"


def check_cuts(transactions: Sequence[Transaction], settings: CoordinatorSettings) -> None:
    """Check that cuts become known in txid order, and that an opaque replay has none."""
    cutting = settings.cutting_spouts
    opaque = bool(cutting) and not settings.repeatable
    known_before = True
    for each in transactions:  # asked at each event: one loop, and no list of what is compared
        known, processed = each.metadata.is_cut(cutting), each.phase in PROCESSED_PHASES
        assert known_before or not known, "ends are known in txid order"
        assert known or not processed, "processed has an end"
        assert processed or not known or not opaque, "an opaque batch is cut again"
        known_before = known
