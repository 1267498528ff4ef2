"""The checkers: each judges from a history whether one promise was kept."""

from txtopo.testing.checkers.commands import Commanded
from txtopo.testing.checkers.evidence import Evidence, Violation
from txtopo.testing.checkers.promises import (
    ExactCount,
    Liveness,
    OffsetChain,
    Paced,
    PlannedStamps,
    Prefix,
    Skew,
    Together,
    TraceReplay,
    TxidDiscipline,
    Undo,
    Zombies,
)
from txtopo.testing.checkers.switched import Switched

__all__ = [
    "Commanded",
    "Evidence",
    "ExactCount",
    "Liveness",
    "OffsetChain",
    "Paced",
    "PlannedStamps",
    "Prefix",
    "Skew",
    "Switched",
    "Together",
    "TraceReplay",
    "TxidDiscipline",
    "Undo",
    "Violation",
    "Zombies",
]
