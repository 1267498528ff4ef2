"""Topologies of DataFrames, on Spark, into stores that take rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.topology.frame_parts import By, Doubled, Failing, Upper, spout
from txtopo.bolts import PersistentAggregate
from txtopo.builders import Topology, TransactionalTopologyBuilder
from txtopo.config import Config
from txtopo.errors import BoltError, EmitError
from txtopo.state import Count, State, Sum, open_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT_S = 240.0


def ran(topology: Topology, spark: SparkSession, **settings: Any) -> Any:
    """Run a topology until its spout has nothing left; return its progress."""
    config = Config(zookeeper="memory", slots=2, batch_timeout_s=LIMIT_S, **settings)
    with topology.start(spark, config) as run:
        run.process_all_available(LIMIT_S)
        return run.recent_progress


def failure(topology: Topology, spark: SparkSession) -> Exception | None:
    """Run a topology until it ends by itself; return what it ended with."""
    with topology.start(spark, Config(zookeeper="memory", slots=2)) as run:
        with pytest.raises(Exception):  # noqa: B017, PT011 - the caller looks at it
            run.await_termination(LIMIT_S)
        return run.exception()


def counted(state: State) -> dict[str, Any]:
    with state.reader() as reader:
        return dict(reader.items())


def to_aggregate(state: State, **bolts: Any) -> TransactionalTopologyBuilder:
    """A chain of bolts, in the order given, and an aggregate below the last."""
    builder = TransactionalTopologyBuilder("frames", "spout", spout())
    above = "spout"
    for id, bolt in bolts.items():
        builder.set_bolt(id, bolt).shuffle_grouping(above)
        above = id
    sums = PersistentAggregate(state, "word", {"rows": Count(), "total": Sum("amount")})
    builder.set_bolt("sums", sums, 2).fields_grouping(above, "word")
    return builder


def test_plans_feed_bolts_and_aggregates(spark: SparkSession, tmp_path: Path) -> None:
    """Four rows of each word in three batches, whose amounts are 1, 2 and 3."""
    here, there = (open_state(f"sqlite:///{tmp_path}/{name}.db", table=name) for name in "ab")
    builder = to_aggregate(here, double=Doubled(), upper=Upper())
    doubled = PersistentAggregate(there, (), {"total": Sum("amount")})
    builder.set_bolt("all", doubled).shuffle_grouping("double")

    progress = ran(builder.build_topology(), spark)

    expected = {"rows": 12, "total": 2 * 4 * (1 + 2 + 3)}
    assert counted(here) == {f"WORD {number}": expected for number in range(5)}
    assert counted(there) == {"global": 5 * expected["total"]}
    assert progress[-1].txid == 3


def test_all_readers_of_a_plan_see_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    """The plan gives other rows whenever it is computed, unlike ``rand()``, whose seed is kept."""
    state = open_state(f"sqlite:///{tmp_path}/rows.db", table="rows")
    chance = By("word", "CAST(reflect('java.lang.System', 'nanoTime') AS BIGINT) AS amount")
    same = By("word", "amount")
    builder = to_aggregate(state, chance=chance, same=same)
    builder.set_bolt("negative", By("word", "-amount AS amount")).shuffle_grouping("chance")
    builder._declarers["sums"].fields_grouping("negative", "word")

    ran(builder.build_topology(), spark)

    assert counted(state) == {f"word {n}": {"rows": 24, "total": 0} for n in range(5)}


def test_a_plan_may_fail_its_batch(spark: SparkSession, tmp_path: Path) -> None:
    state = open_state(f"sqlite:///{tmp_path}/rows.db", table="rows")

    ran(to_aggregate(state, failing=Failing()).build_topology(), spark)

    assert counted(state) == {f"word {n}": {"rows": 12, "total": 24} for n in range(5)}
    with state.reader() as reader:
        assert reader.ledger is not None
        assert reader.ledger.attempt, "no batch was tried again"


@pytest.mark.parametrize(
    ("bolt", "kind", "text"),
    [
        (By("word"), EmitError, "transform of 'bad' returned a frame without column 'amount'"),
        (
            By("word", "CAST(amount AS INT) AS amount"),
            EmitError,
            "whose column 'amount' does not fit; got int; expected long",
        ),
        (
            By("word", "amount DIV (amount - 2) AS amount"),
            BoltError,
            "the plan of 'bad' failed on its rows; got DIVIDE_BY_ZERO",
        ),
        (By("nonsense"), Exception, "nonsense"),
    ],
    ids=["missing column", "other type", "bad rows", "no plan"],
)
def test_a_plan_that_is_wrong_ends_the_run(
    spark: SparkSession, tmp_path: Path, bolt: By, kind: type[Exception], text: str
) -> None:
    state = open_state(f"sqlite:///{tmp_path}/rows.db", table="rows")

    error = failure(to_aggregate(state, bad=bolt).build_topology(), spark)

    assert isinstance(error, kind)
    assert text in str(error)
    assert "'bad' of topology 'frames', txid" in "".join(error.__notes__)
