"""The statements that write the rows of a txid in MariaDB and MySQL, made once for each state.

Rows travel as one JSON text, which ``JSON_TABLE`` reads. MariaDB carries out assignments from left
to right, each with what the ones before it have changed: ``ON DUPLICATE KEY UPDATE`` therefore
sets the previous values first, then the values, then txid. Between tables there is no order, so
what depends on it takes two statements.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from state_backends.sql.mariadb_types import ExactText, collation, in_json, out_of_json
from state_backends.sql.tables import StateColumns
from txtopo.errors import ValueRefusedError
from txtopo.state import Aggregate, StateTable

# A statement of this length is as fast as a longer one, and far below max_allowed_packet.
_CHUNK_CHARACTERS = 1_000_000
_CHUNK_ROWS = 30_000
# One encoder for all: json.dumps would make another for each call, at ten times the cost.
_TO_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
# What a statement needs beside its rows; quotes are doubled.
_SPARE_BYTES = 100_000
# The alias of the rows that come in; no user's table has this name.
_GIVEN = "txtopo_given"


class RowStatements:
    """The statements of a state, as text with parameters for the driver.

    Attributes:
        put: Sets final values.
        merge: Combines partials with what is stored; None for a state without aggregates.
        delete: Deletes keys in order: tombstones in an opaque state.
        undo: Takes keys of a txid back, in order.
        purge: Deletes those keys that are tombstones.
    """

    def __init__(self, state: StateTable, columns: StateColumns, dialect: sa.Dialect) -> None:
        self._columns = columns
        self._dialect = dialect
        self._table = self._quoted(columns.table)
        values = columns.values
        self.put = self._upsert([self._new(column) for column in values])
        self.merge = None
        if state.aggregates:
            pairs = zip(state.aggregates, values, strict=True)
            self.merge = self._upsert([self._combined(*pair) for pair in pairs])
        keys = self._from_json(columns.keys)
        equal = " AND ".join(
            f"{self._at(column)} = {self._given(at)}" for at, column in enumerate(columns.keys)
        )
        # The order is ours: the optimizer does not know how many rows there are in JSON.
        joined = f"{keys} STRAIGHT_JOIN {self._table} ON {equal}"
        self.delete = self._tombstones(joined)
        self.undo = self._undo(joined) if columns.opaque else ()
        deleted = "" if not columns.opaque else f" WHERE {self._at(columns.deleted)}"
        self.purge = f"DELETE {self._table} FROM {joined}{deleted}"

    def _upsert(self, new: Sequence[str]) -> str:
        columns = self._columns
        given = (*columns.keys, *columns.values)
        into = [self._quoted(column) for column in (*given, columns.txid)]
        values = [self._given(at) for at in range(len(given))]
        pairs = self._moved_back()
        pairs += [
            f"{self._at(one)} = {value}" for one, value in zip(columns.values, new, strict=True)
        ]
        pairs.append(f"{self._at(columns.txid)} = %(txid)s")
        if columns.opaque:
            into.append(self._quoted(columns.deleted))
            values += ["%(txid)s", "0"]
            pairs.append(f"{self._at(columns.deleted)} = 0")
        else:
            values.append("%(txid)s")
        return (
            f"INSERT INTO {self._table} ({', '.join(into)}) SELECT {', '.join(values)} "  # noqa: S608 - quoted
            f"FROM {self._from_json(given)} ON DUPLICATE KEY UPDATE {', '.join(pairs)}"
        )

    def _tombstones(self, joined: str) -> tuple[str, ...]:
        columns = self._columns
        if not columns.opaque:
            return (f"DELETE {self._table} FROM {joined}",)
        txid, deleted = self._at(columns.txid), self._at(columns.deleted)
        return (
            f"UPDATE {joined} SET {', '.join(self._moved_back())}",  # noqa: S608 - quoted
            f"UPDATE {joined} SET {txid} = %(txid)s, {deleted} = 1",  # noqa: S608
        )

    def _undo(self, joined: str) -> tuple[str, ...]:
        columns = self._columns
        origin, txid = self._at(columns.prev_txid), self._at(columns.txid)
        pairs = zip(columns.values, columns.previous, strict=True)
        back = [f"{self._at(value)} = {self._at(previous)}" for value, previous in pairs]
        back += [f"{txid} = NULLIF({origin}, 0)", f"{self._at(columns.deleted)} = 0"]
        tagged = f"WHERE {txid} = %(txid)s AND {origin}"
        return (
            f"DELETE {self._table} FROM {joined} {tagged} IS NULL",
            f"UPDATE {joined} SET {', '.join(back)} {tagged} IS NOT NULL",  # noqa: S608
        )

    def _moved_back(self) -> list[str]:
        return [
            f"{self._at(column)} = {self._text(value)}"
            for column, value in self._columns.moved_back()
        ]

    def _from_json(self, columns: Sequence[sa.Column[Any]]) -> str:
        parts = [
            f"in_{at} {in_json(column.type, self._dialect)} PATH '$[{at}]' ERROR ON ERROR"
            for at, column in enumerate(columns)
        ]
        return f"JSON_TABLE(%(rows)s, '$[*]' COLUMNS ({', '.join(parts)})) AS {_GIVEN}"

    def _given(self, at: int) -> str:
        column = (*self._columns.keys, *self._columns.values)[at]
        return out_of_json(column.type, f"{_GIVEN}.in_{at}")

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

    def _text(self, expression: sa.ColumnElement[Any]) -> str:
        return str(expression.compile(dialect=self._dialect))


def chunks(rows: Sequence[Sequence[Any]], bytes_max: int) -> Iterator[str]:
    """Yield JSON texts that hold all rows, each short enough for a statement.

    Raises:
        ValueRefusedError: A row that no statement can hold.
    """
    if not rows:
        return
    text = _TO_JSON.encode(rows) if len(rows) <= _CHUNK_ROWS else None
    if text is not None and len(text) <= _CHUNK_CHARACTERS:
        yield text
    elif text is not None and len(rows) == 1:
        _check_length(text, bytes_max)
        yield text
    else:
        middle = len(rows) // 2
        yield from chunks(rows[:middle], bytes_max)
        yield from chunks(rows[middle:], bytes_max)


def _check_length(text: str, bytes_max: int) -> None:
    needed = len(text.replace("'", "''").encode()) + _SPARE_BYTES
    if needed > bytes_max:
        raise ValueRefusedError(
            f"a row is too long for a statement; got {needed} bytes; expected at most {bytes_max}, "
            "which is max_allowed_packet; nothing of its batch was written; raise it in the server"
        )
