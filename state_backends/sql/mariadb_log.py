"""A state in MariaDB or MySQL in mode ``log``: the partials of a txid are appended, folded later.

The primary key is (txid, key): rows come in its order, so a commit writes at the end of the table,
a redo deletes there, and the rows of a span lie together. Key columns hold 8 bytes less than in
mode ``table``, for the txid. Rows travel as JSON, as in mode ``table``, and no list of keys is
kept. There is no index by key: a reading goes once through the whole log, and so does a question
for one key.

A reader gets its rows by one GROUP BY. It cannot be asked page by page, since each page would add
up the whole log; so all of it is fetched into memory first, some 250 bytes a key. (A file of it
would be of pickles, which no store reads.)

The folds, ``mariadb_folding.py``, are beside the commits.
"""

from __future__ import annotations

import pyarrow as pa
import sqlalchemy as sa

from state_backends.sql.log import LogDialect
from state_backends.sql.log_sums import SumBounds
from state_backends.sql.mariadb import TABLE_OPTIONS, MariadbDialect
from state_backends.sql.mariadb_folding import MariadbLogFolder
from state_backends.sql.mariadb_log_statements import LogStatements
from state_backends.sql.mariadb_types import column_type, key_type, limits
from state_backends.sql.tables import StateColumns
from txtopo.state import Fields, StateTable

_FLOAT_MAX = {"float": 1.79e308, "double": 1.79e308}  # both are kept in a DOUBLE
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
        self.folder = MariadbLogFolder(state, self.columns, self.prepare)

    def statements(self, dialect: sa.Dialect) -> LogStatements:
        """Return the statements of the state."""
        return LogStatements(self.state, self.columns, dialect)

    def create(self, connection: sa.Connection) -> None:
        """Nothing stands beside the table."""

    def append(self, connection: sa.Connection, txid: int, rows: pa.Table) -> None:
        """Insert rows, in the order of the primary key."""
        statement: str = connection.info["statements"].append
        columns = [column.to_pylist() for column in rows.drop_columns(["txid"]).columns]
        self._write(connection, (statement,), list(zip(*columns, strict=True)), txid)


class MariadbSums(SumBounds):
    """Watches sums in MariaDB, where one of floats beyond their range is 0, without a word."""

    def summed(self, column: sa.Column[float]) -> sa.ColumnElement[float]:
        """Return a sum that cannot get there."""
        if column.name in self.floats:
            return sa.type_coerce(sa.func.sum(sa.func.abs(column) * _SCALE), column.type)
        return super().summed(column)

    def float_bound(self, name: str, high: float) -> float:
        """Return the bound of a sum of floats; refuse what is beyond their range."""
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
