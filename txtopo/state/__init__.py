"""State: what a topology keeps, once and only once."""

from __future__ import annotations

from txtopo.attempt import TransactionAttempt
from txtopo.state.adoption import adopts
from txtopo.state.aggregates import Aggregate, Count, Max, Min, Sum
from txtopo.state.backend import (
    BackendFactory,
    Key,
    Merges,
    Puts,
    Snapshot,
    StateBackend,
    StateKind,
    StateMode,
    StateTable,
    Values,
    Writes,
)
from txtopo.state.columns import Columns
from txtopo.state.declaration import declaration, declared
from txtopo.state.ledger import Ledger, Standing, claimed, standing
from txtopo.state.outcome import commit_resolved
from txtopo.state.partials import checked_partials
from txtopo.state.reader import StateReader
from txtopo.state.registry import State, hidden, open_state, register_backend
from txtopo.state.row_backend import Contents, RowBackend
from txtopo.state.transaction import StateHandle, StateTransaction
from txtopo.state.values import Row
from txtopo.tuples import Field, Fields

__all__ = [
    "Aggregate",
    "BackendFactory",
    "Columns",
    "Contents",
    "Count",
    "Field",
    "Fields",
    "Key",
    "Ledger",
    "Max",
    "Merges",
    "Min",
    "Puts",
    "Row",
    "RowBackend",
    "Snapshot",
    "Standing",
    "State",
    "StateBackend",
    "StateHandle",
    "StateKind",
    "StateMode",
    "StateReader",
    "StateTable",
    "StateTransaction",
    "Sum",
    "TransactionAttempt",
    "Values",
    "Writes",
    "adopts",
    "checked_partials",
    "claimed",
    "commit_resolved",
    "declaration",
    "declared",
    "hidden",
    "open_state",
    "register_backend",
    "standing",
]
