"""Which part of a topology stays in Spark, and where rows become envelopes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.topology.frame_parts import Doubled, Upper, spout
from txtopo.bolts import PersistentAggregate
from txtopo.builders import TransactionalTopologyBuilder
from txtopo.config import Config
from txtopo.frames.plan import FramePlan
from txtopo.stages.compiled_topology import CompiledTopology, compile_topology
from txtopo.state import Count, First, Sum, open_state
from txtopo.tuples import Fields

_FLAGGED = Fields("word string, amount long, gone boolean")


def compile_frames(
    *, below: str = "double", state: Any, aggregates: Any = None, **more: Any
) -> CompiledTopology:
    """Spout, double (a plan), upper (tuples), and an aggregate below one of them."""
    builder = TransactionalTopologyBuilder("frames", "spout", spout())
    builder.set_bolt("double", Doubled()).shuffle_grouping("spout")
    builder.set_bolt("upper", Upper()).shuffle_grouping("double")
    wanted = aggregates or {"rows": Count(), "total": Sum("amount")}
    sums = PersistentAggregate(state, "word", wanted, **more)
    builder.set_bolt("sums", sums).fields_grouping(below, "word")
    return compile_topology(builder.build_topology().graph, Config(), 3)


@pytest.mark.parametrize(
    ("query", "settings", "taken"),
    [
        ("?writer=spark", {}, True),
        ("", {}, False),
        ("?writer=spark", {"below": "upper"}, False),
        ("?writer=spark", {"aggregates": First("amount", order="amount")}, False),
    ],
    ids=["by Spark", "with delta-rs", "below tuples", "combined in Python"],
)
def test_spark_groups_what_its_store_takes_as_a_frame(
    tmp_path: Path, query: str, settings: dict[str, Any], taken: bool
) -> None:
    compiled = compile_frames(state=open_state(f"delta://{tmp_path}{query}"), **settings)

    assert isinstance(compiled.engine, FramePlan)
    assert compiled.engine.takes("sums") is taken
    assert ("sums" in compiled.aggregations) is not taken
    assert any(edge.target == "sums" for edge in compiled.edges) is not taken


def test_spark_groups_rows_that_take_others_back(tmp_path: Path) -> None:
    state = open_state(f"delta://{tmp_path}?writer=spark")
    builder = TransactionalTopologyBuilder("frames", "spout", spout())
    bolt = type("Flagged", (Doubled,), {"output_fields": _FLAGGED})()
    builder.set_bolt("flagged", bolt).shuffle_grouping("spout")
    sums = PersistentAggregate(state, "word", Count(), retracted="gone")
    builder.set_bolt("sums", sums).fields_grouping("flagged", "word")

    compiled = compile_topology(builder.build_topology().graph, Config(), 2)

    assert isinstance(compiled.engine, FramePlan)
    (aggregate,) = compiled.engine.aggregates
    assert aggregate.retracted == "gone"


def test_plans_have_one_level_however_deep_they_are(tmp_path: Path) -> None:
    compiled = compile_frames(state=open_state("memory:"))

    assert compiled.processing == (("spout", "double"), ("upper",))
    assert isinstance(compiled.engine, FramePlan)
    assert compiled.engine.emitting == ("double",)
    assert compiled.components["double"].tasks == 3, "each slot emits"
    assert [step.shared for step in compiled.engine.steps] == [False, False]
