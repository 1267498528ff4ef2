"""A look into the Delta tables that the tests make."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from state_backends.delta.backend import DeltaBackend
from state_backends.delta.library import DeltaTable
from txtopo import Fields
from txtopo.state import Count
from txtopo.testing.conformance.driver import StateDriver

COUNTED = (Fields("key string"), Fields("n long"), (Count(),))


def table_of(store: StateDriver) -> DeltaTable:
    assert isinstance(store.backend, DeltaBackend)
    return store.backend._open()


def log_of(store: StateDriver) -> Path:
    return Path(table_of(store).table_uri.removeprefix("file://"), "_delta_log")


def seen(table: DeltaTable) -> dict[str, int]:
    """Return the sums in one version, as any reader of the files computes them."""
    rows = pa.table(table.scan()).to_pylist()
    found: dict[str, int] = {}
    for row in rows:
        if not row.get("deleted"):
            found[row["key"]] = found.get(row["key"], 0) + row["n"]
    return found
