"""A state in PostgreSQL in mode ``log``: the partials of a txid are copied in, and folded later.

There is no primary key, and one index, on txid: for the redo and the folds. A commit is one
``COPY`` and the ledger; the folds, ``postgresql_folding.py``, are beside the commits.
"""

from __future__ import annotations

import pyarrow as pa
import sqlalchemy as sa

from state_backends.sql.log import LogDialect
from state_backends.sql.log_sums import SumBounds
from state_backends.sql.postgresql import PostgresqlDialect
from state_backends.sql.postgresql_folding import PostgresqlLogFolder
from state_backends.sql.postgresql_rows import copy_rows
from state_backends.sql.postgresql_types import column_type
from state_backends.sql.tables import StateColumns
from txtopo.state import StateTable

# PostgreSQL refuses a sum beyond the range of a float, where others have infinity: adding up the
# rows has raised by then.
_FLOAT_MAX = {"float": 3.4e38, "double": 1.79e308}


class PostgresqlLogDialect(LogDialect, PostgresqlDialect):
    """One state in PostgreSQL in mode ``log``."""

    def __init__(self, url: sa.URL, state: StateTable) -> None:
        super().__init__(url, state)
        self.columns = _columns(state)
        self.sums = SumBounds(state, self.columns, _FLOAT_MAX)
        self.folder = PostgresqlLogFolder(state, self.columns, self.write_options())

    def prepare(self, connection: sa.Connection) -> None:
        """Make nothing: rows are copied where they stay."""
        self.check_server(connection)

    def create(self, connection: sa.Connection) -> None:
        """Make the index on txid."""
        index = sa.Index(self.names.by_txid, self.columns.txid)
        index.create(connection, checkfirst=True)

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
