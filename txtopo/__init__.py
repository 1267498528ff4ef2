"""Storm's topologies on Spark: state that is right exactly once, and tuples at least once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo import uncaught as uncaught  # Python prints errors of txtopo in a few lines
from txtopo import wings as wings  # registers what the core asks for
from txtopo.attempt import TransactionAttempt
from txtopo.bolts import (
    ArrowBolt,
    BasicBolt,
    BatchBolt,
    Committer,
    DataFrameBolt,
    DeadLetters,
    PersistentAggregate,
)
from txtopo.builders.transactional import Topology, TransactionalTopologyBuilder
from txtopo.collector import ArrowOutputCollector, BatchOutputCollector
from txtopo.config import AtLeastOnceConfig, Config, Page, ZooKeeper
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
from txtopo.pacing import Pace
from txtopo.state.aggregates import Count, Max, Mean, Min, OwnAggregate, Sum
from txtopo.state.python_aggregates import CountDistinct, First, Last, TopN
from txtopo.state.registry import open_state
from txtopo.tuples import Fields, Stream, Tuple, is_tick

if TYPE_CHECKING:
    from txtopo.carriers.session import open_session
    from txtopo.kafka.formats import Avro, Debezium, Protobuf
    from txtopo.reliable.bolt import Bolt
    from txtopo.reliable.builder import ReliableTopology, TopologyBuilder
    from txtopo.reliable.collector import OutputCollector, SpoutOutputCollector
    from txtopo.reliable.spout import Spout
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
    from txtopo.streams import StreamBuilder
    from txtopo.ui.progress_bar import ProgressBar
    from txtopo.yaml.loading import topology_from_yaml

__version__ = "0.1.0"

# The names that a first program does without, by module; it is imported when one is first used.
_LAZY = {
    "txtopo.reliable.bolt": ("Bolt",),
    "txtopo.reliable.builder": ("ReliableTopology", "TopologyBuilder"),
    "txtopo.reliable.collector": ("OutputCollector", "SpoutOutputCollector"),
    "txtopo.reliable.spout": ("Spout",),
    "txtopo.yaml.loading": ("topology_from_yaml",),
    "txtopo.kafka.formats": ("Avro", "Debezium", "Protobuf"),
    "txtopo.runtime.handle": ("ReliableRun", "TopologyRun"),
    "txtopo.runtime.progress": (
        "AckerProgress",
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
        "Restarting",
        "SlotLost",
        "Standby",
        "Started",
        "Stopped",
        "TopologyEvent",
        "TopologyListener",
        "TreesFailed",
    ),
    "txtopo.runtime.restart": ("Restart",),
    "txtopo.carriers.session": ("open_session",),
    "txtopo.streams": ("StreamBuilder",),
    "txtopo.ui.progress_bar": ("ProgressBar",),
}

__all__ = [
    "AckerProgress",
    "ArrowBolt",
    "ArrowOutputCollector",
    "AtLeastOnceConfig",
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
    "Debezium",
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
    "Pace",
    "Page",
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
    "ZooKeeper",
    "__version__",
    "is_tick",
    "open_session",
    "open_state",
    "topology_from_yaml",
]

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
