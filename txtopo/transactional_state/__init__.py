"""The transactional state: what survives the coordinator, in ZooKeeper or in memory."""

from txtopo.transactional_state.journal import Journal, JournalContents
from txtopo.transactional_state.memory import MemoryEnsemble, MemoryTransactionalState
from txtopo.transactional_state.nodes import StoredBatch
from txtopo.transactional_state.opening import open_transactional_state
from txtopo.transactional_state.store import (
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
