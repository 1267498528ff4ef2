"""Where batches and tuples come from."""

from txtopo.spouts.dataframe import DataFrameTransactionalSpout
from txtopo.spouts.datasource import DataSourceSpout
from txtopo.spouts.delta import DeltaDataFrameSpout, DeltaTransactionalSpout
from txtopo.spouts.files import FilesTransactionalSpout
from txtopo.spouts.kafka import KafkaOpaqueSpout, KafkaTransactionalSpout
from txtopo.spouts.lines import FileSpout
from txtopo.spouts.memory import (
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
    Outage,
    Recut,
)
from txtopo.spouts.opaque import (
    OpaquePartitionedTransactionalEmitter,
    OpaquePartitionedTransactionalSpout,
)
from txtopo.spouts.partitioned import (
    PartitionedCoordinator,
    PartitionedTransactionalEmitter,
    PartitionedTransactionalSpout,
)
from txtopo.spouts.query import QueryTransactionalSpout
from txtopo.spouts.rabbitmq import QueueSpout
from txtopo.spouts.reliable import Spout
from txtopo.spouts.rows import MemorySpout
from txtopo.spouts.stream import StreamSpout
from txtopo.spouts.transactional import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)

__all__ = [
    "DataFrameTransactionalSpout",
    "DataSourceSpout",
    "DeltaDataFrameSpout",
    "DeltaTransactionalSpout",
    "FileSpout",
    "FilesTransactionalSpout",
    "KafkaOpaqueSpout",
    "KafkaTransactionalSpout",
    "LastBatch",
    "MemorySpout",
    "MemoryTransactionalSpout",
    "OpaqueMemoryTransactionalSpout",
    "OpaquePartitionedTransactionalEmitter",
    "OpaquePartitionedTransactionalSpout",
    "Outage",
    "PartitionedCoordinator",
    "PartitionedTransactionalEmitter",
    "PartitionedTransactionalSpout",
    "QueryTransactionalSpout",
    "QueueSpout",
    "Recut",
    "Spout",
    "StreamSpout",
    "TransactionalCoordinator",
    "TransactionalEmitter",
    "TransactionalSpout",
]
