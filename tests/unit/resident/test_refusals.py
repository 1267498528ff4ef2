"""What the carrier ``resident`` refuses before anything runs, and before a session is built."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest

from tests.unit.reliable.bolts import WORD, Forward, rows
from txtopo import (
    AtLeastOnceConfig,
    Config,
    PersistentAggregate,
    ReliableTopology,
    Topology,
    TopologyBuilder,
    TransactionalTopologyBuilder,
)
from txtopo.errors import ConfigError
from txtopo.metadata import Json
from txtopo.plugins.spouts import LastBatch, TransactionalCoordinator
from txtopo.spouts import (
    DataFrameTransactionalSpout,
    MemorySpout,
    MemoryTransactionalSpout,
    StreamSpout,
)
from txtopo.state import Count, open_state

BOLTS = AtLeastOnceConfig(carrier="resident")
CONFIG = Config(carrier="resident")


def topology() -> ReliableTopology:
    builder = TopologyBuilder()
    builder.set_spout("words", MemorySpout(rows("a"), WORD))
    builder.set_bolt("forward", Forward()).shuffle_grouping("words")
    return builder.build_topology()


def test_spark_connect_is_refused_with_the_reason() -> None:
    """Whatever is not a classic session is one of Connect; there is none to be had in a test."""
    with pytest.raises(ConfigError, match="got a Spark Connect session, which cannot run"):
        topology().start(cast("Any", object()), BOLTS)


def test_a_missing_zeromq_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)

    with pytest.raises(ConfigError, match=r"pip install 'txtopo\[resident\]'"):
        topology().start(None, BOLTS)


def transactional() -> Topology:
    spout = MemoryTransactionalSpout({0: rows("a")}, WORD, 1)
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    counts = PersistentAggregate(open_state("memory:", table="counts"), "word", Count())
    builder.set_bolt("counts", counts).fields_grouping("spout", "word")
    return builder.build_topology()


def test_spark_connect_is_refused_for_transactional_topologies_too() -> None:
    with pytest.raises(ConfigError, match="got a Spark Connect session, which cannot run"):
        transactional().start(cast("Any", object()), CONFIG)


def test_a_transactional_topology_needs_zeromq_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)

    with pytest.raises(ConfigError, match=r"pip install 'txtopo\[resident\]'"):
        transactional().start(None, CONFIG)


class Plan(TransactionalCoordinator):
    """Is never asked."""

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        raise AssertionError("nothing may run")

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        raise AssertionError("nothing may run")


def read(spark: Any, attempt: Any, metadata: Json) -> Any:
    raise AssertionError("nothing may run")


def test_frames_are_refused_since_they_would_never_get_a_core() -> None:
    spout = DataFrameTransactionalSpout(Plan(), read, WORD)
    builder = TransactionalTopologyBuilder("frames", "spout", spout)
    counts = PersistentAggregate(open_state("memory:", table="counts"), "word", Count())
    builder.set_bolt("counts", counts).fields_grouping("spout", "word")

    with pytest.raises(ConfigError, match="its slots occupy the cores that Spark would need"):
        builder.build_topology().start(None, CONFIG)


def test_a_streaming_query_is_refused() -> None:
    builder = TransactionalTopologyBuilder("stream", "stream", StreamSpout(WORD))
    counts = PersistentAggregate(open_state("memory:", table="counts"), "word", Count())
    builder.set_bolt("counts", counts).fields_grouping("stream", "word")

    with pytest.raises(ConfigError, match="a micro-batch is a DataFrame; got carrier 'resident'"):
        builder.build_topology().foreach_batch(carrier="resident")  # type: ignore[arg-type]
