"""The statements and types that write rows in MariaDB and MySQL.

Rows travel as one JSON text, which ``JSON_TABLE`` reads. MariaDB executes assignments from left to
right, each with the results of those before it. So ``ON DUPLICATE KEY UPDATE`` sets the previous
values first, then the values, then txid. There is no order between tables, so changing two tables
takes two statements.

* Text is compared by its bytes and without padding: under ``utf8mb4_bin`` 'a' and 'a ' would be
  equal.
* A key fits an index entry, 3,072 bytes in InnoDB: text of 768 characters if it is the only key
  column. Columns of text and binary share the space that the others leave.
* Nothing is truncated: values are checked before they are sent, since ``JSON_TABLE`` truncates
  values that are too long.
* Timestamps are in UTC. A ``float`` is kept in a DOUBLE, since the server writes a FLOAT with six
  digits. The server has no NaN and no infinity, and turns -0.0 into 0.0; all three are refused.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects.mysql.base import MySQLDialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import TypeCompiler
from sqlalchemy.types import TypeEngine

from state_backends.sql.dialect import StateColumns, decimal_text, encoded_column
from state_backends.sql.names import TABLE_BYTES_MAX
from txtopo.errors import ValueRefusedError
from txtopo.plugins.stores import Aggregate, Field, Fields, StateTable

# A statement of this length is as fast as a longer one, and far below max_allowed_packet, unless
# that was set to a small value.
_CHUNK_CHARACTERS = 1_000_000

_CHUNK_ROWS = 30_000

_PORTION_CHARACTERS = 4 * _CHUNK_CHARACTERS

_CHARACTER_BYTES_MAX = 4

# One shared encoder: json.dumps would create one for each call, at ten times the cost.
_TO_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

# The bytes that a statement needs in addition to its rows; quotes are doubled.
_SPARE_BYTES = 100_000


class StatementParts:
    """Builds the SQL of one state as text: SQLAlchemy has no ``JSON_TABLE``, and doubles "%"."""

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
        """Return the expression that orders text by its bytes, as Python does, in every table."""
        if not isinstance(column.type, ExactText):
            return text
        return f"CONVERT({text} USING utf8mb4) COLLATE {collation(self._dialect)}"

    def _at(self, column: sa.Column[Any]) -> str:
        return f"{self._table}.{self._quoted(column)}"

    def _quoted(self, named: sa.Column[Any] | sa.Table) -> str:
        return self._dialect.identifier_preparer.quote_identifier(named.name)


class RowStatements(StatementParts):
    """The statements of a state, as text with parameters for the driver.

    Attributes:
        put: Sets final values.
        merge: Combines partials with the stored values; None for a state without aggregates.
        delete: The statements that delete keys, in order. In an opaque state they leave tombstones.
        undo: The statements that undo the writes of keys by a txid, in order.
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
        # We fix the join order: the optimizer does not know how many rows the JSON has.
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
        # In a user's own table, NULL is the txid of a row from before the first one.
        before = f"NULLIF({origin}, 0)" if columns.txid.nullable else origin
        back += [f"{txid} = {before}", f"{self._at(columns.deleted)} = 0"]
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
    """Yield JSON texts that together hold all rows, each short enough for a statement.

    Raises:
        ValueRefusedError: A row that no statement can hold.
    """
    for part in _portions(rows):
        yield from _texts(part, bytes_max)


def _portions(rows: Sequence[Sequence[Any]]) -> Iterator[Sequence[Sequence[Any]]]:
    """Yield long rows a few at a time.

    Encoding gigabytes as one text, only to find it too long, takes longer than the server's limit
    on idle transactions. The server would end the transaction each time.
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
    # Most texts are short enough for certain without being encoded.
    longest = len(text) * _CHARACTER_BYTES_MAX + _SPARE_BYTES
    return longest <= bytes_max or _needed(text) <= bytes_max


def _needed(text: str) -> int:
    return len(text.replace("'", "''").encode()) + _SPARE_BYTES


def _check_length(text: str, bytes_max: int) -> None:
    needed = _needed(text)
    if needed > bytes_max:
        raise ValueRefusedError(
            f"a row is too long for a statement; got {needed} bytes; expected at most "
            f"{bytes_max}, which is max_allowed_packet; nothing of its batch was written; raise "
            "it on the server",
            bytes=needed,
            limit=bytes_max,
        )


# The alias of the incoming rows; the name of a state's table is never this long.
GIVEN = "txtopo_given".ljust(TABLE_BYTES_MAX + 1, "_")

_KEY_BYTES_MAX = 3072

_CHARACTER_BYTES = 4

_BYTES = {"boolean": 1, "byte": 1, "short": 2, "int": 4, "date": 3, "decimal": 18}

_TYPES: dict[str, TypeEngine[Any]] = {
    "binary": mysql.LONGBLOB(),
    "boolean": mysql.TINYINT(1),
    "byte": mysql.TINYINT(),
    "short": mysql.SMALLINT(),
    "int": mysql.INTEGER(),
    "long": mysql.BIGINT(),
    "float": mysql.DOUBLE(asdecimal=False),
    "double": mysql.DOUBLE(asdecimal=False),
    "date": mysql.DATE(),
    "timestamp": mysql.DATETIME(fsp=6),
    "timestamp_ntz": mysql.DATETIME(fsp=6),
}


class ExactText(mysql.LONGTEXT):
    """Text that compares by its bytes, of any length."""


class ExactName(mysql.VARCHAR):
    """Text that compares by its bytes and fits an index."""


@compiles(ExactText, "mysql", "mariadb")
@compiles(ExactName, "mysql", "mariadb")
def _exact(kind: ExactText | ExactName, compiler: TypeCompiler, **_: Any) -> str:
    plain = "LONGTEXT" if isinstance(kind, ExactText) else f"VARCHAR({kind.length})"
    return f"{plain} CHARACTER SET utf8mb4 COLLATE {collation(compiler.dialect)}"


def is_mariadb(dialect: sa.Dialect) -> bool:
    """Return whether the server is known to be MariaDB; else it is MySQL."""
    assert isinstance(dialect, MySQLDialect)
    return bool(dialect.is_mariadb)


def collation(dialect: sa.Dialect) -> str:
    """Return the collation under which different strings are different."""
    return "utf8mb4_nopad_bin" if is_mariadb(dialect) else "utf8mb4_0900_bin"


def column_type(kind: str) -> TypeEngine[Any]:
    """Return the column type for a field type."""
    if kind.startswith("decimal"):
        precision, scale = (int(part) for part in kind[8:-1].split(","))
        return mysql.DECIMAL(precision, scale)
    return _TYPES.get(kind, ExactText())


def key_type(key: Fields) -> Callable[[str], TypeEngine[Any]]:
    """Return the function that gives the column type of a key field, for keys of these fields."""
    kinds = [field.type.partition("(")[0] for field in key]
    fixed = sum(_BYTES.get(kind, 8) for kind in kinds if kind not in ("string", "binary"))
    varying = sum(kind in ("string", "binary") for kind in kinds)
    share = (_KEY_BYTES_MAX - fixed) // max(varying, 1)

    def of_key(kind: str) -> TypeEngine[Any]:
        if kind == "string":
            return ExactName(share // _CHARACTER_BYTES)
        return mysql.VARBINARY(share) if kind == "binary" else column_type(kind)

    return of_key


def limits(key: Fields) -> list[int | None]:
    """Return the maximum length of each key column, in characters or bytes, or None."""
    kinds = [key_type(key)(field.type) for field in key]
    return [kind.length if isinstance(kind, _LIMITED) else None for kind in kinds]


def encode_key(field: Field, column: list[Any], limit: int | None) -> list[Any]:
    """Return a key column as JSON values.

    Raises:
        ValueRefusedError: A key is too long for an index.
    """
    for value in column:
        if limit is not None and len(value) > limit:
            raise _refused(field, value, f"a key of these columns holds at most {limit} of it")
    return encode(field, column)


def encode(field: Field, column: list[Any]) -> list[Any]:
    """Return a column as JSON values.

    Raises:
        ValueRefusedError: MariaDB does not have a number, such as NaN.
    """
    kind = field.type.partition("(")[0]
    if kind in ("float", "double"):
        for value in column:
            if value is not None and (
                not math.isfinite(value) or (value == 0 and math.copysign(1.0, value) < 0)
            ):
                raise _refused(field, value, "MariaDB has no NaN, no infinity and no -0.0")
    return encoded_column(field, column, _ENCODE)


def decode(kind: str, column: Sequence[Any]) -> Sequence[Any]:
    """Convert a column read from MariaDB to Python values of a field type."""
    if kind == "boolean":
        return [None if value is None else bool(value) for value in column]
    if kind != "timestamp":
        return column
    return [None if value is None else value.replace(tzinfo=datetime.UTC) for value in column]


def parameter(field: Field, value: Any) -> Any:
    """Return one part of a key as a parameter of a query.

    Raises:
        ValueRefusedError: The text has a lone surrogate; no such key can be stored.
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _refused(field, value, "a lone surrogate is not text") from error
    if field.type == "timestamp":
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value


def in_json(kind: TypeEngine[Any], dialect: sa.Dialect) -> str:
    """Return the type with which ``JSON_TABLE`` reads the output of :func:`encode`.

    It names a character set, since the database's own could replace characters by ``?``.
    """
    if isinstance(kind, mysql.VARBINARY):
        return f"VARCHAR({2 * (kind.length or 0)}) CHARACTER SET ascii"
    if isinstance(kind, mysql.LONGBLOB):
        return "LONGTEXT CHARACTER SET ascii"
    return kind.compile(dialect)


def out_of_json(kind: TypeEngine[Any], text: str) -> str:
    """Return the expression that converts *text*, a column of ``JSON_TABLE``, for its table."""
    return f"UNHEX({text})" if isinstance(kind, mysql.VARBINARY | mysql.LONGBLOB) else text


def _refused(field: Field, value: Any, why: str) -> ValueRefusedError:
    return ValueRefusedError(
        f"MariaDB cannot store a value exactly; got {value!r:.200} in field {field.name!r}; {why}; "
        "nothing of its batch was written",
        field=field.name,
    )


def _from_moment(value: datetime.datetime) -> str:
    return value.replace(tzinfo=None).isoformat(" ", "microseconds")


_LIMITED = ExactName | mysql.VARBINARY

_ENCODE: dict[str, Callable[[Any], Any]] = {
    "binary": bytes.hex,
    "boolean": int,
    "decimal": decimal_text,
    "date": datetime.date.isoformat,
    "timestamp": lambda value: _from_moment(value.astimezone(datetime.UTC)),
    "timestamp_ntz": _from_moment,
}
