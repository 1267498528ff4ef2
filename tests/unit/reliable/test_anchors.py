"""Anchors count as they are when a tuple is emitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.unit.reliable.bolts import WORD
from tests.unit.reliable.lines import CONFIG, Hold
from txtopo import (
    Bolt,
    Config,
    Fields,
    OutputCollector,
    Stream,
    TaskContext,
    TopologyBuilder,
    Tuple,
)
from txtopo.testing import FeederSpout, SimulatedCluster


class Refilling(Bolt):
    """Emits anchored to a list that it clears before the tuple has left."""

    output_streams: Mapping[str, Stream | Fields] = {"plain": WORD, "direct": Stream(WORD, True)}

    def __init__(self, stream: str, view: Callable[[dict[int, Tuple]], Any]) -> None:
        self._stream, self._view = stream, view

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        held = {1: tuple}
        anchors = self._view(held)
        if self._stream == "direct":
            self._collector.emit_direct(0, ["x"], anchors, "direct")
        else:
            self._collector.emit(["x"], anchors, "plain")
        if isinstance(anchors, list | set):
            anchors.clear()
        held.clear()
        self._collector.ack(tuple)


@pytest.mark.parametrize("stream", ["plain", "direct"])
@pytest.mark.parametrize("view", [lambda held: [*held.values()], lambda held: held.values()])
def test_anchors_may_be_cleared_at_once(
    stream: str, view: Callable[[dict[int, Tuple]], Any]
) -> None:
    """Anchors count as they are when the tuple is emitted; else it would hang on nothing."""
    feeder = FeederSpout(WORD)
    builder = TopologyBuilder()
    builder.set_spout("words", feeder)
    builder.set_bolt("refilling", Refilling(stream, view)).shuffle_grouping("words")
    held = builder.set_bolt("hold", Hold())
    held.shuffle_grouping("refilling", stream="plain")
    held.direct_grouping("refilling", stream="direct")
    cluster = SimulatedCluster()
    cluster.start(builder.build_topology(), CONFIG)
    feeder.feed(["a"], 1)

    cluster.advance(25)

    assert (feeder.acked, feeder.failed) == ([], [1])
