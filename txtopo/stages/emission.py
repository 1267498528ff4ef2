"""Emission: takes the tuples that one task emits from its collector to the outbox."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa

from txtopo.collector import BatchOutputCollector, RevocableOutputCollector, SeenFields
from txtopo.dead_letters import CONTENT, STREAM
from txtopo.groupings import AllGrouping, DirectGrouping
from txtopo.stages.columns import check_required, conform, parts_of, to_batches
from txtopo.stages.compiled_topology import PlannedComponent, PlannedEdge
from txtopo.stages.envelopes import Control
from txtopo.stages.mailboxes import Outbox
from txtopo.stages.observer import Observer
from txtopo.stages.partials import Partials
from txtopo.stages.pickling import Prototype
from txtopo.stages.replays import Digest, HasContent
from txtopo.stages.routing import OneTask, Router, make_router
from txtopo.stages.stage_context import StageContext
from txtopo.topology.bolt_kinds import BASIC_BOLT
from txtopo.tuples import DEFAULT_STREAM

# So many tuples of small parts wait to be sent together. More would take memory and save little.
TOGETHER_MAX = 1_000


class Channel:
    """Where all tasks of a stage emit to: the outbox, the partial aggregates and the control data.

    Attributes:
        stage: The stage.
        control: What is known of the whole run, such as counts of tuples.
        outbox: Takes tuples for bolts.
        partials: Takes rows for every ``PersistentAggregate``.
        observer: Is told of the tuples; None in a run.
    """

    def __init__(
        self, stage: StageContext, control: Control, observer: Observer | None = None
    ) -> None:
        self.stage = stage
        self.control = control
        self.outbox = Outbox(stage)
        self.partials = Partials(stage)
        self.observer = observer


class Emission:
    """Routes the tuples that one task emits for one attempt.

    Attributes:
        collector: The collector that the task emits to.
        dead_letters: When the task makes a dead letter of a record; None for never.
    """

    def __init__(
        self, channel: Channel, component: PlannedComponent, *, txid: int, task: int
    ) -> None:
        self._channel = channel
        self._component = component
        self._txid = txid
        self._task = task
        self._routers: dict[int, Router] = {}
        self._handed_on = 0
        self.dead_letters = component.dead_letters
        self._digest = Digest() if component.compared and component.kind.spout else None
        # The parts that have ended, with the number of tuples up to there, until those are sent.
        self._ended: deque[tuple[int, int]] = deque()
        streams = component.streams.values()
        self._one_stream = len(streams) == 1 and not any(each.direct for each in streams)
        self.collector = self._collector()

    def _collector(self) -> BatchOutputCollector:
        component, rule = self._component, self.dead_letters
        sinks = self._take_rows, self._take_batch
        if rule is None:
            return BatchOutputCollector(
                component.id, component.streams, *sinks, saw=self._take_seen
            )
        # Only the framework emits dead letters.
        streams = {name: each for name, each in component.streams.items() if name != STREAM}
        limit = rule.batch_records_max
        if component.kind == BASIC_BOLT:
            return RevocableOutputCollector(component.id, streams, *sinks, limit)
        return BatchOutputCollector(
            component.id, streams, *sinks, limit, self._fit, self._take_seen
        )

    def _take_seen(self, seen: SeenFields) -> None:
        self._channel.control.see(self._component.id, seen)

    def emitted(self) -> int:
        """Return the number of tuples that the task has emitted."""
        return self._handed_on + self.collector.buffered

    def end_part(self, part: int, emitted: int) -> None:
        """End a part of the batch, which is a partition or a task, after *emitted* tuples in all.

        If replays of the component are compared, the digest of the part is kept. Small parts of
        one stream are sent together, which costs less than a record batch for each.
        """
        if self._digest is None:
            return
        if not self._one_stream or emitted - self._handed_on >= TOGETHER_MAX:
            self.collector.flush()
        self._ended.append((part, emitted))
        self._take_digests()

    def end_bolt(self, bolt: object) -> None:
        """Record what replays of a bolt are compared by, if they are."""
        if self._component.compared:
            contents = self._channel.control.contents
            parts = contents.setdefault((self._txid, self._component.id), {})
            parts[self._task] = cast("HasContent", bolt).content

    def _take_digests(self) -> None:
        """Record the digests of the parts that have ended, with the tuples that were sent."""
        assert self._digest is not None
        contents = self._channel.control.contents.setdefault((self._txid, self._component.id), {})
        while self._ended and self._ended[0][1] == self._handed_on:
            part, _ = self._ended.popleft()
            contents[part] = self._digest.take()

    def _add_to_digests(
        self, stream: str, batch: pa.RecordBatch, targets: list[int] | None
    ) -> None:
        """Divide tuples among their parts; the last part may continue."""
        assert self._digest is not None
        start, all_sent = 0, self._handed_on + batch.num_rows
        if self.dead_letters is not None and stream == STREAM:
            batch = batch.select(list(CONTENT))
        while self._ended and self._ended[0][1] <= all_sent:
            own = self._ended[0][1] - self._handed_on
            self._digest.add(stream, batch.slice(start, own), targets)
            self._handed_on, start = self._handed_on + own, start + own
            self._take_digests()
        self._digest.add(stream, batch.slice(start) if start else batch, targets)
        self._handed_on = all_sent

    def _take_rows(self, stream: str, rows: list[Sequence[Any]], targets: list[int] | None) -> None:
        component = self._component
        fields, schema = component.streams[stream].fields, component.schemas[stream]
        start = 0
        for batch in to_batches(component.id, stream, fields, schema, rows):
            check_required(component.id, stream, fields, batch)
            end = start + batch.num_rows
            self._send(stream, batch, targets if targets is None else targets[start:end])
            start = end

    def _take_batch(self, stream: str, batch: pa.RecordBatch) -> None:
        component = self._component
        fields, schema = component.streams[stream].fields, component.schemas[stream]
        for part in parts_of(component.id, stream, batch):
            conformed = conform(component.id, stream, fields, schema, part)
            check_required(component.id, stream, fields, conformed)
            self._send(stream, conformed, None)

    def _fit(self, rows: Sequence[Sequence[Any]] | pa.RecordBatch) -> list[pa.RecordBatch]:
        """Return tuples as record batches of the declared types; nothing is sent."""
        component, stream = self._component, DEFAULT_STREAM
        fields, schema = component.streams[stream].fields, component.schemas[stream]
        if isinstance(rows, pa.RecordBatch):
            parts = parts_of(component.id, stream, rows)
            found = [conform(component.id, stream, fields, schema, part) for part in parts]
        else:
            found = list(to_batches(component.id, stream, fields, schema, rows))
        for batch in found:
            check_required(component.id, stream, fields, batch)
        return found

    def _send(self, stream: str, batch: pa.RecordBatch, targets: list[int] | None) -> None:
        if not batch.num_rows:
            return
        channel = self._channel
        if channel.observer is not None:
            channel.observer.emitted(self._component.id, stream, batch)
        if self._digest is None:
            self._handed_on += batch.num_rows
        else:
            self._add_to_digests(stream, batch, targets)
        channel.control.count(self._txid, self._component.id, stream, batch.num_rows)
        for index in self._component.outputs[stream]:
            edge = channel.stage.compiled.edges[index]
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
            stage = self._channel.stage
            router = make_router(
                edge,
                txid=self._txid,
                task=self._task,
                slot=stage.slot,
                slots=stage.compiled.slots_of(stage.chain),
            )
            self._routers[edge.index] = router
        return router


def _choice_matters(edge: PlannedEdge) -> bool:
    """Return whether the route matters to an aggregate.

    It does if a row may count more or less than once, or if its task may be refused.
    """
    return isinstance(edge.grouping, Prototype | AllGrouping | DirectGrouping)
