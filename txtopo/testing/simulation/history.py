"""History: what happened in a simulation, for the checkers and for readers of the trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from txtopo.attempt import TransactionAttempt
from txtopo.ensemble.commands import Answer
from txtopo.ensemble.memory import Nodes
from txtopo.metadata import Json
from txtopo.runtime.progress import TopologyEvent
from txtopo.state.row_backend import Contents

if TYPE_CHECKING:
    from txtopo.testing.simulation.world import SimulatedProcess

Record = tuple[Any, ...]
"""A tuple that the spout emitted: the values of its fields, in order."""


@dataclass(frozen=True, slots=True)
class StoreWrite:
    """A new version of a table, and the one before it.

    Attributes:
        at_s: Virtual time of the write.
        writer: Name of the process that wrote it.
        table: The table.
        before: Contents before the write.
        after: Contents after it.
        nodes: The nodes in ZooKeeper at that moment.
        together: The tables that must share the transactions of this one, with this one.
        stores: Contents of all tables after this instant; one object for all writes of it.
    """

    at_s: float
    writer: str
    table: str
    before: Contents
    after: Contents
    nodes: Nodes
    together: tuple[str, ...]
    stores: dict[str, Contents]


@dataclass(frozen=True, slots=True)
class NodesWrite:
    """A new version of the nodes in ZooKeeper, and the one before it.

    Attributes:
        at_s: Virtual time of the write.
        writer: Name of the process that wrote it.
        before: The nodes before the write.
        after: The nodes after it.
        stores: Contents of the tables at that moment, by name.
    """

    at_s: float
    writer: str
    before: Nodes
    after: Nodes
    stores: dict[str, Contents]


@dataclass(frozen=True, slots=True)
class EmittedShare:
    """The part of an attempt that one task of the spout emitted for one partition.

    Attributes:
        share: Number of the partition; number of the task for a spout without partitions. Those of
            several spouts are ``PARTITIONS_APART`` apart.
        records: The tuples.
        metadata: Where the share ended, as the emitter returned it.
    """

    share: int
    records: tuple[Record, ...]
    metadata: Json


@dataclass(frozen=True, slots=True)
class RunEnding:
    """The end of a run that was not killed."""

    at_s: float
    process: str
    error: Exception | None


@dataclass(slots=True)
class History:
    """Everything that happened, in order."""

    writes: list[StoreWrite | NodesWrite] = field(default_factory=list)
    emissions: dict[TransactionAttempt, list[EmittedShare]] = field(default_factory=dict)
    times: dict[TransactionAttempt, set[datetime]] = field(default_factory=dict)
    """When its batch was planned, as passed to the tasks of each attempt."""
    endings: list[RunEnding] = field(default_factory=list)
    lost_attempts: set[TransactionAttempt] = field(default_factory=set)
    """Attempts whose metadata ZooKeeper lost when it was reverted. States may still have them."""
    answers: list[Answer] = field(default_factory=list)
    trace: list[tuple[float, str, str, object]] = field(default_factory=list)
    nodes: Nodes = field(default_factory=dict)
    stores: dict[str, Contents] = field(default_factory=dict)

    def note(self, at_s: float, who: str, what: str, detail: object = "") -> None:
        """Add a line to the trace."""
        self.trace.append((at_s, who, what, detail))

    def stored(
        self,
        at_s: float,
        writer: SimulatedProcess,
        versions: Mapping[str, tuple[Contents, Contents]],
        together: tuple[str, ...] = (),
    ) -> None:
        """Record new versions of tables, all of one instant.

        Args:
            at_s: Virtual time.
            writer: Who wrote them.
            versions: Contents of each before and after.
            together: The tables that must be written together.
        """
        self.stores = {**self.stores, **{table: after for table, (_, after) in versions.items()}}
        for table, (before, after) in versions.items():
            then = self.nodes, together, self.stores
            self.writes.append(StoreWrite(at_s, writer.name, table, before, after, *then))
            self.note(at_s, writer.name, f"stored {table}", after.ledger)

    def nodes_written(
        self, at_s: float, writer: SimulatedProcess, before: Nodes, after: Nodes
    ) -> None:
        """Record a new version of the nodes in ZooKeeper."""
        self.writes.append(NodesWrite(at_s, writer.name, before, after, self.stores))
        self.nodes = after
        self.note(at_s, writer.name, "nodes written", len(after))

    def emitted(
        self, at_s: float, who: str, attempt: TransactionAttempt, one: EmittedShare
    ) -> None:
        """Record what a task of the spout emitted."""
        self.emissions.setdefault(attempt, []).append(one)
        self.note(at_s, who, f"emitted {attempt}", (one.share, len(one.records), one.metadata))

    def changed(self, at_s: float, who: str, change: TopologyEvent) -> None:
        """Record an event of a run."""
        self.note(at_s, who, type(change).__name__, change)

    def answered(self, at_s: float, who: str, answer: Answer) -> None:
        """Record what an operator was answered."""
        self.answers.append(answer)
        self.note(at_s, who, "answered", (answer.number, answer.status, answer.epoch))

    def ended(self, at_s: float, who: str, error: Exception | None) -> None:
        """Record the end of a run."""
        self.endings.append(RunEnding(at_s, who, error))
        self.note(at_s, who, "ended", error)

    def lines(self) -> Iterator[str]:
        """Yield the trace as text, one line for each event."""
        for at_s, who, what, detail in self.trace:
            yield f"{at_s:12.6f} {who:6} {what} {detail}"
