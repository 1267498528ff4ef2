"""A state in PostgreSQL 15 or later: few rows are written as arrays, many by COPY.

How rows are written
--------------------
Few rows travel as arrays (``unnest``), many by ``COPY`` into a temporary table; then one ``MERGE``.
There is no index on txid: every update would have to write to it, and no update could be heap-only.
Instead ``<table>_touched`` has one row with the keys that the last txid writes, written by the
statement that merges the rows; only an undo reads it. Pages are filled halfway (fillfactor 50), so
that new versions of rows stay on their page. Keys are sorted, and compared as bytes (collation
"C").

Measured with bare statements, 20 batches of 24,400 keys out of 100,000, loopback, two cores shared
with other work, seconds in total: an upsert without bookkeeping or fence 4.3 to 5.6; upsert from
arrays with previous values 5.2 to 5.8; MERGE from arrays 4.2 to 4.5; COPY and upsert 3.9 to 5.2;
COPY and MERGE 2.2 to 4.1, with the list of keys 2.8 to 3.7, with an index on txid instead 4.8 to
5.8. This backend, at a higher load: 6.7 to 6.8 where the bare upsert took 11.4 to 12.2.

A commit of few rows takes four round trips: BEGIN, ledger, rows, COMMIT. psycopg's pipeline mode
would save two, but on loopback it cost the client more processor time than it saved (0.5 to 0.57 ms
against 0.47 for one key), and the rows would be sent before the ledger has been checked. The rows
of several states are sent in a pipeline, once all ledgers are checked: the server writes those of
one while the client prepares those of the next. Six states of 100 keys took 0.41 to 0.46 of the
time of six transactions (loopback, a disk that flushes in 0.2 ms), 0.33 if a flush takes 2 ms more.

What survives a power cut
-------------------------
A commit that has returned must be on disk, since ZooKeeper then records the txid as done and nobody
replays it. So each connection sets ``synchronous_commit``, which a role, a database, a URL or the
server may have turned off; nobody would notice until the power fails. ``on`` also waits for a
standby in ``synchronous_standby_names``. A connection may not set ``fsync``, so a server without it
is refused. Without ``full_page_writes`` a crash leaves half a page, except on a file system that
writes whole pages (ZFS). A client cannot see that, so it is a warning.

Sizes
-----
A message to the server holds less than 1 GiB, and so does a field. So long rows are copied even if
they are few, in pieces: each piece becomes text while the server waits in ``COPY``, to which its
limit on idle transactions does not apply. A single row that is too long is refused by name before
it is sent. A value that the server finds too large is refused as well.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.sql.compiler import DDLCompiler, SQLCompiler
from sqlalchemy.types import TypeEngine

from state_backends.sql.dialect import (
    SqlDialect,
    StateColumns,
    ledger_table,
    state_columns,
    undo_statements,
    url_options,
)
from state_backends.sql.names import STAGE, SqlNames, TakenName, postgresql_names, stage_name
from txtopo.database_errors import state_of
from txtopo.errors import TopologyError, ValueRefusedError
from txtopo.extras import require
from txtopo.log_records import logger_of
from txtopo.plugins.stores import (
    Aggregate,
    Database,
    Key,
    Puts,
    StateSize,
    StateTable,
    Writes,
    checked_partials,
    column_schema,
    combines_in_store,
)
from txtopo.sql_sessions import SHARED, read_json_as_text, set_up_postgresql

_logger = logger_of("txtopo.state")

_OLDEST = 15

# Parameters of libpq, unless the URL sets them. A server that vanished is noticed after 15 s: by
# data that it does not acknowledge; or, if everything was acknowledged and its answer is awaited,
# by probes. Without them libpq waits for two hours.
_CONNECTION: Mapping[str, str | int] = {
    "application_name": "txtopo",
    "connect_timeout": 10,
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
}

# A writer that hangs (SIGSTOP) keeps the row of the ledger locked. Others stop waiting after the
# first time and try again; the server ends an idle transaction that writes after the second, or
# later, see rule 7 of ``backend.py``.
_LOCK_TIMEOUT = "5s"

_IDLE_TIMEOUT_S = 10

_IDLE = "idle_in_transaction_session_timeout"

# Its SQLSTATE. The server sends it before it closes the connection, so whoever writes reads it.
_ENDED_IDLE = "25P03"

# "txtopo" as a number. Creators have to wait for each other, since IF NOT EXISTS does not wait.
_CREATION_LOCK = 0x747874_6F706F

_KINDS = {
    "r": "table",
    "v": "view",
    "m": "materialized view",
    "p": "partitioned table",
    "f": "foreign table",
    "i": "index",
    "I": "index",
    "S": "sequence",
    "s": "system table",
    "c": "type",
    "T": "type",
}

# A table creates a type of the same name; array types give way by themselves.
_TAKEN = (
    "SELECT part.relname, CASE WHEN part.relnamespace = 'pg_catalog'::regnamespace THEN 's' "
    "ELSE part.relkind::text END, whole.relname FROM pg_class AS part "
    "LEFT JOIN pg_index ON indexrelid = part.oid LEFT JOIN pg_class AS whole ON whole.oid = "
    "indrelid WHERE part.relname = ANY(:names) AND part.relpersistence <> 't' "
    "AND pg_table_is_visible(part.oid) "
    "UNION ALL SELECT typname, 'T', NULL FROM pg_type "
    "JOIN pg_namespace ON pg_namespace.oid = typnamespace WHERE typname = ANY(:names) "
    "AND nspname = current_schema() AND typrelid = 0 AND typelem = 0"
)

_KIND = (
    "SELECT relkind::text, relpersistence = 'p' FROM pg_class "
    "WHERE relname = :name AND pg_table_is_visible(oid)"
)

_KEY_COLLATION = (
    "SELECT collname FROM pg_attribute JOIN pg_collation ON pg_collation.oid = attcollation "
    "JOIN pg_class ON pg_class.oid = attrelid "
    "WHERE relname = :name AND pg_table_is_visible(attrelid) "
    "AND attname = ANY(:keys) AND "
)

_NOT_BYTES = "collname <> 'C'"

# In a user's own table any order will do, as long as different keys are different.
_NOT_DIFFERENT = "NOT collisdeterministic"

_STAGES = "stages"

# The settings of a role or a database apply to all sessions of the same user in it.
_DATABASE = (
    "SELECT system_identifier::text, current_database()::text, session_user::text, "
    "current_user::text, current_schemas(false)::text FROM pg_catalog.pg_control_system()"
)

_SIZE = (
    "SELECT reltuples AS rows, pg_total_relation_size(oid) AS bytes FROM pg_class "
    "WHERE oid = to_regclass(:name)"
)


class PostgresqlDialect(SqlDialect):
    """One state in PostgreSQL."""

    keys_at_once = 10_000  # one parameter for each column contains all keys

    def __init__(self, url: sa.URL, state: StateTable) -> None:
        self.state = state
        self.names = self.names_of(state)
        require("psycopg", f"{url.get_backend_name()}://")
        self._url = url.set(drivername="postgresql+psycopg")
        self.columns = state_columns(state, column_type)
        self.ledger = ledger_table(column_type)
        for table in (self.columns.table, self.ledger):
            sa.event.listen(table, "after_create", _half_fill)
        self._rows = RowWriter(state, self.columns, self.names)

    names_of = staticmethod(postgresql_names)

    def taken(self, connection: sa.Connection, names: Sequence[str]) -> list[TakenName]:
        """Return the objects with these names; tables, views, indexes and sequences share names."""
        rows = connection.execute(sa.text(_TAKEN), {"names": list(names)})
        return [TakenName(name, _KINDS.get(kind, kind), table) for name, kind, table in rows]

    def engine(self) -> sa.Engine:
        """Create the engine, for one connection that writes and one that reads at the same time."""
        given = self._url.query
        parameters = {name: value for name, value in _CONNECTION.items() if name not in given}
        engine = sa.create_engine(self._url, pool_size=2, connect_args=parameters)
        self.driver_errors = (engine.dialect.loaded_dbapi.Error,)
        set_up_postgresql(engine, session())
        return engine

    def prepare(self, connection: sa.Connection) -> None:
        """Create the stage of the state, a temporary table that lives as long as the connection.

        In a session that is shared with other clients, each transaction that needs it creates it.
        """
        stages = connection.info.setdefault(_STAGES, set())
        if self.state.name in stages:
            return
        self.check_server(connection)
        if connection.info.get(SHARED):
            return
        with connection.begin():
            self._rows.stage.create(connection)
        stages.add(self.state.name)

    def check_server(self, connection: sa.Connection) -> None:
        """Check the server settings that a session cannot change, once for each connection.

        Raises:
            TopologyError: The server has no ``MERGE``, or may lose commits in a power cut, or the
                database cannot hold all characters.
        """
        if "checked" in connection.info:
            return
        version = connection.dialect.server_version_info
        if version is not None and int(version[0]) < _OLDEST:
            raise TopologyError(
                f"PostgreSQL {version[0]} is too old for a state; expected {_OLDEST} or later",
                server="PostgreSQL",
                version=str(version[0]),
            )
        with connection.begin():
            settings = ("fsync", "full_page_writes", "server_encoding")
            found = {name: connection.exec_driver_sql(f"SHOW {name}").scalar() for name in settings}
        if found["fsync"] != "on":
            raise TopologyError(
                f"PostgreSQL cannot keep a state; fsync is {found['fsync']!r}, so a crash of the "
                "machine may lose commits, or the whole database; expected 'on'; set it on the "
                "server",
                server="PostgreSQL",
                setting="fsync",
                got=found["fsync"],
            )
        if found["server_encoding"] != "UTF8":
            raise TopologyError(
                "PostgreSQL cannot keep a state in a database whose encoding is "
                f"{found['server_encoding']!r}, which does not hold all characters; expected "
                "'UTF8'; create another one: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
                server="PostgreSQL",
                setting="server_encoding",
                got=found["server_encoding"],
            )
        if found["full_page_writes"] != "on":
            _logger.warning(
                "PostgreSQL has full_page_writes = %s; a crash of the machine may leave half a "
                "page; expected on, unless its file system writes pages whole",
                found["full_page_writes"],
            )
        connection.info["checked"] = True

    @contextmanager
    def creating(self, connection: sa.Connection) -> Iterator[None]:
        """Keep out other creators of states in this database until the transaction ends."""
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
        yield

    def listing(self) -> sa.Table | None:
        """Return the table with the keys of the last txid."""
        return self._rows.touched

    def same_type(self, wanted: str, found: str) -> bool:
        """Return whether a user's column fits. Text may be limited: a longer text is an error."""
        return wanted == found or (wanted == "TEXT" and found.startswith("VARCHAR"))

    def create(self, connection: sa.Connection) -> None:
        """Create the list of touched keys, and an index of tombstones.

        The index is on ``deleted``, not on txid: an index on a column that every update changes
        would prevent heap-only updates.
        """
        touched = self._rows.touched
        if touched is None:
            return
        if sa.inspect(connection).has_table(touched.name):
            return
        touched.create(connection)
        connection.execute(UncompressedColumns(touched, self.state.key.names))
        connection.execute(sa.insert(touched).values(txid=0))
        deleted = self.columns.deleted
        index = sa.Index(self.names.tombstones, deleted, postgresql_where=deleted)
        connection.execute(sa.schema.CreateIndex(index, if_not_exists=True))

    def flaw(self, connection: sa.Connection) -> str | None:
        """Return why the table cannot be used: its kind, UNLOGGED, or the collation of its keys."""
        name = {"name": self.state.name}
        kind, logged = connection.execute(sa.text(_KIND), name).one()
        if kind != "r":
            return f"it is a {_KINDS.get(kind, 'relation of kind ' + kind)}"
        if not logged:
            return "it is UNLOGGED, so a crash of the server empties it"
        keys = name | {"keys": list(self.state.key.names)}
        own = self.state.origin == "made"
        wrong = sa.text(_KEY_COLLATION + (_NOT_BYTES if own else _NOT_DIFFERENT))
        collation = connection.execute(wrong, keys).scalar()
        if collation is not None:
            how = "not as bytes" if own else "under which different keys are equal"
            return f"it compares keys by the collation {collation!r}, {how}"
        return None

    def shown(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Return the column; ``json`` stays ``JSON`` in the view."""
        if not isinstance(column.type, JsonText):
            return column
        return sa.type_coerce(column, sa.JSON()).label(column.key)

    def write_options(self) -> dict[str, Any]:
        """Return READ COMMITTED; the lock on the ledger's row puts writers in order."""
        return {"isolation_level": "READ COMMITTED"}

    def idle_limit_s(self, connection: sa.Connection) -> float | None:
        """Return the limit that each session has."""
        return _IDLE_TIMEOUT_S

    def limit_idle(self, connection: sa.Connection, limit_s: float) -> None:
        """Give this transaction a limit; 0 for none."""
        if limit_s != _IDLE_TIMEOUT_S:
            connection.exec_driver_sql(f"SET LOCAL {_IDLE} = {round(limit_s * 1000)}")

    def ended_idle(
        self, error: BaseException | None, info: Mapping[Any, Any], limit_s: float
    ) -> bool:
        """Return whether the server says so."""
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        return state_of(cause) == _ENDED_IDLE

    def read_options(self) -> dict[str, Any]:
        """Return REPEATABLE READ: ledger and rows are from one moment."""
        return {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}

    def begin_reading(self, connection: sa.Connection) -> None:
        """Turn off the limit on idle transactions: a user may pause for long between two reads."""
        self.limit_idle(connection, 0)

    @contextmanager
    def read_only(
        self, connection: sa.Connection, statement: str, timeout_s: float
    ) -> Iterator[None]:
        """Limit the time. The statement runs through a cursor, which accepts only queries."""
        limit_ms = max(1, round(timeout_s * 1000))
        read_json_as_text(connection.connection.driver_connection)
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {limit_ms}")
        yield

    def database(self, connection: sa.Connection) -> Database:
        """Return the server's system identifier, the database, the user, and the URL's options."""
        server, database, *session = connection.exec_driver_sql(_DATABASE).one()
        return Database(("postgresql", server, database), (*session, *url_options(self._url)))

    def size(self, connection: sa.Connection) -> StateSize:
        """Return the catalogue's figures; a table that was never analysed has no row count."""
        name = {"name": connection.dialect.identifier_preparer.quote(self.state.name)}
        found = connection.execute(sa.text(_SIZE), name).first()
        if found is None:
            return StateSize()
        return StateSize(None if found.rows < 0 else int(found.rows), int(found.bytes))

    def undo(self, connection: sa.Connection, txid: int) -> None:
        """Undo the rows of *txid*, which are found by the list of its keys."""
        touched = self._rows.touched
        assert touched is not None
        keys = [sa.func.unnest(touched.c[name]) for name in self.state.key.names]
        wanted = sa.select(*keys).where(touched.c.txid == txid)
        among = sa.tuple_(*self.columns.keys).in_(wanted)
        for statement in undo_statements(self.columns, txid, among):
            connection.execute(statement)

    def starting(self, prefixes: Sequence[Key]) -> sa.Select[Any]:
        """Return the query for rows whose key begins with a prefix: one index lookup for each."""
        if not self._looks_up:
            return super().starting(prefixes)
        types = self.state.key.arrow_schema().types
        columns = zip(*prefixes, strict=True)
        return self._starting(
            [pa.chunked_array([c], k) for c, k in zip(columns, types, strict=False)]
        )

    def read_columns(
        self, connection: sa.Connection, wanted: sa.ColumnElement[bool] | pa.Table
    ) -> pa.Table | None:
        """Return rows that a condition describes, or whose keys begin so, by ``COPY``, in columns.

        The server's texts become Arrow columns without a Python object for each value.
        """
        if isinstance(wanted, sa.ColumnElement):
            found = self.selected().where(wanted).subquery(FOUND)
        elif self._looks_up and wanted.num_rows:
            found = self._starting(wanted.columns).subquery(FOUND)
        else:
            return None
        width = len(self.state.key) + len(self.state.value)
        columns = list(found.c)[: width + 1]
        # A parameter, since psycopg takes "%%" for "%" only in a statement with parameters.
        query = sa.select(*columns[:-1], sa.func.coalesce(columns[-1], sa.literal(0)))
        if self.columns.opaque:
            query = query.where(sa.not_(list(found.c)[-1]))
        compiled = query.compile(
            dialect=connection.dialect, compile_kwargs={"render_postcompile": True}
        )
        driver: Any = connection.connection.driver_connection
        out = f"COPY ({compiled}) TO STDOUT (FORMAT csv)"
        parts: list[bytes] = []
        with driver.cursor() as cursor, cursor.copy(out, compiled.params) as copy:
            parts.extend(bytes(part) for part in copy)
        return of_csv(b"".join(parts), column_schema(self.state))

    @property
    def _looks_up(self) -> bool:
        """Whether rows are looked up by the index of the key; a user's table may have no such."""
        return self.state.mode != "log" and self.state.origin == "made"

    def _starting(self, prefixes: Sequence[pa.ChunkedArray]) -> sa.Select[Any]:
        """Return the query for rows whose key begins with a prefix.

        Until the table is analysed, the planner does not know that few rows match, and would read
        all of it. OFFSET keeps it from choosing another join.
        """
        columns = self.columns.keys[: len(prefixes)]
        types = [plain_type(field.type) for field in self.state.key]
        # As text: psycopg dumps a list value by value.
        arrays = [
            sa.cast(sa.literal(as_array(part)), ARRAY(types[at]))
            for at, part in enumerate(prefixes)
        ]
        typed = [sa.column(given(at), kind) for at, kind in enumerate(types[: len(columns)])]
        wanted = sa.func.unnest(*arrays).table_valued(*typed, name=WANTED).render_derived()
        same = [column == wanted.c[given(at)] for at, column in enumerate(columns)]
        found = self.selected().where(*same).offset(sa.literal_column("0")).lateral(FOUND)
        return sa.select(*found.c).select_from(wanted.join(found, sa.true()))

    def decoded(self, kind: str, column: Sequence[Any]) -> Sequence[Any]:
        """Convert a column read from PostgreSQL to Python values of this field type."""
        return list(map(as_float, column)) if kind == "float" else column

    def only_sends(self, writes: Writes) -> bool:
        """Return whether the rows travel as arrays, and the server combines them itself."""
        width = len(self.state.key) + len(self.state.value)
        return combines_in_store(self.state) and _is_small(writes, width)

    @contextmanager
    def sending(self, connection: sa.Connection, count: int) -> Iterator[None]:
        """Send the statements of several states in a pipeline, unless a pooler is in between."""
        from psycopg import Connection, Pipeline

        driver = connection.connection.driver_connection
        assert isinstance(driver, Connection)
        if count < 2 or connection.info.get(SHARED) or not Pipeline.is_supported():
            yield
            return
        with driver.pipeline():
            yield

    def apply(self, connection: sa.Connection, txid: int, writes: Writes) -> None:
        """Write the rows of *txid*, sorted by key, and the list of their keys."""
        if isinstance(writes, Puts):
            rows = puts_table(self.state, writes)
            self._rows.write(connection, rows, txid, put=True)
        else:
            partials = checked_partials(self.state, writes.partials)
            rows = partials.rename_columns([given(at) for at in range(partials.num_columns)])
            self._rows.write(connection, rows, txid, put=False)


def session() -> dict[str, str]:
    """Return what a state needs from its sessions, besides exact values and texts."""
    return {
        "synchronous_commit": "on",
        "jit": "off",
        "lock_timeout": _LOCK_TIMEOUT,
        _IDLE: f"{_IDLE_TIMEOUT_S}s",
    }


# Below this, arrays in the statement are faster than COPY with its extra round trips.
COPIED_ROWS_MIN = 2_000

COPIED_BYTES_MIN = 1 << 24

CHARACTER_BYTES_MAX = 4

# A decimal in Arrow; a text has an offset instead.
CELL_BYTES_MAX = 16

# This much is converted to text at a time.
PIECE_BYTES_MAX = 1 << 24

ROW_BYTES_MAX = (1 << 30) - 1
"""What the server takes of one row as text: PostgreSQL's MaxAllocSize."""

GONE = "in_gone"

# Aliases; the name of a state's table is never this long.
WANTED, FOUND = ("txtopo_wanted".ljust(len(STAGE), "_"), "txtopo_found".ljust(len(STAGE), "_"))


def given(at: int) -> str:
    """Return the name of the at-th incoming column, keys first, then values.

    The user's names cannot be used: SQLAlchemy changes unusual ones in names of parameters.
    """
    return f"in_{at}"


@dataclass(frozen=True, slots=True)
class Change:
    """One WHEN clause of a MERGE; without values it deletes the row.

    Attributes:
        when: ``MATCHED`` or ``NOT MATCHED``.
        values: The new values by column.
        condition: A further condition.
    """

    when: str
    values: dict[sa.Column[Any], sa.ColumnElement[Any]]
    condition: sa.ColumnElement[bool] | None = None


class Merge(sa.ClauseElement):
    """The statement ``MERGE``, which SQLAlchemy does not have."""

    inherit_cache = False

    def __init__(
        self,
        target: sa.Table,
        source: sa.FromClause,
        keys: Sequence[sa.Column[Any]],
        changes: Sequence[Change],
    ) -> None:
        self.target = target
        self.source = source
        self.match = sa.and_(*[key == source.c[given(at)] for at, key in enumerate(keys)])
        self.changes = changes


@compiles(Merge, "postgresql")
def _merge(element: Merge, compiler: SQLCompiler, **_: Any) -> str:
    target = compiler.process(element.target, asfrom=True)
    source = compiler.process(element.source, asfrom=True)
    parts = [f"MERGE INTO {target} USING {source} ON {compiler.process(element.match)}"]
    for change in element.changes:
        also = "" if change.condition is None else f" AND {compiler.process(change.condition)}"
        parts.append(f"WHEN {change.when}{also} THEN {_action(change, compiler)}")
    return " ".join(parts)


def _action(change: Change, compiler: SQLCompiler) -> str:
    names = [compiler.preparer.quote(column.name) for column in change.values]
    values = [compiler.process(value) for value in change.values.values()]
    if not names:
        return "DELETE"
    if change.when == "NOT MATCHED":
        return f"INSERT ({', '.join(names)}) VALUES ({', '.join(values)})"  # noqa: S608 - compiled
    pairs = zip(names, values, strict=True)
    return "UPDATE SET " + ", ".join(f"{name} = {value}" for name, value in pairs)


class UncompressedColumns(ExecutableDDLElement):
    """The statement that keeps long values of columns uncompressed.

    A compressed list of 98,000 keys took the server 35 ms, an uncompressed one takes 14 ms.
    """

    def __init__(self, table: sa.Table, names: Sequence[str]) -> None:
        self.table = table
        self.names = names


@compiles(UncompressedColumns, "postgresql")
def _uncompressed(element: UncompressedColumns, compiler: DDLCompiler, **_: Any) -> str:
    quote = compiler.preparer.quote
    parts = [f"ALTER COLUMN {quote(name)} SET STORAGE EXTERNAL" for name in element.names]
    return f"ALTER TABLE {quote(element.table.name)} {', '.join(parts)}"


class RowWriter:
    """Writes the rows of a txid: few from arrays, many from a stage that ``COPY`` fills.

    Attributes:
        stage: The temporary table of a connection that ``COPY`` fills.
        touched: The table with the keys of the last txid; None for a transactional state.
    """

    def __init__(self, state: StateTable, columns: StateColumns, names: SqlNames) -> None:
        self._state = state
        self._columns = columns
        self.stage = _stage(state)
        self.touched = None if names.touched is None else _touched(names.touched, state)
        arrays = _arrays(state)
        self._keep = ("", "") if self.touched is None else self._keep_pair(self.touched)
        self._puts = self._pair(arrays, put=True)
        self._merges = self._pair(arrays, put=False) if state.aggregates else None

    def write(self, connection: sa.Connection, rows: pa.Table, txid: int, *, put: bool) -> None:
        """Write rows. The columns are keys, values and, for puts, whether the key is deleted."""
        statements = self._puts if put else self._merges
        assert statements is not None
        copied = rows.num_rows >= COPIED_ROWS_MIN or rows.nbytes >= COPIED_BYTES_MIN
        parameters: dict[str, Any] = {"in_txid": txid}
        if copied:
            if connection.info.get(SHARED):
                _stage(self._state, "DROP").create(connection)
            copy_rows(connection, self.stage.name, rows, state=self._state.name)
        else:
            names = rows.column_names
            parameters |= {name: as_array(rows.column(name)) for name in names}
        if statement := statements[copied] if rows.num_rows else self._keep[copied]:
            connection.exec_driver_sql(statement, parameters)

    def _pair(self, arrays: dict[str, sa.BindParameter[Any]], *, put: bool) -> tuple[str, str]:
        wanted = [name for name in arrays if put or name != GONE]
        unnested = sa.func.unnest(*[arrays[name] for name in wanted])
        typed = [sa.column(name, self.stage.c[name].type) for name in wanted]
        sources = (
            unnested.table_valued(*typed, name="s").render_derived(),
            self.stage.alias("s"),
        )
        merges = [_text(self._merge(source, put=put)) for source in sources]
        # One statement for both tables saves a round trip, and the keys are sent once.
        few, many = (
            f"WITH kept AS ({keep}) {merge}" if keep else merge
            for keep, merge in zip(self._keep, merges, strict=True)
        )
        return few, many

    def _merge(self, source: sa.FromClause, *, put: bool) -> Merge:
        columns = self._columns
        gone = source.c[GONE] if put else None
        width = len(columns.keys)
        updated: dict[sa.Column[Any], sa.ColumnElement[Any]] = {
            column: source.c[given(at)] for at, column in enumerate(columns.values, width)
        }
        if not put:
            updated = {
                column: _combined(aggregate, column, new)
                for aggregate, (column, new) in zip(
                    self._state.aggregates, updated.items(), strict=True
                )
            }
        changes = [
            *([] if gone is None else [self._removal(gone)]),
            Change("MATCHED", {**updated, **self._tags(deleted=False)}),
            self._insertion(source, None if gone is None else sa.not_(gone)),
        ]
        return Merge(columns.table, source, columns.keys, changes)

    def _removal(self, gone: sa.ColumnElement[bool]) -> Change:
        if not self._columns.opaque:
            return Change("MATCHED", {}, gone)
        return Change("MATCHED", self._tags(deleted=True), gone)

    def _tags(self, *, deleted: bool) -> dict[Any, Any]:
        columns = self._columns
        tags: dict[Any, Any] = {columns.txid: _txid()}
        if columns.opaque:
            tags |= dict(columns.moved_back())
            tags |= {columns.deleted: sa.true() if deleted else sa.false()}
        return tags

    def _insertion(self, source: sa.FromClause, condition: sa.ColumnElement[bool] | None) -> Change:
        columns = self._columns
        inserted = enumerate((*columns.keys, *columns.values))
        values: dict[Any, Any] = {column: source.c[given(at)] for at, column in inserted}
        values[columns.txid] = _txid()
        if columns.opaque:
            values[columns.deleted] = sa.false()
        return Change("NOT MATCHED", values, condition)

    def _keep_pair(self, touched: sa.Table) -> tuple[str, str]:
        arrays = _arrays(self._state)
        keys = [(touched.c[name], given(at)) for at, name in enumerate(self._state.key.names)]
        read = {
            column: sa.select(sa.func.array_agg(self.stage.c[name]))
            .select_from(self.stage)
            .scalar_subquery()
            for column, name in keys
        }
        update = sa.update(touched)
        txid: dict[Any, Any] = {touched.c.txid: _txid()}
        bound = {column: arrays[name] for column, name in keys}
        return _text(update.values({**txid, **bound})), _text(update.values({**txid, **read}))


def copy_rows(connection: sa.Connection, table: str, rows: pa.Table, *, state: str) -> None:
    """Append rows to a table, by ``COPY``.

    Args:
        connection: A connection in the transaction of the commit.
        table: The table.
        rows: The rows.
        state: Name of the state, for messages.

    Raises:
        ValueRefusedError: A row is too long.
    """
    names = ", ".join(_quoted(connection, name) for name in rows.column_names)
    driver: Any = connection.connection.driver_connection
    into = f"COPY {_quoted(connection, table)} ({names}) FROM STDIN (FORMAT csv)"
    with driver.cursor() as cursor, cursor.copy(into) as copy:
        for piece in _pieces(rows, state):
            copy.write(as_csv(piece))


def _half_fill(table: sa.Table, connection: sa.Connection, **options: Any) -> None:
    """Leave half of each page of a new table free.

    Only SQLAlchemy 2.1 has this as an option of the table, and ``sa.DDL`` doubles a percent sign in
    the name once too often.
    """
    name = connection.dialect.identifier_preparer.format_table(table)
    connection.exec_driver_sql(f"ALTER TABLE {name} SET (fillfactor = 50)")


def _pieces(rows: pa.Table, state: str) -> Iterator[pa.Table]:
    if rows.nbytes <= PIECE_BYTES_MAX:
        yield rows
    elif rows.num_rows > 1:
        half = rows.num_rows // 2
        yield from _pieces(rows.slice(0, half), state)
        yield from _pieces(rows.slice(half), state)
    else:
        # Each byte is sent as two digits.
        needed = sum(
            column.nbytes * (2 if pa.types.is_binary(column.type) else 1) for column in rows.columns
        )
        if needed > ROW_BYTES_MAX:
            raise ValueRefusedError(
                f"a row is too long for table {state!r}; got {needed} bytes of text; expected at "
                f"most {ROW_BYTES_MAX}, which no setting of PostgreSQL raises; nothing of its "
                "batch was written; store the value elsewhere, and keep only a reference in the "
                "state",
                state=state,
                bytes=needed,
                limit=ROW_BYTES_MAX,
            )
        yield rows


def _is_small(writes: Writes, width: int) -> bool:
    """Return whether rows of *width* columns are certainly too few, and too short, to be copied."""
    table = writes.columns if isinstance(writes, Puts) else writes.partials
    if table is not None:
        return bool(table.num_rows < COPIED_ROWS_MIN and table.nbytes < COPIED_BYTES_MIN // 2)
    assert isinstance(writes, Puts)
    if len(writes.rows) >= COPIED_ROWS_MIN:
        return False
    texts = (
        len(value)
        for key, values in writes.rows.items()
        for value in (*key, *(values or ()))
        if isinstance(value, str | bytes)
    )
    cells = len(writes.rows) * width * CELL_BYTES_MAX
    return cells + sum(texts) * CHARACTER_BYTES_MAX < COPIED_BYTES_MIN // 2


def puts_table(state: StateTable, writes: Puts) -> pa.Table:
    """Return final values by key as a table with the columns of the stage, sorted by key."""
    if (table := writes.columns) is not None:
        width = len(state.key) + len(state.value)
        gone = table.column(width) if writes.deletes else pa.repeat(pa.scalar(False), len(table))
        names = [given(at) for at in range(width)]
        return table.select(range(width)).rename_columns(names).append_column(GONE, gone)
    rows = sorted(writes.rows.items(), key=lambda row: row[0])
    types = [*state.key.arrow_schema().types, *state.value.arrow_schema().types]
    empty = (None,) * len(state.value)
    records = [(*key, *(empty if values is None else values)) for key, values in rows]
    columns = list(zip(*records, strict=True)) if records else [()] * len(types)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    gone = pa.array([values is None for _, values in rows], pa.bool_())
    return pa.table([*arrays, gone], names=[*map(given, range(len(types))), GONE])


def _stage(state: StateTable, on_commit: str = "DELETE ROWS") -> sa.Table:
    fields = [*state.key, *state.value]
    return sa.Table(
        stage_name(state),
        sa.MetaData(),
        *[sa.Column(given(at), plain_type(field.type)) for at, field in enumerate(fields)],
        sa.Column(GONE, sa.Boolean()),
        prefixes=["TEMPORARY"],
        postgresql_on_commit=on_commit,
    )


def _touched(name: str, state: StateTable) -> sa.Table:
    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("txid", sa.BigInteger(), nullable=False),
        *[sa.Column(field.name, ARRAY(plain_type(field.type))) for field in state.key],
    )


def _arrays(state: StateTable) -> dict[str, sa.BindParameter[Any]]:
    fields = enumerate((*state.key, *state.value))
    types = {given(at): plain_type(field.type) for at, field in fields}
    types[GONE] = sa.Boolean()
    return {name: sa.bindparam(name, type_=ARRAY(kind)) for name, kind in types.items()}


def _quoted(connection: sa.Connection, name: str) -> str:
    # SQLAlchemy doubles "%" for statements with parameters; COPY has none.
    return connection.dialect.identifier_preparer.quote(name).replace("%%", "%")


def _txid() -> sa.BindParameter[int]:
    return sa.bindparam("in_txid", type_=sa.BigInteger())


def _combined(
    aggregate: Aggregate, old: sa.ColumnElement[Any], new: sa.ColumnElement[Any]
) -> sa.ColumnElement[Any]:
    if aggregate.operator == "add":
        return sa.func.coalesce(old + new, old, new)
    if isinstance(old.type, sa.String):
        # Ordered by its bytes, as in Python, even in a user's own table.
        old = sa.collate(old, "C")
    # LEAST and GREATEST ignore NULL.
    return (sa.func.least if aggregate.operator == "min" else sa.func.greatest)(old, new)


def _text(statement: sa.ClauseElement) -> str:
    dialect = sa.make_url("postgresql+psycopg://").get_dialect()
    return str(statement.compile(dialect=dialect()))


class JsonText(sa.types.UserDefinedType[str]):
    """The column type ``JSON``, whose values are texts here.

    It keeps the text as it is, and functions and operators of JSON read it. ``JSONB`` would change
    values: -0.0 becomes 0.0, the float 1e16 a whole number, and it refuses ``\\u0000`` and halves
    of characters.
    """

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Return the name of the type."""
        return "JSON"

    def column_expression(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Select the column as text; psycopg would parse it."""
        return sa.cast(column, sa.Text())


_TYPES: dict[str, TypeEngine[Any]] = {
    "json": JsonText(),
    "binary": sa.LargeBinary(),
    "boolean": sa.Boolean(),
    "byte": sa.SmallInteger(),
    "short": sa.SmallInteger(),
    "int": sa.Integer(),
    "long": sa.BigInteger(),
    "float": sa.REAL(),
    "double": sa.Double(),
    "date": sa.Date(),
    "timestamp": sa.TIMESTAMP(timezone=True),
    "timestamp_ntz": sa.TIMESTAMP(),
}


def plain_type(kind: str) -> TypeEngine[Any]:
    """Return the type of a parameter for a field type."""
    if kind.startswith("decimal"):
        precision, scale = (int(part) for part in kind[8:-1].split(","))
        return sa.Numeric(precision, scale)
    return _TYPES.get(kind, sa.Text())


def column_type(kind: str) -> TypeEngine[Any]:
    """Return the column type for a field type; text compares as bytes, as in Python."""
    return sa.Text(collation="C") if kind == "string" else plain_type(kind)


def as_float(value: float | None) -> float | None:
    """Return a 32-bit float exactly: the server sends only as many digits as identify it."""
    return None if value is None else float(struct.unpack("f", struct.pack("f", value))[0])


def as_csv(table: pa.Table) -> pa.Buffer:
    """Return a table as CSV for ``COPY``: NULL is empty, strings are quoted."""
    columns = [_readable(column) for column in table.columns]
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(
        pa.table(columns, names=table.column_names),
        sink,
        pyarrow.csv.WriteOptions(include_header=False),
    )
    return sink.getvalue()


def of_csv(text: bytes, schema: pa.Schema) -> pa.Table:
    """Return the columns of CSV that ``COPY`` has written: NULL is empty, strings may be quoted."""
    if not text:
        return schema.empty_table()
    binary = [each.name for each in schema if pa.types.is_binary(each.type)]
    types = {each.name: pa.string() if each.name in binary else each.type for each in schema}
    table = pyarrow.csv.read_csv(
        pa.py_buffer(text),
        pyarrow.csv.ReadOptions(
            column_names=schema.names,
            use_threads=False,
            # A row must not be in several blocks, and it may be long.
            block_size=min(len(text), 2**31 - 1),
        ),
        pyarrow.csv.ParseOptions(newlines_in_values=True),
        pyarrow.csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    )
    for at, each in enumerate(schema):
        if each.name in binary:
            values = [
                None if value is None else bytes.fromhex(value[2:])
                for value in table.column(at).to_pylist()
            ]
            table = table.set_column(at, each, pa.chunked_array([pa.array(values, each.type)]))
    return table


def as_array(column: pa.ChunkedArray) -> str:
    """Return a column as the text of a PostgreSQL array, which is much faster than a list."""
    texts = _readable(column).cast(pa.string())
    if not pa.types.is_integer(column.type):
        for special in ("\\", '"'):
            texts = pc.replace_substring(texts, special, "\\" + special)
        texts = pc.binary_join_element_wise('"', texts, '"', "")
    items = texts.fill_null("NULL")
    return "{" + ",".join(items.to_pylist()) + "}"


def _readable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_binary(column.type):
        texts = [None if value is None else "\\x" + value.hex() for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_decimal(column.type):
        return column.cast(pa.string())
    if pa.types.is_timestamp(column.type):
        # Without the zone, which would take Arrow twenty times as long; the session is in UTC.
        return column.cast(pa.timestamp("us"))
    return column
