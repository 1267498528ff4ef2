"""What authors of spouts import: the interfaces, what their methods take, the errors they raise.

The interfaces (:mod:`txtopo.spouts.spout`) say who calls each method, where and how often.
:class:`txtopo.testing.conformance.SpoutSuite` proves a spout: subclass it in a test module.
"""

from __future__ import annotations

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import (
    AuthError,
    ConfigError,
    EmitError,
    FailedException,
    InfrastructureError,
    NonRepeatableBatch,
    OffsetRegression,
    PromiseError,
    SchemaVersionError,
    SourceDataLost,
)
from txtopo.metadata import Json
from txtopo.reliable.collector import SpoutOutputCollector
from txtopo.reliable.spout import Spout
from txtopo.servers import Server
from txtopo.spouts.spout import (
    LastBatch,
    OpaquePartitionedTransactionalEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
    PartitionedTransactionalEmitter,
    PartitionedTransactionalSpout,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.tuples import Fields, Stream

__all__ = [
    "AuthError",
    "BatchOutputCollector",
    "Config",
    "ConfigError",
    "EmitError",
    "FailedException",
    "Fields",
    "InfrastructureError",
    "Json",
    "LastBatch",
    "NonRepeatableBatch",
    "OffsetRegression",
    "OpaquePartitionedTransactionalEmitter",
    "OpaquePartitionedTransactionalSpout",
    "PartitionedCoordinator",
    "PartitionedTransactionalEmitter",
    "PartitionedTransactionalSpout",
    "PromiseError",
    "SchemaVersionError",
    "Server",
    "SourceDataLost",
    "Spout",
    "SpoutOutputCollector",
    "Stream",
    "TaskContext",
    "TransactionAttempt",
    "TransactionalCoordinator",
    "TransactionalEmitter",
    "TransactionalSpout",
]
