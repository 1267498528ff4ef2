"""Of which kind a state may be is decided by the spouts upstream of it, and by no others."""

from __future__ import annotations

import pytest

from tests.harness.sources import FIELDS, Opaque, Partitioned, Source
from txtopo import PersistentAggregate, TransactionalTopologyBuilder
from txtopo.bolts import BasicBolt, KafkaSink
from txtopo.collector import BatchOutputCollector
from txtopo.errors import TopologyError
from txtopo.spouts import StreamSpout
from txtopo.state import Count, StateKind, open_state
from txtopo.tuples import Tuple


class Pass(BasicBolt):
    output_fields = FIELDS

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        collector.emit(tuple.values)


def two() -> TransactionalTopologyBuilder:
    """A transactional and an opaque spout, with a bolt each, and one that reads both bolts."""
    builder = TransactionalTopologyBuilder("t", "sure", Partitioned(Source("sure")))
    builder.set_spout("opaque", Opaque(Source("opaque")))
    builder.set_bolt("of sure", Pass()).shuffle_grouping("sure")
    builder.set_bolt("of opaque", Pass()).shuffle_grouping("opaque")
    builder.set_bolt("both", Pass()).shuffle_grouping("of sure").shuffle_grouping("of opaque")
    return builder


def count(kind: StateKind) -> PersistentAggregate:
    return PersistentAggregate(open_state("memory:", kind), "source", Count())


@pytest.mark.parametrize("source", ["opaque", "of opaque", "both"])
def test_a_transactional_state_below_an_opaque_spout_is_refused(source: str) -> None:
    builder = two()
    builder.set_bolt("count", count("transactional")).fields_grouping(source, "source")

    with pytest.raises(TopologyError, match="'count' is transactional and the spout 'opaque' is"):
        builder.build_topology()


@pytest.mark.parametrize("source", ["sure", "of sure"])
def test_one_below_transactional_spouts_is_taken_though_another_is_opaque(source: str) -> None:
    builder = two()
    builder.set_bolt("count", count("transactional")).fields_grouping(source, "source")
    builder.set_bolt("all", count("opaque")).fields_grouping("both", "source")

    assert builder.build_topology().graph.levels["all"] == 3


def test_a_kafka_sink_hangs_on_transactional_spouts_only() -> None:
    builder = two()
    builder.set_bolt("sink", KafkaSink("broker", "out", value="number")).global_grouping("of sure")
    builder.build_topology()

    builder = two()
    builder.set_bolt("sink", KafkaSink("broker", "out", value="number")).global_grouping("both")
    with pytest.raises(TopologyError, match="'sink' depends on the opaque spout 'opaque'"):
        builder.build_topology()


@pytest.mark.parametrize("id", ["sure", "of sure"])
def test_a_spout_needs_an_id_of_its_own(id: str) -> None:
    with pytest.raises(TopologyError, match="is used twice"):
        two().set_spout(id, Opaque(Source("again")))


def test_a_bad_spout_is_refused_as_in_the_constructor() -> None:
    with pytest.raises(TopologyError, match="spout is missing; got None for 'more'"):
        two().set_spout("more", None)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="parallelism of 'more' is wrong; got 0"):
        two().set_spout("more", Opaque(Source("more")), 0)


def test_a_stream_spout_stays_alone() -> None:
    builder = two()
    builder.set_spout("stream", StreamSpout(FIELDS))

    with pytest.raises(TopologyError, match="a streaming query delivers its batches"):
        builder.build_topology()
