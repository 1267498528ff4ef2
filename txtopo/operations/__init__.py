"""The operator's verbs, which look at the past, and repair what faults leave behind.

See ``docs/how-to/operations.md``.
"""

from txtopo.operations.forget import forget
from txtopo.operations.fork import fork
from txtopo.operations.plan import Plan
from txtopo.operations.quarantine import quarantine
from txtopo.operations.repair import repair_node
from txtopo.operations.replay import Replay, StateChanges, replay
from txtopo.operations.rewind import rebuild, rewind
from txtopo.operations.session import Access
from txtopo.operations.show import Finding, Overview, show, verify
from txtopo.operations.table_comparison import RowDifference, TableComparison
from txtopo.operations.trial import Trial, TrialFailure, TriedState, trial

__all__ = [
    "Access",
    "Finding",
    "Overview",
    "Plan",
    "Replay",
    "RowDifference",
    "StateChanges",
    "TableComparison",
    "Trial",
    "TrialFailure",
    "TriedState",
    "forget",
    "fork",
    "quarantine",
    "rebuild",
    "repair_node",
    "replay",
    "rewind",
    "show",
    "trial",
    "verify",
]
