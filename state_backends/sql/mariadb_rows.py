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

from state_backends.sql.mariadb_parts import StatementParts
from state_backends.sql.tables import StateColumns
from txtopo.errors import ValueRefusedError
from txtopo.state import StateTable

# A statement of this length is as fast as a longer one, and far below max_allowed_packet, unless
# somebody has made that one small.
_CHUNK_CHARACTERS = 1_000_000
_CHUNK_ROWS = 30_000
_PORTION_CHARACTERS = 4 * _CHUNK_CHARACTERS
_CHARACTER_BYTES_MAX = 4
# One encoder for all: json.dumps would make another for each call, at ten times the cost.
_TO_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
# What a statement needs beside its rows; quotes are doubled.
_SPARE_BYTES = 100_000


class RowStatements(StatementParts):
    """The statements of a state, as text with parameters for the driver.

    Attributes:
        put: Sets final values.
        merge: Combines partials with what is stored; None for a state without aggregates.
        delete: Deletes keys in order: tombstones in an opaque state.
        undo: Takes keys of a txid back, in order.
        purge: Deletes those keys that are tombstones.
    """

    def __init__(self, state: StateTable, columns: StateColumns, dialect: sa.Dialect) -> None:
        super().__init__(columns, dialect)
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

    def _text(self, expression: sa.ColumnElement[Any]) -> str:
        return str(expression.compile(dialect=self._dialect))


def chunks(rows: Sequence[Sequence[Any]], bytes_max: int) -> Iterator[str]:
    """Yield JSON texts that hold all rows, each short enough for a statement.

    Raises:
        ValueRefusedError: A row that no statement can hold.
    """
    for part in _portions(rows):
        yield from _texts(part, bytes_max)


def _portions(rows: Sequence[Sequence[Any]]) -> Iterator[Sequence[Sequence[Any]]]:
    """Yield long rows a few at a time.

    To write gigabytes as one text, only to find it too long, takes longer than the server lets a
    transaction be idle: it would be ended each time that it is tried.
    """
    start = characters = 0
    for end, row in enumerate(rows, 1):
        for value in row:
            if type(value) is str:
                characters += len(value)
        if characters > _PORTION_CHARACTERS:
            yield rows[start:end]
            start, characters = end, 0
    if start < len(rows):
        yield rows[start:]


def _texts(rows: Sequence[Sequence[Any]], bytes_max: int) -> Iterator[str]:
    text = _TO_JSON.encode(rows) if len(rows) <= _CHUNK_ROWS else None
    if text is not None and len(text) <= _CHUNK_CHARACTERS and _fits(text, bytes_max):
        yield text
    elif text is not None and len(rows) == 1:
        _check_length(text, bytes_max)
        yield text
    else:
        middle = len(rows) // 2
        yield from _texts(rows[:middle], bytes_max)
        yield from _texts(rows[middle:], bytes_max)


def _fits(text: str, bytes_max: int) -> bool:
    # Most texts need not be encoded to be sure.
    longest = len(text) * _CHARACTER_BYTES_MAX + _SPARE_BYTES
    return longest <= bytes_max or _needed(text) <= bytes_max


def _needed(text: str) -> int:
    return len(text.replace("'", "''").encode()) + _SPARE_BYTES


def _check_length(text: str, bytes_max: int) -> None:
    needed = _needed(text)
    if needed > bytes_max:
        raise ValueRefusedError(
            f"a row is too long for a statement; got {needed} bytes; expected at most {bytes_max}, "
            "which is max_allowed_packet; nothing of its batch was written; raise it in the server"
        )
