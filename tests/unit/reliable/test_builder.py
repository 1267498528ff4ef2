"""Mistakes in at-least-once topologies are found before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.reliable.bolts import WORD, Batcher, Forward
from txtopo import (
    AtLeastOnceConfig,
    BatchBolt,
    PersistentAggregate,
    TopologyBuilder,
    TransactionalTopologyBuilder,
)
from txtopo.errors import ConfigError, TopologyError
from txtopo.spouts import MemorySpout, MemoryTransactionalSpout
from txtopo.state import Count, open_state


def words() -> MemorySpout:
    return MemorySpout([["a"]], WORD)


def test_a_topology_without_a_spout_is_refused() -> None:
    builder = TopologyBuilder()
    builder.set_bolt("a", Forward()).shuffle_grouping("a")

    with pytest.raises(TopologyError, match="has no spout"):
        builder.build_topology()


def test_several_spouts_are_fine() -> None:
    builder = TopologyBuilder()
    builder.set_spout("a", words())
    builder.set_spout("b", words(), 3)
    builder.set_bolt("c", Forward()).shuffle_grouping("a").shuffle_grouping("b")

    graph = builder.build_topology().graph

    assert [spout.id for spout in graph.spouts] == ["a", "b"]


def test_a_cycle_is_refused() -> None:
    builder = TopologyBuilder()
    builder.set_spout("words", words())
    builder.set_bolt("a", Forward()).shuffle_grouping("words").shuffle_grouping("b")
    builder.set_bolt("b", Forward()).shuffle_grouping("a")

    with pytest.raises(TopologyError, match="has a cycle"):
        builder.build_topology()


@pytest.mark.parametrize("again", ["words", "a"])
def test_an_id_that_stands_twice_is_refused(again: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("words", words())
    builder.set_bolt("a", Forward())

    with pytest.raises(TopologyError, match="is used twice"):
        builder.set_bolt(again, Forward())
    with pytest.raises(TopologyError, match="is used twice"):
        builder.set_spout(again, words())


@pytest.mark.parametrize("parallelism", [0, -1, 1.5, True])
def test_a_wrong_parallelism_is_refused(parallelism: Any) -> None:
    with pytest.raises(TopologyError, match="parallelism"):
        TopologyBuilder().set_bolt("a", Forward(), parallelism)
    with pytest.raises(TopologyError, match="parallelism"):
        TopologyBuilder().set_spout("a", words(), parallelism)


class PerBatch(BatchBolt):
    """A bolt for batches."""

    def prepare(self, *_: Any) -> None:
        """Nothing."""

    def execute(self, tuple: Any) -> None:
        """Nothing."""

    def finish_batch(self) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    "bolt", [PerBatch(), PersistentAggregate(open_state("memory:"), "word", Count()), words(), None]
)
def test_what_works_on_batches_is_no_bolt_here(bolt: Any) -> None:
    with pytest.raises(TopologyError, match="expected an instance of Bolt or BasicBolt"):
        TopologyBuilder().set_bolt("a", bolt)


def test_a_transactional_spout_is_no_spout_here() -> None:
    spout: Any = MemoryTransactionalSpout({0: [["a"]]}, WORD, 1)

    with pytest.raises(TopologyError, match="expected an instance of Spout"):
        TopologyBuilder().set_spout("a", spout)


@pytest.mark.parametrize("interval_s", [0, -1.0, True, "3"])
def test_a_wrong_tick_interval_is_refused(interval_s: Any) -> None:
    bolt = Batcher()
    bolt.tick_interval_s = interval_s

    with pytest.raises(TopologyError, match="tick_interval_s"):
        TopologyBuilder().set_bolt("a", bolt)


def test_a_bolt_of_batches_gets_no_ticks() -> None:
    bolt = Forward()
    bolt.tick_interval_s = 1.0
    spout = MemoryTransactionalSpout({0: [["a"]]}, WORD, 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout)

    with pytest.raises(TopologyError, match="asks for ticks"):
        builder.set_bolt("a", bolt)


@pytest.mark.parametrize(
    "setting", [{"message_timeout_s": 0}, {"ackers": -1}, {"ackers": 1.5}, {"ackers": False}]
)
def test_a_wrong_setting_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        AtLeastOnceConfig(**setting)
