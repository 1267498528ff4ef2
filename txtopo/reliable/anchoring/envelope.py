"""Envelopes, grants and reports of at-least-once topologies.

An envelope has segments and an Arrow message without its schema, as in
:mod:`txtopo.stages.envelopes`. Between them are the links: 16 bytes per tuple if each tuple is in
one tree, and nothing if no tuple is in a tree.
"""

from __future__ import annotations

import struct
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txtopo.reliable.acking import NONE, Column, RootXors, Rows, spans
from txtopo.stages.envelopes import Segment

ANCHORED = 0x52

# kind, to_slot, edge, segments, tuples, links, starts
_HEADER = struct.Struct("<Iiiiiiii")


@dataclass(frozen=True, slots=True)
class AnchoredEnvelope:
    """An envelope whose header was read, but not its record batch.

    Attributes:
        to_slot: Slot of the receiving tasks.
        edge: Number of the edge.
        tuples: Number of tuples.
        segments: The segments, in the order of the tuples.
        links: The links of the tuples to their trees.
        message: The record batch as it travels.
    """

    to_slot: int
    edge: int
    tuples: int
    segments: tuple[Segment, ...]
    links: Links
    message: pa.Buffer

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the tuples, without copying them."""
        return pa.ipc.read_record_batch(self.message, schema)


def seal(
    to_slot: int, edge: int, segments: Sequence[Segment], links: Links, batch: pa.RecordBatch
) -> bytes:
    """Return an envelope as a record."""
    starts = links.starts if links.starts is not None and len(links.roots) else None
    header = _HEADER.pack(
        ANCHORED,
        to_slot,
        edge,
        len(segments),
        batch.num_rows,
        len(links.roots),
        0 if starts is None else len(starts),
        0,
    )
    shares = array("q", [value for segment in segments for value in segment]).tobytes()
    columns = [np.ascontiguousarray(links.roots).data, np.ascontiguousarray(links.ids).data]
    if starts is not None:
        columns.append(np.ascontiguousarray(starts).data)
    return b"".join((header, shares, *columns, memoryview(batch.serialize())))


def open_envelope(record: bytes) -> AnchoredEnvelope:
    """Read the header of an envelope: a record that starts with ``ANCHORED``."""
    _, to_slot, edge, segments, tuples, links, starts, _ = _HEADER.unpack_from(record)
    at = _HEADER.size
    values = iter(array("q", record[at : at + 24 * segments]))
    at += 24 * segments
    roots = np.frombuffer(record, np.uint64, links, at)
    ids = np.frombuffer(record, np.uint64, links, at + 8 * links)
    at += 16 * links
    offsets = np.frombuffer(record, np.int64, starts, at) if starts else None
    return AnchoredEnvelope(
        to_slot=to_slot,
        edge=edge,
        tuples=tuples,
        segments=tuple(map(Segment._make, zip(values, values, values, strict=True))),
        links=Links(roots, ids, offsets),
        message=pa.py_buffer(record).slice(at + 8 * starts),
    )


def tuples_in(record: bytes) -> int:
    """Return the number of tuples in an envelope, without reading anything else."""
    tuples: int = _HEADER.unpack_from(record)[4]
    return tuples


class Links(NamedTuple):
    """The links of tuples to their trees, as columns.

    Attributes:
        roots: Root id of each link; empty if no tuple is in a tree.
        ids: Edge id of each link: the id of the tuple in that tree.
        starts: Tuple i has the links ``starts[i]`` to ``starts[i + 1]``. None if each has one.
    """

    roots: Column = NONE
    ids: Column = NONE
    starts: Rows | None = None

    def of(self, rows: Rows) -> tuple[Rows | None, Rows]:
        """Return the links of the tuples *rows*.

        Returns:
            For each link its position in *rows* and its index. The positions are None if each tuple
            has one link.
        """
        if not len(self.roots):
            return _NO_ROWS, _NO_ROWS
        return (None, rows) if self.starts is None else spans(self.starts, rows)

    def slice(self, start: int, tuples: int) -> Links:
        """Return the links of consecutive tuples."""
        if not len(self.roots):
            return self
        if self.starts is None:
            return Links(self.roots[start : start + tuples], self.ids[start : start + tuples])
        starts = self.starts[start : start + tuples + 1]
        first, last = int(starts[0]), int(starts[-1])
        return Links(self.roots[first:last], self.ids[first:last], starts - first)


class TreeInputs:
    """The links of tuples that a task was given together (``txtopo.reliable.collector.Inputs``).

    It lives as long as the bolt keeps one of the tuples.

    Attributes:
        done: For each tuple, whether it was acked or failed.
        acked: Indices of tuples that were acked, and whose ack has not been sent yet.
        links: Their links. Each id is XORed with the ids of all tuples anchored to it.
    """

    __slots__ = ("acked", "done", "links")

    def __init__(self, links: Links, tuples: int) -> None:
        # Copy the ids: they change, and the envelope is freed.
        self.links = links._replace(ids=links.ids.copy())
        self.done = bytearray(tuples)
        self.acked: list[int] = []

    def answer(self, rows: Rows) -> RootXors:
        """Return the XORs that ack these tuples. A root may occur twice."""
        _, link = self.links.of(rows)
        return RootXors(self.links.roots[link], self.links.ids[link])

    def take_acked(self) -> Rows:
        """Return the indices of acked tuples, and clear them."""
        rows, self.acked = np.array(self.acked, dtype=np.int64), []
        return rows

    def rest(self, tuples: int) -> Rows:
        """Return the indices among the first *tuples* that are not done, and mark them done."""
        done = np.frombuffer(self.done, dtype=np.uint8)[:tuples]
        rows = np.flatnonzero(done == 0)
        done[:] = 1
        return rows


_NO_ROWS: Rows = np.empty(0, dtype=np.int64)

Count = tuple[str, str]
"""A counter: (kind, component). The kind is emitted, executed, acked or failed."""


@dataclass(slots=True)
class Complaint:
    """An error that user code reported or raised.

    Attributes:
        component: Id of the spout or bolt.
        task: Index of its task.
        error: The error.
    """

    component: str
    task: int
    error: Exception


@dataclass(frozen=True, slots=True)
class SpoutGrant:
    """What the driver allows the spouts of a slot. A grant is valid until the next one arrives.

    Attributes:
        number: Its number; numbers increase over all slots.
        tuples: How many tuples each spout task may emit, in one turn.
        active: Whether the topology is activated.
    """

    number: int
    tuples: int
    active: bool


class FailedTrees(NamedTuple):
    """Trees of one spout task that failed.

    Attributes:
        component: Id of the spout.
        task: Index of its task.
        messages: Their message ids.
        timed_out: Whether they timed out; otherwise a bolt failed them.
    """

    component: str
    task: int
    messages: list[Any]
    timed_out: bool


_NO_SECONDS: npt.NDArray[np.float32] = np.empty(0, np.float32)


@dataclass(slots=True)
class SpoutReport:
    """What the spouts of a slot have done since their last report, and their present state.

    Attributes:
        granted: Number of the last grant that arrived.
        used: Number of the last grant under which a task has emitted.
        dry: The lowest number of a grant since which a task has had nothing to emit; 0 if a task
            may have something.
        pending: Number of trees for which ``ack`` or ``fail`` was not called yet.
        active: Whether a task is activated.
        emitted: Number of emitted tuples.
        sent: Number of these tuples that go to each slot.
        latencies_s: How long each completed tree took.
        failed: The trees that failed.
        replays: Number of new trees whose message id had failed before.
        pending_by: Number of trees that each acker follows, by its number.
        ends: Number of ended trees, by outcome and number of their acker; the outcome is completed,
            failed or timed out.
    """

    granted: int = 0
    used: int = 0
    dry: int = 0
    pending: int = 0
    active: bool = False
    emitted: int = 0
    sent: Counter[int] = field(default_factory=Counter)
    latencies_s: npt.NDArray[np.float32] = field(default_factory=lambda: _NO_SECONDS)
    failed: list[FailedTrees] = field(default_factory=list)
    replays: int = 0
    pending_by: Counter[int] = field(default_factory=Counter)
    ends: Counter[tuple[str, int]] = field(default_factory=Counter)


@dataclass(slots=True)
class SlotReport:
    """What a slot reports to the driver about a part of its work, and about its spouts. Picklable.

    Attributes:
        consumed: Number of tuples from spouts or other slots that are done.
        sent: Number of tuples that were sent to each slot.
        counts: Number of tuples that each component emitted, executed, acked and failed.
        complaints: Errors that spouts and bolts reported.
        crash: An exception that a spout or bolt raised. It ends the topology.
        spouts: What its spouts have done; None if nothing has changed.
    """

    consumed: int = 0
    sent: Counter[int] = field(default_factory=Counter)
    counts: Counter[Count] = field(default_factory=Counter)
    complaints: list[Complaint] = field(default_factory=list)
    crash: Complaint | None = None
    spouts: SpoutReport | None = None
