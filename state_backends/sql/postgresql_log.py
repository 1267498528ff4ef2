"""A state in PostgreSQL in mode ``log``: partials are copied in and folded later.

There is no primary key, and one index, on txid, for the redo and the folds. A commit is one
``COPY`` and the ledger.

Folds
-----
A fold is one statement that deletes the rows and inserts their combination. In addition to the
rules of ``log.py``:

1. Folds of a table run one after the other, by a separate advisory lock. A statement that begins
   while another one runs does not see the rows that the other inserts: both would create rows of
   the same key and txid, whereas the bounds of sums expect one. (A lock of the table would end
   autovacuum.)
2. A fold does not wait for the disk. PostgreSQL's log is in order: once a later commit is durable,
   so is the fold, and if the fold is lost before, its rows are still there. The setting is LOCAL,
   so it ends with the fold: the connection goes back to the pool, and a commit may take it.

Why not in slices: with sixteen slices by a hash of the keys, with or without pauses between them, a
fold of 160,000 rows took three times as long, and concurrent commits did not get faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from state_backends.sql.dialect import StateColumns
from state_backends.sql.log import LogDialect, LogFolder, LogSums, combined
from state_backends.sql.postgresql import PostgresqlDialect, column_type, copy_rows
from txtopo.plugins.stores import StateTable, Writes

# PostgreSQL refuses a sum beyond the range of a float, where others return infinity: adding up the
# rows has already raised.
_FLOAT_MAX = {"float": 3.4e38, "double": 1.79e308}


class PostgresqlLogDialect(LogDialect, PostgresqlDialect):
    """One state in PostgreSQL in mode ``log``."""

    def __init__(self, url: sa.URL, state: StateTable) -> None:
        super().__init__(url, state)
        self.columns = _columns(state)
        self.sums = LogSums(state, self.columns, _FLOAT_MAX)
        self.folder = PostgresqlLogFolder(state, self.columns, self.write_options())

    def prepare(self, connection: sa.Connection) -> None:
        """Check the server. No stage is needed: rows are copied into the table itself."""
        self.check_server(connection)

    def create(self, connection: sa.Connection) -> None:
        """Create the index on txid."""
        index = sa.Index(self.names.by_txid, self.columns.txid)
        index.create(connection, checkfirst=True)

    def only_sends(self, writes: Writes) -> bool:
        """Return False: rows are copied, and the sums are checked."""
        return False

    def append(self, connection: sa.Connection, txid: int, rows: pa.Table) -> None:
        """Copy rows into the table."""
        copy_rows(connection, self.state.name, rows, state=self.state.name)


def _columns(state: StateTable) -> StateColumns:
    keys = tuple(
        sa.Column(field.name, column_type(field.type), nullable=False) for field in state.key
    )
    values = tuple(sa.Column(field.name, column_type(field.type)) for field in state.value)
    txid = sa.Column("txid", sa.BigInteger(), nullable=False)
    table = sa.Table(state.name, sa.MetaData(), *keys, *values, txid)
    return StateColumns(table, keys, values, ())


# Otherwise counting uses every core, and commits wait for one.
_BESIDE = (
    "SET LOCAL synchronous_commit = off",
    "SET LOCAL max_parallel_workers_per_gather = 0",
)

# "fold" in the upper half of the number, the table in the lower half.
_FOLLOW = sa.text(
    "SELECT pg_advisory_xact_lock(x'666f6c64'::bigint << 32 | oid::bigint) FROM pg_class "
    "WHERE relname = :name AND pg_table_is_visible(oid)"
)


class PostgresqlLogFolder(LogFolder):
    """Folds the log of a state in PostgreSQL.

    Args:
        state: The state.
        columns: Its table.
        options: Execution options of transactions that write.
    """

    def __init__(
        self, state: StateTable, columns: StateColumns, options: Mapping[str, Any]
    ) -> None:
        super().__init__(state, columns)
        self._options = options

    def prepare(self, connection: sa.Connection) -> None:
        """Set the execution options of the connection: READ COMMITTED."""
        connection.execution_options(**self._options)

    def begin(self, connection: sa.Connection) -> None:
        """Leave the other cores and the disk to commits."""
        for setting in _BESIDE:
            connection.exec_driver_sql(setting)

    def replace(self, connection: sa.Connection, first: int, last: int) -> int:
        """Replace the rows of the txids *first* to *last*; return how many are left."""
        connection.execute(_FOLLOW, {"name": self._state.name})
        counting = {"preserve_rowcount": True}
        result = connection.execute(self._statement(first, last), execution_options=counting)
        return result.rowcount

    def _statement(self, first: int, last: int) -> sa.Executable:
        columns = self._columns
        wanted = columns.txid.between(first, last)
        own = [*columns.keys, *columns.values]
        gone = sa.delete(columns.table).where(wanted).returning(*own).cte("gone")
        keys = [gone.c[key.name] for key in columns.keys]
        values = [gone.c[value.name] for value in columns.values]
        rows = sa.select(*keys, *combined(self._state, values), sa.literal(last)).group_by(*keys)
        names = [column.name for column in (*own, columns.txid)]
        return sa.insert(columns.table).from_select(names, rows).add_cte(gone)
