"""A state in an SQLite file: its statements, types, and damaged files.

WAL mode lets readers read while a batch is written. Tables are STRICT and WITHOUT ROWID, so the
table is the index of the key. A sorted ``executemany`` of one upsert writes the rows: 0.3 M rows/s.
The driver gets plain tuples, which is several times faster than dicts through SQLAlchemy, and keeps
strings with a NUL, which ``json_each`` cuts. The rows of a txid are found by an index on it. A
start reads the whole file once (``quick_check``). SQLite has checksums only in its log, so a
failing disk is noticed if parts of the file are inconsistent, but not if a bit of a value has
changed.

``synchronous=FULL`` makes a committed batch survive a power cut, on macOS with ``fullfsync``;
nobody replays a txid that is reported as written. If WAL is not possible, SQLite stays in another
mode, and only its answer to the pragma shows that. There FULL leaves the deletion of the journal to
the operating system, so a power cut may undo a batch, and the locks that keep a second writer out
may be missing (``?nolock=1``). So the answer is checked.

SQLite has four types. Dates and timestamps are text that sorts as they do, booleans are 0 and 1.
Decimals are whole numbers of their last digit, see ``sqlite_decimals.py``.
"""

from __future__ import annotations

import datetime
import decimal
import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

from state_backends.sql.dialect import (
    SqlDialect,
    StateColumns,
    decimal_text,
    encoded_column,
    ledger_table,
    state_columns,
    undo_statements,
    url_options,
)
from state_backends.sql.failures import damaged
from state_backends.sql.names import (
    SQLITE_ENDS,
    TABLE_BYTES_MAX,
    TakenName,
    check_sqlite_names,
    in_small_letters,
    sqlite_files,
    sqlite_names,
)
from state_backends.sql.queries import BYTES_MAX
from state_backends.sql.sqlite_decimals import (
    ScaledDecimal,
    add_checks,
    check_decimals,
    decimal_column,
    encoded_decimals,
    shown_decimal,
    text_decimal,
)
from state_backends.sql.sqlite_file import SqliteFile
from txtopo.clock import now
from txtopo.errors import SchemaDrift, TopologyError, ValueRefusedError
from txtopo.plugins.stores import (
    Aggregate,
    Database,
    Field,
    Key,
    Puts,
    StateSize,
    StateTable,
    Writes,
    checked_partials,
    redacted_url,
)

_BUSY_TIMEOUT_S = 5.0

# STRICT tables came with 3.37 (November 2021).
_OLDEST = (3, 37, 0)

_WRITES = "txtopo_writes"

# An alias; the name of a state's table is never this long.
_WANTED = "txtopo_wanted".ljust(TABLE_BYTES_MAX + 1, "_")

_TAKEN = (
    "SELECT name, type, tbl_name FROM sqlite_schema "
    "WHERE type <> 'trigger' AND name COLLATE NOCASE IN :names"
)

_KIND = "SELECT type, strict FROM pragma_table_list(?) WHERE schema = 'main'"

_KEY_COLLATION = (
    "SELECT part.coll FROM pragma_index_list(?) AS found, pragma_index_xinfo(found.name) AS part "
    "WHERE found.origin = 'pk' AND part.key AND part.coll <> 'BINARY'"
)

# The first SELECT gives the second one its collation.
_PROBE = "SELECT a.k = b.k FROM ({0} SELECT 'a') AS a, (SELECT 'A' AS k UNION SELECT 'a ') AS b"

_OK = sqlite3.SQLITE_OK
_READS = (
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
)
_STEPS_BETWEEN_LOOKS = 10_000
"""Steps of SQLite's virtual machine: a few tenths of a millisecond."""
_COUNTED_MAX = 1_000_000
"""Counting this many rows takes some tens of milliseconds."""


class SqliteDialect(SqlDialect):
    """One state in an SQLite file."""

    connects_ahead = False  # that would create the file, and put it into WAL mode

    def __init__(self, url: sa.URL, state: StateTable) -> None:
        if sqlite3.sqlite_version_info < _OLDEST:
            raise TopologyError(
                f"SQLite {sqlite3.sqlite_version} is too old for a state; expected 3.37 or later",
                server="SQLite",
                version=sqlite3.sqlite_version,
            )
        if not url.database or ":memory:" in url.database or "mode=memory" in str(url):
            raise TopologyError(
                "an SQLite state needs a file; got a database in memory, of which each "
                "connection would have its own; use 'sqlite:///counts.db', or 'memory:' for tests"
            )
        if state.mode == "log":
            raise TopologyError(
                "SQLite cannot keep a state in mode 'log': it allows only one writer, so each "
                f"fold would delay the commits; got mode='log' for state {state.name!r}; expected "
                "mode='table'",
                state=state.name,
            )
        self.state = state
        self.names = self.names_of(state)
        self._checked = False
        self._url = url
        where = url.render_as_string(hide_password=True)
        self._label = f"state {state.name!r} in {where}"
        uri = url.database.startswith("file:")
        self._file = SqliteFile(None if uri else str(Path(url.database).absolute()), self._label)
        options: dict[str, Any] = {"sqlite_with_rowid": False, "sqlite_strict": True}
        self.columns = state_columns(state, column_type, **options)
        if state.origin == "made":
            add_checks(self.columns)
        self.ledger = ledger_table(column_type, **options)
        self._put = put_statement(self.columns)
        self._delete = delete_statement(self.columns)
        self._merge = merge_statement(state, self.columns)

    check = staticmethod(check_decimals)

    check_names = staticmethod(check_sqlite_names)

    names_of = staticmethod(sqlite_names)

    def taken(self, connection: sa.Connection, names: Sequence[str]) -> list[TakenName]:
        """Return the objects with these names; tables, views and indexes share names."""
        wanted = sa.text(_TAKEN).bindparams(sa.bindparam("names", expanding=True))
        rows = connection.execute(wanted, {"names": list(names)})
        return [TakenName(row[0], row[1], row[2] if row[1] == "index" else None) for row in rows]

    def fold(self, connection: sa.Connection) -> Callable[[str], str]:
        """Return the function that folds names: SQLite ignores the case of ASCII letters."""
        return in_small_letters

    def same_column(self, name: str, other: str) -> bool:
        """Return whether two names differ at most in the case of ASCII letters."""
        return in_small_letters(name) == in_small_letters(other)

    def _check_files(self, *_: object) -> None:
        """Refuse a foreign file with the name of one of SQLite's side files.

        SQLite deletes such a file when it opens an empty database, whatever is in it. If the
        database is not empty, the side files are SQLite's own, and must not be opened: see
        _is_database.
        """
        path = Path(self._url.database or "")
        for log in map(Path, () if _has_bytes(path) else sqlite_files(str(path))):
            if _is_database(log):
                raise self._clash(path, log)
        for end in SQLITE_ENDS:
            other = Path(str(path).removesuffix(end))
            if other != path and _is_database(other):
                raise self._clash(other, path)

    def _clash(self, database: Path, log: Path) -> SchemaDrift:
        return SchemaDrift(
            f"state {self.state.name!r} in {self._url.database!r} clashes with another database: "
            f"SQLite keeps the log of {str(database)!r} in {str(log)!r}, and both are databases; "
            "nothing was written; rename one of the two files",
            taken=str(log),
        )

    def missing(self) -> bool:
        """Return whether the file is missing; connecting would create it."""
        path = self._url.database or ""
        return not path.startswith("file:") and not Path(path).exists()

    def engine(self) -> sa.Engine:
        """Create the engine; SQLAlchemy begins the transactions, not the driver."""
        engine = sa.create_engine(
            self._url, connect_args={"timeout": _BUSY_TIMEOUT_S, "check_same_thread": False}
        )
        self.driver_errors = (sqlite3.Error,)
        self._file.watch(engine)
        sa.event.listen(engine, "do_connect", self._check_files)
        sa.event.listen(engine, "connect", _on_connect)
        sa.event.listen(engine, "begin", _on_begin)
        return engine

    def prepare(self, connection: sa.Connection) -> None:
        """Put the file into WAL mode permanently, which is impossible in a transaction."""
        if not connection.info.get("wal"):
            driver = connection.connection.driver_connection
            assert driver is not None
            (mode,) = driver.execute("PRAGMA journal_mode=WAL").fetchone()
            if mode != "wal":
                raise TopologyError(
                    f"SQLite cannot keep a state in {redacted_url(str(self._url))}; its journal "
                    f"mode is {mode!r}, so a power cut may lose the last commits; expected 'wal'; "
                    "use a local disk, and remove URL options that turn locks off",
                    setting="journal_mode",
                    got=mode,
                )
            connection.info["wal"] = True
            self._check(driver)
            self._file.read(connection)
            self._file.write(connection)

    def _check(self, driver: sqlite3.Connection) -> None:
        """Check once per start that the file is not damaged, as far as SQLite can tell."""
        if self._checked:
            return
        (found,) = driver.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise damaged(self._label, found)
        self._checked = True

    @contextmanager
    def creating(self, connection: sa.Connection) -> Iterator[None]:
        """Do nothing: BEGIN IMMEDIATE keeps other creators out."""
        yield

    def begin_reading(self, connection: sa.Connection) -> None:
        """Record which file is read; in WAL mode a reader does not block anybody."""
        self._file.read(connection)

    def check_place(self, connection: sa.Connection) -> None:
        """Check that the file being written is the one that others find at its path."""
        self._file.check(connection)

    def create(self, connection: sa.Connection) -> None:
        """Create the index of txids, for undo, and the index of tombstones."""
        if self.columns.opaque:
            txid, deleted = self.columns.txid, self.columns.deleted
            sa.Index(self.names.by_txid, txid).create(connection, checkfirst=True)
            sa.Index(self.names.tombstones, deleted, sqlite_where=deleted).create(
                connection, checkfirst=True
            )

    def flaw(self, connection: sa.Connection) -> str | None:
        """Return why the table cannot be used: its kind, not STRICT, or collation of keys."""
        name = (self.state.name,)
        kind, strict = connection.exec_driver_sql(_KIND, name).one()
        if kind != "table":
            return f"it is a {kind}"
        if not strict:
            return "it is not STRICT, so a whole number beyond 64 bits would become a float"
        collation = connection.exec_driver_sql(_KEY_COLLATION, name).scalar()
        if collation is not None:
            return f"it compares keys by {collation!r}, not as bytes, so different keys are equal"
        theirs = self.state.origin != "made"
        if theirs and (wrong := text_decimal(connection, self)) is not None:
            return (
                f"its column {wrong!r} is TEXT; expected INTEGER, a whole number in units of the "
                "last digit: 9.10 in a decimal(10,2) is 910"
            )
        for column in self.columns.keys if theirs else ():
            first = sa.select(column.label("k")).where(sa.false())
            text = first.compile(connection, compile_kwargs={"literal_binds": True})
            probe = _PROBE.format(f"{text} UNION ALL")
            if any(equal for (equal,) in connection.exec_driver_sql(probe)):
                return f"it compares its key {column.name!r} so that 'a' equals 'A' or 'a '"
        return None

    def shown(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Return the expression that the view has for a column, with a decimal as a number."""
        kind = column.type
        if not isinstance(kind, ScaledDecimal):
            return column
        return shown_decimal(column, kind).label(column.key)

    def write_options(self) -> dict[str, Any]:
        """Make a write take its lock when it begins, so that it never has to stop half-way."""
        return {_WRITES: True}

    def read_options(self) -> dict[str, Any]:
        """Return a deferred transaction: it sees the database as of its first statement."""
        return {}

    @contextmanager
    def read_only(
        self, connection: sa.Connection, statement: str, timeout_s: float
    ) -> Iterator[None]:
        """Make SQLite refuse to compile anything but reads, and regularly check the time."""
        driver = connection.connection.driver_connection
        assert driver is not None
        connection.begin()
        deadline = now() + timeout_s
        driver.set_progress_handler(lambda: now() > deadline, _STEPS_BETWEEN_LOOKS)
        driver.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, BYTES_MAX)
        driver.set_authorizer(lambda action, *_: _OK if action in _READS else sqlite3.SQLITE_DENY)
        try:
            yield
        finally:
            driver.set_authorizer(None)

    def database(self, connection: sa.Connection) -> Database:
        """Return the device and the inode of the file, and the options of the URL."""
        device, inode = self._file.main_of(connection)
        return Database(("sqlite", str(device), str(inode)), url_options(self._url))

    def size(self, connection: sa.Connection) -> StateSize:
        """Count the rows, unless there are so many that it would take long."""
        some = sa.select(sa.literal(1)).select_from(self.columns.table).limit(_COUNTED_MAX + 1)
        rows = connection.execute(sa.select(sa.func.count()).select_from(some.subquery())).scalar()
        return StateSize(rows=rows if rows is not None and rows <= _COUNTED_MAX else None)

    def undo(self, connection: sa.Connection, txid: int) -> None:
        """Undo the rows of *txid*, which are found by the index."""
        for statement in undo_statements(self.columns, txid):
            connection.execute(statement)

    def apply(self, connection: sa.Connection, txid: int, writes: Writes) -> None:
        """Write the rows of *txid*, sorted by key."""
        if isinstance(writes, Puts):
            kept = [
                (*key, *row)
                for key, row in sorted(writes.rows.items(), key=lambda row: row[0])
                if row is not None
            ]
            gone = sorted(key for key, row in writes.rows.items() if row is None)
            self._run(connection, self._put, list(zip(*kept, strict=True)), txid)
            self._run(connection, self._delete, list(zip(*gone, strict=True)), txid)
        else:
            partials = checked_partials(self.state, writes.partials)
            # By column: converting to rows only to encode their columns took a third of a commit.
            columns = [column.to_pylist() for column in partials.columns if partials.num_rows]
            self._run(connection, self._merge, columns, txid)

    def encoded(self, fields: Sequence[Field], rows: Sequence[Key]) -> list[Key]:
        """Return rows of these fields, such as keys, as SQLite stores them."""
        columns = [
            encode(field, list(column))
            for field, column in zip(fields, zip(*rows, strict=True), strict=True)
        ]
        return list(zip(*columns, strict=True))

    def stored_value(self, field: Field, value: Any) -> Any:
        """Return a value as SQLite stores it."""
        return encode(field, [value])[0]

    def parameter(self, value: Any) -> Any:
        """Return a plain value as SQLite has it: times as ISO 8601, decimals as text."""
        match value:
            case datetime.datetime():
                return value.isoformat(" ")
            case datetime.date() | datetime.time():
                return value.isoformat()
            case decimal.Decimal():
                return decimal_text(value)
            case float() if math.isnan(value):
                raise ValueRefusedError(
                    "SQLite would store NaN as NULL; got NaN as a parameter of a statement; "
                    "expected another number, or None",
                    got="nan",
                )
            case _:
                return value

    def starting(self, prefixes: Sequence[Key]) -> sa.Select[Any]:
        """Return the query for rows whose key begins with a prefix: a join, which looks up each.

        With several columns in IN (VALUES …), SQLite would read the whole table.
        """
        columns = self.columns.keys[: len(prefixes[0])]
        if len(columns) == 1:
            return super().starting(prefixes)
        names = [[f"at_{row}_{at}" for at in range(len(columns))] for row in range(len(prefixes))]
        rows = ", ".join(f"({', '.join(f':{name}' for name in row)})" for row in names)
        flat = zip((name for row in names for name in row), chain(*prefixes), strict=True)
        # SQLite's names for the columns of VALUES.
        given: list[sa.ColumnClause[Any]] = [
            sa.column(f"column{at + 1}") for at in range(len(columns))
        ]
        wanted = sa.text(f"VALUES {rows}").bindparams(**dict(flat)).columns(*given).cte(_WANTED)
        same = [column == wanted.c[one.name] for column, one in zip(columns, given, strict=True)]
        return self.selected().join_from(wanted, self.columns.table, sa.and_(*same))

    def decoded(self, kind: str, column: Sequence[Any]) -> Sequence[Any]:
        """Convert a column read from SQLite to Python values of this field type."""
        return decode(kind, column)

    def _run(
        self,
        connection: sa.Connection,
        statement: RowStatement | None,
        columns: Sequence[Sequence[Any]],
        txid: int,
    ) -> None:
        """Execute a statement for rows, which are given by column; do nothing without rows."""
        # An executemany without rows would insert one row of defaults.
        if columns:
            assert statement is not None
            fields = [*self.state.key, *self.state.value]
            pairs = zip(fields, columns, strict=False)
            encoded = [encode(field, list(column)) for field, column in pairs]
            connection.exec_driver_sql(statement.text, statement.parameters(encoded, txid))


def _has_bytes(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size > 0
    except (OSError, ValueError):
        return False


def _is_database(path: Path) -> bool:
    """Return whether a file is a database. Only SQLite opens the file.

    Closing a file releases all locks that the process has on it, including SQLite's. Then another
    process may truncate the index of the log that this process has mapped, which causes a SIGBUS.
    SQLite knows which databases are open and keeps such files open.
    """
    if not _has_bytes(path):
        return False
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        connection.execute("PRAGMA schema_version")
    except sqlite3.Error:
        return False
    finally:
        connection.close()
    return True


def _on_connect(driver: sqlite3.Connection, _: object) -> None:
    # None: the driver does not begin transactions on its own.
    driver.isolation_level = None
    driver.execute("PRAGMA synchronous=FULL")
    # Only on macOS, where fsync leaves a batch in the cache of the disk.
    driver.execute("PRAGMA fullfsync=ON")


def _on_begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@dataclass(frozen=True, slots=True)
class RowStatement:
    """A compiled statement.

    Attributes:
        text: Its SQL, with question marks.
        order: For each question mark the number of a column, or None for the txid.
    """

    text: str
    order: tuple[int | None, ...]

    def parameters(self, columns: list[list[Any]], txid: int) -> list[tuple[Any, ...]]:
        """Return the parameters for rows that are given by column."""
        tags = [txid] * len(columns[0])
        ordered = [tags if at is None else columns[at] for at in self.order]
        return list(zip(*ordered, strict=True))


def put_statement(columns: StateColumns) -> RowStatement:
    """Return the statement that sets final values."""
    return _upsert(columns, lambda statement: dict(_excluded(columns, statement)))


def merge_statement(state: StateTable, columns: StateColumns) -> RowStatement | None:
    """Return the statement that combines partials with stored values; None without aggregates."""
    if not state.aggregates:
        return None

    def combined(statement: sqlite.Insert) -> dict[Any, Any]:
        excluded = _excluded(columns, statement)
        parts = zip(state.value, state.aggregates, excluded.items(), strict=True)
        return {
            column: _combined(aggregate, field.type, column, new)
            for field, aggregate, (column, new) in parts
        }

    return _upsert(columns, combined)


def delete_statement(columns: StateColumns) -> RowStatement:
    """Return the statement that deletes keys. In an opaque state it leaves tombstones."""
    wanted = [column == sa.bindparam(f"at_{column.name}") for column in columns.keys]
    if not columns.opaque:
        return _compiled(sa.delete(columns.table).where(*wanted), columns)
    return _compiled(
        sa.update(columns.table)
        .where(*wanted)
        .values(
            {
                **dict(columns.moved_back()),
                columns.txid: sa.bindparam("at_txid"),
                columns.deleted: sa.literal_column("1"),
            }
        ),
        columns,
    )


def _upsert(columns: StateColumns, new_values: Any) -> RowStatement:
    given = [*columns.keys, *columns.values, columns.txid]
    row: dict[Any, Any] = {column: sa.bindparam(f"at_{column.name}") for column in given}
    if columns.opaque:
        row[columns.deleted] = sa.literal_column("0")
    statement = sqlite.insert(columns.table).values(row)
    changes: dict[Any, Any] = {**new_values(statement), columns.txid: statement.excluded.txid}
    if columns.opaque:
        changes |= dict(columns.moved_back())
    return _compiled(
        statement.on_conflict_do_update(index_elements=columns.keys, set_=changes), columns
    )


def _excluded(columns: StateColumns, statement: sqlite.Insert) -> Mapping[Any, Any]:
    return {column: statement.excluded[column.name] for column in columns.values}


def _combined(
    aggregate: Aggregate, kind: str, old: sa.ColumnElement[Any], new: sa.ColumnElement[Any]
) -> sa.ColumnElement[Any]:
    if aggregate.operator != "add":
        if kind == "string":
            # Ordered by its bytes, as in Python, even in a user's own table.
            old, new = sa.collate(old, "BINARY"), sa.collate(new, "BINARY")
        smaller_or_larger = sa.func.min if aggregate.operator == "min" else sa.func.max
        return sa.func.coalesce(smaller_or_larger(old, new), old, new)
    # A sum beyond 64 bits becomes a float, which an INTEGER column of a STRICT table refuses. One
    # of decimals meets the CHECK of its column before that.
    if kind in ("float", "double"):
        # inf + -inf is NULL to SQLite, which would leave one of them out. It has no NaN, so the
        # text is refused, as a NaN that is written is.
        both = sa.and_(old.is_not(None), new.is_not(None))
        nan = sa.case((both, sa.literal_column("'NaN'")))
        return sa.func.coalesce(old + new, nan, old, new)
    return sa.func.coalesce(old + new, old, new)


def _compiled(statement: sa.ClauseElement, columns: StateColumns) -> RowStatement:
    compiled = statement.compile(dialect=sqlite.dialect())
    assert isinstance(compiled, SQLCompiler)
    names = [f"at_{column.name}" for column in (*columns.keys, *columns.values)]
    order = [
        None if name == "at_txid" else names.index(name) for name in compiled.positiontup or ()
    ]
    return RowStatement(str(compiled), tuple(order))


_TYPES: dict[str, TypeEngine[Any]] = {
    "binary": sa.LargeBinary(),
    "boolean": sa.Integer(),
    "byte": sa.Integer(),
    "short": sa.Integer(),
    "int": sa.Integer(),
    "long": sa.Integer(),
    "float": sa.REAL(),
    "double": sa.REAL(),
}


def column_type(kind: str) -> TypeEngine[Any]:
    """Return the column type for a field type; text if SQLite has no other."""
    if kind.startswith("decimal"):
        return decimal_column(kind)
    return _TYPES.get(kind, sa.Text())


def encode(field: Field, column: list[Any]) -> list[Any]:
    """Return a column as SQLite stores it.

    Raises:
        ValueRefusedError: A value is NaN, which SQLite turns into NULL, or -0.0, which would lose
            its sign, or a decimal with more digits than its column.
    """
    kind = field.type.partition("(")[0]
    if kind == "decimal":
        return encoded_decimals(field, column)
    if kind in ("float", "double"):
        _check_floats(field, column)
    return encoded_column(field, column, _ENCODE)


def _check_floats(field: Field, column: list[Any]) -> None:
    for value in column:
        nan = value != value
        if nan or (value == 0 and math.copysign(1, value) < 0):
            raise ValueRefusedError(
                f"SQLite has no {'NaN' if nan else 'negative zero'}; got one in field "
                f"{field.name!r}; nothing of its batch was written; filter it out (for a zero, "
                "add 0.0), or keep the state in PostgreSQL",
                field=field.name,
            )


def decode(kind: str, column: Sequence[Any]) -> Sequence[Any]:
    """Convert a column read from SQLite to Python values of a field type."""
    change = _decoder(kind)
    if change is None:
        return column
    return [None if value is None else change(value) for value in column]


@cache
def _decoder(kind: str) -> Callable[[Any], Any] | None:
    if kind.startswith("decimal"):
        return decimal_column(kind).number
    return _DECODE.get(kind)


def _from_moment(value: datetime.datetime) -> str:
    return value.isoformat(" ", "microseconds")


_ENCODE: dict[str, Callable[[Any], Any]] = {
    "boolean": int,
    "date": datetime.date.isoformat,
    "timestamp": lambda value: _from_moment(value.astimezone(datetime.UTC)),
    "timestamp_ntz": _from_moment,
}

_DECODE: dict[str, Callable[[Any], Any]] = {
    "boolean": bool,
    "date": datetime.date.fromisoformat,
    "timestamp": datetime.datetime.fromisoformat,
    "timestamp_ntz": datetime.datetime.fromisoformat,
}
