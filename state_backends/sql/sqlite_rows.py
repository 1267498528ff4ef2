"""The statements that write rows of a txid in SQLite, each run with many rows at once.

They are compiled once by SQLAlchemy; the driver then gets plain tuples, which is several times
faster than dicts through SQLAlchemy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from state_backends.sql.sqlite_types import COMBINE_DECIMALS
from state_backends.sql.tables import StateColumns
from txtopo.state import Aggregate, StateTable


@dataclass(frozen=True, slots=True)
class RowStatement:
    """A compiled statement.

    Attributes:
        text: Its SQL, with question marks.
        order: What each question mark stands for: the number of a column, or None for the txid.
    """

    text: str
    order: tuple[int | None, ...]

    def parameters(self, columns: list[list[Any]], txid: int) -> list[tuple[Any, ...]]:
        """Return the parameters for rows that are given by column."""
        tags = [txid] * len(columns[0])
        ordered = [tags if at is None else columns[at] for at in self.order]
        return list(zip(*ordered, strict=True))


def put_statement(columns: StateColumns) -> RowStatement:
    """Return the statement that sets final values."""
    return _upsert(columns, lambda statement: dict(_excluded(columns, statement)))


def merge_statement(state: StateTable, columns: StateColumns) -> RowStatement | None:
    """Return the statement that combines partials with what is stored, if it has aggregates."""
    if not state.aggregates:
        return None

    def combined(statement: sqlite.Insert) -> dict[Any, Any]:
        excluded = _excluded(columns, statement)
        parts = zip(state.value, state.aggregates, excluded.items(), strict=True)
        return {
            column: _combined(aggregate, field.type, column, new)
            for field, aggregate, (column, new) in parts
        }

    return _upsert(columns, combined)


def delete_statement(columns: StateColumns) -> RowStatement:
    """Return the statement that deletes keys: tombstones in an opaque state."""
    wanted = [column == sa.bindparam(f"at_{column.name}") for column in columns.keys]
    if not columns.opaque:
        return _compiled(sa.delete(columns.table).where(*wanted), columns)
    return _compiled(
        sa.update(columns.table)
        .where(*wanted)
        .values(
            {
                **dict(columns.moved_back()),
                columns.txid: sa.bindparam("at_txid"),
                columns.deleted: sa.literal_column("1"),
            }
        ),
        columns,
    )


def _upsert(columns: StateColumns, new_values: Any) -> RowStatement:
    given = [*columns.keys, *columns.values, columns.txid]
    row: dict[Any, Any] = {column: sa.bindparam(f"at_{column.name}") for column in given}
    if columns.opaque:
        row[columns.deleted] = sa.literal_column("0")
    statement = sqlite.insert(columns.table).values(row)
    changes: dict[Any, Any] = {**new_values(statement), columns.txid: statement.excluded.txid}
    if columns.opaque:
        changes |= dict(columns.moved_back())
    return _compiled(
        statement.on_conflict_do_update(index_elements=columns.keys, set_=changes), columns
    )


def _excluded(columns: StateColumns, statement: sqlite.Insert) -> Mapping[Any, Any]:
    return {column: statement.excluded[column.name] for column in columns.values}


def _combined(
    aggregate: Aggregate, kind: str, old: sa.ColumnElement[Any], new: sa.ColumnElement[Any]
) -> sa.ColumnElement[Any]:
    if kind.startswith("decimal"):
        how: sa.ColumnElement[str] = sa.literal_column(f"'{aggregate.operator}'")
        return getattr(sa.func, COMBINE_DECIMALS)(how, old, new)  # type: ignore[no-any-return]
    if aggregate.operator != "add":
        if kind == "string":
            # Ordered by its bytes, as in Python, also in a user's own table.
            old, new = sa.collate(old, "BINARY"), sa.collate(new, "BINARY")
        smaller_or_larger = sa.func.min if aggregate.operator == "min" else sa.func.max
        return sa.func.coalesce(smaller_or_larger(old, new), old, new)
    # A sum beyond 64 bits becomes a float, which no INTEGER column of a STRICT table takes.
    return sa.func.coalesce(old + new, old, new)


def _compiled(statement: sa.ClauseElement, columns: StateColumns) -> RowStatement:
    compiled = statement.compile(dialect=sqlite.dialect())
    names = [f"at_{column.name}" for column in (*columns.keys, *columns.values)]
    order = [
        None if name == "at_txid" else names.index(name)
        for name in getattr(compiled, "positiontup", None) or ()
    ]
    return RowStatement(str(compiled), tuple(order))
