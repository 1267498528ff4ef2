"""Spouts and bolts of the tests that are plans of Spark's; in a module, so that they pickle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from txtopo.bolts import BatchBolt, Committer, DataFrameBolt
from txtopo.errors import FailedException
from txtopo.plugins.spouts import LastBatch, TransactionalCoordinator
from txtopo.spouts import DataFrameTransactionalSpout
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WORDS = Fields("word string, amount long")


class Numbered(TransactionalCoordinator):
    """Plans this many batches; the metadata is the number of a batch."""

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= self.batches

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
        return {"number": txid, "before": previous_metadata and previous_metadata["number"]}


def words(spark: Any, attempt: Any, metadata: Any) -> DataFrame:
    """Read 20 rows of five words, each with the number of the batch as its amount."""
    frame: DataFrame = spark.range(20).selectExpr(
        "concat('word ', id % 5) AS word", f"{metadata['number']}L AS amount", "id AS extra"
    )
    return frame.coalesce(2)


def spout(batches: int = 3, read: Any = words) -> DataFrameTransactionalSpout:
    return DataFrameTransactionalSpout(Numbered(batches), read, WORDS)


class Doubled(DataFrameBolt):
    """Doubles each amount."""

    output_fields = WORDS

    def prepare(self, config: Any, context: Any) -> None:
        self.id = context.component_id

    def transform(self, frame: DataFrame, attempt: Any) -> DataFrame:
        assert self.id == "double"
        return frame.selectExpr("amount * 2 AS amount", "word")


class By(DataFrameBolt):
    """Applies SQL to a batch."""

    def __init__(self, *columns: str, fields: str = "word string, amount long") -> None:
        self.output_fields = Fields(fields)
        self.columns = columns

    def transform(self, frame: DataFrame, attempt: Any) -> DataFrame:
        return frame.selectExpr(*self.columns)


class Failing(DataFrameBolt):
    """Fails the first attempt of a batch."""

    output_fields = WORDS

    def transform(self, frame: DataFrame, attempt: Any) -> DataFrame:
        if attempt.txid == 2 and not attempt.attempt:
            raise FailedException("as asked")
        return frame


class Upper(BatchBolt):
    """Emits words in capitals, in Python."""

    output_fields = WORDS

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector = collector

    def execute(self, tuple: Any) -> None:
        self.collector.emit([tuple["word"].upper(), tuple["amount"]])

    def finish_batch(self) -> None:
        pass


class AddWords(DataFrameBolt, Committer):
    """Adds the amounts of a batch to a state, by word."""

    def prepare(self, config: Any, context: Any) -> None:
        self.totals = context.state("totals")

    def commit(self, frame: DataFrame, attempt: Any) -> None:
        with self.totals.transaction(attempt) as state:
            state.merge(frame.withColumnRenamed("amount", "total"), {"total": "add"})
