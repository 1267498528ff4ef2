"""The shell around the coordinator: does what it asks for, on Spark or in this process."""

from txtopo.runtime.progress import (
    BatchCommitted,
    BatchesProcessed,
    BatchFailed,
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

__all__ = [
    "BatchCommitted",
    "BatchFailed",
    "BatchesProcessed",
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
