"""Emission: what one task of one attempt emits, on its way from the collector to the outbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from txtopo.collector import BatchOutputCollector
from txtopo.groupings import AllGrouping, DirectGrouping
from txtopo.stages.columns import conform, parts_of, to_batches
from txtopo.stages.content import Digest
from txtopo.stages.outbox import Outbox, Site
from txtopo.stages.partials import Partials
from txtopo.stages.program import PlannedComponent, PlannedEdge
from txtopo.stages.routing import OneTask, Router, make_router
from txtopo.stages.stamps import Control


class Channel:
    """Where all emissions of a site go: tuples into the outbox, rows for aggregates combined."""

    def __init__(self, site: Site, control: Control) -> None:
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
