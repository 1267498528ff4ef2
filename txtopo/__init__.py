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
from txtopo.builders.transactional import Topology, TransactionalTopologyBuilder
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
from txtopo.groupings import CustomStreamGrouping
from txtopo.lazy_names import lazy_names
from txtopo.spouts.spout import Spout
from txtopo.state.aggregates import Count, Max, Mean, Min, OwnAggregate, Sum
from txtopo.state.python_aggregates import CountDistinct, First, Last, TopN
from txtopo.state.registry import open_state
from txtopo.tuples import Fields, Stream, Tuple, is_tick

if TYPE_CHECKING:
    from txtopo.builders.at_least_once import ReliableTopology, TopologyBuilder
    from txtopo.builders.from_yaml import topology_from_yaml
    from txtopo.formats import Avro, Protobuf
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
    from txtopo.runtime.session import open_session
    from txtopo.streams import StreamBuilder
    from txtopo.ui.progress_bar import ProgressBar

__version__ = "0.1.0"

# What a first program does without, and the module of each; imported when it is first used.
_LAZY = {
    "AckerProgress": "txtopo.runtime.progress",
    "Avro": "txtopo.formats",
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
    "ProgressBar": "txtopo.ui.progress_bar",
    "Progressed": "txtopo.runtime.progress",
    "Protobuf": "txtopo.formats",
    "ReliableProgress": "txtopo.runtime.progress",
    "ReliableRun": "txtopo.runtime.handle",
    "ReliableTopology": "txtopo.builders.at_least_once",
    "Restart": "txtopo.runtime.restart",
    "Restarting": "txtopo.runtime.progress",
    "SlotLost": "txtopo.runtime.progress",
    "Standby": "txtopo.runtime.progress",
    "Started": "txtopo.runtime.progress",
    "Stopped": "txtopo.runtime.progress",
    "StreamBuilder": "txtopo.streams",
    "TopologyBuilder": "txtopo.builders.at_least_once",
    "TopologyEvent": "txtopo.runtime.progress",
    "TopologyListener": "txtopo.runtime.progress",
    "TopologyRun": "txtopo.runtime.handle",
    "TreesFailed": "txtopo.runtime.progress",
    "open_session": "txtopo.runtime.session",
    "topology_from_yaml": "txtopo.builders.from_yaml",
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

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
