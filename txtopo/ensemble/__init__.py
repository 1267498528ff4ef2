"""The transactional state: what survives the coordinator, in ZooKeeper or in memory."""

from txtopo.ensemble.journal import Journal, JournalContents
from txtopo.ensemble.memory import MemoryEnsemble, MemoryTransactionalState
from txtopo.ensemble.nodes import StoredBatch
from txtopo.ensemble.opening import open_transactional_state
from txtopo.ensemble.store import (
    Check,
    CompareAndSet,
    Delete,
    Json,
    Leadership,
    Node,
    Put,
    TransactionalState,
    VersionConflict,
    this_process,
)

__all__ = [
    "Check",
    "CompareAndSet",
    "Delete",
    "Journal",
    "JournalContents",
    "Json",
    "Leadership",
    "MemoryEnsemble",
    "MemoryTransactionalState",
    "Node",
    "Put",
    "StoredBatch",
    "TransactionalState",
    "VersionConflict",
    "open_transactional_state",
    "this_process",
]
