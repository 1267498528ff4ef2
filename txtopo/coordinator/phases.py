"""The phases of a transaction, and the table between them."""

from __future__ import annotations

from enum import Enum

from txtopo.coordinator.actions import PlanBatch, StartCommit, StartProcessing
from txtopo.coordinator.events import Committed, Failed, NotReady, Planned, Processed, RunFailed


class Phase(Enum):
    """What a transaction is in."""

    UNPLANNED = "unplanned"
    """Never seen: the spout has not been asked, or was not ready."""
    PLANNING = "planning"
    """The spout is asked."""
    PLANNED = "planned"
    """Waits for a job, for the first time or again."""
    PROCESSING = "processing"
    """A job works at it."""
    PROCESSED = "processed"
    """Waits for its turn to commit."""
    COMMITTING = "committing"
    """Its committers work."""
    GONE = "gone"
    """Committed."""


# Which event or action leads from which phase to which. A pair that is missing is illegal: such an
# event changes nothing, such an action is never asked for.
AFTER: dict[tuple[Phase, type], Phase] = {
    (Phase.UNPLANNED, PlanBatch): Phase.PLANNING,
    (Phase.PLANNING, Planned): Phase.PLANNED,
    (Phase.PLANNING, NotReady): Phase.UNPLANNED,
    (Phase.PLANNING, Failed): Phase.UNPLANNED,
    (Phase.PLANNED, StartProcessing): Phase.PROCESSING,
    (Phase.PROCESSING, Processed): Phase.PROCESSED,
    (Phase.PROCESSING, Failed): Phase.PLANNED,
    (Phase.PROCESSING, RunFailed): Phase.PLANNED,
    (Phase.PROCESSED, StartCommit): Phase.COMMITTING,
    (Phase.PROCESSED, Failed): Phase.PLANNED,
    (Phase.PROCESSED, RunFailed): Phase.PLANNED,
    (Phase.COMMITTING, Committed): Phase.GONE,
    (Phase.COMMITTING, Failed): Phase.PLANNED,
    (Phase.COMMITTING, RunFailed): Phase.PLANNED,
}

# Phases in which a job works at the attempt or its results are kept, so that it can be cancelled.
STARTED = frozenset({Phase.PROCESSING, Phase.PROCESSED, Phase.COMMITTING})

# Phases that have the processing phase behind them.
PROCESSED_PHASES = frozenset({Phase.PROCESSED, Phase.COMMITTING})
