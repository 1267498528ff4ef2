"""Topologies whose frames never pass the driver: into Delta, by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.runtime.test_frames import counted, failure, ran
from tests.unit.topology.frame_parts import AddWords, By, Doubled, spout
from txtopo import Fields
from txtopo.bolts import Committer, DataFrameBolt, PersistentAggregate
from txtopo.builders import TransactionalTopologyBuilder
from txtopo.errors import FailedException, StateUsageError
from txtopo.state import Count, Max, Mean, State, open_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.service("delta-spark"), pytest.mark.spark]
WORDS = [f"word {number}" for number in range(5)]


class FailsOnce(AddWords):
    """Fails the first attempt of a batch when its transaction has ended."""

    def commit(self, frame: DataFrame, attempt: Any) -> None:
        super().commit(frame, attempt)
        if not attempt.attempt:
            raise FailedException("as asked")


class Early(DataFrameBolt, Committer):
    """Writes where it must not: in the processing phase."""

    def prepare(self, config: Any, context: Any) -> None:
        self.totals = context.state("totals")

    def transform(self, frame: DataFrame, attempt: Any) -> DataFrame:
        with self.totals.transaction(attempt):
            return frame

    def commit(self, frame: DataFrame, attempt: Any) -> None:
        raise AssertionError("transform has failed")


def totals(folder: Path, name: str = "totals") -> State:
    return open_state(
        f"delta://{folder}/states?writer=spark",
        table=name,
        key=Fields("word string"),
        value=Fields("total long"),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("adds", "attempt"), [(AddWords, 0), (FailsOnce, 1)], ids=["", "the commit fails once"]
)
def test_committers_and_aggregates_take_frames(
    spark: SparkSession, tmp_path: Path, adds: type[AddWords], attempt: int
) -> None:
    """4 rows of each word with the amount 1, and 4 with 2. Each merge of Spark's takes seconds."""
    summed, shown = totals(tmp_path), totals(tmp_path, "shown")
    builder = TransactionalTopologyBuilder("frames", "spout", spout(batches=1))
    builder.set_bolt("double", Doubled()).shuffle_grouping("spout")
    add = builder.set_bolt("add", adds()).shuffle_grouping("double")
    add.none_grouping("spout").with_state("totals", summed)
    aggregates = {"rows": Count(), "top": Max("amount"), "mean": Mean("amount")}
    aggregate = PersistentAggregate(shown, "word", aggregates)
    builder.set_bolt("shown", aggregate).fields_grouping("double", "word")
    topology = builder.build_topology()

    ran(topology, spark)

    assert counted(summed) == dict.fromkeys(WORDS, 4 * (1 + 2))
    assert {word: dict(each) for word, each in counted(shown).items()} == {
        word: {"rows": 4, "top": 2, "mean": 2.0} for word in WORDS
    }
    with summed.reader() as reader:
        assert reader.ledger is not None
        assert (reader.ledger.txid, reader.ledger.attempt) == (1, attempt)


def test_a_state_is_not_open_in_transform(spark: SparkSession, tmp_path: Path) -> None:
    builder = TransactionalTopologyBuilder("frames", "spout", spout())
    builder.set_bolt("same", By("word", "amount")).shuffle_grouping("spout")
    early = builder.set_bolt("early", Early()).shuffle_grouping("same")
    early.with_state("totals", totals(tmp_path))

    error = failure(builder.build_topology(), spark)

    assert isinstance(error, StateUsageError)
    assert "not open in transform" in str(error)
