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
    "txtopo.spouts.clock": ("ClockTransactionalSpout",),
    "txtopo.spouts.dataframe": ("DataFrameTransactionalSpout",),
    "txtopo.spouts.datasource": ("DataSourceSpout",),
    "txtopo.spouts.delta": ("DeltaDataFrameSpout", "DeltaTransactionalSpout"),
    "txtopo.spouts.files": ("FilesTransactionalSpout",),
    "txtopo.spouts.files.spout": ("FileSpout",),
    "txtopo.spouts.kafka": ("KafkaOpaqueSpout", "KafkaSpout", "KafkaTransactionalSpout"),
    "txtopo.spouts.memory": (
        "MemorySpout",
        "MemoryTransactionalSpout",
        "OpaqueMemoryTransactionalSpout",
        "Outage",
        "Recut",
    ),
    "txtopo.spouts.query": ("QueryTransactionalSpout",),
    "txtopo.spouts.rabbitmq": ("QueueSpout",),
    "txtopo.spouts.spout": ("StreamSpout",),
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
