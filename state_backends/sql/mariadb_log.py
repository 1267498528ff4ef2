"""A state in MariaDB or MySQL in mode ``log``: partials are appended and folded later.

The primary key is (txid, key). Rows are stored in its order, so a commit writes at the end of the
table, a redo deletes there, and the rows of a span are adjacent. Key columns hold 8 bytes less than
in mode ``table``, because of the txid. Rows are sent as JSON, as in mode ``table``; no list of keys
is kept. There is no index by key, so each read, even of one key, scans the whole log.

A reader gets its rows by one GROUP BY. It cannot read page by page, since each page would add up
the whole log; so it fetches everything into memory first, some 250 bytes a key.

Folds
-----
In addition to the rules of ``log.py``:

1. A fold adds the rows of its span to the rows of the same keys with the last txid, and creates
   missing ones. Then it deletes the rows that it has added: two statements in one transaction. If
   the sum of a part does not fit its column, strict mode makes it an error, and nothing is folded.
2. Before that, it locks the first row of the log until it ends. So folds run one after the other,
   and each reads what the previous one left. No row is inserted before the first one, since rows
   are added to rows of a later txid. If a fold waits for the first row and that row is deleted, it
   gets the row that is then the first. Without the lock two folds would both read a row and add it
   twice, or one would delete what the other had just added.
3. It is READ COMMITTED, which locks rows and not the gaps between them. Its rows have txids before
   the ledger's, so commits and folds never wait for each other.
4. A fold proceeds piece by piece. A piece is a transaction with the first rows of one txid, by the
   primary key, beginning with the newest txid. It is itself a fold by these rules, so each piece
   leaves the sums unchanged, and if a fold is interrupted, the rest is folded later. Between two
   pieces it pauses for three times as long as the piece took. A fold that is late, or that the end
   of a run waits for, does the rest in one transaction.

Why not by ``GROUP BY``: its temporary table has the whole width of the key in each row. For 160,000
rows that takes as long as adding row by row, 0.8 to 1.2 s; for a million rows it takes 8 to 12 s
instead of 2 to 4.

Why with pauses: no commit waits for a lock, only for a core and the disk, which a fold and the
server's own threads behind it keep busy. Measured on two cores beside other work, twice 80 commits
of 10,000 keys one after the other into 1,000,000, median and fourth longest: without folds 31, 110
and 29, 134 ms; with folds in one transaction 51, 210 and 62, 213; in pieces without pauses 95, 279
and 139, 307; with pauses 31, 143 and 29, 99. A fold of 230,000 rows took 2 s in one transaction and
5 to 7 s with pauses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import sqlalchemy as sa

from state_backends.sql.dialect import StateColumns
from state_backends.sql.log import LogDialect, LogFolder, LogSums
from state_backends.sql.mariadb import TABLE_OPTIONS, MariadbDialect
from state_backends.sql.mariadb_rows import StatementParts, column_type, key_type, limits
from state_backends.sql.names import TABLE_BYTES_MAX
from txtopo.clock import now
from txtopo.plugins.stores import Fields, StateTable
from txtopo.state.log_mode import SEGMENTS_OF_A_TIER

_FLOAT_MAX = {"float": 1.79e308, "double": 1.79e308}  # both types are kept in a DOUBLE

# A power of two, so that nothing is rounded; no key has so many rows that their sum is infinite.
_SCALE = 2.0**-64


class MariadbLogDialect(LogDialect, MariadbDialect):
    """One state in MariaDB or MySQL in mode ``log``."""

    pages = False
    fetches = True

    def __init__(self, url: sa.URL, state: StateTable) -> None:
        super().__init__(url, state)
        tagged = Fields.of([*Fields("txid long"), *state.key])
        self.columns = _columns(state, tagged)
        self._limits = limits(tagged)[1:]
        self._touched = None
        self.sums = MariadbSums(state, self.columns, _FLOAT_MAX)
        self.folder = MariadbLogFolder(state, self.columns, self.prepare, self.statements_for)

    def statements(self, dialect: sa.Dialect) -> LogStatements:
        """Compile the statements of the state."""
        return LogStatements(self.state, self.columns, dialect)

    def create(self, connection: sa.Connection) -> None:
        """Do nothing: the table is the only object."""

    def append(self, connection: sa.Connection, txid: int, rows: pa.Table) -> None:
        """Insert rows, in the order of the primary key."""
        statement: str = self.statements_for(connection).append
        columns = [column.to_pylist() for column in rows.drop_columns(["txid"]).columns]
        self._write(connection, (statement,), list(zip(*columns, strict=True)), txid)


class MariadbSums(LogSums):
    """Refuses sums in MariaDB, where a sum of floats beyond their range silently becomes 0."""

    def summed(self, column: sa.Column[float]) -> sa.ColumnElement[float]:
        """Return the sum of a column; floats are scaled so that it cannot overflow."""
        if column.name in self.floats:
            return sa.type_coerce(sa.func.sum(sa.func.abs(column) * _SCALE), column.type)
        return super().summed(column)

    def float_bound(self, name: str, high: float) -> float:
        """Return the bound of a sum of floats; refuse a sum beyond their range."""
        bound = high / _SCALE
        if bound > self.floats[name]:
            raise self.refused(name, bound, self.floats[name])
        return bound


def _columns(state: StateTable, tagged: Fields) -> StateColumns:
    of_key = key_type(tagged)
    txid, *keys = (
        sa.Column(field.name, of_key(field.type), primary_key=True, autoincrement=False)
        for field in tagged
    )
    values = [sa.Column(field.name, column_type(field.type)) for field in state.value]
    table = sa.Table(state.name, sa.MetaData(), txid, *keys, *values, **TABLE_OPTIONS)
    return StateColumns(table, tuple(keys), tuple(values), ())


class MariadbLogFolder(LogFolder):
    """Folds the log of a state in MariaDB or MySQL.

    Args:
        state: The state.
        columns: Its table.
        prepare: Sets a connection up for writes.
        statements_for: Returns the statements of the state for a connection.
    """

    def __init__(
        self,
        state: StateTable,
        columns: StateColumns,
        prepare: Callable[[sa.Connection], None],
        statements_for: Callable[[sa.Connection], LogStatements],
    ) -> None:
        super().__init__(state, columns)
        self._prepare = prepare
        self._statements_for = statements_for

    def prepare(self, connection: sa.Connection) -> None:
        """Make the session READ COMMITTED."""
        self._prepare(connection)

    def folded(self, connection: sa.Connection, txids: Sequence[int]) -> int:
        """Fold these txids piece by piece; if time is short, fold the rest at once."""
        *older, last = txids
        while older and not self._hurries(len(txids)):
            begun_s = now()
            with connection.begin():
                moved = self._moved(connection, older[-1], last)
            if moved < PIECE_ROWS:
                older.pop()
            self.background.pause(_PAUSE * (now() - begun_s))
        return super().folded(connection, txids)

    def replace(self, connection: sa.Connection, first: int, last: int) -> int:
        """Replace the rows of the txids *first* to *last*; return how many are left."""
        statements = self._statements_for(connection)
        span = {"first": first, "last": last}
        connection.exec_driver_sql(statements.lock)
        connection.exec_driver_sql(statements.add, span)
        connection.exec_driver_sql(statements.remove, span)
        return int(connection.exec_driver_sql(statements.left, span).scalar_one())

    def _moved(self, connection: sa.Connection, first: int, last: int) -> int:
        """Add some rows of a span to those of its last txid; return how many."""
        statements = self._statements_for(connection)
        piece = {"first": first, "last": last, "rows": PIECE_ROWS}
        connection.exec_driver_sql(statements.lock)
        connection.exec_driver_sql(statements.add_some, piece)
        return connection.exec_driver_sql(statements.remove_some, piece).rowcount

    def _hurries(self, txids: int) -> bool:
        """Return whether the run ends, or too many commits are waiting to be folded."""
        return self.background.hurries or txids + len(self._written) > _LEISURE_TXIDS


# This many rows take about as long as a commit of as many.
PIECE_ROWS = 10_000

# After each piece a fold pauses for this many times its duration.
_PAUSE = 3.0

# Beyond this many txids, to be folded or written since, a fold does the rest at once.
_LEISURE_TXIDS = 4 * SEGMENTS_OF_A_TIER

# The alias of the folded rows; the name of a state's table is never this long.
_OLD = "txtopo_old".ljust(TABLE_BYTES_MAX + 1, "_")


class LogStatements(StatementParts):
    """The statements of a state, as text with parameters for the driver.

    Attributes:
        append: Inserts the rows of a txid, given as JSON.
        lock: Locks the first row of the log.
        add: Combines the rows of a span before its last txid with those of its last.
        remove: Deletes the rows of a span before its last txid.
        add_some: Combines some of them, the first ones in the order of the primary key.
        remove_some: Deletes as many rows; they are the same ones.
        left: Counts the rows of the last txid.
    """

    def __init__(self, state: StateTable, columns: StateColumns, dialect: sa.Dialect) -> None:
        super().__init__(columns, dialect)
        own = (*columns.keys, *columns.values)
        txid = self._quoted(columns.txid)
        into = f"INSERT INTO {self._table} ({', '.join(map(self._quoted, own))}, {txid})"
        given = ", ".join(self._given(at) for at in range(len(own)))
        self.append = f"{into} SELECT {given}, %(txid)s FROM {self._from_json(own)}"  # noqa: S608 - quoted
        order = ", ".join(map(self._quoted, (columns.txid, *columns.keys)))
        self.lock = f"SELECT {txid} FROM {self._table} ORDER BY {order} LIMIT 1 FOR UPDATE"  # noqa: S608
        span = f"{txid} BETWEEN %(first)s AND %(last)s - 1"
        old = ", ".join(f"{_OLD}.{self._quoted(column)}" for column in own)
        pairs = ", ".join(
            f"{self._at(column)} = {self._combined(aggregate, column)}"
            for aggregate, column in zip(state.aggregates, columns.values, strict=False)
        )
        rows = (
            f"{into} SELECT {old}, %(last)s FROM {self._table} AS {_OLD} "  # noqa: S608
            f"WHERE {_OLD}.{span}"
        )
        either = f"ON DUPLICATE KEY UPDATE {pairs}"
        some = f"ORDER BY {order} LIMIT %(rows)s"
        self.add = f"{rows} {either}"
        self.remove = f"DELETE FROM {self._table} WHERE {span}"  # noqa: S608
        self.add_some = f"{rows} {some} {either}"
        self.remove_some = f"{self.remove} {some}"
        self.left = f"SELECT COUNT(*) FROM {self._table} WHERE {txid} = %(last)s"  # noqa: S608
