"""Chunks: rows of a DataFrame on their way to the slot that emits them into envelopes.

A Spark partition of the frame goes to one slot as a whole, so a partition that Spark computes again
is seen either as it was or as it is, never half and half.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import pyarrow as pa

from txtopo.stages.emission import Emission

CHUNK = 0x43
# What it is, number of the component, Spark partition, number of the chunk: 16 bytes, since Arrow
# warns of columns behind it that are not aligned.
_HEADER = struct.Struct("<IIII")
Key = tuple[int, int, int]


def seal_chunk(component: int, partition: int, number: int, batch: pa.RecordBatch) -> bytes:
    """Return rows of a frame as a record.

    Args:
        component: Place of the component in ``FramePlan.emitting``.
        partition: The Spark partition that the rows come from.
        number: How many chunks of that partition there were before.
        batch: The rows.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    header = _HEADER.pack(CHUNK, component, partition, number)
    rows: bytes = sink.getvalue().to_pybytes()
    return header + rows


class Chunks:
    """The chunks that one slot got, of one attempt."""

    def __init__(self, records: Iterable[bytes]) -> None:
        self._chunks: dict[Key, bytes] = {}
        for record in records:
            kind, *key = _HEADER.unpack_from(record)
            assert kind == CHUNK
            self._chunks[key[0], key[1], key[2]] = record

    def steps(self, component: int, emission: Emission) -> Iterator[None]:
        """Emit the rows of a component in their order; stops where the outbox may be emptied."""
        for key in sorted(key for key in self._chunks if key[0] == component):
            record = memoryview(self._chunks.pop(key))[_HEADER.size :]
            for batch in pa.ipc.open_stream(record):
                emission.collector.emit_batch(batch)
                yield
        emission.collector.close()
        yield
