"""Check that nothing was written: compare ZooKeeper and the stores before and after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.harness.runs import LOCAL, Storage, run_to_end
from txtopo import Config, Topology
from txtopo.attempt import TransactionAttempt
from txtopo.errors import StateUsageError
from txtopo.state import Ledger, open_state

KEPT = "kept"
"""The table of the tests' topologies."""


@dataclass(frozen=True, slots=True)
class Held:
    """The contents of a state.

    Attributes:
        ledger: Its ledger; None for a state that was never claimed.
        rows: Its rows by key.
    """

    ledger: Ledger | None
    rows: dict[Any, Any]

    @property
    def writer(self) -> TransactionAttempt:
        """The attempt that wrote last; a claim does not count as a write."""
        return self.ledger.writer if self.ledger is not None else TransactionAttempt(0)


def held(storage: Storage, table: str = KEPT) -> Held:
    """Return the contents of a state; they are empty if there is no state."""
    try:
        with open_state(storage.url, table=table).reader() as reader:
            return Held(reader.ledger, dict(reader.items()))
    except StateUsageError:
        return Held(None, {})


@contextmanager
def untouched(storage: Storage, *tables: str) -> Iterator[None]:
    """Check that no node, ledger or row changes."""
    nodes = dict(storage.ensemble.nodes)
    before = [held(storage, table) for table in tables or (KEPT,)]
    yield
    assert storage.ensemble.nodes == nodes
    assert [held(storage, table) for table in tables or (KEPT,)] == before


@contextmanager
def nothing_committed(storage: Storage, *tables: str) -> Iterator[None]:
    """Check that no txid is committed and no row changes; an epoch may have been claimed."""
    before = [held(storage, table) for table in tables or (KEPT,)]
    current = _nodes(storage, "/current")
    yield
    after = [held(storage, table) for table in tables or (KEPT,)]
    assert [each.rows for each in after] == [each.rows for each in before]
    assert [each.writer for each in after] == [each.writer for each in before]
    assert not current or _nodes(storage, "/current") == current


def ends_at(
    txid: int,
    topology: Topology,
    storage: Storage,
    error: type[Exception],
    match: str,
    config: Config = LOCAL,
) -> Exception:
    """Run a topology and check that it ends with *error* before *txid*, which writes nothing.

    The second start must meet the same error, which shows that nothing was skipped.
    """
    with pytest.raises(error, match=match) as caught:
        run_to_end(topology, storage, config)
    assert held(storage).writer.txid == txid - 1
    with nothing_committed(storage), pytest.raises(error, match=match):
        run_to_end(topology, storage, config)
    return caught.value


def _nodes(storage: Storage, end: str) -> dict[str, bytes]:
    nodes = storage.ensemble.nodes.items()
    return {path: value for path, (value, _) in nodes if path.endswith(end)}
