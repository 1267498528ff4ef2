"""A driver dies after a store has the batch, and before Spark's checkpoint has it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.processes import Child
from tests.unit.runtime.stream_words import contents, expected, ledger, query, words, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = [{"a": 1, "b": 2}, {"a": 3, "c": 4}, {"b": 5}]


@pytest.mark.parametrize(
    "state", [pytest.param("count.count", marks=pytest.mark.slow), "total.total"]
)
def test_a_batch_that_was_written_and_not_noted_counts_once(
    spark: SparkSession, tmp_path: Path, state: str
) -> None:
    """After the first state the two differ; after the second only Spark does not know."""
    write(tmp_path, *FILES)
    step = f"write.after:{state}"
    with Child("tests.unit.runtime.stream_words", str(tmp_path), step, "2") as child:
        child.die()
    assert ledger(tmp_path, "count").txid == 2

    query(spark, tmp_path, words(tmp_path).foreach_batch(carrier="local", slots=2))
    counts, totals = expected(*FILES)
    assert contents(tmp_path, "count") == counts
    assert contents(tmp_path, "total") == totals
    assert (ledger(tmp_path).txid, ledger(tmp_path).writer_epoch) == (3, 2)
