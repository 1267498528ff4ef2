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

__all__ = [
    "BatchCommitted",
    "BatchFailed",
    "BatchesProcessed",
    "Change",
    "Leading",
    "ProcessingStarted",
    "Progress",
    "Standby",
    "Started",
    "Stopped",
    "TopologyListener",
]
