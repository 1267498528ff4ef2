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
    "BatchCommitted": "txtopo.runtime.progress",
    "BatchFailed": "txtopo.runtime.progress",
    "BatchPlanned": "txtopo.runtime.progress",
    "BatchesAbandoned": "txtopo.runtime.progress",
    "BatchesProcessed": "txtopo.runtime.progress",
    "CommitStarted": "txtopo.runtime.progress",
    "ErrorReported": "txtopo.runtime.progress",
    "Leading": "txtopo.runtime.progress",
    "ProcessingStarted": "txtopo.runtime.progress",
    "Progress": "txtopo.runtime.progress",
    "Progressed": "txtopo.runtime.progress",
    "ReliableProgress": "txtopo.runtime.progress",
    "SlotLost": "txtopo.runtime.progress",
    "Standby": "txtopo.runtime.progress",
    "Started": "txtopo.runtime.progress",
    "Stopped": "txtopo.runtime.progress",
    "TopologyEvent": "txtopo.runtime.progress",
    "TopologyListener": "txtopo.runtime.progress",
    "TreesFailed": "txtopo.runtime.progress",
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
