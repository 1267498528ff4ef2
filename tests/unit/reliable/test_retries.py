"""Trees that fail or time out are told of in the log, once a second, with their number."""

from __future__ import annotations

import pytest

from tests.unit.reliable.bolts import ByHand
from txtopo import Config, OutputCollector, TopologyBuilder, Tuple
from txtopo.spouts import MemorySpout
from txtopo.tuples import Fields

LIMIT_S = 60.0
"""Generous: nothing waits for it to pass."""


def test_what_a_spout_is_told_to_bring_again_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    def execute(collector: OutputCollector, tuple: Tuple) -> None:
        collector.fail(tuple)

    builder = TopologyBuilder("failing")
    builder.set_spout("rows", MemorySpout([["a"], ["b"], ["c"]], Fields("word string")))
    builder.set_bolt("bolt", ByHand(execute)).shuffle_grouping("rows")
    run = builder.build_topology().start(None, Config(carrier="local", slots=1))
    while len([each for each in caplog.records if each.name == "txtopo.runtime"]) < 2:
        assert not run.await_termination(0.05)
    run.stop(LIMIT_S)

    first, second = [vars(each) for each in caplog.records if each.name == "txtopo.runtime"][:2]
    assert (first["topology"], first["component"]) == ("failing", "rows")
    assert 0 < first["failures"] < second["failures"]
    assert "trees of spout 'rows', task 0, failed" in first["message"]
