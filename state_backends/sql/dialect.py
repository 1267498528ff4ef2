"""SqlDialect: what differs between databases; and the tables that they have in common.

The protocol is in ``backend.py``. A state has a table of rows and a view; all states of a database
share the table of the ledgers.
"""

from __future__ import annotations

import decimal
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.sql.compiler import DDLCompiler
from sqlalchemy.types import TypeEngine

from state_backends.sql.names import LEDGER, SqlNames, TakenName
from txtopo.errors import SchemaVersionError
from txtopo.plugins.stores import (
    LEDGER_SCHEMA,
    Database,
    Field,
    Key,
    Ledger,
    StateMode,
    StateSize,
    StateTable,
    Writes,
)

_COLLATED = re.compile(r" (COLLATE|CHARACTER SET|CHARSET) .*", re.IGNORECASE)


class SqlDialect(ABC):
    """One state in one kind of database: the parts that differ between databases.

    Attributes:
        state: The state.
        columns: Its table.
        ledger: The ledger table.
        names: The names of the objects of the state.
    """

    state: StateTable
    columns: StateColumns
    ledger: sa.Table
    names: SqlNames

    modes: frozenset[StateMode] = frozenset({"table"})
    """The modes that it supports."""

    pages: bool = False
    """Whether a long read must be split into pages, since the driver cannot execute another
    statement while it reads a result."""

    fetches: bool = False
    """Whether a long read is fetched into memory at once, since a page would cost just as much."""

    keys_at_once: int = 200
    """How many keys or prefixes a statement reads. SQLite accepts 32,766 parameters, old versions
    999, and a state may have several key columns."""

    connects_ahead: bool = True
    """Whether a connection that is prepared for writes has written nothing yet."""

    driver_errors: tuple[type[Exception], ...] = ()
    """The exceptions of the driver, where it is used without SQLAlchemy."""

    @property
    def redone(self) -> bool:
        """Whether a redo undoes the rows of its txid; a transactional state keeps them."""
        return self.columns.opaque

    @staticmethod  # noqa: B027 - a hook
    def check(state: StateTable) -> None:
        """Check that a database of this kind can keep a state. The default does nothing.

        Raises:
            TopologyError: It cannot; the message names another store.
        """

    @staticmethod  # noqa: B027 - a hook
    def check_names(state: StateTable) -> None:
        """Check that a database of this kind accepts the names of a state. The default accepts all.

        Raises:
            TopologyError: It does not; rename what the message names.
        """

    @staticmethod
    @abstractmethod
    def names_of(state: StateTable) -> SqlNames:
        """Return the names of a state's objects in a database of this kind."""

    @abstractmethod
    def taken(self, connection: sa.Connection, names: Sequence[str]) -> list[TakenName]:
        """Return the objects in the database with these names, or with names that clash."""

    def fold(self, connection: sa.Connection) -> Callable[[str], str]:
        """Return the function that folds names that the database does not distinguish."""
        return str

    def same_column(self, name: str, other: str) -> bool:
        """Return whether two names of columns are the same for the database."""
        return name == other

    def missing(self) -> bool:
        """Return whether there is no database yet, so that a read would create an empty one."""
        return False

    @abstractmethod
    def engine(self) -> sa.Engine:
        """Create the engine."""

    @abstractmethod
    def prepare(self, connection: sa.Connection) -> None:
        """Prepare a connection for its first write, outside the transaction of a txid."""

    def check_place(self, connection: sa.Connection) -> None:  # noqa: B027 - a hook
        """Check that a connection writes to the database that others find at its URL.

        The default does nothing: only a file can be removed or replaced while it is open.

        Raises:
            StoreDamagedError: It was removed or replaced.
        """

    @abstractmethod
    def create(self, connection: sa.Connection) -> None:
        """Create the missing objects of the state other than its table."""

    @abstractmethod
    def creating(self, connection: sa.Connection) -> AbstractContextManager[None]:
        """Return a context in which nobody else creates states; the transaction may end in it."""

    def listing(self) -> sa.Table | None:
        """Return the table with the keys of the last txid, which an undo needs, or None."""
        return None

    def type_name(self, kind: TypeEngine[Any], connection: sa.Connection) -> str:
        """Return the name of a column type, without its collation."""
        return _COLLATED.sub("", kind.compile(connection.dialect))

    def same_type(self, wanted: str, found: str) -> bool:
        """Return whether a user's column of the type *found* can be used for *wanted*."""
        return wanted == found

    @abstractmethod
    def flaw(self, connection: sa.Connection) -> str | None:
        """Return why the existing table cannot be used, apart from its columns, or None."""

    def shown(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Return the expression that the view has for a column, under the column's name."""
        return column

    @abstractmethod
    def write_options(self) -> dict[str, Any]:
        """Return the execution options of a transaction that writes."""

    def idle_limit_s(self, connection: sa.Connection) -> float | None:
        """Return for how long a transaction that writes may pause, unless it is given longer.

        Beyond that the server ends it. The default returns None: the server waits.
        """
        return None

    def limit_idle(self, connection: sa.Connection, limit_s: float) -> None:  # noqa: B027 - a hook
        """Give the transaction of a connection this limit, at its beginning, unless it has it."""

    def ended_idle(
        self, error: BaseException | None, info: Mapping[Any, Any], limit_s: float
    ) -> bool:
        """Return whether the server has ended a transaction, since it paused for too long.

        Args:
            error: The error of the database.
            info: What was kept about the connection, which is closed now.
            limit_s: The limit.
        """
        return False

    @abstractmethod
    def read_options(self) -> dict[str, Any]:
        """Return the execution options of a transaction that reads."""

    @abstractmethod
    def begin_reading(self, connection: sa.Connection) -> None:
        """Prepare a transaction for a read that may take long."""

    @abstractmethod
    def read_only(
        self, connection: sa.Connection, statement: str, timeout_s: float
    ) -> AbstractContextManager[None]:
        """Return a context in which a user's statement changes nothing, and is stopped in time.

        Raises:
            StateUsageError: The statement would change something outside the transaction.
        """

    @abstractmethod
    def database(self, connection: sa.Connection) -> Database:
        """Return which database a connection leads to, as which user, and with which options."""

    @abstractmethod
    def size(self, connection: sa.Connection) -> StateSize:
        """Return the size of the state's table, as far as the database knows it."""

    @abstractmethod
    def undo(self, connection: sa.Connection, txid: int) -> None:
        """Undo every row that *txid* wrote."""

    @abstractmethod
    def apply(self, connection: sa.Connection, txid: int, writes: Writes) -> None:
        """Write the rows of *txid*. Beforehand no row has this txid, and no tombstone is left."""

    def only_sends(self, writes: Writes) -> bool:
        """Return whether :meth:`apply` needs no answer of the database to write these rows."""
        return False

    def sending(self, connection: sa.Connection, count: int) -> AbstractContextManager[None]:
        """Return a context in which *count* states are written without waiting for answers.

        An error may be raised at its end, for any of them. The default waits for each.
        """
        return nullcontext()

    def purge(self, connection: sa.Connection) -> None:
        """Delete the tombstones of earlier txids."""
        connection.execute(sa.delete(self.columns.table).where(self.columns.deleted))

    def selected(self) -> sa.Select[Any]:
        """Return the query for rows: key, value, txid, then the rest of an opaque row."""
        columns = self.columns
        extra: list[sa.Column[Any]] = []
        if columns.opaque:
            extra = [columns.prev_txid, columns.deleted]
        own = [*columns.keys, *columns.values, columns.txid]
        return sa.select(*own, *columns.previous, *extra)

    def after_commit(self, engine: sa.Engine, txid: int) -> None:  # noqa: B027 - a hook
        """Called after a commit of *txid*, to start a fold. The default does nothing."""

    def close(self) -> None:  # noqa: B027 - a hook
        """Wait for background work. The default does nothing."""

    def encoded(self, fields: Sequence[Field], rows: Sequence[Key]) -> Sequence[Key]:
        """Return rows of these fields, such as keys, as parameters of a query."""
        return rows

    def starting(self, prefixes: Sequence[Key]) -> sa.Select[Any]:
        """Return the query for rows whose key begins with one of some encoded prefixes."""
        columns = self.columns.keys[: len(prefixes[0])]
        if len(columns) == 1:
            # An explicit name: SQLAlchemy would use the name of the column, which may be unusual.
            values = sa.bindparam(
                "prefixes", [prefix[0] for prefix in prefixes], columns[0].type, expanding=True
            )
            return self.selected().where(columns[0].in_(values))
        return self.selected().where(sa.tuple_(*columns).in_(prefixes))

    def read_columns(
        self, connection: sa.Connection, wanted: sa.ColumnElement[bool] | pa.Table
    ) -> pa.Table | None:
        """Return rows as ``Snapshot.columns`` does; None if the database does not send columns.

        Args:
            connection: A connection in the transaction of a snapshot.
            wanted: The condition of the rows; or beginnings of keys, as columns.
        """
        return None

    @property
    def range_column(self) -> sa.Column[Any]:
        """The column by which the state is read in ranges."""
        assert self.state.range_by is not None
        return self.columns.table.c[self.state.range_by]

    def in_range(self, above: Any, up_to: Any) -> sa.ColumnElement[bool]:
        """Return the condition that the range column is above one end and up to the other."""
        fields, column = (*self.state.key, *self.state.value), self.range_column
        ends = [each for each in fields if each.name == self.state.range_by]
        found: list[sa.ColumnElement[bool]] = [column.is_not(None)]
        for end, compare in ((above, column.__gt__), (up_to, column.__le__)):
            if end is not None:
                ((value,),) = self.encoded(ends, [(end,)])
                found.append(compare(value))
        return sa.and_(*found)

    def expire(self, connection: sa.Connection, wanted: sa.ColumnElement[bool], limit: int) -> int:
        """Delete some of the matching rows, and return how many."""
        table, keys = self.columns.table, self.columns.keys
        # In the order of its index, which is then used whatever the statistics of the table are.
        some = sa.select(*keys).where(wanted).order_by(self.range_column).limit(limit)
        one = keys[0] if len(keys) == 1 else sa.tuple_(*keys)
        return connection.execute(sa.delete(table).where(one.in_(some))).rowcount

    def stored_value(self, field: Field, value: Any) -> Any:
        """Return a value as a parameter for its column."""
        return value

    def parameter(self, value: Any) -> Any:
        """Return a plain value as a parameter of a user's statement."""
        return value

    def decoded(self, kind: str, column: Sequence[Any]) -> Sequence[Any]:
        """Convert a column read from the database to Python values of this field type."""
        return column


def url_options(url: sa.URL) -> tuple[str, ...]:
    """Return the options of a URL without passwords, sorted, as they are compared."""
    options = sorted(url.query.items())
    return tuple(f"{name}={value}" for name, value in options if "password" not in name)


def encoded_column(
    field: Field, column: list[Any], encode: Mapping[str, Callable[[Any], Any]]
) -> list[Any]:
    """Return a column as the database stores it, by the function in *encode* for its type."""
    change = encode.get(field.type.partition("(")[0])
    if change is None:
        return column
    return [None if value is None else change(value) for value in column]


def decimal_text(value: decimal.Decimal) -> str:
    """Return a decimal as text; -0 and 0 are one key, so zero has no sign."""
    return format(abs(value) if value.is_zero() else value, "f")


def undo_statements(
    columns: StateColumns, txid: int, touched: sa.ColumnElement[bool] | None = None
) -> list[sa.Executable]:
    """Return the statements that restore the rows of *txid* to what they were before it."""
    table = columns.table
    tagged = columns.txid == txid
    if touched is not None:
        tagged = sa.and_(tagged, touched)
    restored: dict[Any, Any] = dict(zip(columns.values, columns.previous, strict=True))
    origin: sa.ColumnElement[Any] = columns.prev_txid
    if columns.txid.nullable:
        # 0 stands for a row of a user's own table from before the first txid.
        origin = sa.func.nullif(columns.prev_txid, sa.literal_column("0"))
    restored |= {columns.txid: origin, columns.deleted: False}
    return [
        sa.delete(table).where(tagged, columns.prev_txid.is_(None)),
        sa.update(table).where(tagged, columns.prev_txid.is_not(None)).values(restored),
    ]


_NO = sa.false()


@dataclass(frozen=True, slots=True)
class StateColumns:
    """The table of a state, with its columns by their part.

    Attributes:
        table: The table.
        keys: The key columns.
        values: The value columns.
        previous: The previous values; empty for a transactional state, and for keys alone.
    """

    table: sa.Table
    keys: tuple[sa.Column[Any], ...]
    values: tuple[sa.Column[Any], ...]
    previous: tuple[sa.Column[Any], ...]

    @property
    def opaque(self) -> bool:
        """Whether rows keep their values from before their txid."""
        return "prev_txid" in self.table.c

    @property
    def txid(self) -> sa.Column[int]:
        """The txid that wrote the row."""
        return self.table.c.txid

    @property
    def prev_txid(self) -> sa.Column[int]:
        """The txid that wrote the previous values; NULL if the row did not exist.

        0 stands for the time before the first txid: the row was already in a user's own table.
        """
        return self.table.c.prev_txid

    @property
    def deleted(self) -> sa.Column[bool]:
        """Whether the row is a tombstone."""
        return self.table.c.deleted

    @property
    def bookkeeping(self) -> list[sa.Column[Any]]:
        """The columns that are neither key nor value."""
        own = (*self.keys, *self.values)
        return [column for column in self.table.columns if column not in own]

    def moved_back(self) -> list[tuple[sa.Column[Any], Any]]:
        """Return the assignments, in order, that copy values and txid to their previous columns.

        Empty for a transactional state. A NULL txid is stored as 0: NULL would mean that the row
        did not exist, and an undo would delete it.
        """
        if not self.opaque:
            return []
        kept: list[tuple[sa.Column[Any], Any]] = list(zip(self.previous, self.values, strict=True))
        return [*kept, (self.prev_txid, sa.func.coalesce(self.txid, sa.literal_column("0")))]


def state_columns(
    state: StateTable,
    type_of: Callable[[str], TypeEngine[Any]],
    key_type_of: Callable[[str], TypeEngine[Any]] | None = None,
    **options: Any,
) -> StateColumns:
    """Return the table of a state.

    Args:
        state: The state.
        type_of: Returns the column type of a field type.
        key_type_of: The same for key columns, if they need another type.
        options: Options of the table in SQLAlchemy.
    """
    of_key = key_type_of or type_of
    keys = tuple(
        sa.Column(field.name, of_key(field.type), primary_key=True, autoincrement=False)
        for field in state.key
    )
    values = tuple(sa.Column(field.name, type_of(field.type)) for field in state.value)
    whole, flag = type_of("long"), type_of("boolean")
    previous: tuple[sa.Column[Any], ...] = ()
    # In a user's own table, earlier rows have no txid, and the user may add more of them.
    theirs = state.origin != "made"
    extra = [sa.Column("txid", whole, nullable=theirs)]
    if state.kind == "opaque":
        previous = tuple(
            sa.Column(f"prev_{field.name}", type_of(field.type)) for field in state.value
        )
        extra += [
            *previous,
            sa.Column("prev_txid", whole),
            sa.Column("deleted", flag, nullable=False, server_default=_NO if theirs else None),
        ]
    table = sa.Table(state.name, sa.MetaData(), *keys, *values, *extra, **options)
    return StateColumns(table, keys, values, previous)


def ledger_table(
    type_of: Callable[[str], TypeEngine[Any]],
    key_type_of: Callable[[str], TypeEngine[Any]] | None = None,
    **options: Any,
) -> sa.Table:
    """Return the ledger table: one row for each state of the database."""
    text, whole = type_of("string"), type_of("long")
    name = (key_type_of or type_of)("string")
    return sa.Table(
        LEDGER,
        sa.MetaData(),
        sa.Column("state", name, primary_key=True),
        sa.Column("topology", text),
        sa.Column("epoch", whole, nullable=False),
        sa.Column("txid", whole, nullable=False),
        sa.Column("writer_epoch", whole, nullable=False),
        sa.Column("attempt", whole, nullable=False),
        sa.Column("schema_version", whole, nullable=False),
        sa.Column("declaration", text, nullable=False),
        # Like the topology, NULL until the first claim.
        sa.Column("component", text),
        sa.Column("state_name", text),
        sa.Column("ensemble", text),
        sa.Column("first_txid", whole),
        sa.Column("attempts", text),
        sa.Column("term", text),
        sa.Column("writer_term", text),
        sa.Column("witness", text),
        # What takes back the statements of the last txid or group; NULL for none.
        sa.Column("undos", text),
        **options,
    )


def ledger_row(table: sa.Table, state: str) -> sa.Select[Any]:
    """Return the query for the row of a state."""
    return sa.select(table).where(table.c.state == state)


class LedgerRow:
    """The row of one state in the table of the ledgers. Its statements are built once.

    Args:
        dialect: The state.
    """

    def __init__(self, dialect: SqlDialect) -> None:
        table = dialect.ledger
        self._state = dialect.state.name
        self._locked = ledger_row(table, dialect.state.name).with_for_update()
        values = [column for column in table.c if column.name not in ("state", "declaration")]
        new: dict[Any, Any] = {column: sa.bindparam(f"new_{column.name}") for column in values}
        own = table.c.state == sa.bindparam("own_state")
        self._write = sa.update(table).where(own).values(new)
        # Equal ledgers have equal undos.
        compared = [column for column in values if column.name != "undos"]
        was = [column == sa.bindparam(f"was_{column.name}") for column in compared]
        self._replace = self._write.where(*was)

    def locked(self, connection: sa.Connection) -> sa.Row[Any] | None:
        """Lock the row and return it; None if there is none."""
        return connection.execute(self._locked).first()

    def write(self, connection: sa.Connection, ledger: Ledger, undos: str | None) -> None:
        """Write a ledger, and what takes back the statements of its txid. The row is locked."""
        connection.execute(self._write, self._named("new", ledger) | {"new_undos": undos})

    def replacing(self, held: Ledger, ledger: Ledger, undos: str | None) -> dict[str, Any]:
        """Return the parameters that replace the ledger *held* by another."""
        new = self._named("new", ledger) | {"new_undos": undos}
        return new | self._named("was", held)

    def replace(self, connection: sa.Connection, ledgers: Sequence[dict[str, Any]]) -> int:
        """Lock the rows of one or more states, and replace their ledgers.

        Args:
            connection: A connection in the transaction of the commit.
            ledgers: What ``replacing`` has returned for each state, in the order of the locks.

        Returns:
            How many were replaced; the others are not the ones that were expected.
        """
        return connection.execute(self._replace, ledgers).rowcount

    def _named(self, part: str, ledger: Ledger) -> dict[str, Any]:
        values = {f"{part}_{name}": value for name, value in ledger_values(ledger).items()}
        return {"own_state": self._state, **values}


def ledger_of(row: sa.Row[Any] | None) -> Ledger | None:
    """Return the ledger in a row; None if nobody has claimed the state.

    Raises:
        SchemaVersionError: A newer txtopo wrote it; upgrade this one.
    """
    if row is None:
        return None
    found = row._mapping
    if found["schema_version"] > LEDGER_SCHEMA:
        raise SchemaVersionError(
            f"the ledger of state {found['state']!r} has schema version "
            f"{found['schema_version']}; expected at most {LEDGER_SCHEMA}; a newer txtopo wrote "
            "it; upgrade this installation",
            state=found["state"],
        )
    if found["topology"] is None:
        return None
    return Ledger(
        found["topology"],
        found["epoch"],
        found["txid"],
        found["writer_epoch"],
        found["attempt"],
        component=found["component"],
        state=found["state_name"],
        ensemble=found["ensemble"],
        first_txid=found["first_txid"],
        attempts=json.loads(found["attempts"]),
        term=found["term"],
        writer_term=found["writer_term"],
        witness=found["witness"],
    )


def ledger_values(ledger: Ledger) -> dict[str, Any]:
    """Return a ledger as values of the columns of its row."""
    return {
        "topology": ledger.topology,
        "epoch": ledger.epoch,
        "txid": ledger.txid,
        "writer_epoch": ledger.writer_epoch,
        "attempt": ledger.attempt,
        "schema_version": ledger.schema,
        "component": ledger.component,
        "state_name": ledger.state,
        "ensemble": ledger.ensemble,
        "first_txid": ledger.first_txid,
        "attempts": json.dumps(ledger.attempts),
        "term": ledger.term,
        "writer_term": ledger.writer_term,
        "witness": ledger.witness,
    }


class CreateView(ExecutableDDLElement):
    """The statement that creates the view, which has no bookkeeping."""

    inherit_cache = False

    def __init__(self, dialect: SqlDialect, means: Mapping[int, str]) -> None:
        self.name = dialect.names.view
        columns, rows = dialect.columns, dialect.selected()
        own = {column.name for column in (*columns.keys, *columns.values)}
        named = [column for column in rows.selected_columns if column.name in own]
        shown = [dialect.shown(column) for column in named]
        self.select = rows.with_only_columns(*shown, *_means(shown[len(columns.keys) :], means))
        if columns.opaque:
            self.select = self.select.where(sa.not_(columns.deleted))


def _means(values: Sequence[Any], means: Mapping[int, str]) -> list[sa.ColumnElement[Any]]:
    """Return the expression of each mean, sum divided by count; 1e0 makes both floats."""
    one: sa.ColumnElement[Any] = sa.literal_column("1e0")
    zero: sa.ColumnElement[Any] = sa.literal_column("0")
    return [
        (
            sa.type_coerce(values[at], sa.Double()) * one / sa.func.nullif(values[at + 1], zero)
        ).label(name)
        for at, name in means.items()
    ]


@compiles(CreateView)
def _create_view(element: CreateView, compiler: DDLCompiler, **_: Any) -> str:
    name = compiler.preparer.quote(element.name)
    body = compiler.sql_compiler.process(element.select, literal_binds=True)
    return f"CREATE VIEW {name} AS {body}"
