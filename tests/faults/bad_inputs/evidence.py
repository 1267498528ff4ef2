"""Evidence that nothing was written: what ZooKeeper and the stores hold, before and after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.services.integration.running import LOCAL, Place, run_to_end
from txtopo import Config, Topology
from txtopo.attempt import TransactionAttempt
from txtopo.errors import StateUsageError
from txtopo.state import Ledger, open_state

KEPT = "kept"
"""The table of the tests' topologies."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a state holds.

    Attributes:
        ledger: Its ledger; None for a state that was never claimed.
        rows: Its rows by key.
    """

    ledger: Ledger | None
    rows: dict[Any, Any]

    @property
    def writer(self) -> TransactionAttempt:
        """The attempt that wrote last; a claim alone writes nothing."""
        return self.ledger.writer if self.ledger is not None else TransactionAttempt(0)


def held(place: Place, table: str = KEPT) -> Held:
    """Return what a state holds, nothing if there is none."""
    try:
        with open_state(place.url, table=table).reader() as reader:
            return Held(reader.ledger, dict(reader.items()))
    except StateUsageError:
        return Held(None, {})


@contextmanager
def untouched(place: Place, *tables: str) -> Iterator[None]:
    """Check that no node, ledger or row changes."""
    nodes = dict(place.ensemble.nodes)
    before = [held(place, table) for table in tables or (KEPT,)]
    yield
    assert place.ensemble.nodes == nodes
    assert [held(place, table) for table in tables or (KEPT,)] == before


@contextmanager
def nothing_committed(place: Place, *tables: str) -> Iterator[None]:
    """Check that no txid is committed and no row changes; an epoch may have been claimed."""
    before = [held(place, table) for table in tables or (KEPT,)]
    current = _nodes(place, "/current")
    yield
    after = [held(place, table) for table in tables or (KEPT,)]
    assert [each.rows for each in after] == [each.rows for each in before]
    assert [each.writer for each in after] == [each.writer for each in before]
    assert not current or _nodes(place, "/current") == current


def ends_at(
    txid: int,
    topology: Topology,
    place: Place,
    error: type[Exception],
    match: str,
    config: Config = LOCAL,
) -> Exception:
    """Run a topology and check that it ends with *error* before *txid*, which writes nothing.

    The second start meets the same error, so that it is seen that nothing was passed over.
    """
    with pytest.raises(error, match=match) as caught:
        run_to_end(topology, place, config)
    assert held(place).writer.txid == txid - 1
    with nothing_committed(place), pytest.raises(error, match=match):
        run_to_end(topology, place, config)
    return caught.value


def _nodes(place: Place, end: str) -> dict[str, bytes]:
    nodes = place.ensemble.nodes.items()
    return {path: value for path, (value, _) in nodes if path.endswith(end)}
