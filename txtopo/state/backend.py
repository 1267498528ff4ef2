"""StateBackend: what an atomic store supplies so that a state in it is exactly once.

Rules
-----
1. A write happens in one store transaction that reads the ledger, asks
   :func:`txtopo.state.ledger.standing`, and writes ledger and rows together or not at all.
2. *Undo before redo.* For an opaque state and :attr:`Standing.REDO`, every row tagged with the txid
   goes back to what it was before that txid (away, if it did not exist) before anything is applied.
3. A transactional state in :attr:`Standing.REDO` keeps its rows and takes the new writer into its
   ledger: the same txid always brings the same batch.
4. Only the first write of a key in a txid moves its value to ``previous``; a commit brings one
   final write per key, so a backend never sees a second one.
5. A delete leaves a tombstone (hidden from readers) so that it can be undone; tombstones of earlier
   txids are gone with the next commit.
6. No table is made or changed inside :meth:`StateBackend.commit`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from txtopo.attempt import TransactionAttempt
from txtopo.errors import StateUsageError, TopologyError
from txtopo.state.aggregates import Aggregate
from txtopo.state.ledger import Claim, Ledger
from txtopo.state.values import Row
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa

StateKind = Literal["opaque", "transactional"]
StateMode = Literal["table", "log"]
"""``"table"``: a row for each key. ``"log"``: the partials of each txid are appended, and folded
later; who reads combines them. For aggregates only."""
TableOrigin = Literal["made", "found", "extended"]
"""``"made"``: the backend makes the table. ``"found"``: it is a user's own and has the bookkeeping
columns. ``"extended"``: it is a user's own, and those that it lacks are added."""
BOOKKEEPING = ("txid", "prev_txid", "deleted")
"""Columns beside the user's; ``prev_`` before a name is kept as well."""
Key = tuple[Any, ...]
"""One value per key field, always a tuple, also for one field."""
Values = tuple[Any, ...]
"""One value per value field, always a tuple, also for one field."""


@dataclass(frozen=True, slots=True)
class StateTable:
    """What a state looks like.

    Attributes:
        name: Name of its table.
        kind: ``"opaque"`` or ``"transactional"``.
        key: The key columns, one at the least.
        value: The value columns, one at the least.
        aggregates: For a state of a ``PersistentAggregate``: how each value column combines.
        mode: ``"table"`` or ``"log"``.
        origin: Where its table comes from: ``"made"``, ``"found"`` or ``"extended"``.
    """

    name: str
    kind: StateKind
    key: Fields
    value: Fields
    aggregates: tuple[Aggregate, ...] = ()
    mode: StateMode = "table"
    origin: TableOrigin = "made"

    def __post_init__(self) -> None:
        if not self.name or "\0" in self.name:
            raise TopologyError(f"bad name of a state's table; got {self.name!r}")
        for part, fields in (("key", self.key), ("value", self.value)):
            if not isinstance(fields, Fields) or not len(fields):
                raise TopologyError(
                    f"state {self.name!r} has no {part} columns; got {fields!r}; "
                    f"expected e.g. Fields('{part} long')"
                )
        names = [*self.key.names, *self.value.names]
        for name in names:
            if names.count(name) > 1:
                raise TopologyError(
                    f"state {self.name!r} has two columns {name!r}; rename the key or the value"
                )
            if name.lower() in BOOKKEEPING or name.lower().startswith("prev_"):
                raise TopologyError(
                    f"state {self.name!r} has a column {name!r}, a name kept for bookkeeping "
                    f"({', '.join(BOOKKEEPING)}, prev_…); rename it"
                )
        for field in self.key:
            if field.type == "json":
                raise TopologyError(
                    f"state {self.name!r} has a key column {field.name!r} of json, in which equal "
                    "values may have different texts; expected another type, e.g. string"
                )
        if self.aggregates and len(self.aggregates) != len(self.value):
            raise TopologyError(
                f"state {self.name!r} has {len(self.value)} value columns and "
                f"{len(self.aggregates)} aggregates; expected one for each column"
            )
        for field, aggregate in zip(self.value, self.aggregates, strict=False):
            if self.mode == "log" and aggregate.operator is None:
                raise TopologyError(
                    f"state {self.name!r} cannot keep {type(aggregate).__name__} in column "
                    f"{field.name!r} in mode 'log', whose rows anyone combines by a GROUP BY, with "
                    "sums, smallest and largest values; it combines in Python; "
                    "use open_state(…, mode='table')"
                )
        if self.mode == "log" and self.origin != "made":
            raise TopologyError(
                f"state {self.name!r} cannot keep a log in a table that is there already; got "
                "mode='log', which has several rows for a key; expected mode='table'"
            )


@dataclass(frozen=True, slots=True)
class Puts:
    """Final values of keys; ``None`` deletes the key. May be empty."""

    rows: Mapping[Key, Values | None]


@dataclass(frozen=True, slots=True)
class Merges:
    """Partial aggregates to be combined with what is stored. May be empty.

    Where :func:`txtopo.state.combines_in_store` says so a store may combine them itself, by the
    ``operator`` of each aggregate. Otherwise :func:`txtopo.state.row_backend` turns them into
    final values, given what the store holds for their keys.

    Attributes:
        partials: The key columns, then the value columns; keys are distinct.
    """

    partials: pa.Table


Writes = Puts | Merges


class Snapshot(ABC):
    """One consistent reading of a state: rows and ledger of the same instant."""

    @property
    @abstractmethod
    def ledger(self) -> Ledger | None:
        """The ledger, or ``None`` for a state that nobody has claimed."""

    @abstractmethod
    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        """Return the rows of those of *keys* that exist, tombstones too; *keys* may be empty."""

    @abstractmethod
    def items(self) -> Iterator[tuple[Key, Row]]:
        """Yield every row, tombstones too, in no promised order."""


def _unmarked(step: str) -> None:
    """Mark nothing."""


class StateBackend(ABC):
    """One state in an atomic store.

    Delivery: exactly once, also after the loss of driver, store or connection, and fenced against
    a deposed coordinator.

    Who calls it: the driver, from any thread. Calls may overlap: a commit that took too long is
    given up and tried again while the first call is still under way, and readings go on meanwhile.
    It does not matter which of two commits gets through first: the ledger, read and written in the
    same store transaction, refuses the one that has no right any more. Where committers run in
    Spark tasks, each task also opens a backend of its own and calls :meth:`snapshot`, nothing else.
    What must be durable: whatever :meth:`claim` and :meth:`commit` wrote, when they return.
    Not guaranteed: that :meth:`close` is called (the process may be killed).
    """

    modes: frozenset[StateMode] = frozenset({"table"})
    """Which modes it keeps the promise in; a state of another mode is refused when it is opened."""

    existing_tables: bool = False
    """Whether a state may live in a table that a user made, with rows from before the first txid;
    ``create()`` then checks it. Where it may not, such a state is refused when it is opened."""

    shared_by_processes: bool = True
    """Whether other processes that open the same URL see the same state."""

    point: Callable[[str], None] = staticmethod(_unmarked)
    """Marks a step of a commit for whoever crashes processes on purpose; does nothing by default.

    The runtime sets it after opening, and marks ``begin.before`` and ``write.after`` around
    :meth:`commit`. :meth:`commit` calls it with ``begin.after`` and ``rows.before`` once the ledger
    has let the attempt in, with ``rows.after`` when the rows are written, and with ``write.before``
    when nothing is left but to make it durable. A plug-in need not call it.
    """

    claimant: Claim | None = None
    """The claim that this object writes under. :meth:`claim` sets it, before it writes;
    :meth:`commit` hands it to :func:`txtopo.state.ledger.standing`."""

    @abstractmethod
    def create(self) -> None:
        """Make the tables that are missing and check those that are there.

        Raises:
            SchemaDrift: A table has other columns than the state declares.
            StoreUnavailable: Try again later.
        """

    @abstractmethod
    def claim(self, claim: Claim) -> Ledger:
        """Write owner, epoch and ensemble into the ledger, as ``ledger.claimed`` says.

        The ledger is read and written in one store transaction. Every field of it is kept, also
        those that the backend has no use for: after the claim it is read back and compared.

        Returns:
            The ledger as it stands now.

        Raises:
            PromiseError: As :func:`txtopo.state.ledger.claimed` says; nothing was written.
            StoreUnavailable: Try again later.
        """

    @abstractmethod
    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        """Apply the writes of an attempt and set the ledger, in one store transaction.

        Returns:
            The ledger as it stands now.

        Raises:
            PromiseError: As :func:`txtopo.state.ledger.standing` says; nothing was written.
            ValueRefusedError: A value cannot be stored exactly; nothing was written.
            StoreUnavailable: Nothing was written; try again.
            UnknownOutcomeError: The connection was lost during the write; read the ledger.
        """

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open one consistent reading of the state."""

    def snapshot_of(self, txid: int) -> AbstractContextManager[Snapshot]:
        """Open the reading that anyone had after the last version of *txid*, if the store keeps it.

        Raises:
            StateUsageError: The store keeps no history, or none of that age.
        """
        raise StateUsageError(
            f"{type(self).__name__} keeps no history; got txid={txid}; expected a reader without "
            "txid, or a state in Delta"
        )

    def stored(self) -> tuple[StateTable, ...] | None:
        """Return the states that the store holds, or None if it does not know their columns.

        With it anyone may read a state without knowing how it was declared.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Release connections; calling it twice is harmless."""


BackendFactory = Callable[[str, StateTable], StateBackend]
"""Opens a backend: (URL, table) -> backend. Entry points of ``txtopo.state_backends`` are these."""
