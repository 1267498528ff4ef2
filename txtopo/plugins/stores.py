"""What authors of stores import: the contract of a state backend, and what helps to keep it.

There are three ways to write a store, the shortest first:

* :class:`BackingMap`: get and put texts by key. :func:`backing_map_factory` makes a state of it.
* :class:`RowBackend`: read all rows, and replace some by compare-and-set.
* :class:`StateBackend`: the whole contract, for a store with transactions and many keys.

A distribution declares its factory in the entry point group ``txtopo.state_backends``, or a program
calls :func:`register_backend`. :mod:`txtopo.testing.conformance` has the suites that prove a store
right: ``StateBackendSuite`` for all three, ``BackingMapSuite`` for the map itself.
"""

from __future__ import annotations

from txtopo.attempt import CopyAttempt, GroupAttempt, TransactionAttempt
from txtopo.frames.states import FrameBackend, FrameFactory, FrameWrites
from txtopo.servers import ConnectingFactory, Server
from txtopo.state.aggregates import Aggregate
from txtopo.state.backend import (
    BackendFactory,
    Database,
    Key,
    Merges,
    Puts,
    Snapshot,
    StateBackend,
    StateKind,
    StateMode,
    StateSize,
    StateTable,
    Values,
    Writes,
    column_schema,
)
from txtopo.state.backing_map import BackingMap, ComparesAndPuts
from txtopo.state.declaration import declaration, listed_states, parsed_declaration, retired_of
from txtopo.state.evolution import (
    TableChange,
    check_none_taken,
    not_allowed,
    refused_change,
    table_change,
)
from txtopo.state.ledger import (
    LEDGER_SCHEMA,
    Claim,
    Ledger,
    Owner,
    Standing,
    claimed,
    expiring,
    standing,
)
from txtopo.state.map_backend import MapFactory, OpaqueMap, TransactionalMap, backing_map_factory
from txtopo.state.queries import QueryBackend, QueryRows
from txtopo.state.reader import FrameSnapshot, mean_names
from txtopo.state.registry import (
    AnchoredFactory,
    CheckingFactory,
    ClientFactory,
    NamingFactory,
    redacted_url,
    register_backend,
)
from txtopo.state.row_backend import (
    Contents,
    Replacement,
    RowBackend,
    changed_rows,
    checked_partials,
    combines_in_store,
    expired_keys,
    final_values,
    log_rows,
    written_keys,
)
from txtopo.state.row_text import RowText
from txtopo.state.statements import (
    BOUND,
    Statement,
    StoredUndo,
    missing_undo,
    redo_repeats,
    statements_of,
    undos_from_text,
    undos_of,
    undos_to_text,
)
from txtopo.state.values import Row
from txtopo.state.witness import Witness, check_undone, witness_of
from txtopo.tuples import Field, Fields

__all__ = [
    "Aggregate",
    "AnchoredFactory",
    "BOUND",
    "BackendFactory",
    "BackingMap",
    "CheckingFactory",
    "Claim",
    "ClientFactory",
    "ComparesAndPuts",
    "ConnectingFactory",
    "Contents",
    "CopyAttempt",
    "Database",
    "Field",
    "Fields",
    "FrameBackend",
    "FrameFactory",
    "FrameSnapshot",
    "FrameWrites",
    "GroupAttempt",
    "Key",
    "LEDGER_SCHEMA",
    "Ledger",
    "MapFactory",
    "Merges",
    "NamingFactory",
    "OpaqueMap",
    "Owner",
    "Puts",
    "QueryBackend",
    "QueryRows",
    "Replacement",
    "Row",
    "RowBackend",
    "RowText",
    "Server",
    "Snapshot",
    "Standing",
    "StateBackend",
    "StateKind",
    "StateMode",
    "StateSize",
    "StateTable",
    "Statement",
    "StoredUndo",
    "TableChange",
    "TransactionAttempt",
    "TransactionalMap",
    "Values",
    "Witness",
    "Writes",
    "backing_map_factory",
    "changed_rows",
    "check_none_taken",
    "check_undone",
    "checked_partials",
    "claimed",
    "column_schema",
    "combines_in_store",
    "declaration",
    "expired_keys",
    "expiring",
    "final_values",
    "listed_states",
    "log_rows",
    "mean_names",
    "missing_undo",
    "not_allowed",
    "parsed_declaration",
    "redacted_url",
    "redo_repeats",
    "refused_change",
    "register_backend",
    "retired_of",
    "standing",
    "statements_of",
    "table_change",
    "undos_from_text",
    "undos_of",
    "undos_to_text",
    "witness_of",
    "written_keys",
]
