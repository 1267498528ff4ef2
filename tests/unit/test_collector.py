"""What is emitted stays as it was when it was emitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from txtopo.collector import BatchOutputCollector, RevocableOutputCollector
from txtopo.tuples import Fields, Stream

STREAMS = {
    "default": Stream(Fields("n long, data binary")),
    "direct": Stream(Fields("n long, data binary"), direct=True),
}


def of_batches() -> tuple[BatchOutputCollector, list[Any]]:
    rows: list[Any] = []

    def take(stream: str, some: list[Any], targets: list[int] | None) -> None:
        rows.extend(some)

    def refuse(*_: object) -> None:
        raise AssertionError

    return BatchOutputCollector("bolt", STREAMS, take, refuse), rows


BUFFERS = [bytearray, lambda given: memoryview(bytearray(given))]


@pytest.mark.parametrize("buffer_of", BUFFERS, ids=["bytearray", "memoryview"])
def test_a_buffer_may_be_used_again_after_an_emit_of_a_batch(buffer_of: Any) -> None:
    collector, rows = of_batches()
    buffer = buffer_of(b"...")

    for n in range(3):
        buffer[:] = b"%03d" % n
        collector.emit([n, buffer])
        collector.emit_direct(0, [n, buffer], "direct")
    collector.close()
    assert rows == [(n, b"%03d" % n) for n in range(3)] * 2


def _of_numbers(array: Any) -> pa.RecordBatch:
    return pa.record_batch([pa.array(array)], names=["n"])


def _a_slice(array: Any) -> pa.RecordBatch:
    """Return two rows of very many."""
    many = np.zeros(1_000_000, np.int64)
    many[-2:] = array
    return _of_numbers(many).slice(len(many) - 2)


def _of_a_dictionary(array: Any) -> pa.RecordBatch:
    indices, values = pa.array([0, 1], pa.int8()), pa.array(array)
    return pa.record_batch([pa.DictionaryArray.from_arrays(indices, values)], names=["n"])


@pytest.mark.parametrize("batch_of", [_of_numbers, _a_slice, _of_a_dictionary])
@pytest.mark.parametrize("kind", [BatchOutputCollector, RevocableOutputCollector])
def test_the_memory_of_a_record_batch_may_be_used_again_after_its_emit(
    kind: type[BatchOutputCollector], batch_of: Callable[[Any], pa.RecordBatch]
) -> None:
    """Arrow takes an array of NumPy as it is, without a copy."""
    batches: list[pa.RecordBatch] = []
    streams = {"default": Stream(Fields("n long"))}

    def take(stream: str, batch: pa.RecordBatch) -> None:
        batches.append(batch)

    collector = kind("bolt", streams, lambda *_: None, take, 10)
    array = np.zeros(2, np.int64)

    for n in range(3):
        array[:] = [n, n + 10]
        collector.emit_batch(batch_of(array))
    array[:] = -1
    collector.close()

    assert [batch.column(0).to_pylist() for batch in batches] == [[n, n + 10] for n in range(3)]
    assert sum(batch.get_total_buffer_size() for batch in batches) < 1_000, "only the rows"
