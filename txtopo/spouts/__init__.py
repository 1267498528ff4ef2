"""The spouts that txtopo brings: where batches and tuples come from."""

from typing import TYPE_CHECKING

from txtopo.lazy_names import lazy_names

if TYPE_CHECKING:
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

_LAZY = {
    "ClockTransactionalSpout": "txtopo.spouts.clock",
    "DataFrameTransactionalSpout": "txtopo.spouts.dataframe",
    "DataSourceSpout": "txtopo.spouts.datasource",
    "DeltaDataFrameSpout": "txtopo.spouts.delta",
    "DeltaTransactionalSpout": "txtopo.spouts.delta",
    "FileSpout": "txtopo.spouts.files.spout",
    "FilesTransactionalSpout": "txtopo.spouts.files",
    "KafkaOpaqueSpout": "txtopo.spouts.kafka",
    "KafkaSpout": "txtopo.spouts.kafka",
    "KafkaTransactionalSpout": "txtopo.spouts.kafka",
    "MemorySpout": "txtopo.spouts.memory",
    "MemoryTransactionalSpout": "txtopo.spouts.memory",
    "OpaqueMemoryTransactionalSpout": "txtopo.spouts.memory",
    "Outage": "txtopo.spouts.memory",
    "QueryTransactionalSpout": "txtopo.spouts.query",
    "QueueSpout": "txtopo.spouts.rabbitmq",
    "Recut": "txtopo.spouts.memory",
    "StreamSpout": "txtopo.spouts.spout",
}

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

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
