"""Bad records beside good results: dead letters of a BasicBolt, and a stream for an ArrowBolt's.

A ``BasicBolt`` sees one tuple at a time, so the framework can drop what it emitted for a bad one,
and keep that tuple as a dead letter. An ``ArrowBolt`` sees many rows at once. It divides them
itself, and emits the bad ones to a stream of its own, which any bolt can count or keep. Both are
exactly once. Run it with ``python examples/dead_letters.py``.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from txtopo import (
    ArrowBolt,
    ArrowOutputCollector,
    BasicBolt,
    BatchOutputCollector,
    Config,
    Count,
    Fields,
    PersistentAggregate,
    RecordFailed,
    Sum,
    TaskContext,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    Tuple,
    open_state,
)
from txtopo.spouts import MemoryTransactionalSpout

PAYMENTS = ["ann 12", "bob many", "cid -3", "nobody", "ann 30", "dan 900", "eve 7"]
LIMIT = 500
PAYMENT = Fields("customer string, amount long")
STREAMS = {"too_large": PAYMENT}


class Parse(BasicBolt):
    """Makes a payment of a text."""

    output_fields = PAYMENT

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        # A text without a space, and an amount that is not a number, are ValueErrors.
        customer, amount = tuple["text"].split()
        if int(amount) < 0:
            raise RecordFailed(f"{customer} paid {amount}, which is negative")
        collector.emit([customer, int(amount)])


class Divide(ArrowBolt):
    """Lets payments up to a limit pass, and emits larger ones to the stream ``too_large``."""

    output_fields = PAYMENT
    output_streams = STREAMS

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.collector = collector

    def execute(self, batch: pa.RecordBatch) -> None:
        large = pc.greater(batch["amount"], LIMIT)
        self.collector.emit(batch.filter(pc.invert(large)))
        self.collector.emit(batch.filter(large), "too_large")

    def finish_batch(self) -> None:
        """Do nothing: each record batch is divided at once."""


def main(
    spark: SparkSession | None = None,
    config: Config = Config(),
    url: str = "sqlite:///dead_letters.db",
) -> None:
    """Add up the payments; print the totals, what was too large, and the dead letters."""
    texts = {number: [[text]] for number, text in enumerate(PAYMENTS)}
    spout = MemoryTransactionalSpout(texts, Fields("text string"), 3)
    builder = TransactionalTopologyBuilder(
        "bad-payments", "spout", spout, dead_letters=open_state(url)
    )
    parse = builder.set_bolt("parse", Parse(), 2).shuffle_grouping("spout")
    parse.dead_letters_on(ValueError)
    builder.set_bolt("divide", Divide()).shuffle_grouping("parse")
    totals = PersistentAggregate(open_state(url), "customer", Sum("amount"))
    builder.set_bolt("totals", totals).fields_grouping("divide", "customer")
    too_large = PersistentAggregate(open_state(url), "customer", Count())
    builder.set_bolt("too-large", too_large).fields_grouping(
        "divide", "customer", stream="too_large"
    )

    with builder.build_topology().start(spark, config) as run:
        run.process_all_available()

    for table in ("totals", "too-large"):
        with open_state(url, table=table).reader() as reader:
            print(f"{table}: {dict(sorted(reader.items()))}")
    with open_state(url, table="dead_letters").reader() as reader:
        for _, letter in sorted(reader.items()):
            print(f"{letter['record']}: {letter['message']}")


if __name__ == "__main__":
    main()
