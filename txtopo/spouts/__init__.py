"""The spouts that txtopo brings: where batches and tuples come from."""

from txtopo.spouts.clock import ClockTransactionalSpout
from txtopo.spouts.dataframe import DataFrameTransactionalSpout
from txtopo.spouts.datasource import DataSourceSpout
from txtopo.spouts.delta import DeltaDataFrameSpout, DeltaTransactionalSpout
from txtopo.spouts.files import FilesTransactionalSpout
from txtopo.spouts.files.spout import FileSpout
from txtopo.spouts.kafka import KafkaOpaqueSpout, KafkaSpout, KafkaTransactionalSpout
from txtopo.spouts.memory import (
    MemorySpout,
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
    Outage,
    Recut,
)
from txtopo.spouts.query import QueryTransactionalSpout
from txtopo.spouts.rabbitmq import QueueSpout
from txtopo.spouts.spout import StreamSpout

__all__ = [
    "ClockTransactionalSpout",
    "DataFrameTransactionalSpout",
    "DataSourceSpout",
    "DeltaDataFrameSpout",
    "DeltaTransactionalSpout",
    "FileSpout",
    "FilesTransactionalSpout",
    "KafkaOpaqueSpout",
    "KafkaSpout",
    "KafkaTransactionalSpout",
    "MemorySpout",
    "MemoryTransactionalSpout",
    "OpaqueMemoryTransactionalSpout",
    "Outage",
    "QueryTransactionalSpout",
    "QueueSpout",
    "Recut",
    "StreamSpout",
]
