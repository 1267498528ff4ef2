"""The contract of a state backend: what a store must do for exactly-once state.

Rules
-----
1. A write happens in one store transaction that reads the ledger, asks
   :func:`txtopo.state.ledger.standing`, and writes ledger and rows together or not at all.
2. *Undo before redo.* In an opaque state and :attr:`~txtopo.state.ledger.Standing.REDO`, every row
   tagged with the txid is first restored to what it was before that txid, or removed if it did not
   exist. Then the writes are applied.
3. A transactional state in :attr:`~txtopo.state.ledger.Standing.REDO` keeps its rows, and its
   ledger names the new writer: the same txid always brings the same batch.
4. Only the first write of a key in a txid moves its value to ``previous``. A commit brings one
   final write per key, so a backend never sees a second one.
5. A delete leaves a tombstone, which readers do not see, so that it can be undone. The next commit
   removes the tombstones of earlier txids. A state without value columns keeps keys alone; undo and
   tombstones need nothing but the txids then.
6. :meth:`StateBackend.commit` makes and changes no table.
7. A group of txids, a :class:`~txtopo.attempt.GroupAttempt`, is written like one txid, its last:
   the last txid tags the rows, and ``previous`` is what they were before the group. A backend that
   never uses ``txid - 1``, and passes the attempt unchanged to ``standing`` and ``written_by``,
   needs to do nothing else, and sets :attr:`StateBackend.groups`.
8. The ledger names a row of the last change, its *witness*, and a start checks that the row is
   there. So a table that was restored without its ledger is noticed.
9. States of one database may share a transaction. :meth:`StateBackend.commit_together` locks the
   ledger of each, in the same order in every process, and asks ``standing`` for each: one may hold
   the attempt that another does not. Then it writes the rows and ledgers of all, or of none.
10. A store with transactions may execute statements of users in the transaction that writes the
   rows, as :mod:`txtopo.state.statements` says. One that does not refuses them before a commit.
11. A copy of what another state held, a :class:`~txtopo.attempt.CopyAttempt`, is written like txid
   0, and its ledger names the copied txid without a writer. A backend that passes the attempt
   unchanged to ``standing`` and ``written_by``, and tags the rows with its txid, needs to do
   nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from txtopo.attempt import TransactionAttempt
from txtopo.errors import StateUsageError, TopologyError
from txtopo.state.aggregates import Aggregate
from txtopo.state.column_rows import ColumnRows
from txtopo.state.columns import rows_of
from txtopo.state.ledger import Claim, Ledger
from txtopo.state.statements import Statement
from txtopo.state.values import Row
from txtopo.tuples import Field, Fields

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
"""One value per value field. It is a tuple even for one field, and empty if there is none."""
RANGE_TYPES = ("timestamp", "timestamp_ntz", "long", "int", "short", "byte")
"""The types of a column by which a state is read in ranges."""


@dataclass(frozen=True, slots=True)
class StateTable:
    """The schema of a state.

    Attributes:
        name: Name of its table.
        kind: ``"opaque"`` or ``"transactional"``.
        key: The key columns, at least one.
        value: The value columns; none for a state that keeps keys alone.
        aggregates: The aggregate of each value column, if a ``PersistentAggregate`` writes the
            state; else empty.
        mode: ``"table"`` or ``"log"``.
        origin: Where its table comes from: ``"made"``, ``"found"`` or ``"extended"``.
        range_by: The column, a timestamp or a whole number, by which committers read ranges and by
            which rows expire; None for none. It does not change what is stored. A database creates
            an index on it, unless it is the first key column.
        defaults: What an existing row gets in a value column that is added: pairs of name and
            value. A store does not keep them.
        prunable: Whether a user may delete rows, such as dead letters that are dealt with. A store
            does not keep it.
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
            raise TopologyError(f"bad name of a state's table; got {self.name!r}", state=self.name)
        for part, fields in (("key", self.key), ("value", self.value)):
            if not isinstance(fields, Fields) or (part == "key" and not len(fields)):
                raise TopologyError(
                    f"state {self.name!r} has no {part} columns; got {fields!r}; "
                    f"write e.g. {part}=Fields('{part} long')",
                    state=self.name,
                    setting=part,
                    got=repr(fields),
                )
        names = [*self.key.names, *self.value.names]
        for name in names:
            if names.count(name) > 1:
                raise TopologyError(
                    f"state {self.name!r} has two columns {name!r}; rename the key or the value",
                    state=self.name,
                    column=name,
                )
            if name.lower() in BOOKKEEPING or name.lower().startswith("prev_"):
                raise TopologyError(
                    f"state {self.name!r} has a column {name!r}, a name reserved for bookkeeping "
                    f"({', '.join(BOOKKEEPING)}, prev_…); rename it",
                    state=self.name,
                    column=name,
                )
        for column in self.key:
            if column.type == "json":
                raise TopologyError(
                    f"state {self.name!r} has a key column {column.name!r} of type json, in which "
                    "equal values can be written differently; expected another type, e.g. string",
                    state=self.name,
                    column=column.name,
                )
        if self.aggregates and len(self.aggregates) != len(self.value):
            raise TopologyError(
                f"state {self.name!r} has {len(self.value)} value columns and "
                f"{len(self.aggregates)} aggregates; expected one for each column",
                state=self.name,
                got=len(self.aggregates),
                expected=len(self.value),
            )
        for column, aggregate in zip(self.value, self.aggregates, strict=False):
            if self.mode == "log" and aggregate.operator is None:
                raise TopologyError(
                    f"state {self.name!r} cannot keep {type(aggregate).__name__} in column "
                    f"{column.name!r} in mode 'log', whose rows are combined by a GROUP BY, with "
                    "sums, smallest and largest values; this aggregate combines in Python; use "
                    "open_state(…, mode='table')",
                    state=self.name,
                    column=column.name,
                    got=type(aggregate).__name__,
                )
        if self.mode == "log" and not len(self.value):
            raise TopologyError(
                f"state {self.name!r} keeps only keys and cannot be a log; got mode='log', which "
                "is for aggregates; expected mode='table'",
                state=self.name,
                setting="mode",
                got=self.mode,
                expected="table",
            )
        if self.mode == "log" and self.origin != "made":
            raise TopologyError(
                f"state {self.name!r} cannot keep a log in a table that already exists; got "
                "mode='log', which has several rows for a key; expected mode='table'",
                state=self.name,
                setting="mode",
                got=self.mode,
                expected="table",
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
                f"{', '.join(RANGE_TYPES)} in mode 'table'",
                state=self.name,
                column=column,
                got=got,
                expected=RANGE_TYPES,
            )

    def column_of(self, key: Key, values: Values, column: str) -> Any:
        """Return the value of a row in a key or value column."""
        if column in self.key.index:
            return key[self.key.index[column]]
        return values[self.value.index[column]]


@dataclass(frozen=True, slots=True)
class StateSize:
    """An estimate of the size of a state, as far as its store has one without reading the rows.

    Attributes:
        rows: Number of its rows, with tombstones, and in mode ``"log"`` with every row of the log;
            None if it is not known.
        bytes: Bytes that it takes in its store; None if they are not known.
    """

    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Database:
    """The database that a backend writes to, and the kind of its session there.

    It is a hint: a copy of a database has the same identity. So states share a transaction only if
    one connection also reads what the claim of each has just written
    (:mod:`txtopo.state.together`).

    Attributes:
        identity: What tells the database from others, such as the system identifier of a server and
            the name of a database in it; not its URL, of which it may have several.
        session: What else must be equal for one connection to write for both states, such as the
            user and the options of the URL; without secrets.
    """

    identity: tuple[str, ...]
    session: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Puts:
    """Final values by key. ``None`` deletes the key. May be empty.

    Attributes:
        rows: The values.
        expires: The bound that was given to :meth:`txtopo.state.StateTransaction.expire`; None for
            none. It is for the runtime: a commit does not delete anything because of it.
        statements: The statements of users, in the order in which they are executed; none in a
            store that refuses them (:meth:`StateBackend.check_statement`).
        repeats: Whether a redo has the same batch, so that the statements of an earlier attempt
            stay as they are. If not, they are taken back.
    """

    rows: Mapping[Key, Values | None]
    expires: Any = None
    statements: tuple[Statement, ...] = ()
    repeats: bool = False

    @property
    def columns(self) -> pa.Table | None:
        """The rows as a table, sorted by key, with the key columns before the value columns.

        If a key is deleted, the last column is ``deleted``, a boolean. None if the committer gave
        Python values. A store may write the table instead of ``rows``, which have the same content,
        and are created only when they are read.
        """
        return self.rows.table if isinstance(self.rows, ColumnRows) else None

    @property
    def deletes(self) -> bool:
        """Whether a key is deleted."""
        if isinstance(self.rows, ColumnRows):
            return self.rows.deletes
        return None in self.rows.values()


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
            written during a read may be of later txids than the ledger.
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
        """Return why the rows do not match the ledger, if the store can tell; None if they do.

        A claim calls it. The default returns None, since a witness in the ledger is checked
        instead. A store overrides it if its tables have a history that shows who changed them.
        """
        return None

    def missing_undo(self) -> str | None:
        """Return why the last txid, or the last group, cannot be taken back; None if it can.

        The verbs of operators ask, before they write. The default returns None: rows of an opaque
        state can be taken back. A store that executes statements looks for one without an undo.
        """
        return None

    def last_txid(self) -> int:
        """Return the largest txid of a row; 0 for none.

        A claim calls it in mode ``"log"``. The default reads every row of the state. A store
        with an index overrides it.
        """
        return max((row.txid for _, row in self.items()), default=0)

    def between(
        self, table: StateTable, above: Any, up_to: Any, txid: int
    ) -> Iterator[tuple[Key, Row]]:
        """Yield the rows in a range of the column ``StateTable.range_by``, in any order.

        It may yield other rows as well, since the caller checks each one. The default reads every
        row of the state. A store with an index overrides it.

        Args:
            table: The schema of the state.
            above: The lower end, exclusive; None for no lower end.
            up_to: The upper end, inclusive; None for no upper end.
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

    def columns(self, table: StateTable, keys: pa.Table) -> pa.Table:
        """Return the rows with some keys as columns: key, value, and ``txid``, which wrote the row.

        A committer calls it if the ledger holds no txid of its own, so that what a reader sees is
        what the txid before has left. The order is arbitrary, and tombstones are left out. The
        default calls :meth:`rows`. A store that sends columns overrides it.

        Args:
            table: The schema of the state.
            keys: Distinct keys, in the key columns; may be empty.
        """
        return columns_of(table, self.rows(list(rows_of(keys))).items())

    def columns_between(self, table: StateTable, above: Any, up_to: Any, txid: int) -> pa.Table:
        """Return the rows in a range as :meth:`columns` does; the default calls :meth:`between`.

        It may return other rows as well, as :meth:`between` may.
        """
        return columns_of(table, self.between(table, above, up_to, txid))

    def columns_starting(self, table: StateTable, prefixes: pa.Table) -> pa.Table:
        """Return the rows whose key begins with a prefix, as :meth:`columns` does.

        The default calls :meth:`starting`.
        """
        return columns_of(table, self.starting(list(rows_of(prefixes))))

    def starting(self, prefixes: Sequence[Key]) -> Iterator[tuple[Key, Row]]:
        """Yield the rows whose key begins with one of some prefixes, tombstones included.

        The order is arbitrary. The default reads every row of the state. A store whose table is
        sorted by key overrides it.

        Args:
            prefixes: Distinct values of the first key columns, all with the same number of columns;
                may be empty.
        """
        wanted = set(prefixes)
        width = len(prefixes[0]) if prefixes else 0
        for key, row in self.items() if wanted else ():
            if key[:width] in wanted:
                yield key, row


def columns_of(table: StateTable, rows: Iterable[tuple[Key, Row]]) -> pa.Table:
    """Return rows as columns: key, value, and ``txid``, which wrote the row; no tombstones."""
    import pyarrow as pa

    kept = [(*key, *row.current, row.txid) for key, row in rows if not row.deleted]
    schema = column_schema(table)
    columns = zip(*kept, strict=True) if kept else [()] * len(schema)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.table(arrays, schema=schema)


def column_schema(table: StateTable) -> pa.Schema:
    """Return the columns that :meth:`Snapshot.columns` returns."""
    return Fields.of([*table.key, *table.value, Field(BOOKKEEPING[0], "long")]).arrow_schema()


def in_range(value: Any, above: Any, up_to: Any) -> bool:
    """Return whether a value is above the lower end and at most the upper; NULL never is."""
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
    :meth:`commit` once for each attempt of a txid, or :meth:`commit_together` of the first of the
    states that share a transaction, :meth:`snapshot` once for each committer and attempt that
    reads, and once after each claim.

    In which thread: any. Calls may overlap. A commit that took too long is abandoned and tried
    again while the first call is still running, and snapshots stay open meanwhile. Either commit
    may finish first: the ledger, read and written in the same store transaction, refuses the one
    that may no longer write.

    What must be picklable: the factory, which travels to Spark tasks. A backend need not be.

    What must be durable: whatever :meth:`claim`, :meth:`commit` and :meth:`commit_together` wrote,
    when they return.

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

    more_with: str = ""
    """What makes the store do what these attributes deny, such as the command that installs a
    package; refusals name it. Empty if nothing does."""

    shared_by_processes: bool = True
    """Whether other processes that open the same URL see the same state."""

    point: Callable[[str], None] = staticmethod(_unmarked)
    """Marks a step of a commit, for tests that crash processes there. Does nothing by default.

    The runtime sets it after opening, and marks ``begin.before`` and ``write.after`` around
    :meth:`commit`, or around :meth:`commit_together` for each of its states. Both call it with
    ``begin.after`` and ``rows.before`` once the ledger has admitted the attempt, with
    ``rows.after`` when the rows are written, and with ``write.before`` when only making the write
    durable is left. A plug-in need not call it.
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

        With :attr:`evolves` it does not touch a table whose value columns the next claim may
        change.

        Raises:
            SchemaDrift: A table has other columns than the state declares.
            StoreUnavailable: Try again later.
        """

    @abstractmethod
    def claim(self, claim: Claim) -> Ledger:
        """Write owner, epoch and ensemble into the ledger, as ``ledger.claimed`` computes it.

        Read and write the ledger in one store transaction. Store every field of it, including those
        that the backend does not use: after a claim the runtime reads the ledger back and compares.
        With :attr:`evolves`, also change the columns of the table if needed, after the ledger or
        together with it.

        Returns:
            The ledger after the claim.

        Raises:
            PromiseError: Raised by :func:`txtopo.state.ledger.claimed`; nothing was written.
            SchemaDrift: The table would have to be changed, but the claim does not allow it.
            StoreUnavailable: Try again later.
        """

    def check_statement(self, statement: Statement) -> None:
        """Check a statement of a user, as far as that is possible without executing it.

        Who calls it: the transaction of a committer, in the driver or in a Spark task, at each
        ``execute``. The default refuses every statement.

        Raises:
            StateUsageError: It is refused; repair the committer.
        """
        raise StateUsageError(
            f"{type(self).__name__} cannot execute statements; got "
            f"{str(statement.statement)!r:.200}; expected a state in a SQL database",
            name=type(self).__name__,
            got=f"{str(statement.statement)!r:.200}",
        )

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
            StatementFailed: The store refuses a statement of a user; nothing was written.
            StoreUnavailable: Nothing was written; try again.
            UnknownOutcomeError: The connection was lost during the write; read the ledger.
        """

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open a consistent snapshot of the state. It must not delay commits."""

    def database(self) -> Database | None:
        """Return the database of the state, if its states can share a transaction.

        A store that returns one has :meth:`commit_together` and :meth:`snapshots` as well. The
        default returns None: each state is a transaction of its own.

        Who calls it: the runtime and the verbs of operators, once after each claim.

        Raises:
            StoreUnavailable: Try again later.
        """
        return None

    def commit_together(
        self, attempt: TransactionAttempt, writes: Sequence[tuple[StateBackend, Writes]]
    ) -> list[Ledger]:
        """Apply the writes of an attempt to several states, all in one store transaction.

        Args:
            attempt: As for :meth:`commit`.
            writes: The states and their writes. This one is the first; all have an equal
                :meth:`database`. This one's connection is used for all of them.

        Returns:
            The ledger of each after the commit.

        Raises:
            TxtopoError: As :meth:`commit`; nothing was written to any of them, unless the outcome
                is unknown.
        """
        raise NotImplementedError(f"{type(self).__name__} has a database and no commit_together")

    def snapshots(
        self, backends: Sequence[StateBackend]
    ) -> AbstractContextManager[Sequence[Snapshot]]:
        """Open snapshots of several states, all of the same instant, through this connection.

        Args:
            backends: The states. This one is the first; all have an equal :meth:`database`.
        """
        raise NotImplementedError(f"{type(self).__name__} has a database and no snapshots")

    @property
    def deletes_expired(self) -> bool:
        """Whether the store deletes rows that expire, which is whether it has an :meth:`expire`.

        If not, a start refuses a topology with ``expire_after`` in the store: its results would be
        right, but its state would grow forever.
        """
        return type(self).expire is not StateBackend.expire

    def expire(self, up_to: Any, before_txid: int) -> int:
        """Delete rows that no later txid needs, in a store transaction that checks the ledger.

        Who calls it: the runtime, on a thread of its own, while commits continue, on the object
        that has claimed the state; again and again, while it returns more than 0. So if commits
        have to wait for it, it deletes only a few rows at a time. The ledger, and what a commit
        would undo, stay the same. The default deletes nothing.

        Args:
            up_to: The largest value of the column ``StateTable.range_by`` of such a row.
            before_txid: Only rows that an earlier txid wrote are deleted. The bound that applies is
                what :func:`txtopo.state.ledger.expiring` returns for it: rows of the last txid or
                group of the ledger always stay, since it may be undone.

        Returns:
            The number of rows that were deleted; 0 if there are no more.

        Raises:
            PromiseError: Raised by :func:`txtopo.state.ledger.expiring`; nothing was deleted.
            StoreUnavailable: Nothing was deleted, or the outcome is unknown; it is called again
                later.
        """
        return 0

    def snapshot_of(self, txid: int) -> AbstractContextManager[Snapshot]:
        """Open the state as it was after *txid*, in its last version, if the store keeps history.

        Raises:
            StateUsageError: The store keeps no history, or none that old, or *txid* is within a
                group, whose ends the message names.
        """
        raise StateUsageError(
            f"{type(self).__name__} keeps no history; got txid={txid}; expected a reader without "
            "txid, or a state in Delta",
            name=type(self).__name__,
            txid=txid,
        )

    def stored(self) -> tuple[StateTable, ...] | None:
        """Return the states that the store holds, or None if it does not record their columns.

        A reader uses it to read a state without its declaration.
        """
        return None

    def size(self) -> StateSize:
        """Return the size of the state, if the store has it without reading the rows.

        A reader calls it to show the size. The default returns unknown sizes.

        Raises:
            StoreUnavailable: Try again later.
        """
        return StateSize()

    def sql(self) -> str | None:
        """Return a query for the rows as readers see them; None if SQL cannot read the store.

        A reader calls it to show it to a person. The default returns None.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Release connections. A second call does nothing."""


def held_ledger(backend: StateBackend) -> Ledger | None:
    """Read the ledger of a state; None if nobody has claimed it.

    Raises:
        StoreUnavailable: Try again later.
    """
    with backend.snapshot() as snapshot:
        return snapshot.ledger


BackendFactory = Callable[[str, StateTable], StateBackend]
"""A function (URL, table) -> backend. Entry points of ``txtopo.state_backends`` name one."""
