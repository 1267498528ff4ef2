"""Operators' verbs: for the states that faults leave behind. See ``docs/operations.md``."""

from txtopo.operations.forgetting import forget
from txtopo.operations.plan import Plan
from txtopo.operations.quarantining import quarantine
from txtopo.operations.rebuilding import rebuild
from txtopo.operations.repairing import repair_node
from txtopo.operations.rewinding import rewind
from txtopo.operations.showing import Overview, show
from txtopo.operations.site import Access
from txtopo.operations.verifying import Finding, verify

__all__ = [
    "Access",
    "Finding",
    "Overview",
    "Plan",
    "forget",
    "quarantine",
    "rebuild",
    "repair_node",
    "rewind",
    "show",
    "verify",
]
