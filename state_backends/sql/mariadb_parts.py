"""What the statements of MariaDB and MySQL that write rows are made of, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from state_backends.sql.mariadb_types import ExactText, collation, in_json, out_of_json
from state_backends.sql.names import TABLE_BYTES_MAX
from state_backends.sql.tables import StateColumns
from txtopo.state import Aggregate

# The alias of the rows that come in; a state's table has no name so long.
GIVEN = "txtopo_given".ljust(TABLE_BYTES_MAX + 1, "_")


class StatementParts:
    """The parts for one state; SQLAlchemy has no ``JSON_TABLE``, and doubles a "%" too often."""

    def __init__(self, columns: StateColumns, dialect: sa.Dialect) -> None:
        self._columns = columns
        self._dialect = dialect
        self._table = self._quoted(columns.table)

    def _from_json(self, columns: Sequence[sa.Column[Any]]) -> str:
        parts = [
            f"in_{at} {in_json(column.type, self._dialect)} PATH '$[{at}]' ERROR ON ERROR"
            for at, column in enumerate(columns)
        ]
        return f"JSON_TABLE(%(rows)s, '$[*]' COLUMNS ({', '.join(parts)})) AS {GIVEN}"

    def _given(self, at: int) -> str:
        column = (*self._columns.keys, *self._columns.values)[at]
        return out_of_json(column.type, f"{GIVEN}.in_{at}")

    def _new(self, column: sa.Column[Any]) -> str:
        return f"VALUES({self._quoted(column)})"

    def _combined(self, aggregate: Aggregate, column: sa.Column[Any]) -> str:
        old, new = self._at(column), self._new(column)
        both = f"{old} + {new}"
        if aggregate.operator != "add":
            function = "LEAST" if aggregate.operator == "min" else "GREATEST"
            both = f"{function}({self._ordered(column, old)}, {self._ordered(column, new)})"
        return f"COALESCE({both}, {old}, {new})"

    def _ordered(self, column: sa.Column[Any], text: str) -> str:
        """Order text by its bytes, as in Python, also in a user's own table."""
        if not isinstance(column.type, ExactText):
            return text
        return f"CONVERT({text} USING utf8mb4) COLLATE {collation(self._dialect)}"

    def _at(self, column: sa.Column[Any]) -> str:
        return f"{self._table}.{self._quoted(column)}"

    def _quoted(self, named: sa.Column[Any] | sa.Table) -> str:
        return self._dialect.identifier_preparer.quote_identifier(named.name)
