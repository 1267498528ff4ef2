"""Runs: which planned batches are processed by one job, and when it can start. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from txtopo.coordinator.transactions import CoordinatorSettings, Phase, Transaction
from txtopo.metadata import BatchMetadata

Run = tuple[Transaction, ...]


def next_run(
    transactions: Sequence[Transaction],
    settings: CoordinatorSettings,
    *,
    committed: BatchMetadata | None,
    asks: bool,
) -> Run | None:
    """Return the lowest run that can start now, or None.

    Args:
        transactions: All transactions in flight.
        settings: The limits, and whether a batch starts where its predecessor ended.
        committed: Metadata of the txid before the current one; None for none.
        asks: Whether the spout is asked for further batches as soon as the window has room. Then
            the newest run waits until it is full.
    """
    if len(processing_runs(transactions)) >= settings.jobs_max:
        return None
    for run in planned_runs(transactions, settings.run_txids_max):
        index = run[0].txid - transactions[0].txid
        before = transactions[index - 1].metadata if index else committed
        if not start_known(run, before, settings):
            continue
        grows = asks and run[-1] is transactions[-1]
        if complete(run, settings.run_txids_max) or not grows:
            return run
    return None


def processing_runs(transactions: Sequence[Transaction]) -> set[int]:
    """Return the runs that have a job, each as its first txid."""
    return {each.run for each in transactions if each.phase is Phase.PROCESSING}


def planned_runs(transactions: Sequence[Transaction], run_txids_max: int) -> list[Run]:
    """Divide the planned transactions into runs of consecutive txids, each as long as possible."""
    runs: list[Run] = []
    run: Run = ()
    for each in transactions:
        if run and (each.phase is not Phase.PLANNED or each.alone or complete(run, run_txids_max)):
            runs.append(run)
            run = ()
        if each.phase is Phase.PLANNED:
            run = (*run, each)
    return [*runs, run] if run else runs


def complete(run: Run, run_txids_max: int) -> bool:
    """Return whether a run is full."""
    return len(run) == run_txids_max or run[0].alone


def start_known(run: Run, previous: BatchMetadata | None, settings: CoordinatorSettings) -> bool:
    """Return whether the start of a run, which is the end of its predecessor, is known.

    An opaque batch has a cut only after it was processed. A repeatable batch keeps its cut, so
    replays need not wait for each other.
    """
    if run[0].txid == 1:
        return True
    return previous is not None and previous.is_cut(settings.cutting_spouts)
