"""Transactional topologies on Spark: state that is right exactly once, whatever crashes."""

from txtopo.attempt import TransactionAttempt
from txtopo.bolts import (
    ArrowBolt,
    BasicBolt,
    BatchBolt,
    Committer,
    DataFrameBolt,
    PersistentAggregate,
)
from txtopo.builders import Topology, TransactionalTopologyBuilder
from txtopo.collector import ArrowOutputCollector, BatchOutputCollector
from txtopo.config import Config
from txtopo.context import FrameContext, TaskContext
from txtopo.errors import FailedException, TxtopoError
from txtopo.groupings import CustomStreamGrouping
from txtopo.runtime.progress import TopologyListener
from txtopo.tuples import Fields, Stream, Tuple

__all__ = [
    "ArrowBolt",
    "ArrowOutputCollector",
    "BasicBolt",
    "BatchBolt",
    "BatchOutputCollector",
    "Committer",
    "Config",
    "CustomStreamGrouping",
    "DataFrameBolt",
    "FailedException",
    "Fields",
    "FrameContext",
    "PersistentAggregate",
    "Stream",
    "TaskContext",
    "Topology",
    "TopologyListener",
    "TransactionAttempt",
    "TransactionalTopologyBuilder",
    "Tuple",
    "TxtopoError",
]
