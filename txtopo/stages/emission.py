"""Emission: what one task of one attempt emits, on its way from the collector to the outbox.

Partials: rows for a ``PersistentAggregate``, combined where they are emitted.

Each row counts as often as its grouping would deliver it. Rows are combined for a whole slot, or
for each sending task where the order of combining shows (sums of floats), so that the number of
slots changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from txtopo.collector import BatchOutputCollector
from txtopo.errors import ValueRefusedError
from txtopo.groupings import AllGrouping, DirectGrouping
from txtopo.stages.aggregation import Aggregation
from txtopo.stages.columns import conform, parts_of, to_batches
from txtopo.stages.envelopes import Control, Envelope, Segment, open_envelope
from txtopo.stages.mailboxes import Outbox, StageContext
from txtopo.stages.program import PlannedComponent, PlannedEdge, Program
from txtopo.stages.replays import Digest
from txtopo.stages.routing import EveryTask, OneTask, Route, Router, TaskEach, make_router


class Channel:
    """Where all emissions of a site go: tuples into the outbox, rows for aggregates combined."""

    def __init__(self, site: StageContext, control: Control) -> None:
        self.site = site
        self.control = control
        self.outbox = Outbox(site)
        self.partials = Partials(site)


class Emission:
    """What one task of one attempt emits. Makes the task's collector."""

    def __init__(
        self, channel: Channel, component: PlannedComponent, *, txid: int, task: int
    ) -> None:
        self._channel = channel
        self._component = component
        self._txid = txid
        self._task = task
        self._routers: dict[int, Router] = {}
        self._handed_on = 0
        self._digest = Digest() if component.compared else None
        self.collector = BatchOutputCollector(
            component.id, component.streams, self._take_rows, self._take_batch
        )

    def emitted(self) -> int:
        """Return how many tuples the task has emitted."""
        return self._handed_on + self.collector.buffered

    def end_part(self, part: int) -> None:
        """Note what a part of the batch (a partition, or a task) has brought, if it is compared."""
        if self._digest is not None:
            self.collector.flush()
            self._channel.control.contents[self._txid, part] = self._digest.take()

    def _take_rows(self, stream: str, rows: list[Sequence[Any]], targets: list[int] | None) -> None:
        component = self._component
        fields, schema = component.streams[stream].fields, component.schemas[stream]
        start = 0
        for batch in to_batches(component.id, stream, fields, schema, rows):
            end = start + batch.num_rows
            self._send(stream, batch, targets if targets is None else targets[start:end])
            start = end

    def _take_batch(self, stream: str, batch: pa.RecordBatch) -> None:
        component = self._component
        fields, schema = component.streams[stream].fields, component.schemas[stream]
        for part in parts_of(component.id, stream, batch):
            self._send(stream, conform(component.id, stream, fields, schema, part), None)

    def _send(self, stream: str, batch: pa.RecordBatch, targets: list[int] | None) -> None:
        if not batch.num_rows:
            return
        channel = self._channel
        self._handed_on += batch.num_rows
        if self._digest is not None:
            self._digest.add(stream, batch, targets)
        channel.control.count(self._txid, self._component.id, stream, batch.num_rows)
        for index in self._component.outputs[stream]:
            edge = channel.site.program.edges[index]
            if edge.chain is not None:
                route = self._router(edge).route(batch, targets)
                channel.outbox.send(edge, self._task, batch, route)
            elif _choice_matters(edge):
                route = self._router(edge).route(batch, targets)
                channel.partials.add(edge, self._task, batch, route)
            else:
                channel.partials.add(edge, self._task, batch, OneTask(0))

    def _router(self, edge: PlannedEdge) -> Router:
        router = self._routers.get(edge.index)
        if router is None:
            site = self._channel.site
            router = make_router(
                edge,
                txid=self._txid,
                task=self._task,
                slot=site.slot,
                slots=site.program.slots_of(site.chain),
            )
            self._routers[edge.index] = router
        return router


def _choice_matters(edge: PlannedEdge) -> bool:
    """Whether a row may count other than once for an aggregate, or its task may be refused."""
    return isinstance(edge.grouping, bytes | AllGrouping | DirectGrouping)


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

    def __init__(self, site: StageContext) -> None:
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
