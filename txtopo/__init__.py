"""Storm's topologies on Spark: state that is right exactly once, and tuples at least once."""

from txtopo.attempt import TransactionAttempt
from txtopo.bolts import (
    ArrowBolt,
    BasicBolt,
    BatchBolt,
    Bolt,
    Committer,
    DataFrameBolt,
    PersistentAggregate,
)
from txtopo.builders import (
    ReliableTopology,
    Topology,
    TopologyBuilder,
    TransactionalTopologyBuilder,
)
from txtopo.collector import (
    ArrowOutputCollector,
    BatchOutputCollector,
    OutputCollector,
    SpoutOutputCollector,
)
from txtopo.config import Config
from txtopo.context import FrameContext, TaskContext
from txtopo.errors import FailedException, TxtopoError
from txtopo.groupings import CustomStreamGrouping
from txtopo.runtime.progress import TopologyListener
from txtopo.spouts.spout import Spout
from txtopo.tuples import Fields, Stream, Tuple, is_tick

__all__ = [
    "ArrowBolt",
    "ArrowOutputCollector",
    "BasicBolt",
    "BatchBolt",
    "BatchOutputCollector",
    "Bolt",
    "Committer",
    "Config",
    "CustomStreamGrouping",
    "DataFrameBolt",
    "FailedException",
    "Fields",
    "FrameContext",
    "OutputCollector",
    "PersistentAggregate",
    "ReliableTopology",
    "Spout",
    "SpoutOutputCollector",
    "Stream",
    "TaskContext",
    "Topology",
    "TopologyBuilder",
    "TopologyListener",
    "TransactionAttempt",
    "TransactionalTopologyBuilder",
    "Tuple",
    "TxtopoError",
    "is_tick",
]
