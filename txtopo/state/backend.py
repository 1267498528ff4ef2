"""The contract of a state backend: what a store must do so that its state is exactly once.

Rules
-----
1. A write happens in one store transaction that reads the ledger, asks
   :func:`txtopo.state.ledger.standing`, and writes ledger and rows together or not at all.
2. *Undo before redo.* In an opaque state and :attr:`~txtopo.state.ledger.Standing.REDO`, every row
   tagged with the txid is restored to what it was before that txid, or removed if it did not exist,
   before anything is applied.
3. A transactional state in :attr:`~txtopo.state.ledger.Standing.REDO` keeps its rows, and its
   ledger names the new writer: the same txid always brings the same batch.
4. Only the first write of a key in a txid moves its value to ``previous``. A commit brings one
   final write per key, so a backend never sees a second one.
5. A delete leaves a tombstone, which readers do not see, so that it can be undone. The next commit
   removes the tombstones of earlier txids.
6. :meth:`StateBackend.commit` makes and changes no table.
7. A group of txids, a :class:`~txtopo.attempt.GroupAttempt`, is written like one txid, its last:
   that tags the rows, and ``previous`` is what they were before the group. A backend that never
   uses ``txid - 1``, and hands the attempt to ``standing`` and ``written_by`` as it got it, need do
   no more, and sets :attr:`StateBackend.groups`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from txtopo.attempt import TransactionAttempt
from txtopo.errors import StateUsageError, TopologyError
from txtopo.state.aggregates import Aggregate
from txtopo.state.column_rows import ColumnRows
from txtopo.state.ledger import Claim, Ledger
from txtopo.state.values import Row
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa

StateKind = Literal["opaque", "transactional"]
StateMode = Literal["table", "log"]
"""``"table"`` keeps a row for each key. ``"log"`` appends the partial aggregates of each txid and
folds them later; readers combine them. It is for aggregates only."""
TableOrigin = Literal["made", "found", "extended"]
"""``"made"``: the backend makes the table. ``"found"``: the table is a user's own and has the
bookkeeping columns. ``"extended"``: it is a user's own, and the backend adds the bookkeeping
columns that it lacks."""
BOOKKEEPING = ("txid", "prev_txid", "deleted")
"""Columns that a state adds to the user's. Names that begin with ``prev_`` are reserved as well."""
Key = tuple[Any, ...]
"""One value per key field. It is a tuple even for one field."""
Values = tuple[Any, ...]
"""One value per value field. It is a tuple even for one field."""
RANGE_TYPES = ("timestamp", "timestamp_ntz", "long", "int", "short", "byte")
"""The types of a column by which a state is read in ranges."""


@dataclass(frozen=True, slots=True)
class StateTable:
    """The schema of a state.

    Attributes:
        name: Name of its table.
        kind: ``"opaque"`` or ``"transactional"``.
        key: The key columns, at least one.
        value: The value columns, at least one.
        aggregates: The aggregate of each value column, if a ``PersistentAggregate`` writes the
            state; else empty.
        mode: ``"table"`` or ``"log"``.
        origin: Where its table comes from: ``"made"``, ``"found"`` or ``"extended"``.
        range_by: The column, a timestamp or a whole number, by which committers read ranges and by
            which rows expire; None for none. It changes nothing of what is stored: a database makes
            an index of it, unless it is the first key column.
        defaults: What a row that is there already gets in a value column that is added: pairs of
            name and value. They are not part of what a store keeps.
        prunable: Whether a user may delete rows, as those of dead letters that are dealt with. No
            store keeps it.
    """

    name: str
    kind: StateKind
    key: Fields
    value: Fields
    aggregates: tuple[Aggregate, ...] = ()
    mode: StateMode = "table"
    origin: TableOrigin = "made"
    range_by: str | None = None
    defaults: tuple[tuple[str, Any], ...] = field(default=(), compare=False)
    prunable: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not self.name or "\0" in self.name:
            raise TopologyError(f"bad name of a state's table; got {self.name!r}")
        for part, fields in (("key", self.key), ("value", self.value)):
            if not isinstance(fields, Fields) or not len(fields):
                raise TopologyError(
                    f"state {self.name!r} has no {part} columns; got {fields!r}; "
                    f"write e.g. {part}=Fields('{part} long')"
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
        for column in self.key:
            if column.type == "json":
                raise TopologyError(
                    f"state {self.name!r} has a key column {column.name!r} of json, in which equal "
                    "values may have different texts; expected another type, e.g. string"
                )
        if self.aggregates and len(self.aggregates) != len(self.value):
            raise TopologyError(
                f"state {self.name!r} has {len(self.value)} value columns and "
                f"{len(self.aggregates)} aggregates; expected one for each column"
            )
        for column, aggregate in zip(self.value, self.aggregates, strict=False):
            if self.mode == "log" and aggregate.operator is None:
                raise TopologyError(
                    f"state {self.name!r} cannot keep {type(aggregate).__name__} in column "
                    f"{column.name!r} in mode 'log', whose rows anyone combines by a GROUP BY, "
                    "with sums, smallest and largest values; it combines in Python; "
                    "use open_state(…, mode='table')"
                )
        if self.mode == "log" and self.origin != "made":
            raise TopologyError(
                f"state {self.name!r} cannot keep a log in a table that is there already; got "
                "mode='log', which has several rows for a key; expected mode='table'"
            )
        if self.range_by is not None:
            self._check_range(self.range_by)

    def _check_range(self, column: str) -> None:
        types = [field.type for field in (*self.key, *self.value) if field.name == column]
        if self.mode == "log" or not set(types) & set(RANGE_TYPES):
            got = types[0] if types else "no such column"
            raise TopologyError(
                f"state {self.name!r} cannot be read by ranges of column {column!r}; got {got} in "
                f"mode {self.mode!r}; expected a key or value column of type "
                f"{', '.join(RANGE_TYPES)} in mode 'table'"
            )

    def column_of(self, key: Key, values: Values, column: str) -> Any:
        """Return what a row has in a key or value column."""
        if column in self.key.index:
            return key[self.key.index[column]]
        return values[self.value.index[column]]


@dataclass(frozen=True, slots=True)
class StateSize:
    """How large a state is, as far as its store knows without reading its rows; an estimate.

    Attributes:
        rows: Number of its rows, with tombstones, and in mode ``"log"`` with every row of the log;
            None if it is not known.
        bytes: Bytes that it takes in its store; None if they are not known.
    """

    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Puts:
    """Final values by key. ``None`` deletes the key. May be empty.

    Attributes:
        rows: The values.
        expires: What :meth:`txtopo.state.StateTransaction.expire` told; None for nothing. It is for
            the runtime: a commit deletes nothing by it.
    """

    rows: Mapping[Key, Values | None]
    expires: Any = None

    @property
    def columns(self) -> pa.Table | None:
        """The rows as a table, sorted by key, with the key columns before the value columns.

        None if a key is deleted, or if the committer gave Python values. A store may write the
        table instead of ``rows``, which are the same, and are made only when they are read.
        """
        return self.rows.table if isinstance(self.rows, ColumnRows) else None

    @property
    def deletes(self) -> bool:
        """Whether a key is deleted."""
        return self.columns is None and None in self.rows.values()


@dataclass(frozen=True, slots=True)
class Merges:
    """Partial aggregates, to be combined with the stored values. May be empty.

    If :func:`~txtopo.state.row_backend.combines_in_store` is true, a store may combine them itself,
    by the ``operator`` of each aggregate. Otherwise it calls
    :func:`~txtopo.state.row_backend.final_values`, which turns them into final values.

    Attributes:
        partials: The key columns, then the value columns; keys are distinct.
    """

    partials: pa.Table


Writes = Puts | Merges


class Snapshot(ABC):
    """A consistent view of a state: rows and ledger of the same instant.

    Who calls it: a reader, or a committer that reads the state; one thread at a time, inside the
    ``with`` block of :meth:`StateBackend.snapshot`.

    Attributes:
        is_snapshot: False for a store without snapshots, such as a backing map: rows that are
            written while others are read may be of later txids than the ledger.
    """

    is_snapshot: ClassVar[bool] = True

    @property
    @abstractmethod
    def ledger(self) -> Ledger | None:
        """The ledger, or ``None`` for a state that nobody has claimed."""

    @abstractmethod
    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        """Return the rows of those *keys* that exist, including tombstones; may be empty."""

    @abstractmethod
    def items(self) -> Iterator[tuple[Key, Row]]:
        """Yield every row, including tombstones, in no particular order."""

    def flaw(self) -> str | None:
        """Return why the rows are not those of the ledger, if the store knows; None if they are.

        A claim asks for it. The default knows nothing: there the ledger notes a row. A store that
        keeps a history of its tables, in which it sees who changed them, overrides it.
        """
        return None

    def last_txid(self) -> int:
        """Return the largest txid of a row; 0 for none.

        A claim asks for it in mode ``"log"``. The default reads every row of the state. A store
        with an index overrides it.
        """
        return max((row.txid for _, row in self.items()), default=0)

    def between(
        self, table: StateTable, above: Any, up_to: Any, txid: int
    ) -> Iterator[tuple[Key, Row]]:
        """Yield the rows in a range of the column ``StateTable.range_by``, in any order.

        Further rows may be among them, since the caller looks at each. The default reads every row
        of the state. A store with an index overrides it.

        Args:
            table: The schema of the state.
            above: The rows have more than that in the column; None for no lower end.
            up_to: They have at most that; None for no upper end.
            txid: In an opaque state every row that this txid wrote is yielded as well, tombstones
                included, since the value that it had before may be in the range.
        """
        column = table.range_by
        assert column is not None
        for key, row in self.items():
            written = row.txid == txid and table.kind == "opaque"
            found = None if row.deleted else table.column_of(key, row.current, column)
            if written or in_range(found, above, up_to):
                yield key, row

    def starting(self, prefixes: Sequence[Key]) -> Iterator[tuple[Key, Row]]:
        """Yield the rows whose key begins with one of some prefixes, tombstones included.

        They come in no particular order. The default reads every row of the state. A store whose
        table is sorted by key overrides it.

        Args:
            prefixes: Distinct values of the first key columns, all of as many columns; may be
                empty.
        """
        wanted = set(prefixes)
        width = len(prefixes[0]) if prefixes else 0
        for key, row in self.items() if wanted else ():
            if key[:width] in wanted:
                yield key, row


def in_range(value: Any, above: Any, up_to: Any) -> bool:
    """Return whether a value is above the one and at most the other; NULL is in no range."""
    if value is None:
        return False
    return (above is None or value > above) and (up_to is None or value <= up_to)


def _unmarked(step: str) -> None:
    """Do nothing."""


class StateBackend(ABC):
    """One state in an atomic store.

    Delivery: exactly once, also after the loss of driver, store or connection, and fenced against
    a deposed coordinator.

    Who calls it, in which process: the driver. If committers run in Spark tasks, each task opens a
    backend of its own and calls :meth:`snapshot` and :meth:`close` only. Readers outside a topology
    call :meth:`stored`, :meth:`snapshot` and :meth:`close`.

    How often: :meth:`create` and :meth:`claim` once for each coordinator that becomes leader,
    :meth:`commit` once for each attempt of a txid, :meth:`snapshot` once for each committer and
    attempt that reads, and once after each claim.

    In which thread: any. Calls may overlap. A commit that took too long is given up and tried again
    while the first call is still under way, and snapshots stay open meanwhile. Either commit may
    get through first: the ledger, read and written in the same store transaction, refuses the one
    that may not write any more.

    What must be picklable: the factory, which travels to Spark tasks. A backend need not be.

    What must be durable: whatever :meth:`claim` and :meth:`commit` wrote, when they return.

    Not guaranteed: that :meth:`close` is called, since the process may be killed; that a call is
    made after one that failed; that only one process has opened the state.

    How to prove it: subclass ``txtopo.testing.conformance.StateBackendSuite``.
    """

    modes: frozenset[StateMode] = frozenset({"table"})
    """The modes that the store supports. A state of another mode is refused when it is opened."""

    existing_tables: bool = False
    """Whether a state may live in a table that a user made, with rows from before the first txid.
    :meth:`create` then checks the table. If False, such a state is refused when it is opened."""

    groups: bool = False
    """Whether :meth:`commit` takes a :class:`~txtopo.attempt.GroupAttempt`. If one state of a
    topology does not, the topology commits its batches one by one."""

    evolves: bool = False
    """Whether :meth:`claim` can change the value columns of a table that has rows, as
    :mod:`txtopo.state.evolution` says. If False, such a state is refused."""

    shared_by_processes: bool = True
    """Whether other processes that open the same URL see the same state."""

    point: Callable[[str], None] = staticmethod(_unmarked)
    """Marks a step of a commit, for tests that crash processes there. Does nothing by default.

    The runtime sets it after opening, and marks ``begin.before`` and ``write.after`` around
    :meth:`commit`. :meth:`commit` calls it with ``begin.after`` and ``rows.before`` once the ledger
    has let the attempt in, with ``rows.after`` when the rows are written, and with ``write.before``
    when nothing is left but to make it durable. A plug-in need not call it.
    """

    claimant: Claim | None = None
    """The claim under which this object writes. :meth:`claim` sets it before it writes, and
    :meth:`commit` passes it to :func:`txtopo.state.ledger.standing`."""

    def connect(self) -> None:  # noqa: B027 - a hook
        """Connect, and write nothing. The default does nothing.

        A start may call it before :meth:`create`, on another thread, while it opens the rest.

        Raises:
            StoreUnavailable: Try again later.
        """

    @abstractmethod
    def create(self) -> None:
        """Make the tables that are missing and check those that exist.

        With :attr:`evolves` it leaves a table as it is whose value columns the next claim may
        change.

        Raises:
            SchemaDrift: A table has other columns than the state declares.
            StoreUnavailable: Try again later.
        """

    @abstractmethod
    def claim(self, claim: Claim) -> Ledger:
        """Write owner, epoch and ensemble into the ledger, as ``ledger.claimed`` computes it.

        Read and write the ledger in one store transaction. Store every field of it, also those that
        the backend has no use for: the runtime reads the ledger back after a claim and compares.
        With :attr:`evolves` change the columns of the table, too, if it is to be changed, after the
        ledger or together with it.

        Returns:
            The ledger after the claim.

        Raises:
            PromiseError: Raised by :func:`txtopo.state.ledger.claimed`; nothing was written.
            SchemaDrift: The table is to be changed, but the claim does not say that it may be.
            StoreUnavailable: Try again later.
        """

    @abstractmethod
    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        """Apply the writes of an attempt and set the ledger, in one store transaction.

        Args:
            attempt: The attempt at a txid; with :attr:`groups` also a ``GroupAttempt``.
            writes: Its writes; those of a group are merged.

        Returns:
            The ledger after the commit.

        Raises:
            PromiseError: Raised by :func:`txtopo.state.ledger.standing`; nothing was written.
            ValueRefusedError: A value cannot be stored exactly; nothing was written.
            StoreUnavailable: Nothing was written; try again.
            UnknownOutcomeError: The connection was lost during the write; read the ledger.
        """

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open a consistent snapshot of the state. It must not delay commits."""

    def expire(self, up_to: Any, before_txid: int) -> int:
        """Delete rows that no later txid needs, in a store transaction that checks the ledger.

        Who calls it: the runtime, beside the commits, on a thread of its own, in the object that
        has claimed the state; again and again, while it returns more than 0. So it deletes few rows
        at a time, if a commit has to wait for it. The ledger, and what a commit would undo, stay as
        they are. The default deletes nothing: such rows stay.

        Args:
            up_to: The largest value of the column ``StateTable.range_by`` of such a row.
            before_txid: Only rows that an earlier txid has written are deleted. A store asks
                :func:`txtopo.state.ledger.expiring` for the txid that counts: rows of the last txid
                or group of the ledger stay in any case, since it may be undone.

        Returns:
            The number of rows that were deleted; 0 if there are no more.

        Raises:
            PromiseError: Raised by :func:`txtopo.state.ledger.expiring`; nothing was deleted.
            StoreUnavailable: Nothing was deleted, or nobody knows; it is called again later.
        """
        return 0

    def snapshot_of(self, txid: int) -> AbstractContextManager[Snapshot]:
        """Open the state as it was after *txid*, in its last version, if the store keeps history.

        Raises:
            StateUsageError: The store keeps no history, or none of that age, or *txid* is within a
                group, whose ends the message names.
        """
        raise StateUsageError(
            f"{type(self).__name__} keeps no history; got txid={txid}; expected a reader without "
            "txid, or a state in Delta"
        )

    def stored(self) -> tuple[StateTable, ...] | None:
        """Return the states that the store holds, or None if it does not know their columns.

        A reader uses it to read a state without its declaration.
        """
        return None

    def size(self) -> StateSize:
        """Return how large the state is, if the store knows that without reading its rows.

        A reader calls it to show it. The default knows nothing.

        Raises:
            StoreUnavailable: Try again later.
        """
        return StateSize()

    @abstractmethod
    def close(self) -> None:
        """Release connections. A second call does nothing."""


BackendFactory = Callable[[str, StateTable], StateBackend]
"""A function (URL, table) -> backend. Entry points of ``txtopo.state_backends`` name one."""
