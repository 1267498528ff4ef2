"""Replay of topologies with DataFrames, which Spark computes again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.runs import started
from tests.unit.topology.frame_parts import AddWords, Doubled, spout
from txtopo import (
    Config,
    Count,
    Fields,
    PersistentAggregate,
    Topology,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.ensemble import MemoryEnsemble
from txtopo.operations import Access, Replay, replay
from txtopo.operations.replay import EQUAL
from txtopo.state import Max

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
WORDS = [f"word {number}" for number in range(5)]
FRAMES = Config(zookeeper="memory", poll_interval_s=0.01, group_txids_max=1)


def replayed(topology: Topology, spark: SparkSession, txid: int) -> Replay:
    ensemble = MemoryEnsemble()
    with started(topology, FRAMES, ensemble, spark=spark) as run:
        run.process_all_available(LIMIT_S)
    found = replay(topology, txid, FRAMES, access=Access(spark=spark, ensemble=ensemble))
    assert found.failure is None
    assert {each.compared for each in found.states.values()} == {EQUAL}, str(found)
    return found


def test_rows_of_frames_are_combined_again(spark: SparkSession, tmp_path: Path) -> None:
    builder = TransactionalTopologyBuilder("frames", "spout", spout(batches=2))
    builder.set_bolt("double", Doubled()).shuffle_grouping("spout")
    counts = PersistentAggregate(open_state(f"sqlite:///{tmp_path}/c.db"), "word", Count())
    builder.set_bolt("counts", counts).fields_grouping("double", "word")

    found = replayed(builder.build_topology(), spark, 2)

    changes = {key: each.after for key, each in found.states["counts.counts"].changes.items()}
    assert changes == {(word,): (8,) for word in WORDS}


@pytest.mark.slow
@pytest.mark.service("delta-spark")
def test_what_spark_would_write_is_compared(spark: SparkSession, tmp_path: Path) -> None:
    """Each merge of Spark's takes seconds."""
    summed, shown = (
        open_state(
            f"delta://{tmp_path}/states?writer=spark",
            table=name,
            key=Fields("word string"),
            value=Fields(value),
        )
        for name, value in (("totals", "total long"), ("shown", "rows long, top long"))
    )
    builder = TransactionalTopologyBuilder("frames", "spout", spout(batches=2))
    builder.set_bolt("double", Doubled()).shuffle_grouping("spout")
    add = builder.set_bolt("add", AddWords()).shuffle_grouping("double")
    add.with_state("totals", summed)
    aggregate = PersistentAggregate(shown, "word", {"rows": Count(), "top": Max("amount")})
    builder.set_bolt("shown", aggregate).fields_grouping("double", "word")

    found = replayed(builder.build_topology(), spark, 2)

    changes = found.states["add.totals"].changes
    assert {key: (each.before, each.after) for key, each in changes.items()} == {
        (word,): ((8,), (24,)) for word in WORDS
    }
