"""Reports: what a slot tells the driver after each work."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from txtopo.acking import NONE, Column, Xors

Count = tuple[str, str]
"""(what, component): what is one of emitted, executed, acked, failed."""


@dataclass(slots=True)
class Complaint:
    """An error that user code reported, or raised.

    Attributes:
        component: Id of the spout or bolt.
        task: Index of its task.
        error: The error.
    """

    component: str
    task: int
    error: Exception


@dataclass(slots=True)
class Report:
    """What happened in a slot, for the driver. Picklable.

    Attributes:
        acked: One XOR per root of what was acked.
        failed: Roots that were failed, perhaps twice.
        renewed: Roots that were given a new timeout, perhaps twice.
        consumed: Tuples of envelopes from elsewhere that are done with.
        sent: Tuples that were sent to each other slot.
        counts: How many tuples each component emitted, executed, acked and failed.
        complaints: Errors that bolts reported.
        crash: What a bolt raised, which ends the run.
    """

    acked: Xors = field(default_factory=Xors)
    failed: Column = field(default_factory=lambda: NONE)
    renewed: Column = field(default_factory=lambda: NONE)
    consumed: int = 0
    sent: Counter[int] = field(default_factory=Counter)
    counts: Counter[Count] = field(default_factory=Counter)
    complaints: list[Complaint] = field(default_factory=list)
    crash: Complaint | None = None
