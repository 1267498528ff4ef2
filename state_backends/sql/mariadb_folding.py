"""Folds of a log in MariaDB and MySQL.

Rules, beside those of ``log_folding.py``
-----------------------------------------
1. A fold adds each row of its span to the row of its key with the last txid, which is there or is
   made, and deletes what it has added: two statements in one transaction. What does not fit its
   column, as the sum of a part may not, is an error in strict mode, and nothing was folded.
2. Before that it locks the first row of the log, and holds it until it ends: folds follow each
   other, and each reads what the one before it has left. Nothing is written before the first row,
   since rows are added to those of a later txid; and who waits for it while it goes away gets the
   one that is then the first. Without the lock two folds would both read a row and add it twice,
   or one would delete what the other had just added.
3. It is READ COMMITTED, where a lock is one of rows and not of the gaps between them. Its rows are
   those of txids before the ledger's, so no commit waits for it, and it waits for none.

Why not by ``GROUP BY``: its temporary table has the whole width of the key in each row. For
160,000 rows that takes as long as adding row by row, 0.8 to 1.2 s; for a million 8 to 12 s instead
of 2 to 4. Why not in slices: a txid at a time made a fold of 160,000 rows take two to four times as
long, 10,000 rows at a time five times, and no commit beside it shorter.

Measured on two cores, 150 commits of 10,000 keys one after the other into 1,000,000: without folds
a median of 33 to 34 ms and a longest of 53 to 62 ms; with them, which are under way half of the
time, 38 to 41 ms and 78 to 105 ms: no commit waits for a lock, but for a core and the disk.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from state_backends.sql.log_folding import LogFolder
from state_backends.sql.mariadb_log_statements import LogStatements
from state_backends.sql.tables import StateColumns
from txtopo.state import StateTable


class MariadbLogFolder(LogFolder):
    """Folds the log of a state in MariaDB or MySQL.

    Args:
        state: The state.
        columns: Its table.
        prepare: Makes a connection one that writes, with its statements.
    """

    def __init__(
        self,
        state: StateTable,
        columns: StateColumns,
        prepare: Callable[[sa.Connection], None],
    ) -> None:
        super().__init__(state, columns)
        self._prepare = prepare

    def prepare(self, connection: sa.Connection) -> None:
        """Make the session READ COMMITTED."""
        self._prepare(connection)

    def replace(self, connection: sa.Connection, first: int, last: int) -> int:
        """Replace the rows of the txids *first* to *last*; return how many are left of them."""
        statements: LogStatements = connection.info["statements"]
        span = {"first": first, "last": last}
        connection.exec_driver_sql(statements.lock)
        connection.exec_driver_sql(statements.add, span)
        connection.exec_driver_sql(statements.remove, span)
        return int(connection.exec_driver_sql(statements.left, span).scalar_one())
