"""The shell around the coordinator: does what it asks for, on Spark or in this process."""

from txtopo.runtime.progress import (
    BatchCommitted,
    BatchesProcessed,
    BatchFailed,
    Change,
    Leading,
    ProcessingStarted,
    Progress,
    Standby,
    Started,
    Stopped,
    TopologyListener,
)
from txtopo.runtime.reliable.progress import (
    ErrorReported,
    Progressed,
    ReliableProgress,
    SlotLost,
    TreesFailed,
)

__all__ = [
    "BatchCommitted",
    "BatchFailed",
    "BatchesProcessed",
    "Change",
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
    "TopologyListener",
    "TreesFailed",
]
