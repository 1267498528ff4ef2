"""Sending: puts emitted rows into envelopes, and links them to the trees of their anchors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from txtopo.errors import EmitError
from txtopo.reliable.acking import Column, Rows
from txtopo.reliable.anchoring.envelope import Links, TreeInputs, seal
from txtopo.reliable.anchoring.ids import Ids
from txtopo.reliable.collector import InputTuple
from txtopo.stages.columns import to_batches
from txtopo.stages.compiled_topology import CompiledTopology, PlannedComponent, PlannedEdge
from txtopo.stages.envelopes import Segment
from txtopo.stages.mailboxes import Share, spread
from txtopo.stages.routing import EveryTask, OneTask, Route, Router, make_router
from txtopo.tuples import Tuple

# A router needs a txid to choose the task with which a sequence begins. There are no txids here.
_NO_TXID = 0


class Sealed(NamedTuple):
    """A record for a slot: an envelope with its number of tuples, or answers, with 0 tuples."""

    to_slot: int
    record: bytes
    tuples: int


class Sending:
    """Puts the rows that one task emits into envelopes. It lives as long as the task."""

    def __init__(
        self,
        compiled: CompiledTopology,
        component: PlannedComponent,
        task: int,
        slot: int,
        ids: Ids,
    ) -> None:
        self._compiled = compiled
        self._component = component
        self._task = task
        self._slot = slot
        self._ids = ids
        self._routers: dict[int, Router] = {}

    def seal(
        self,
        stream: str,
        rows: Sequence[Sequence[Any]],
        targets: Sequence[int] | None,
        links: Links,
    ) -> tuple[list[Sealed], Column]:
        """Put rows into envelopes.

        Args:
            stream: The stream that they were emitted to.
            rows: The values.
            targets: On a direct stream, the tasks that the emitter chose.
            links: The links of the rows. Their ids are ignored.

        Returns:
            The envelopes, and for each link the XOR of all ids that were drawn for it.

        Raises:
            EmitError: A value does not fit its column, or a task does not exist.
        """
        component = self._component
        fields, schema = component.streams[stream].fields, component.schemas[stream]
        sealed: list[Sealed] = []
        columns: list[Column] = []
        start = 0
        for batch in to_batches(component.id, stream, fields, schema, rows):
            end = start + batch.num_rows
            anchored = links.slice(start, batch.num_rows)
            chosen = targets if targets is None else targets[start:end]
            made: Column = np.zeros(len(anchored.roots), dtype=np.uint64)
            for index in component.outputs[stream]:
                sealed += self._along(self._compiled.edges[index], batch, chosen, anchored, made)
            columns.append(made)
            start = end
        return sealed, columns[0] if len(columns) == 1 else np.concatenate(columns)

    def _along(
        self,
        edge: PlannedEdge,
        batch: pa.RecordBatch,
        targets: Sequence[int] | None,
        links: Links,
        made: Column,
    ) -> Iterator[Sealed]:
        order, shares = self._shares(edge, batch, self._router(edge).route(batch, targets))
        delivered = self._draw(links, order, batch.num_rows, made)
        try:
            ordered = batch if order is None else batch.take(pa.array(order))
        except pa.ArrowInvalid as error:
            copies = sum(share.tuples for share in shares)
            raise EmitError(
                f"{edge.source!r} emitted tuples to stream {edge.stream!r} that are too large to "
                f"copy to all tasks of {edge.target!r}; got {batch.nbytes} bytes for {copies} "
                "deliveries; expected less than 2 GiB in total; emit a reference to the value",
                component=edge.source,
                stream=edge.stream,
            ) from error
        for share in shares:
            part = ordered.slice(share.start, share.tuples)
            record = seal(
                share.slot,
                edge.index,
                share.segments,
                delivered.slice(share.start, share.tuples),
                part,
            )
            yield Sealed(share.slot, record, share.tuples)

    def _shares(
        self, edge: PlannedEdge, batch: pa.RecordBatch, route: Route
    ) -> tuple[Rows | None, list[Share]]:
        """Return the order of delivery (None if it is the order of the rows), and the shares."""
        rows, slots = batch.num_rows, self._compiled.slots
        if isinstance(route, OneTask):
            segments = [Segment(self._task, route.task, rows)]
            return None, [Share(route.task % slots, 0, rows, segments)]
        if isinstance(route, EveryTask):
            # Each copy is a separate edge in the tree.
            tasks = np.tile(np.arange(edge.tasks), rows)
            which: Rows | None = np.repeat(np.arange(rows), edge.tasks)
        else:
            tasks, which = route.tasks, route.rows
        order, shares = spread(tasks, edge.tasks, slots, self._task)
        return order if which is None else which[order], shares

    def _draw(self, links: Links, order: Rows | None, rows: int, made: Column) -> Links:
        """Draw ids for the delivered tuples, XOR them into *made*, and return the new links."""
        if not len(links.roots):
            return links
        if order is None:
            ids = self._ids.draw(len(links.roots))
            made ^= ids
            return links._replace(ids=ids)
        position, link = links.of(order)
        ids = self._ids.draw(len(link))
        np.bitwise_xor.at(made, link, ids)
        if position is None:
            return Links(links.roots[link], ids)
        counts = np.bincount(position, minlength=len(order))
        return Links(links.roots[link], ids, np.concatenate(([0], np.cumsum(counts))))

    def _router(self, edge: PlannedEdge) -> Router:
        router = self._routers.get(edge.index)
        if router is None:
            router = self._routers[edge.index] = make_router(
                edge, txid=_NO_TXID, task=self._task, slot=self._slot, slots=self._compiled.slots
            )
        return router


def sent(sealed: Sequence[Sealed]) -> Counter[int]:
    """Return the number of tuples that go to each slot."""
    tuples: Counter[int] = Counter()
    for each in sealed:
        if each.tuples:
            tuples[each.to_slot] += each.tuples
    return tuples


_inputs = attrgetter("inputs")

_row = attrgetter("row")


class _Part(NamedTuple):
    """Anchors from the same inputs: their links, and the position of the first among all links."""

    inputs: TreeInputs
    link: Rows
    start: int


class AnchoredRows:
    """The emitted rows of a stream, with links to the trees of their anchors.

    If several anchors of a row are in the same tree, only the first of them counts. One edge is
    enough to keep the tree open, and otherwise the number of links would double from bolt to bolt.

    Raises:
        EmitError: An anchor is not a tuple; repair the bolt.
    """

    def __init__(self, component: str, marks: Sequence[Any]) -> None:
        self._parts: list[_Part] = []
        self._kept: Rows | None = None
        if set(map(type, marks)) == {InputTuple}:
            anchors, rows = marks, None
        else:
            anchors, rows = _flat(component, marks)
        self.links = self._link(anchors, rows, len(marks))

    def xor_into_anchors(self, made: Column) -> None:
        """XOR the ids that were drawn for the links into the links of the anchors."""
        if self._kept is not None:
            whole: Column = np.zeros(sum(len(part.link) for part in self._parts), dtype=np.uint64)
            whole[self._kept] = made
            made = whole
        for inputs, link, start in self._parts:
            np.bitwise_xor.at(inputs.links.ids, link, made[start : start + len(link)])

    def _link(self, anchors: Sequence[InputTuple], rows: Rows | None, tuples: int) -> Links:
        positions, start, first, one_each = [], 0, 0, rows is None
        for inputs, group in groupby(anchors, _inputs):
            wanted = np.fromiter(map(_row, group), np.int64)
            position, link = inputs.links.of(wanted)
            if position is None:
                position = np.arange(len(wanted))
            else:
                one_each = False
            if len(link):
                self._parts.append(_Part(inputs, link, start))
                positions.append(position + first)
            start += len(link)
            first += len(wanted)
        if not self._parts:
            return Links()
        roots = np.concatenate([part.inputs.links.roots[part.link] for part in self._parts])
        if one_each:
            return Links(roots)
        position = np.concatenate(positions)
        row = position if rows is None else rows[position]
        # Keep the first link of each (row, root), in the order of the rows.
        order = np.lexsort((roots, row))
        same = (row[order][1:] == row[order][:-1]) & (roots[order][1:] == roots[order][:-1])
        self._kept = order[np.concatenate(([True], ~same))]
        counts = np.bincount(row[self._kept], minlength=tuples)
        return Links(roots[self._kept], starts=np.concatenate(([0], np.cumsum(counts))))


def _flat(component: str, marks: Sequence[Any]) -> tuple[list[InputTuple], Rows]:
    """Return all anchors in one list, and the row that each of them belongs to."""
    anchors: list[InputTuple] = []
    rows: list[int] = []
    for row, mark in enumerate(marks):
        several = () if mark is None else mark
        for anchor in several if isinstance(several, tuple) else (mark,):
            if not isinstance(anchor, Tuple):
                raise EmitError(
                    f"{component!r} emitted with an anchor that is not a tuple; got {mark!r:.100}; "
                    "expected an input, or a list of inputs; pass a stream as stream=…",
                    component=component,
                )
            if isinstance(anchor, InputTuple):
                anchors.append(anchor)
                rows.append(row)
    return anchors, np.array(rows, dtype=np.int64)
