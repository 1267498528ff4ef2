"""What is refused of DataFrames when a topology is built."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.topology.frame_parts import WORDS, AddWords, By, Doubled, Upper, spout
from txtopo.bolts import Committer, DataFrameBolt
from txtopo.builders import TransactionalTopologyBuilder
from txtopo.config import Config
from txtopo.errors import ConfigError, TopologyError
from txtopo.spouts import DataFrameTransactionalSpout, MemoryTransactionalSpout
from txtopo.state import open_state
from txtopo.topology.component import Component, cutting
from txtopo.topology.spout_kinds import DataFrameKind


class Unmade(DataFrameBolt):
    output_fields = WORDS


class Uncommitted(DataFrameBolt, Committer):
    pass


class Talkative(AddWords):
    output_fields = WORDS


class Curious(DataFrameBolt, Committer):
    def commit(self, frame: Any) -> None:
        pass


def builder(batches: Any = None) -> TransactionalTopologyBuilder:
    return TransactionalTopologyBuilder("frames", "spout", batches or spout())


def test_a_plan_cannot_stand_below_tuples() -> None:
    rows = MemoryTransactionalSpout({0: [["a", 1]]}, WORDS, 1)
    declared = builder(rows)
    declared.set_bolt("double", Doubled()).shuffle_grouping("spout")

    with pytest.raises(
        TopologyError, match=r"'double' cannot subscribe to 'spout'.*ArrowBolt here"
    ):
        declared.build_topology()


def test_a_plan_below_a_bolt_of_tuples_is_refused_too() -> None:
    declared = builder()
    declared.set_bolt("upper", Upper()).shuffle_grouping("spout")
    declared.set_bolt("double", Doubled()).shuffle_grouping("upper")

    with pytest.raises(
        TopologyError, match="'double' cannot subscribe to 'upper', which is a batch"
    ):
        declared.build_topology()


def test_inputs_of_a_plan_have_the_same_fields() -> None:
    declared = builder()
    other = By("word", fields="word string")
    declared.set_bolt("other", other).shuffle_grouping("spout")
    both = declared.set_bolt("double", Doubled()).shuffle_grouping("spout")
    both.shuffle_grouping("other")

    with pytest.raises(TopologyError, match="inputs of DataFrame bolt 'double' differ"):
        declared.build_topology()


def test_a_plan_has_no_tasks() -> None:
    declared = builder()
    declared.set_bolt("double", Doubled(), 2).shuffle_grouping("spout")

    with pytest.raises(TopologyError, match="'double' has a parallelism; got 2"):
        declared.build_topology()


def test_rows_of_a_plan_are_not_shared_by_a_key() -> None:
    declared = builder()
    declared.set_bolt("double", Doubled()).fields_grouping("spout", "word")

    with pytest.raises(TopologyError, match="FieldsGrouping of DataFrame bolt 'double'"):
        declared.build_topology()


@pytest.mark.parametrize(
    ("bolt", "text"),
    [
        (Unmade(), "it has no transform"),
        (Uncommitted(), "a committer without commit"),
        (Talkative(), "declares output_fields"),
        (Curious(), r"expected commit\(frame, attempt\)"),
    ],
)
def test_a_bolt_has_the_methods_of_its_kind(bolt: DataFrameBolt, text: str) -> None:
    declared = builder()
    declared.set_bolt("bolt", bolt).shuffle_grouping("spout")

    with pytest.raises(TopologyError, match=text):
        declared.build_topology()


def test_a_state_that_takes_no_frames_is_refused() -> None:
    declared = builder()
    committer = declared.set_bolt("add", AddWords()).shuffle_grouping("spout")
    committer.with_state("totals", open_state("sqlite:///totals.db"))

    with pytest.raises(TopologyError, match=r"cannot take frames: sqlite.*writer=spark"):
        declared.build_topology()


@pytest.mark.parametrize("carrier", ["rdd", "local"])
def test_only_one_carrier_takes_plans(carrier: Any) -> None:
    declared = builder()
    declared.set_bolt("upper", Upper()).shuffle_grouping("spout")
    with pytest.warns(UserWarning, match="no committer"):
        topology = declared.build_topology()

    with pytest.raises(ConfigError, match=f"carrier '{carrier}' cannot process: it .*'dataframe'"):
        topology.start(config=Config(carrier=carrier, zookeeper="memory"))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((3, max), "plan of a DataFrameTransactionalSpout is not a function; got 3"),
        ((lambda config: None, max), r"plan\(config\); expected plan\(config, context\)"),
        ((lambda config, context: None, None), "read .* is not a function"),
        ((lambda c, x: None, lambda spark: None), r"expected read\(spark, attempt, metadata\)"),
    ],
)
def test_the_functions_of_a_spout_are_checked(arguments: Any, text: str) -> None:
    plan, read = arguments

    with pytest.raises(TopologyError, match=text):
        DataFrameTransactionalSpout(plan, read, WORDS)


def test_a_coordinator_that_is_given_is_copied_for_each_start() -> None:
    made = spout()
    context: Any = None

    first, second = (made.coordinator(Config(), context) for _ in range(2))

    assert first is not second
    assert first.is_ready(3, None)  # type: ignore[arg-type]


def test_the_plan_of_spark_says_where_its_batch_ends_so_no_emitter_does() -> None:
    planned = Component("spout", DataFrameKind(), spout(), 1, {})

    assert cutting([planned]) == frozenset()
