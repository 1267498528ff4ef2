"""What all databases have in common in mode ``log``: what is appended, read, taken back, refused.

A row is a partial aggregate with its txid, and so is a folded row; the view groups by key. No two
rows have the same key and txid. A commit appends the rows of its txid and writes the ledger, in one
transaction; an undo deletes them. The folds, ``log_folding.py``, are beside the commits.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from state_backends.sql.dialect import SqlDialect
from state_backends.sql.log_folding import LogFolder
from state_backends.sql.log_reading import combined
from state_backends.sql.log_sums import SumBounds
from txtopo.state import StateMode, Writes, log_rows


class LogDialect(SqlDialect):
    """One state in mode ``log``; comes before the dialect of its database."""

    modes: frozenset[StateMode] = frozenset({"log"})
    folder: LogFolder
    sums: SumBounds

    @abstractmethod
    def append(self, connection: sa.Connection, txid: int, rows: pa.Table) -> None:
        """Insert rows, some at least: key, value, txid."""

    @property
    def redone(self) -> bool:
        """Whether a redo takes back the rows of its txid; a transactional state keeps them."""
        return self.state.kind == "opaque"

    def listing(self) -> sa.Table | None:
        """Return none: the txid stands in each row."""
        return None

    def selected(self) -> sa.Select[Any]:
        """Return what reads one row for each key: its key, its values, and the largest txid."""
        columns = self.columns
        values = combined(self.state, columns.values)
        txid = sa.func.max(columns.txid).label("txid")
        return sa.select(*columns.keys, *values, txid).group_by(*columns.keys)

    def undo(self, connection: sa.Connection, txid: int) -> None:
        """Take back the rows of *txid*."""
        connection.execute(sa.delete(self.columns.table).where(self.columns.txid == txid))

    def purge(self, connection: sa.Connection) -> None:
        """Do nothing: there are no tombstones."""

    def apply(self, connection: sa.Connection, txid: int, writes: Writes) -> None:
        """Append the partials of *txid*."""
        rows = log_rows(self.state, txid, writes)
        self.folder.wrote(txid, rows.num_rows)
        if rows.num_rows:
            self.append(connection, txid, rows)
            self.sums.check(connection, rows)

    def after_commit(self, engine: sa.Engine, txid: int) -> None:
        """Fold beside the next commits, once there is enough to fold."""
        self.folder.after_commit(engine, txid)

    def close(self) -> None:
        """Wait for a fold that is under way."""
        self.folder.close()
