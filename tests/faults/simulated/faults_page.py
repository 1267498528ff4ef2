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

What the runtime survives, and how that was tried. `make faults` makes the sections about crash
points and two coordinators again, from the sources alone; what is left to chance comes from fixed
seeds, so that it says the same everywhere. It kills real processes as well, and `make rows` runs
the tests of the 57 rows; these sections say what was there when they ran.
"""
CRASHES = """\
A process dies at a named point of the real runtime (`Scheduler.point`) while txid 2, 3 or 4 is
under way; another one is started on the same stores and ensemble and continues to the end. Each
point is tried with a transactional and an opaque spout and states of the same kind, with one state
and with two in stores of their own, and a point of a state at each of them. A takeover that dies
is that of a successor, which finds the txid in all stores but not in ZooKeeper, or in one store of
two. A read-back follows a lost answer, of a write that landed and of one that did not; where
it fails too, all stores hold an attempt that was given up, and the one that replays it dies as well
(turn to write). Each opaque attempt is cut again. A second part commits three txids in each write,
and dies at each point that the first and the second of these groups pass. SQLite and PostgreSQL are
real, with their own transactions; time and ZooKeeper are simulated.

A cell is right if the process died where it should, as stores, ZooKeeper and spout show; if each
state held, at the death and in every version, the fold of batches 1 to k for the k in its ledger;
and if in the end each record counts once, in stores that agree (checkers C1 to C8)."""
ORDERS = """\
Coordinator A hangs at one of its points, over three txids, and its session expires. B takes over
and runs up to one of its own points, or to the end. Then A continues with everything that it had
begun and, not knowing that it was deposed, tries more; after that B continues. Every pair of points
is one order. B cuts what is left of the source otherwise than A. In groups, A commits four txids
two by two. A write of A is refused by ZooKeeper (the version of the epoch's node) or by the store
(its ledger)."""
MEANINGS = {
    "claim.before-epoch": "a new leader is about to claim the next epoch in ZooKeeper",
    "claim.after-epoch": "it has claimed the epoch in ZooKeeper, and no state yet",
    "claim.claimed": "it has claimed this state, and not those after it",
    "claim.adopted": "it has advanced `current` over a txid that all states held",
    "plan.before": "the spout is about to be asked for a batch",
    "plan.after": "the batch is planned",
    "store-metadata.before": "the metadata of the batch is about to be stored in ZooKeeper",
    "store-metadata.after": "it is stored",
    "process.before": "the batch is about to be processed",
    "process.after": "it is processed",
    "turn.before": "it begins to wait for its turn",
    "turn.after": "its turn has come",
    "begin.before": "a transaction of this state's store is about to begin",
    "begin.after": "it has begun, and the ledger has let the attempt in",
    "rows.before": "rows are about to be written",
    "rows.after": "they are written, the ledger is not",
    "write.before": "the ledger is written too; the store has not made it durable",
    "write.after": "this state holds the txid, those after it do not",
    "read-back.before": "the answer of the store is lost; the ledger is about to be read back",
    "read-back.after": "the ledger was read",
    "advance.before": "all states hold the txid, ZooKeeper does not know",
    "advance.after": "`current` has advanced in ZooKeeper",
    "cleanup.before": "the spout is about to be told",
    "cleanup.after": "it was told",
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
    columns = ("point", "where the process stands", *(STORES[store] for store in ran))
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
            yield f"\n{name} was not there when this page was made."


def order_lines(sums: Iterable[Interleavings]) -> Iterator[str]:
    """Yield the section of two coordinators."""
    yield ORDERS
    yield ""
    columns = ("kind", "points of A", "orders", "right", *REFUSED_BY)
    yield from table(columns, (each.cells() for each in sums))
