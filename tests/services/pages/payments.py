"""A topology that runs on: payments by country, with failures at the txids that a script names."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from tests.harness.runs import Storage
from tests.services.integration.bolts import Gathering
from txtopo import (
    FailedException,
    Fields,
    PersistentAggregate,
    Topology,
    TransactionAttempt,
    open_state,
)
from txtopo import TransactionalTopologyBuilder as Builder
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.metadata import Json
from txtopo.plugins.spouts import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.state import Count, Sum

COUNTRIES = ("AT", "BE", "CH", "DE", "ES", "FR", "IT", "NL", "PT", "SE")
PAYMENTS = Fields("country string, cents long")


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the payments come, and what fails.

    Attributes:
        rows: Rows of a batch.
        convert_s: How long the bolt takes for a batch, about.
        failures: Text of the failure, by txid.
        attempts: How many attempts at such a txid fail.
        last: The last txid.
        partitions: How many partitions tell their lag.
        country: The only country, if it is given.
    """

    rows: int = 5
    convert_s: float = 0.0
    failures: Mapping[int, str] | None = None
    attempts: int = 1
    last: int | None = None
    partitions: int = 4
    country: str | None = None


class Payments(TransactionalSpout):
    """Emits the same payments for the same txid, without end."""

    output_fields = PAYMENTS

    def __init__(self, pace: Pace) -> None:
        self.pace = pace

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        return PaymentsCoordinator(self.pace)

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return PaymentsEmitter(self.pace, context)


class PaymentsCoordinator(TransactionalCoordinator):
    """Plans the batches."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return self.pace.last is None or txid <= self.pace.last

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        time.sleep(self.pace.convert_s * Random(txid).uniform(0.05, 0.15))
        return txid

    def lag(self, metadata: Json) -> Mapping[str, int]:
        chance = Random(int(str(metadata)))
        return {
            f"payments-{number}": chance.randrange(20, 400) // (number + 1)
            for number in range(self.pace.partitions)
        }


class PaymentsEmitter(TransactionalEmitter):
    """Emits a task's share of a batch."""

    def __init__(self, pace: Pace, context: TaskContext) -> None:
        self.pace, self.context = pace, context

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        chance = Random(int(str(metadata)))
        for number in range(self.pace.rows):
            row = [self.pace.country or chance.choice(COUNTRIES), chance.randrange(100, 100_000)]
            if number % self.context.tasks == self.context.task_index:
                collector.emit(row)


class Convert(Gathering):
    """Passes payments on, slowly, and fails where the script says."""

    output_fields = PAYMENTS

    def __init__(self, pace: Pace) -> None:
        self.pace = pace

    def finish_batch(self) -> None:
        txid, attempt = self.attempt.txid, self.attempt.attempt
        time.sleep(self.pace.convert_s * Random(txid).uniform(0.6, 1.4))
        failure = (self.pace.failures or {}).get(txid)
        if failure is not None and attempt < self.pace.attempts:
            raise FailedException(failure)
        for each in self.tuples:
            self.collector.emit(list(each.values))


def payments(storage: Storage, pace: Pace, id: str = "payments") -> Topology:
    """Return the topology."""
    builder = Builder(id, "payments", Payments(pace))
    builder.set_bolt("convert", Convert(pace)).shuffle_grouping("payments")
    totals = PersistentAggregate(
        open_state(storage.url, storage.kind, "totals"),
        "country",
        {"payments": Count(), "cents": Sum("cents")},
    )
    builder.set_bolt("totals", totals).fields_grouping("convert", "country")
    return builder.build_topology()
