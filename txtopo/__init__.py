"""Storm's topologies on Spark: state that is right exactly once, and tuples at least once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo import wings as wings  # registers who watches runs and shows values
from txtopo.attempt import TransactionAttempt
from txtopo.bolts import (
    ArrowBolt,
    BasicBolt,
    BatchBolt,
    Bolt,
    Committer,
    DataFrameBolt,
    DeadLetters,
    PersistentAggregate,
)
from txtopo.builders import (
    ReliableTopology,
    Topology,
    TopologyBuilder,
    TransactionalTopologyBuilder,
    topology_from_yaml,
)
from txtopo.collector import (
    ArrowOutputCollector,
    BatchOutputCollector,
    OutputCollector,
    SpoutOutputCollector,
)
from txtopo.config import Config
from txtopo.context import FrameContext, TaskContext
from txtopo.errors import (
    AuthError,
    ConfigError,
    FailedException,
    FieldsError,
    InfrastructureError,
    PromiseError,
    RecordFailed,
    SourceDataLost,
    StateUsageError,
    StoreUnavailable,
    TooManyDeadLetters,
    TopologyError,
    TopologyWarning,
    TxtopoError,
)
from txtopo.formats import Avro, Protobuf
from txtopo.groupings import CustomStreamGrouping
from txtopo.runtime.handle import ReliableRun, TopologyRun
from txtopo.runtime.progress import (
    AckerProgress,
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
    Restarting,
    SlotLost,
    Standby,
    Started,
    Stopped,
    TopologyEvent,
    TopologyListener,
    TreesFailed,
)
from txtopo.runtime.restart import Restart
from txtopo.spouts.spout import Spout
from txtopo.state.aggregates import Count, Max, Mean, Min, OwnAggregate, Sum
from txtopo.state.python_aggregates import CountDistinct, First, Last, TopN
from txtopo.state.registry import open_state
from txtopo.tuples import Fields, Stream, Tuple, is_tick

if TYPE_CHECKING:
    from txtopo.runtime.session import open_session
    from txtopo.streams import StreamBuilder
    from txtopo.ui.progress_bar import ProgressBar

__version__ = "0.1.0"

# What needs a third-party package, and the module that has it; imported when it is first used.
_LAZY = {
    "ProgressBar": "txtopo.ui.progress_bar",
    "StreamBuilder": "txtopo.streams",
    "open_session": "txtopo.runtime.session",
}

__all__ = [
    "AckerProgress",
    "ArrowBolt",
    "ArrowOutputCollector",
    "AuthError",
    "Avro",
    "BasicBolt",
    "BatchBolt",
    "BatchCommitted",
    "BatchFailed",
    "BatchOutputCollector",
    "BatchPlanned",
    "BatchesAbandoned",
    "BatchesProcessed",
    "Bolt",
    "CommitStarted",
    "Committer",
    "Config",
    "ConfigError",
    "Count",
    "CountDistinct",
    "CustomStreamGrouping",
    "DataFrameBolt",
    "DeadLetters",
    "ErrorReported",
    "FailedException",
    "Fields",
    "FieldsError",
    "First",
    "FrameContext",
    "InfrastructureError",
    "Last",
    "Leading",
    "Max",
    "Mean",
    "Min",
    "OutputCollector",
    "OwnAggregate",
    "PersistentAggregate",
    "ProcessingStarted",
    "Progress",
    "ProgressBar",
    "Progressed",
    "PromiseError",
    "Protobuf",
    "RecordFailed",
    "ReliableProgress",
    "ReliableRun",
    "ReliableTopology",
    "Restart",
    "Restarting",
    "SlotLost",
    "SourceDataLost",
    "Spout",
    "SpoutOutputCollector",
    "Standby",
    "Started",
    "StateUsageError",
    "Stopped",
    "StoreUnavailable",
    "Stream",
    "StreamBuilder",
    "Sum",
    "TaskContext",
    "TooManyDeadLetters",
    "TopN",
    "Topology",
    "TopologyBuilder",
    "TopologyError",
    "TopologyEvent",
    "TopologyListener",
    "TopologyRun",
    "TopologyWarning",
    "TransactionAttempt",
    "TransactionalTopologyBuilder",
    "TreesFailed",
    "Tuple",
    "TxtopoError",
    "__version__",
    "is_tick",
    "open_session",
    "open_state",
    "topology_from_yaml",
]


def __getattr__(name: str) -> object:
    """Import a name of ``_LAZY``."""
    from importlib import import_module

    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
