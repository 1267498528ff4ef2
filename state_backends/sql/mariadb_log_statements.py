"""The statements of a log in MariaDB and MySQL, made once for each connection."""

from __future__ import annotations

import sqlalchemy as sa

from state_backends.sql.mariadb_parts import StatementParts
from state_backends.sql.names import TABLE_BYTES_MAX
from state_backends.sql.tables import StateColumns
from txtopo.state import StateTable

# The alias of the rows that are folded; a state's table has no name so long.
_OLD = "txtopo_old".ljust(TABLE_BYTES_MAX + 1, "_")


class LogStatements(StatementParts):
    """The statements of a state, as text with parameters for the driver.

    Attributes:
        append: Inserts the rows of a txid, which come as JSON.
        lock: Locks the first row of the log.
        add: Combines the rows of a span before its last txid with those of its last.
        remove: Deletes the rows of a span before its last txid.
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
        self.add = (
            f"{into} SELECT {old}, %(last)s FROM {self._table} AS {_OLD} "  # noqa: S608
            f"WHERE {_OLD}.{span} ON DUPLICATE KEY UPDATE {pairs}"
        )
        self.remove = f"DELETE FROM {self._table} WHERE {span}"  # noqa: S608
        self.left = f"SELECT COUNT(*) FROM {self._table} WHERE {txid} = %(last)s"  # noqa: S608
