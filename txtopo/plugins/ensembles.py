"""What authors of ensembles import: the interface of transactional state, and what helps with it.

txtopo keeps the progress of a topology in ZooKeeper. Another ensemble takes its place if it has a
:class:`TransactionalState`: a small tree of JSON values with versions, writes of several nodes at
once, and an election. A distribution declares its factory in the entry point group
``txtopo.ensembles``, or a program calls :func:`register_ensemble`; ``Config(zookeeper="scheme://…")``
finds it. :class:`txtopo.testing.conformance.TransactionalStateSuite` proves it right.

:func:`encode_steps` turns the steps of a write into bytes, and refuses what is not JSON or too
large. :func:`decode` reads a node back: its value, and the id of the write, by which a client whose
answer was lost finds out whether it was written. :func:`is_gone` says whether the process of a
candidate has ended. :class:`MemoryTransactionalState` is the reference.
"""

from __future__ import annotations

from txtopo.config import ZooKeeper
from txtopo.ensemble.memory import MemoryTransactionalState
from txtopo.ensemble.nodes import decode, encode_steps
from txtopo.ensemble.plug_ins import EnsembleFactory, register_ensemble
from txtopo.ensemble.store import (
    Check,
    CompareAndSet,
    Delete,
    Leadership,
    Node,
    Put,
    Step,
    TransactionalState,
    VersionConflict,
    is_gone,
)
from txtopo.errors import (
    AuthError,
    BatchMetadataTooLarge,
    ConfigError,
    CoordinatorUnavailable,
    CorruptNodeError,
    EmitError,
    StateUsageError,
)
from txtopo.metadata import Json
from txtopo.servers import ConnectingFactory, Server

__all__ = [
    "AuthError",
    "BatchMetadataTooLarge",
    "Check",
    "CompareAndSet",
    "ConfigError",
    "ConnectingFactory",
    "CoordinatorUnavailable",
    "CorruptNodeError",
    "Delete",
    "EmitError",
    "EnsembleFactory",
    "Json",
    "Leadership",
    "MemoryTransactionalState",
    "Node",
    "Put",
    "Server",
    "StateUsageError",
    "Step",
    "TransactionalState",
    "VersionConflict",
    "ZooKeeper",
    "decode",
    "encode_steps",
    "is_gone",
    "register_ensemble",
]
