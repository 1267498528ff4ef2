"""What opens Delta tables: the package deltalake, or without it Python and the Spark session."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

HAS_DELTA_RS = find_spec("deltalake") is not None

if TYPE_CHECKING or HAS_DELTA_RS:
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
    from deltalake.exceptions import (
        DeltaError,
        DeltaProtocolError,
        SchemaMismatchError,
        TableNotFoundError,
    )
    from deltalake.fs import DeltaStorageHandler
else:
    from state_backends.delta.by_session import (
        AppTransaction as Transaction,
    )
    from state_backends.delta.by_session import (
        CommitProperties,
        DeltaError,
        DeltaProtocolError,
        DeltaStorageHandler,
        DeltaTable,
        SchemaMismatchError,
        TableNotFoundError,
        write_deltalake,
    )

__all__ = [
    "HAS_DELTA_RS",
    "CommitProperties",
    "DeltaError",
    "DeltaProtocolError",
    "DeltaStorageHandler",
    "DeltaTable",
    "SchemaMismatchError",
    "TableNotFoundError",
    "Transaction",
    "write_deltalake",
]
