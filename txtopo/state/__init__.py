"""State: what a topology keeps, once and only once."""

from __future__ import annotations

from txtopo.attempt import TransactionAttempt
from txtopo.state.adoption import adopts
from txtopo.state.aggregates import Aggregate, Count, Max, Mean, Min, Sum
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
from txtopo.state.backing_map import BackingMap, ComparesAndPuts
from txtopo.state.columns import Columns
from txtopo.state.count_distinct import CountDistinct
from txtopo.state.declaration import declaration, declared, listed
from txtopo.state.final_values import combines_in_store, final_values
from txtopo.state.first_last import First, Last
from txtopo.state.folding import SEGMENTS_OF_A_TIER, span_to_fold
from txtopo.state.frames import (
    FrameBackend,
    FrameFactory,
    FrameStateHandle,
    FrameTransaction,
    FrameWrites,
)
from txtopo.state.lane import Lane
from txtopo.state.ledger import (
    LEDGER_SCHEMA,
    RELEASED,
    Claim,
    Ledger,
    Owner,
    Standing,
    claimed,
    standing,
)
from txtopo.state.map_factory import MapFactory, backing_map_factory
from txtopo.state.opaque_map import OpaqueMap
from txtopo.state.outcome import commit_resolved
from txtopo.state.own_aggregate import OwnAggregate
from txtopo.state.partials import checked_partials, log_rows
from txtopo.state.reader import StateReader
from txtopo.state.registry import State, hidden, open_state, register_backend
from txtopo.state.row_backend import Contents, RowBackend, changed_rows, written_keys
from txtopo.state.row_text import RowText
from txtopo.state.shown import means
from txtopo.state.sums import is_exact, largest, limited_sums
from txtopo.state.top_n import TopN
from txtopo.state.transaction import StateHandle, StateTransaction
from txtopo.state.transactional_map import TransactionalMap
from txtopo.state.values import Row
from txtopo.tuples import Field, Fields

__all__ = [
    "Aggregate",
    "BackendFactory",
    "BackingMap",
    "Claim",
    "Columns",
    "ComparesAndPuts",
    "Contents",
    "Count",
    "CountDistinct",
    "Field",
    "Fields",
    "First",
    "FrameBackend",
    "FrameFactory",
    "FrameStateHandle",
    "FrameTransaction",
    "FrameWrites",
    "Key",
    "LEDGER_SCHEMA",
    "Lane",
    "Last",
    "Ledger",
    "MapFactory",
    "Max",
    "Mean",
    "Merges",
    "Min",
    "OpaqueMap",
    "OwnAggregate",
    "Owner",
    "Puts",
    "RELEASED",
    "Row",
    "RowBackend",
    "RowText",
    "SEGMENTS_OF_A_TIER",
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
    "TopN",
    "TransactionAttempt",
    "TransactionalMap",
    "Values",
    "Writes",
    "adopts",
    "backing_map_factory",
    "changed_rows",
    "checked_partials",
    "claimed",
    "combines_in_store",
    "commit_resolved",
    "declaration",
    "declared",
    "final_values",
    "hidden",
    "is_exact",
    "largest",
    "limited_sums",
    "listed",
    "log_rows",
    "means",
    "open_state",
    "register_backend",
    "span_to_fold",
    "standing",
    "written_keys",
]
