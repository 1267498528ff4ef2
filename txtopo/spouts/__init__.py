"""The spouts that txtopo brings: where batches and tuples come from."""

from typing import TYPE_CHECKING

from txtopo.lazy_names import lazy_names

if TYPE_CHECKING:
    from txtopo.kafka import KafkaOpaqueSpout, KafkaSpout, KafkaTransactionalSpout
    from txtopo.reliable.memory_spout import MemorySpout
    from txtopo.sources.clock import ClockTransactionalSpout
    from txtopo.sources.datasource import DataSourceSpout
    from txtopo.sources.delta import DeltaDataFrameSpout, DeltaTransactionalSpout
    from txtopo.sources.files import FilesTransactionalSpout
    from txtopo.sources.files.spout import FileSpout
    from txtopo.sources.query import QueryTransactionalSpout
    from txtopo.sources.rabbitmq import QueueSpout
    from txtopo.spouts.dataframe import DataFrameTransactionalSpout
    from txtopo.spouts.memory import (
        MemoryTransactionalSpout,
        OpaqueMemoryTransactionalSpout,
        Outage,
        Recut,
    )
    from txtopo.spouts.sequence import SequenceSpout
    from txtopo.spouts.spout import StreamSpout

_LAZY = {
    "txtopo.sources.clock": ("ClockTransactionalSpout",),
    "txtopo.spouts.dataframe": ("DataFrameTransactionalSpout",),
    "txtopo.sources.datasource": ("DataSourceSpout",),
    "txtopo.sources.delta": ("DeltaDataFrameSpout", "DeltaTransactionalSpout"),
    "txtopo.sources.files": ("FilesTransactionalSpout",),
    "txtopo.sources.files.spout": ("FileSpout",),
    "txtopo.kafka": ("KafkaOpaqueSpout", "KafkaSpout", "KafkaTransactionalSpout"),
    "txtopo.reliable.memory_spout": ("MemorySpout",),
    "txtopo.spouts.memory": (
        "MemoryTransactionalSpout",
        "OpaqueMemoryTransactionalSpout",
        "Outage",
        "Recut",
    ),
    "txtopo.sources.query": ("QueryTransactionalSpout",),
    "txtopo.sources.rabbitmq": ("QueueSpout",),
    "txtopo.spouts.sequence": ("SequenceSpout",),
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
    "SequenceSpout",
    "StreamSpout",
]

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
