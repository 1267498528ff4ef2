"""What is emitted at least once stays as it was when it was emitted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.test_collector import BUFFERS, STREAMS
from txtopo.reliable.collector import (
    BasicOutputCollector,
    FlushTimer,
    OutputCollector,
    SpoutOutputCollector,
)


@pytest.mark.parametrize("kind", ["bolt", "basic bolt", "spout"])
@pytest.mark.parametrize("buffer_of", BUFFERS, ids=["bytearray", "memoryview"])
def test_a_buffer_may_be_used_again_after_an_emit(kind: str, buffer_of: Any) -> None:
    below: Any = OutputCollector("bolt", STREAMS, lambda _: None, FlushTimer(), lambda: None)
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
