"""A state in MariaDB 10.6 or later, or MySQL 8.0.19 or later. The tests run MariaDB only.

How rows are written
--------------------
Rows travel as one JSON text in one parameter, which ``INSERT … SELECT … FROM JSON_TABLE … ON
DUPLICATE KEY UPDATE`` merges. There is no index on txid, since each update would have to move its
entry. Instead ``<table>_touched`` has the keys that the last txid writes, as JSON, written in the
same transaction. Only an undo and the removal of tombstones read it. LOAD DATA LOCAL is not used,
since most servers turn it off.

Measured with bare statements and PyMySQL, 10 batches of 24,400 keys out of 100,000, loopback, two
cores shared with other work, medians of a batch: an upsert without bookkeeping or fence,
executemany 296 to 515 ms; with previous values, executemany 348 to 895 ms, one statement with our
own VALUES 298 to 431 ms, JSON_TABLE 297 to 387 ms; rows and the list of keys 285 to 318 ms, with
an index on txid instead 458 to 474 ms, with an index of tombstones instead 326 to 336 ms. This
backend, at a higher load: 301 to 677 ms where the bare upsert took 421 to 739 ms; a redo of such a
batch 1.1 to 2.0 s; a batch of 100 keys 8 ms.

What a session sets
-------------------
Strict mode, so that a value that does not fit is an error; times in UTC; READ COMMITTED for writes,
which the lock on the ledger's row puts in order; a consistent snapshot for readers. Settings that a
session cannot change are checked. A server that could lose a commit in a power cut is refused.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

from state_backends.sql.dialect import SqlDialect, ledger_table, state_columns, url_options
from state_backends.sql.mariadb_rows import (
    ExactText,
    RowStatements,
    StatementParts,
    chunks,
    column_type,
    decode,
    encode,
    encode_key,
    is_mariadb,
    key_type,
    limits,
    parameter,
)
from state_backends.sql.names import TakenName, check_mariadb_names, mariadb_names
from txtopo.clock import now
from txtopo.errors import StateUsageError, StoreUnavailable, TopologyError
from txtopo.extras import require
from txtopo.plugins.stores import (
    Database,
    Field,
    Fields,
    Key,
    Puts,
    StateSize,
    StateTable,
    Writes,
    checked_partials,
)
from txtopo.sql_sessions import mysql_statement

_CONNECT_TIMEOUT_S = 10

# Options of TCP. A server that vanished is noticed after 15 s: by data that it does not
# acknowledge; or, if everything was acknowledged and its answer is awaited, by probes. Without them
# the system waits for two hours.
_CONNECTION: Mapping[str, int] = {
    "TCP_USER_TIMEOUT": 15_000,
    "TCP_KEEPIDLE": 5,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 2,
}

_CREATION_TIMEOUT_S = 30

# Options of a URL that would change what a transaction is, or how text is sent.
_REFUSED_OPTIONS = ("autocommit", "charset", "conv", "cursorclass", "init_command", "sql_mode")

TABLE_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_row_format": "DYNAMIC",
}

_WIDTH = re.compile(r"^(TINYINT|SMALLINT|MEDIUMINT|INTEGER|BIGINT)\(\d+\)")

_TAKEN = (
    "SELECT table_name, LOWER(table_type) FROM information_schema.tables "
    "WHERE table_schema = DATABASE() AND table_name IN :names"
)

_KIND = (
    "SELECT table_type AS kind, engine AS engine FROM information_schema.tables "
    "WHERE table_schema = DATABASE() AND table_name = :name"
)

_COLLATIONS = (
    "SELECT collation_name AS collation FROM information_schema.columns "
    "WHERE table_schema = DATABASE() AND table_name = :name AND column_name IN :keys "
    "AND collation_name IS NOT NULL"
)

_WRITES_A_FILE = re.compile(r"\b(outfile|dumpfile)\b", re.IGNORECASE)
"""A read-only transaction does not prevent ``SELECT … INTO OUTFILE``."""
_DATABASE = (
    "SELECT CONCAT_WS(' ', @@hostname, @@port, @@server_id, @@datadir), DATABASE(), CURRENT_USER()"
)
_SIZE = (
    "SELECT table_rows, data_length + index_length FROM information_schema.tables "
    "WHERE table_schema = DATABASE() AND table_name = :name"
)


class MariadbDialect(SqlDialect):
    """One state in MariaDB or MySQL."""

    # PyMySQL drops the rest of a result when another statement comes in between.
    pages = True

    def __init__(self, url: sa.URL, state: StateTable) -> None:
        refused = sorted(set(_REFUSED_OPTIONS).intersection(url.query))
        if refused:
            raise TopologyError(
                f"a state in MariaDB cannot be kept with the option {refused[0]!r} in its URL; it "
                "could commit a batch in parts, or change its text; remove it",
                got=refused[0],
            )
        self.state = state
        self.names = self.names_of(state)
        require("pymysql", f"{url.get_backend_name()}://")
        self._url = url.set(drivername="mysql+pymysql")
        of_key = key_type(state.key)
        self.columns = state_columns(state, column_type, of_key, **TABLE_OPTIONS)
        self.ledger = ledger_table(column_type, key_type(Fields("state string")), **TABLE_OPTIONS)
        self._limits = limits(state.key)
        touched = self.names.touched
        self._touched: sa.Table | None = None if touched is None else _touched_table(touched)

    check_names = staticmethod(check_mariadb_names)

    names_of = staticmethod(mariadb_names)

    def taken(self, connection: sa.Connection, names: Sequence[str]) -> list[TakenName]:
        """Return the objects with these names; tables, views and sequences share names."""
        fold = self.fold(connection)
        wanted = {fold(name) for name in names}
        # The catalogue ignores case, whatever the server does with its tables.
        asked = sa.text(_TAKEN).bindparams(sa.bindparam("names", expanding=True))
        rows = connection.execute(asked, {"names": list(names)})
        found = [TakenName(name, kind.replace("base table", "table")) for name, kind in rows]
        return [taken for taken in found if fold(taken.name) in wanted]

    def fold(self, connection: sa.Connection) -> Callable[[str], str]:
        """Return the function that folds names: ``str.lower`` if the server ignores their case."""
        setting = connection.exec_driver_sql("SELECT @@lower_case_table_names").scalar()
        return str.lower if setting else str

    def same_column(self, name: str, other: str) -> bool:
        """Return whether two names differ at most in case."""
        return name.lower() == other.lower()

    def engine(self) -> sa.Engine:
        """Create the engine, for one connection that writes and one that reads at the same time."""
        engine = sa.create_engine(
            self._url,
            pool_size=2,
            connect_args={
                "connect_timeout": _CONNECT_TIMEOUT_S,
                # The timeout of the login; that of statements is set later.
                "read_timeout": _CONNECT_TIMEOUT_S,
                "charset": "utf8mb4",
                "autocommit": False,
                "init_command": session(),
            },
        )
        self.driver_errors = (engine.dialect.loaded_dbapi.Error,)
        sa.event.listen(engine, "do_connect", _connect)
        sa.event.listen(engine, "connect", self._on_connect)
        sa.event.listen(engine, "do_executemany", _one_by_one)
        sa.event.listen(engine, "begin", _answered)
        sa.event.listen(engine, "before_cursor_execute", _asked)
        sa.event.listen(engine, "after_cursor_execute", _answered)
        return engine

    def _on_connect(self, driver: Any, _: object) -> None:
        """Notice a server that has vanished, but wait as long as a live one needs."""
        given = self._url.query.get("read_timeout")
        driver._read_timeout = None if given is None else int(str(given))
        if driver._sock.family == socket.AF_UNIX:
            return
        for name, value in _CONNECTION.items():
            if (option := getattr(socket, name, None)) is not None:  # macOS lacks some
                driver._sock.setsockopt(socket.IPPROTO_TCP, option, value)

    def prepare(self, connection: sa.Connection) -> None:
        """Check the server."""
        if "bytes_max" not in connection.info:
            connection.info["bytes_max"] = check_server(connection)

    def statements_for(self, connection: sa.Connection) -> Any:
        """Return the statements of the state for the server of a connection; they are kept there.

        A connection may serve several states, see ``SqlBackend.commit_together``.
        """
        if self not in connection.info:
            connection.info[self] = self.statements(connection.dialect)
        return connection.info[self]

    def statements(self, dialect: sa.Dialect) -> StatementParts:
        """Compile the statements of the state."""
        return RowStatements(self.state, self.columns, dialect)

    @contextmanager
    def creating(self, connection: sa.Connection) -> Iterator[None]:
        """Keep out other creators by a named lock, since creating a table ends the transaction."""
        lock = sa.func.concat("txtopo.", sa.func.md5(sa.func.database()))
        got = connection.execute(sa.select(sa.func.get_lock(lock, _CREATION_TIMEOUT_S))).scalar()
        if got != 1:
            raise StoreUnavailable(
                f"another process is creating tables and blocks state {self.state.name!r}; "
                "nothing was written; try again",
                state=self.state.name,
            )
        try:
            yield
        finally:
            if not connection.invalidated:
                connection.execute(sa.select(sa.func.release_lock(lock)))

    def listing(self) -> sa.Table | None:
        """Return the table with the keys of the last txid."""
        return self._touched

    def type_name(self, kind: TypeEngine[Any], connection: sa.Connection) -> str:
        """Return the name of a column type without its display width."""
        return _WIDTH.sub(r"\1", super().type_name(kind, connection))

    def same_type(self, wanted: str, found: str) -> bool:
        """Return whether a user's column fits. Text may have a limit: a longer text is an error."""
        text = ("VARCHAR", "TEXT", "MEDIUMTEXT", "LONGTEXT")
        if wanted.startswith(text):
            return found.startswith(text)
        binary = ("VARBINARY", "BLOB", "MEDIUMBLOB", "LONGBLOB")
        return wanted == found or (wanted.startswith(binary) and found.startswith(binary))

    def create(self, connection: sa.Connection) -> None:
        """Create the list of touched keys."""
        if self._touched is not None:
            self._touched.create(connection, checkfirst=True)

    def flaw(self, connection: sa.Connection) -> str | None:
        """Return why the table cannot be used: its kind, engine, or collation of keys."""
        name = {"name": self.state.name}
        found = connection.execute(sa.text(_KIND), name).one()
        if found.kind != "BASE TABLE":
            return f"it is a {found.kind.lower()}"
        if found.engine != "InnoDB":
            return f"its engine is {found.engine}, which cannot roll a batch back; expected InnoDB"
        wanted = sa.text(_COLLATIONS).bindparams(sa.bindparam("keys", expanding=True))
        keys = name | {"keys": list(self.state.key.names)}
        for (collation,) in connection.execute(wanted, keys):
            if not collation.endswith(("_nopad_bin", "_0900_bin")):
                return (
                    f"it compares keys by the collation {collation!r}, under which different keys "
                    "are equal; expected utf8mb4_nopad_bin, or utf8mb4_0900_bin in MySQL"
                )
        return None

    def write_options(self) -> dict[str, Any]:
        """Return no options: sessions are set up for writes."""
        return {}

    def idle_limit_s(self, connection: sa.Connection) -> float | None:
        """Return the limit that each session of MariaDB has; MySQL waits."""
        return _IDLE_TIMEOUT_S if is_mariadb(connection.dialect) else None

    def limit_idle(self, connection: sa.Connection, limit_s: float) -> None:
        """Give the session a limit, which counts from the next pause on.

        It outlives the transaction, and the next one may be of another state.
        """
        if connection.info.get(_IDLE, _IDLE_TIMEOUT_S) != limit_s:
            connection.exec_driver_sql(f"SET SESSION {_IDLE} = {round(limit_s)}")
            connection.info[_IDLE] = limit_s

    def ended_idle(
        self, error: BaseException | None, info: Mapping[Any, Any], limit_s: float
    ) -> bool:
        """Return whether the connection was lost while this process paused.

        The server does not say why it closes one. It counts from the end of its answer, a little
        earlier than this process.
        """
        lost = isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated
        return lost and info.get(_PAUSED_S, 0.0) >= 0.9 * limit_s

    def read_options(self) -> dict[str, Any]:
        """Return no options: ``begin_reading`` starts the transaction."""
        return {}

    def begin_reading(self, connection: sa.Connection) -> None:
        """Start a transaction with a consistent snapshot: ledger and rows from one moment."""
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    @contextmanager
    def read_only(
        self, connection: sa.Connection, statement: str, timeout_s: float
    ) -> Iterator[None]:
        """Begin a read-only transaction, and limit the time of its statements."""
        if _WRITES_A_FILE.search(statement):
            raise StateUsageError(
                f"a query cannot write a file on the server; got {statement!r:.100}; expected "
                "neither OUTFILE nor DUMPFILE in it; txtopo state export writes a file here",
                got=statement[:100],
            )
        if is_mariadb(connection.dialect):
            connection.exec_driver_sql(f"SET SESSION max_statement_time = {timeout_s:f}")
        else:
            limit_ms = max(1, round(timeout_s * 1000))
            connection.exec_driver_sql(f"SET SESSION max_execution_time = {limit_ms}")
        self.begin_reading(connection)
        yield

    def database(self, connection: sa.Connection) -> Database:
        """Return where the server keeps its files, the database, the user, and the URL's options.

        MariaDB has no identifier of a server before 10.11.
        """
        server, database, user = connection.exec_driver_sql(_DATABASE).one()
        return Database(("mariadb", server, database), (user, *url_options(self._url)))

    def size(self, connection: sa.Connection) -> StateSize:
        """Return the catalogue's figures."""
        found = connection.execute(sa.text(_SIZE), {"name": self.state.name}).first()
        if found is None:
            return StateSize()
        return StateSize(*(None if each is None else int(each) for each in found))

    def undo(self, connection: sa.Connection, txid: int) -> None:
        """Undo the rows of *txid*, which are found by the list of its keys."""
        assert self._touched is not None
        table = self._touched
        wanted = sa.select(table.c.given).where(table.c.txid == txid)
        for text in connection.execute(wanted).scalars().all():
            self._run(connection, self.statements_for(connection).undo, text, txid)

    def purge(self, connection: sa.Connection) -> None:
        """Delete the tombstones that the previous commit left, by the list of their keys."""
        assert self._touched is not None
        wanted = sa.select(self._touched.c.given).where(self._touched.c.gone)
        for text in connection.execute(wanted).scalars().all():
            self._run(connection, (self.statements_for(connection).purge,), text, 0)

    def apply(self, connection: sa.Connection, txid: int, writes: Writes) -> None:
        """Write the rows of *txid*, sorted by key, and the list of their keys."""
        statements = self.statements_for(connection)
        if self._touched is not None:
            connection.execute(sa.delete(self._touched))
        if isinstance(writes, Puts):
            rows = sorted(writes.rows.items(), key=lambda row: row[0])
            kept = [(*key, *values) for key, values in rows if values is not None]
            gone = [key for key, values in rows if values is None]
            self._write(connection, (statements.put,), kept, txid)
            self._write(connection, statements.delete, gone, txid, gone=True)
        else:
            partials = checked_partials(self.state, writes.partials)
            columns = [column.to_pylist() for column in partials.columns]
            self._write(connection, (statements.merge,), list(zip(*columns, strict=True)), txid)

    def encoded(self, fields: Sequence[Field], rows: Sequence[Key]) -> Sequence[Key]:
        """Return rows of these fields, such as keys, as parameters of a query."""
        return [tuple(parameter(*pair) for pair in zip(fields, row, strict=True)) for row in rows]

    def expire(self, connection: sa.Connection, wanted: sa.ColumnElement[bool], limit: int) -> int:
        """Delete some of the matching rows; MariaDB supports no LIMIT in a subquery."""
        deleted = (
            sa.delete(self.columns.table).where(wanted).with_dialect_options(mysql_limit=limit)
        )
        return connection.execute(deleted).rowcount

    def decoded(self, kind: str, column: Sequence[Any]) -> Sequence[Any]:
        """Convert a column read from MariaDB to Python values of this field type."""
        return decode(kind, column)

    def _write(
        self,
        connection: sa.Connection,
        statements: Sequence[str],
        rows: Sequence[Key],
        txid: int,
        *,
        gone: bool = False,
    ) -> None:
        encoded = self._encoded(rows)
        bytes_max = connection.info["bytes_max"]
        if self._touched is not None:
            width = len(self.state.key)
            for text in chunks([row[:width] for row in encoded], bytes_max):
                row = {"txid": txid, "gone": gone, "given": text}
                connection.execute(sa.insert(self._touched).values(row))
        for text in chunks(encoded, bytes_max):
            self._run(connection, statements, text, txid)

    def _encoded(self, rows: Sequence[Key]) -> list[tuple[Any, ...]]:
        """Return rows as JSON values; rows of deletions have keys only."""
        columns = [list(column) for column in zip(*rows, strict=True)]
        width = len(self.state.key)
        keys = zip(self.state.key, columns[:width], self._limits, strict=False)
        values = zip(self.state.value, columns[width:], strict=False)
        encoded = [encode_key(*parts) for parts in keys] + [encode(*parts) for parts in values]
        return list(zip(*encoded, strict=True))

    def _run(
        self, connection: sa.Connection, statements: Sequence[str], text: str, txid: int
    ) -> None:
        for statement in statements:
            connection.exec_driver_sql(statement, {"rows": text, "txid": txid})


def _touched_table(name: str) -> sa.Table:
    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("part", mysql.BIGINT(), primary_key=True, autoincrement=True),
        sa.Column("txid", mysql.BIGINT(), nullable=False),
        sa.Column("gone", mysql.TINYINT(1), nullable=False),
        sa.Column("given", ExactText(), nullable=False),
        **TABLE_OPTIONS,
    )


# JSON_TABLE came with MariaDB 10.6, the collation utf8mb4_0900_bin with MySQL 8.0.17.
_OLDEST = {True: (10, 6), False: (8, 0, 19)}

_MODES = (
    "STRICT_ALL_TABLES",
    "NO_ZERO_DATE",
    "NO_ZERO_IN_DATE",
    "ERROR_FOR_DIVISION_BY_ZERO",
    "NO_ENGINE_SUBSTITUTION",
    # In text only quotes have to be doubled.
    "NO_BACKSLASH_ESCAPES",
)

# A writer that hangs (SIGSTOP) keeps the row of the ledger locked. Others stop waiting after the
# first time and try again; MariaDB ends an idle transaction that writes after the second, or later,
# see rule 7 of ``backend.py``. MySQL has no such setting.
_LOCK_TIMEOUT_S = 5

_IDLE_TIMEOUT_S = 10

_IDLE = "idle_write_transaction_timeout"

_DURABLE = (
    ("innodb_flush_log_at_trx_commit", "1", "a crash of the machine may lose the last commits"),
    ("innodb_doublewrite", "ON", "a crash of the machine may leave half a page"),
)

# With these, data that the settings above put on disk is left to the operating system; they are
# meant for benchmarks.
_CARELESS_METHODS = ("nosync", "littlesync")


def session() -> str:
    """Return the SET statement that each new session executes first."""
    return mysql_statement(
        {
            "sql_mode": f"'{','.join(_MODES)}'",
            "innodb_lock_wait_timeout": str(_LOCK_TIMEOUT_S),
            "unique_checks": "1",
        }
    )


def check_server(connection: sa.Connection) -> int:
    """Check the server, set the session up for writes, and return ``max_allowed_packet``.

    Raises:
        TopologyError: The server is too old, or set up so that it may lose a commit.
    """
    mariadb = is_mariadb(connection.dialect)
    name, version = "MariaDB" if mariadb else "MySQL", connection.dialect.server_version_info
    if version is not None and tuple(version) < _OLDEST[mariadb]:
        raise TopologyError(
            f"{name} {'.'.join(map(str, version))} is too old for a state; expected "
            f"{'.'.join(map(str, _OLDEST[mariadb]))} or later",
            server=name,
            version=".".join(map(str, version)),
        )
    connection.exec_driver_sql("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    if mariadb:
        connection.exec_driver_sql(f"SET SESSION {_IDLE} = {_IDLE_TIMEOUT_S}")
    found = _variables(connection)
    connection.rollback()
    faults = [
        f"{variable} is {found[variable]!r}, so {what}; expected {wanted!r}"
        for variable, wanted, what in _DURABLE
        if found.get(variable, wanted) not in (wanted, "1")
    ]
    if found.get("log_bin") == "ON" and found.get("sync_binlog") != "1":
        # A restart undoes what the binary log does not contain.
        faults.append(
            "log_bin is on, but sync_binlog is not 1, so a crash may lose the last commits"
        )
    method = found.get("innodb_flush_method", "")
    if method.lower() in _CARELESS_METHODS:
        faults.append(
            f"innodb_flush_method is {method!r}, so a crash of the machine may lose the last "
            "commits; expected 'O_DIRECT' or 'fsync'"
        )
    if found.get("autocommit") != "OFF":
        faults.append("autocommit is on, so a batch would be written in parts")
    if faults:
        raise TopologyError(
            f"{name} cannot keep a state: {'; '.join(faults)}; change this on the server",
            server=name,
            got=tuple(faults),
        )
    return int(found["max_allowed_packet"])


def _variables(connection: sa.Connection) -> dict[str, str]:
    wanted = ["log_bin", "sync_binlog", "autocommit", "max_allowed_packet", "innodb_flush_method"]
    wanted += [variable for variable, _, _ in _DURABLE]
    names = ", ".join(f"'{name}'" for name in wanted)
    rows = connection.exec_driver_sql(f"SHOW VARIABLES WHERE Variable_name IN ({names})")
    return {name.lower(): str(value) for name, value in rows}


def _connect(dialect: sa.Dialect, record: object, arguments: Any, settings: Any) -> Any:
    return _connection_class()(*arguments, **settings)


@cache
def _connection_class() -> type:
    """Return PyMySQL's connection class; its default TLS context is created once.

    Such a connection is encrypted if the server supports it, and verifies nothing. PyMySQL would
    still read all CA certificates for each connection, which takes tens of milliseconds.
    """
    from pymysql.connections import Connection  # type: ignore[import-untyped]

    class _OneContext(Connection):  # type: ignore[misc]
        shared: ClassVar[ssl.SSLContext | None] = None

        def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
            if sslp:
                made: ssl.SSLContext = super()._create_ssl_ctx(sslp)
                return made
            if _OneContext.shared is None:
                _OneContext.shared = super()._create_ssl_ctx(sslp)
            return _OneContext.shared

    return _OneContext


# What the info of a connection has: when the last answer came, or the transaction began; and how
# long this process paused before the statement that is executed now.
_ANSWERED_AT, _PAUSED_S = "answered_at", "paused_s"


def _asked(connection: sa.Connection, *_: object) -> None:
    connection.info[_PAUSED_S] = now() - connection.info[_ANSWERED_AT]


def _answered(connection: sa.Connection, *_: object) -> None:
    connection.info.update({_ANSWERED_AT: now(), _PAUSED_S: 0.0})


_NAMED_LATER = re.compile(r"ON DUPLICATE\b.*%(?:s|\()", re.IGNORECASE | re.DOTALL)


def _one_by_one(cursor: Any, statement: str, parameters: Any, _: object) -> bool:
    """Execute an upsert set by set if it has parameters behind VALUES, which PyMySQL leaves out."""
    if _NAMED_LATER.search(statement) is None:
        return False
    for each in parameters:
        cursor.execute(statement, each)
    return True
