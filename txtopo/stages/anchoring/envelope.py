"""Envelopes of at-least-once topologies: tuples in columns, and the columns of their trees.

The tuples lie as in the envelopes of :mod:`txtopo.stages.envelopes`: in segments from a sending
to a receiving task, and an Arrow message without its schema. Between the two stand the links: 16
bytes a tuple where each hangs in one tree, nothing where none does.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from txtopo.stages.anchoring.links import Links
from txtopo.stages.envelopes import Segment

ANCHORED = 0x52
DRIVER_SLOT = -1
"""The slot of spout tasks, which live in the driver."""

# kind, to_slot, edge, segments, tuples, links, starts
_HEADER = struct.Struct("<Iiiiiiii")


@dataclass(frozen=True, slots=True)
class AnchoredEnvelope:
    """An envelope whose batch is not read yet.

    Attributes:
        to_slot: Slot of the receiving tasks.
        edge: Number of the edge.
        tuples: How many tuples there are.
        segments: How they are shared.
        links: Their trees.
        message: The batch as it travels.
    """

    to_slot: int
    edge: int
    tuples: int
    segments: tuple[Segment, ...]
    links: Links
    message: pa.Buffer

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return its tuples, without copying them."""
        return pa.ipc.read_record_batch(self.message, schema)


def seal(
    to_slot: int, edge: int, segments: Sequence[Segment], links: Links, batch: pa.RecordBatch
) -> bytes:
    """Return an envelope as it travels."""
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
    """Read the header of a record that starts with ``ANCHORED``."""
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
    """Return how many tuples an envelope holds, without reading the rest."""
    tuples: int = _HEADER.unpack_from(record)[4]
    return tuples
