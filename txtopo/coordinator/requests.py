"""The actions that name several transactions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from txtopo.coordinator.actions import Action, Cancel, StartProcessing, StoreBatches
from txtopo.coordinator.phases import STARTED
from txtopo.coordinator.transaction import Transaction
from txtopo.metadata import BatchMetadata


def store_batches(batches: Sequence[Transaction]) -> list[Action]:
    """Return the one write that makes these durable; empty for none."""
    if not batches:
        return []
    attempts = tuple(each.attempt for each in batches)
    return [StoreBatches(attempts, tuple(each.metadata for each in batches))]


def start_processing(run: Sequence[Transaction], previous: BatchMetadata | None) -> Action:
    """Return the start of a run."""
    attempts = tuple(each.attempt for each in run)
    return StartProcessing(attempts, tuple(each.metadata for each in run), previous)


def cancel(abandoned: Iterable[Transaction]) -> list[Action]:
    """Return the end of what works at these; empty if nothing was started."""
    attempts = tuple(each.attempt for each in abandoned if each.phase in STARTED)
    return [Cancel(attempts)] if attempts else []
