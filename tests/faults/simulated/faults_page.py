"""The sections of ``docs/proof/faults.md`` that ``make faults`` writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.faults.simulated.crash_cells import POINTS
from tests.harness.report_page import DOCS, table
from txtopo.state.backend import StateKind

PAGE = DOCS / "proof" / "faults.md"
STORES = {"memory": "memory", "sqlite": "SQLite", "postgresql": "PostgreSQL"}
HEAD = """# Faults

What the runtime survives, and how it was tested. `make faults` regenerates the sections about crash
points and two coordinators, from the sources alone; random choices come from fixed seeds, so the
result is the same everywhere. It also kills real processes, and `make rows` runs the tests of the
57 rows; these sections record the results of the last run.
"""
CRASHES = """\
A process dies at a named point of the real runtime (`Scheduler.point`) while txid 2, 3 or 4 is in
flight; another one is started on the same stores and ensemble and continues to the end. Each point
is tested with a transactional and an opaque spout and states of the same kind, with one state and
with two in separate stores; a point of a state is tested at each state. A takeover that dies is
that of a successor, which finds the txid in all stores but not in ZooKeeper, or in one store of
two. A read-back follows a lost answer, of a write that landed and of one that did not; where it
fails too, all stores hold an abandoned attempt, and the process that replays it dies as well (turn
to write). Each opaque attempt has a new cut. A second part commits three txids in each write, and
dies at each point that the first and the second of these groups pass. SQLite and PostgreSQL are
real, with their own transactions; time and ZooKeeper are simulated.

A case is right if the process died at the intended point, according to stores, ZooKeeper and spout;
if each state held, at the death and in every version, the fold of batches 1 to k for the k in its
ledger; and if in the end each record counts once, in stores that agree (checkers C1 to C8)."""
ORDERS = """\
Coordinator A hangs at one of its points, over three txids, and its session expires. B takes over
and runs up to one of its own points, or to the end. Then A continues with everything that it had
started and, not knowing that it was deposed, starts more; after that B continues. Every pair of
points is one order. B divides the rest of the source differently from A. In groups, A commits four
txids two by two. A's writes are refused by ZooKeeper (the version of the epoch's node) or by the
store (its ledger)."""
MEANINGS = {
    "claim.before-epoch": "a new leader is about to claim the next epoch in ZooKeeper",
    "claim.after-epoch": "it has claimed the epoch in ZooKeeper, but no state yet",
    "claim.claimed": "it has claimed this state, but not the following ones",
    "claim.adopted": "it has advanced `current` over a txid that all states held",
    "plan.before": "the spout is about to be asked for a batch",
    "plan.after": "the batch is planned",
    "store-metadata.before": "the metadata of the batch is about to be stored in ZooKeeper",
    "store-metadata.after": "it is stored",
    "process.before": "the batch is about to be processed",
    "process.after": "it is processed",
    "turn.before": "the batch starts waiting for its turn to commit",
    "turn.after": "it is its turn to commit",
    "begin.before": "a transaction of this state's store is about to begin",
    "begin.after": "it has begun, and the ledger has accepted the attempt",
    "rows.before": "rows are about to be written",
    "rows.after": "they are written, but not the ledger",
    "write.before": "the ledger is written too, but not yet durable",
    "write.after": "this state holds the txid, the following ones do not",
    "read-back.before": "the answer of the store is lost; the ledger is about to be read back",
    "read-back.after": "the ledger has been read",
    "advance.before": "all states hold the txid, but ZooKeeper does not record it yet",
    "advance.after": "`current` has advanced in ZooKeeper",
    "cleanup.before": "the spout is about to be notified",
    "cleanup.after": "it has been notified",
}
"""Where a process stands when it dies at a point."""
REFUSED_BY = ("refused by ZooKeeper", "refused by the store")


@dataclass(slots=True)
class Matrix:
    """The results of the crash points on one kind of store.

    Attributes:
        store: The kind, one of :data:`STORES`.
        runs: How many cells ran, by point.
        failed: How many of them were not right, by point.
        wrong: What is wrong, by cell.
    """

    store: str
    runs: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, list[str]] = field(default_factory=dict)

    def right_of(self, point: str) -> str:
        """Return how many cells of a point are right, of how many."""
        return f"{self.runs[point] - self.failed[point]}/{self.runs[point]}"


@dataclass(slots=True)
class Interleavings:
    """The results of orders of two coordinators.

    Attributes:
        kind: Of the spout and the state.
        groups: Whether txids are committed two by two.
        runs: How many orders ran.
        points: At how many points the first coordinator hung.
        refused: How many of its writes were refused, by the point before them.
        wrong: What is wrong, by order.
    """

    kind: StateKind
    groups: bool = False
    runs: int = 0
    points: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, list[str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the orders are called."""
        return f"{self.kind}, in groups" if self.groups else self.kind

    def add(self, other: Interleavings) -> None:
        """Add the results of other orders of the kind."""
        self.runs += other.runs
        self.points += other.points
        self.refused += other.refused
        self.wrong |= other.wrong

    def cells(self) -> tuple[str, ...]:
        """Return its row of the table."""
        by_store = self.refused["begin.before"]
        by_zookeeper = self.refused.total() - by_store
        right = self.runs - len(self.wrong)
        counts = (self.points, self.runs, right, by_zookeeper, by_store)
        return (self.name, *(f"{count:,}" for count in counts))


def crash_lines(matrices: Mapping[str, Matrix]) -> Iterator[str]:
    """Yield the section of crash points."""
    ran = [store for store in STORES if store in matrices]
    total = sum(matrix.runs.total() for matrix in matrices.values())
    wrong = sum(len(matrix.wrong) for matrix in matrices.values())
    yield CRASHES
    yield ""
    yield f"{total:,} crashes, {wrong} not right. How many are right of how many, by store:"
    yield ""
    columns = ("point", "what the process is doing", *(STORES[store] for store in ran))
    shown = [matrices[store] for store in ran]
    yield from table(
        columns,
        (
            (f"`{point}`", MEANINGS[point], *(each.right_of(point) for each in shown))
            for point in POINTS
        ),
    )
    for store, name in STORES.items():
        if store not in ran:
            yield f"\n{name} was not available when this page was written."


def order_lines(sums: Iterable[Interleavings]) -> Iterator[str]:
    """Yield the section of two coordinators."""
    yield ORDERS
    yield ""
    columns = ("kind", "points of A", "orders", "right", *REFUSED_BY)
    yield from table(columns, (each.cells() for each in sums))
