"""Chunks: rows of a DataFrame on their way to the slot that emits them into envelopes.

All chunks of a Spark partition go to one slot. If Spark computes a partition a second time, the
slot gets either the first result or the second, never a mixture.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

CHUNK = 0x43

# Kind, index of the component, Spark partition, number of the chunk. 16 bytes keep the columns that
# follow aligned; Arrow warns otherwise.
_HEADER = struct.Struct("<IIII")

Key = tuple[int, int, int]


def seal_chunk(component: int, partition: int, number: int, batch: pa.RecordBatch) -> bytes:
    """Return rows of a DataFrame as a record.

    Args:
        component: Index of the component in ``FramePlan.emitting``.
        partition: The Spark partition that the rows come from.
        number: Number of the chunk within its Spark partition.
        batch: The rows.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    header = _HEADER.pack(CHUNK, component, partition, number)
    rows: bytes = sink.getvalue().to_pybytes()
    return header + rows


class Chunks:
    """The chunks of one attempt that one slot received."""

    def __init__(self, records: Iterable[bytes], emitting: Sequence[str]) -> None:
        self._emitting = emitting
        self._chunks: dict[Key, bytes] = {}
        for record in records:
            kind, *key = _HEADER.unpack_from(record)
            assert kind == CHUNK
            self._chunks[key[0], key[1], key[2]] = record

    def of(self, component: str) -> Iterator[pa.RecordBatch]:
        """Remove and yield the rows of a component, in the order of partitions and chunks."""
        index = self._emitting.index(component)
        for key in sorted(key for key in self._chunks if key[0] == index):
            record = memoryview(self._chunks.pop(key))[_HEADER.size :]
            yield from pa.ipc.open_stream(record)
