"""State: what a topology keeps, once and only once."""

from __future__ import annotations

from txtopo.attempt import TransactionAttempt
from txtopo.state.aggregates import Aggregate, Count, Max, Mean, Min, OwnAggregate, Sum
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
from txtopo.state.declaration import declaration, listed_states, parsed_declaration
from txtopo.state.frames import (
    FrameBackend,
    FrameFactory,
    FrameStateHandle,
    FrameTransaction,
    FrameWrites,
)
from txtopo.state.ledger import (
    LEDGER_SCHEMA,
    RELEASED,
    Claim,
    Ledger,
    Owner,
    Standing,
    adopts,
    claimed,
    standing,
)
from txtopo.state.log import (
    SEGMENTS_OF_A_TIER,
    BackgroundTask,
    is_exact,
    largest,
    limited_sums,
    span_to_fold,
)
from txtopo.state.map_backend import MapFactory, OpaqueMap, TransactionalMap, backing_map_factory
from txtopo.state.plug_in import commit_resolved
from txtopo.state.python_aggregates import CountDistinct, First, Last, TopN
from txtopo.state.reader import StateReader, mean_names
from txtopo.state.registry import State, open_state, redacted_url, register_backend
from txtopo.state.row_backend import (
    Contents,
    RowBackend,
    changed_rows,
    checked_partials,
    combines_in_store,
    final_values,
    log_rows,
    written_keys,
)
from txtopo.state.row_text import RowText
from txtopo.state.transaction import StateHandle, StateTransaction
from txtopo.state.values import Row
from txtopo.tuples import Field, Fields

__all__ = [
    "Aggregate",
    "BackendFactory",
    "BackgroundTask",
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
    "parsed_declaration",
    "final_values",
    "redacted_url",
    "is_exact",
    "largest",
    "limited_sums",
    "listed_states",
    "log_rows",
    "mean_names",
    "open_state",
    "register_backend",
    "span_to_fold",
    "standing",
    "written_keys",
]
