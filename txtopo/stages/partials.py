"""Partials: partial aggregates, combined where rows are emitted and merged in the driver.

A row counts as often as its grouping would deliver it. Rows are combined for a whole slot. Where
the order of combining shows in the result (sums of floats), they are combined for each sending
task, so that the number of slots changes no result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
import pyarrow as pa

from txtopo.errors import ValueRefusedError
from txtopo.stages.aggregation import Aggregation
from txtopo.stages.columns import nbytes_of
from txtopo.stages.compiled_topology import CompiledTopology, PlannedEdge
from txtopo.stages.envelopes import Envelope, open_envelope
from txtopo.stages.mailboxes import Outbox
from txtopo.stages.routing import EveryTask, Route, TaskEach
from txtopo.stages.stage_context import StageContext

# Rows are combined when so many wait. That is enough for combining to be cheap (4 ms for 100,000
# words), and few enough for memory to stay small, however large the batch is.
WAITING_ROWS_MAX = 200_000

# The same limit in bytes, for long rows.
WAITING_BYTES_MAX = 1 << 28


@dataclass(slots=True)
class _Waiting:
    """Rows of one edge and sender. The combined rows come first, the others follow."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    nbytes: int = 0


class AggregateFailed(Exception):
    """Rows could not be combined, perhaps because a user's aggregate raised an exception.

    Attributes:
        component: Id of the ``PersistentAggregate``.
        error: The exception that was raised.
    """

    def __init__(self, component: str, error: Exception) -> None:
        super().__init__(component, error)
        self.component = component
        self.error = error


class Partials:
    """Combines the rows that one slot emits to aggregates, one attempt after the other."""

    def __init__(self, stage: StageContext) -> None:
        self._stage = stage
        self._waiting: dict[tuple[int, int], _Waiting] = {}

    def add(self, edge: PlannedEdge, sender: int, batch: pa.RecordBatch, route: Route) -> None:
        """Add emitted rows; *route* says how often each of them counts."""
        aggregation = self._stage.compiled.aggregations[edge.target]
        key = (edge.index, sender if aggregation.ordered else 0)
        waiting = self._waiting.setdefault(key, _Waiting())
        for part in _delivered(edge, batch, route):
            with _blaming(edge.target):
                rows = aggregation.inputs_of(part)
            waiting.batches.append(rows)
            waiting.rows += rows.num_rows
            waiting.nbytes += nbytes_of(rows)
        if waiting.rows >= WAITING_ROWS_MAX or waiting.nbytes >= WAITING_BYTES_MAX:
            # Combined rows do not count: their number is that of the distinct keys.
            waiting.batches = [self._combine(edge, waiting)]
            waiting.rows = waiting.nbytes = 0

    def send(self, outbox: Outbox) -> None:
        """Give the partial aggregates of the attempt to the outbox, and begin again.

        Raises:
            AggregateFailed: Rows could not be combined.
        """
        for (index, sender), waiting in sorted(self._waiting.items()):
            edge = self._stage.compiled.edges[index]
            try:
                combined = self._combine(edge, waiting)
                if combined.num_rows:
                    outbox.put_partials(edge, sender, combined)
            except Exception as error:
                raise AggregateFailed(edge.target, error) from error
        self._waiting.clear()

    def _combine(self, edge: PlannedEdge, waiting: _Waiting) -> pa.RecordBatch:
        with _blaming(edge.target):
            return self._stage.compiled.aggregations[edge.target].combine(waiting.batches)


def merge_partials(
    compiled: CompiledTopology, component: str, records: Iterable[tuple[int, bytes]]
) -> pa.Table:
    """Merge the partial aggregates of a group of txids into one row for each key.

    Args:
        compiled: The topology.
        component: Id of the ``PersistentAggregate``.
        records: Each txid of the group with each envelope for it, from both phases, in any order.
            An envelope may have other txids of the group, too, of attempts that were given up: it
            counts only for the txids that it is given for.

    Raises:
        ValueRefusedError: A sum does not fit its column.
    """
    aggregation: Aggregation = compiled.aggregations[component]
    wanted: dict[int, tuple[bytes, set[int]]] = {}
    for txid, record in records:
        wanted.setdefault(id(record), (record, set()))[1].add(txid)
    envelopes = [(open_envelope(record), txids) for record, txids in wanted.values()]
    envelopes.sort(key=lambda each: _order(each[0]))
    parts = [part for each, txids in envelopes for part in _parts(each, aggregation, txids)]
    # The order must not depend on slots, so the parts are sorted by txid and sending task.
    parts.sort(key=lambda part: part[:3])
    batches = [batch for *_, batch in parts]
    with _blaming(component):
        combined = [aggregation.combine(batches)] if batches else []
    return pa.Table.from_batches(combined, aggregation.schema).select(aggregation.stored)


@contextmanager
def _blaming(component: str) -> Iterator[None]:
    """Add the id of the aggregate to an error, since the component that emits is not to blame."""
    try:
        yield
    except ValueRefusedError as error:
        raise ValueRefusedError(
            f"PersistentAggregate {component!r}: {error}", component=component
        ) from error
    except Exception as error:
        error.add_note(f"while PersistentAggregate {component!r} combined partial results")
        raise


def _order(envelope: Envelope) -> tuple[int, int, int, int]:
    return envelope.txid, envelope.edge, envelope.producer.slot, envelope.number


def _parts(
    envelope: Envelope, aggregation: Aggregation, txids: Collection[int]
) -> Iterator[tuple[int, int, int, pa.RecordBatch]]:
    """Yield (txid, edge, sender, partial aggregates) of the txids."""
    batch, start = envelope.batch(aggregation.schema), 0
    if not aggregation.ordered and envelope.txids.issubset(txids):
        yield envelope.txid, envelope.edge, 0, batch
        return
    for sender, txid, rows in envelope.segments:
        if txid in txids:
            yield txid, envelope.edge, sender, batch.slice(start, rows)
        start += rows


def _delivered(edge: PlannedEdge, batch: pa.RecordBatch, route: Route) -> Iterator[pa.RecordBatch]:
    """Yield the rows as often as their grouping would deliver them."""
    if isinstance(route, EveryTask):
        yield from repeat(batch, edge.tasks)
    elif isinstance(route, TaskEach) and route.rows is not None:
        yield from _taken(batch, route.rows)
    else:
        yield batch


def _taken(batch: pa.RecordBatch, rows: np.ndarray) -> Iterator[pa.RecordBatch]:
    try:
        yield batch.take(pa.array(rows))
    except pa.ArrowInvalid:
        # The copies exceed a column.
        half = len(rows) // 2
        yield from _taken(batch, rows[:half])
        yield from _taken(batch, rows[half:])
