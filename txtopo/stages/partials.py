"""Partials: rows for a ``PersistentAggregate``, combined where they are emitted.

Each row counts as often as its grouping would deliver it. Rows are combined for a whole slot, or
for each sending task where the order of combining shows (sums of floats), so that the number of
slots changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
import pyarrow as pa

from txtopo.errors import ValueRefusedError
from txtopo.stages.aggregation import Aggregation
from txtopo.stages.envelopes import Envelope, Segment, open_envelope
from txtopo.stages.outbox import Outbox, Site
from txtopo.stages.program import PlannedEdge, Program
from txtopo.stages.routing import EveryTask, Route, TaskEach

# Rows that wait to be combined: enough that combining costs little (4 ms for 100,000 words), few
# enough that memory stays small whatever the size of the batch.
WAITING_ROWS_MAX = 200_000
# The same for long rows.
WAITING_BYTES_MAX = 1 << 28


@dataclass(slots=True)
class _Waiting:
    """Rows of one edge and sender that are not combined yet, behind those that are."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    nbytes: int = 0


class AggregateFailed(Exception):
    """Partial results could not be combined, maybe by a user's own aggregate.

    Attributes:
        component: Id of the ``PersistentAggregate``.
        error: What was raised.
    """

    def __init__(self, component: str, error: Exception) -> None:
        super().__init__(component, error)
        self.component = component
        self.error = error


class Partials:
    """Combines the rows that one slot sends to aggregates, one attempt after the other."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._waiting: dict[tuple[int, int], _Waiting] = {}

    def add(self, edge: PlannedEdge, sender: int, batch: pa.RecordBatch, route: Route) -> None:
        """Add emitted rows, with the tasks that they would go to."""
        aggregation = self._site.program.aggregations[edge.target]
        key = (edge.index, sender if aggregation.ordered else 0)
        waiting = self._waiting.setdefault(key, _Waiting())
        for part in _delivered(edge, batch, route):
            with _told(edge.target):
                rows = aggregation.inputs_of(part)
            waiting.batches.append(rows)
            waiting.rows += rows.num_rows
            waiting.nbytes += rows.nbytes
        if waiting.rows >= WAITING_ROWS_MAX or waiting.nbytes >= WAITING_BYTES_MAX:
            # What is combined already does not count: its size is that of the distinct keys.
            waiting.batches = [self._combine(edge, waiting)]
            waiting.rows = waiting.nbytes = 0

    def send(self, outbox: Outbox) -> None:
        """Send the partial results of the attempt.

        Raises:
            AggregateFailed: They could not be combined.
        """
        for (index, sender), waiting in sorted(self._waiting.items()):
            edge = self._site.program.edges[index]
            try:
                combined = self._combine(edge, waiting)
                if combined.num_rows:
                    segment = Segment(sender, 0, combined.num_rows)
                    outbox.put(edge, self._site.slot, [segment], combined)
            except Exception as error:
                raise AggregateFailed(edge.target, error) from error
        self._waiting.clear()

    def _combine(self, edge: PlannedEdge, waiting: _Waiting) -> pa.RecordBatch:
        with _told(edge.target):
            return self._site.program.aggregations[edge.target].combine(waiting.batches)


def merge_partials(program: Program, component: str, records: Sequence[bytes]) -> pa.Table:
    """Return the partial results of a txid for a ``PersistentAggregate``, one row for each key.

    Args:
        program: The topology.
        component: Id of the aggregate.
        records: Its envelopes, of the processing and the commit phase, in any order.

    Raises:
        ValueRefusedError: A sum does not fit its column.
    """
    aggregation: Aggregation = program.aggregations[component]
    envelopes = [open_envelope(record) for record in records]
    envelopes.sort(key=lambda each: (each.edge, each.maker.slot, each.number))
    parts = [part for each in envelopes for part in _parts(each, aggregation)]
    # By sending task where that matters: the order must not depend on slots.
    parts.sort(key=lambda part: part[:2])
    batches = [batch for _, _, batch in parts]
    with _told(component):
        combined = [aggregation.combine(batches)] if batches else []
    return pa.Table.from_batches(combined, aggregation.schema).select(aggregation.stored)


@contextmanager
def _told(component: str) -> Iterator[None]:
    """Say whose aggregates failed: the component that emits is not to blame."""
    try:
        yield
    except ValueRefusedError as error:
        raise ValueRefusedError(
            f"PersistentAggregate {component!r}: {error}", component=component
        ) from error
    except Exception as error:
        error.add_note(f"while PersistentAggregate {component!r} combined partial results")
        raise


def _parts(
    envelope: Envelope, aggregation: Aggregation
) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yield (edge, sender, partial results)."""
    batch, start = envelope.batch(aggregation.schema), 0
    for segment in envelope.segments:
        yield envelope.edge, segment.sender, batch.slice(start, segment.tuples)
        start += segment.tuples


def _delivered(edge: PlannedEdge, batch: pa.RecordBatch, route: Route) -> Iterator[pa.RecordBatch]:
    """Yield the rows as often as they would be delivered."""
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
        # The copies outgrow a column.
        half = len(rows) // 2
        yield from _taken(batch, rows[:half])
        yield from _taken(batch, rows[half:])
