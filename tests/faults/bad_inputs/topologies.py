"""Small topologies that store what their spout emits, one row a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.faults.bad_inputs.evidence import KEPT
from tests.harness.runs import Storage
from tests.services.integration.bolts import Gathering
from txtopo import Committer, Fields, PersistentAggregate, Topology, TransactionalTopologyBuilder
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state import Sum

ROWS = Fields("key string, value long")
Row = Sequence[Any]


class Keep(Gathering, Committer):
    """Puts what a function makes of each tuple into its state: by default value under key.

    It opens no transaction for an empty batch.
    """

    def __init__(self, pair: Callable[[Any], tuple[Any, Any]] | None = None) -> None:
        self.pair = pair or _pair

    def finish_batch(self) -> None:
        if not self.tuples:
            return
        with self.context.state(KEPT).transaction(self.attempt) as state:
            for each in self.tuples:
                state.put(*self.pair(each))


def keeping(
    storage: Storage,
    rows: Sequence[Row],
    fields: Fields = ROWS,
    pair: Callable[[Any], tuple[Any, Any]] | None = None,
    *,
    key: str = "key string",
    value: str = "value long",
) -> Topology:
    """Return a topology whose committer puts a value for each row."""
    spout = MemoryTransactionalSpout({0: rows}, fields, 1)
    builder = TransactionalTopologyBuilder("keeping", "spout", spout)
    state = storage.state(KEPT, Fields(key), Fields(value))
    builder.set_bolt("keep", Keep(pair)).global_grouping("spout").with_state(KEPT, state)
    return builder.build_topology()


def summing(
    storage: Storage,
    rows: Sequence[Row],
    fields: Fields = ROWS,
    take: int = 1,
) -> Topology:
    """Return a topology with a ``PersistentAggregate`` of this many rows a batch: sums by key."""
    spout = MemoryTransactionalSpout({0: rows}, fields, take)
    builder = TransactionalTopologyBuilder("summing", "spout", spout)
    total = PersistentAggregate(storage.state(KEPT), fields.names[0], {"value": Sum("value")})
    builder.set_bolt("sum", total, 2).fields_grouping("spout", fields.names[0])
    return builder.build_topology()


def _pair(row: Any) -> tuple[Any, Any]:
    return row[0], row[1]
