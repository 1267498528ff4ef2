"""What is emitted stays as it was when it was emitted."""

from __future__ import annotations

from typing import Any

import pytest

from txtopo.collector import (
    BasicOutputCollector,
    BatchOutputCollector,
    OutputCollector,
    Pulse,
    SpoutOutputCollector,
)
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


def of_a_bolt() -> OutputCollector:
    return OutputCollector("bolt", STREAMS, lambda stream: None, Pulse(), lambda: None)


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


@pytest.mark.parametrize("kind", ["bolt", "basic bolt", "spout"])
@pytest.mark.parametrize("buffer_of", BUFFERS, ids=["bytearray", "memoryview"])
def test_a_buffer_may_be_used_again_after_an_emit_at_least_once(kind: str, buffer_of: Any) -> None:
    below: Any = of_a_bolt()
    collector: Any = below
    if kind == "basic bolt":
        collector = BasicOutputCollector("bolt", STREAMS, below)
    elif kind == "spout":
        collector = below = SpoutOutputCollector("spout", STREAMS, lambda stream: None, None)
    buffer = buffer_of(b"...")

    for n in range(3):
        buffer[:] = b"%03d" % n
        collector.emit([n, buffer])
        collector.emit_direct(0, [n, buffer], stream="direct")
    for stream in STREAMS:
        assert below.emitted[stream].rows == [(n, b"%03d" % n) for n in range(3)]
