"""The shell around the coordinator: does what it asks for, on Spark or in this process."""

from typing import TYPE_CHECKING

from txtopo.lazy_names import lazy_names

if TYPE_CHECKING:
    from txtopo.runtime.progress import (
        BatchCommitted,
        BatchesAbandoned,
        BatchesProcessed,
        BatchFailed,
        BatchPlanned,
        CommitStarted,
        ErrorReported,
        Leading,
        ProcessingStarted,
        Progress,
        Progressed,
        ReliableProgress,
        SlotLost,
        Standby,
        Started,
        Stopped,
        TopologyEvent,
        TopologyListener,
        TreesFailed,
    )

_LAZY = {
    "txtopo.runtime.progress": (
        "BatchCommitted",
        "BatchFailed",
        "BatchPlanned",
        "BatchesAbandoned",
        "BatchesProcessed",
        "CommitStarted",
        "ErrorReported",
        "Leading",
        "ProcessingStarted",
        "Progress",
        "Progressed",
        "ReliableProgress",
        "SlotLost",
        "Standby",
        "Started",
        "Stopped",
        "TopologyEvent",
        "TopologyListener",
        "TreesFailed",
    ),
}

__all__ = [
    "BatchCommitted",
    "BatchFailed",
    "BatchPlanned",
    "BatchesAbandoned",
    "BatchesProcessed",
    "CommitStarted",
    "ErrorReported",
    "Leading",
    "ProcessingStarted",
    "Progress",
    "Progressed",
    "ReliableProgress",
    "SlotLost",
    "Standby",
    "Started",
    "Stopped",
    "TopologyEvent",
    "TopologyListener",
    "TreesFailed",
]

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
