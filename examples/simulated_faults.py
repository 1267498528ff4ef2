"""A committer that writes outside its state, and how simulation finds it out.

Run it: python -m examples.simulated_faults

`Payments` keeps its totals in a state, which is right whatever crashes. It may also append each
payment to a file, say an order for a bank: that happens again whenever a batch is replayed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from txtopo import (
    BatchBolt,
    BatchOutputCollector,
    Committer,
    Config,
    Fields,
    TaskContext,
    Topology,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    Tuple,
    open_state,
)
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.testing import SimulationFailed, simulate

PAYMENTS = [[f"customer-{at % 3}", at] for at in range(1, 25)]


class Payments(BatchBolt, Committer):
    """Adds up the payments of each customer, and may tell the bank."""

    def __init__(self, bank: Path | None = None) -> None:
        self.bank = bank

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.totals, self.attempt = context.state("totals"), attempt
        self.payments: list[tuple[str, int]] = []

    def execute(self, tuple: Tuple) -> None:
        self.payments.append((tuple["customer"], tuple["amount"]))

    def finish_batch(self) -> None:
        with self.totals.transaction(self.attempt) as state:
            for customer, amount in self.payments:
                state.put(customer, (state.get(customer) or 0) + amount)
        if self.bank is not None:
            with self.bank.open("a") as orders:
                orders.writelines(f"{customer} {amount}\n" for customer, amount in self.payments)


def topology_of(payments: Payments) -> Topology:
    """Return the topology."""
    spout = MemoryTransactionalSpout(
        {0: PAYMENTS[::2], 1: PAYMENTS[1::2]}, Fields("customer string, amount long"), 3
    )
    builder = TransactionalTopologyBuilder("payments", "spout", spout, 2)
    declarer = builder.set_bolt("totals", payments).global_grouping("spout")
    declarer.with_state("totals", open_state("memory:"))
    return builder.build_topology()


def fold(payments: Any) -> dict[str, int]:
    """Say what the totals should be, without any of this."""
    totals: dict[str, int] = {}
    for customer, amount in payments:
        totals[customer] = totals.get(customer, 0) + int(amount)
    return totals


def main() -> None:
    """Simulate both versions."""
    records = [(customer, amount) for customer, amount in PAYMENTS]
    report = simulate(topology_of(Payments()), {"totals": fold}, seeds=30, records=records)
    print(f"state only: {report.seeds} seeds, {report.txids} txids, all totals right")
    with tempfile.TemporaryDirectory() as folder:
        bank = Path(folder, "bank.txt")
        try:
            simulate(
                topology_of(Payments(bank)),
                {"totals": fold, "bank": fold},
                seeds=30,
                outside={"bank": lambda: fold(map(str.split, bank.read_text().splitlines()))},
                before_each=lambda: bank.write_text(""),
            )
        except SimulationFailed as error:
            print(f"with the bank: {error}")


if __name__ == "__main__":
    main()
