"""RowText: keys and rows of a state as JSON text, exact for every declared type.

The text is ASCII, on one line and free of control characters, so that any store of strings can keep
it: other characters are escaped, including NUL and lone surrogates. Equal keys have equal texts,
and different keys have different texts. So two surrogates that form a pair are refused: JSON reads
them as one character.

========================  =============================================================
type                      JSON
========================  =============================================================
string, boolean           as they are
byte, short, int, long    a number; JSON readers that take it for a float lose digits
float, double             a number that Python reads back exactly; ``"NaN"``, ``"Infinity"``
decimal                   text, all digits
binary                    text, Base64
date, timestamp           text, ISO 8601; a ``timestamp`` in UTC
json                      text, which is itself JSON
========================  =============================================================

A row is a list of txid and current values. In an opaque state the previous txid and the previous
values follow (``null`` if there was no row), and ``true`` at the end marks a tombstone.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from txtopo.errors import SchemaDrift, ValueRefusedError
from txtopo.state.backend import Key, StateTable, Values
from txtopo.state.values import Row
from txtopo.tuples import Field, Fields

# Created once: json.dumps would create one for each text.
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_LINES = json.JSONEncoder(separators=("\n", ":"), allow_nan=False)
_DECODER = json.JSONDecoder()
_SIGNED = ("float", "double", "decimal")
PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
"""Two surrogates in a row, which JSON reads as one character."""
Convert = Callable[[Any], Any]
_DAMAGED = (ValueError, TypeError, KeyError, AttributeError, decimal.DecimalException)


class RowText:
    """Converts keys and rows of one state to JSON text and back.

    Example:
        >>> table = StateTable("prices", "opaque", Fields("id long"), Fields("price decimal(9,2)"))
        >>> text = RowText(table)
        >>> text.key((7,))
        '[7]'
        >>> text.row(Row(3, (decimal.Decimal("1.50"),)))
        '[3,["1.50"],null,null]'
    """

    def __init__(self, table: StateTable) -> None:
        self.table = table
        self._key = _converts(table.key)
        self._values = _converts(table.value)

    def key(self, key: Key) -> str:
        """Return the text of a key.

        Raises:
            ValueRefusedError: The key has NULL or NaN, or a value of another type.
        """
        if any(part is None or part != part for part in key):
            self._refuse("key", key, "a key is never NULL or NaN")
        return dumped(self._written("key", self._key, tuple(map(_without_sign, key))))

    def key_of(self, text: str) -> Key:
        """Return the key that this text represents."""
        try:
            key = _read(self._key, json.loads(text))
            if len(key) != len(self._key):
                raise ValueError("no key has no fields")
            return key
        except _DAMAGED as error:
            raise self._damaged(text) from error

    def row(self, row: Row) -> str:
        """Return the text of a row.

        Raises:
            ValueRefusedError: A value has another type than its column.
        """
        return dumped(self.plain(row))

    def row_of(self, text: str) -> Row:
        """Return the row that this text represents."""
        try:
            return self.row_from(json.loads(text))
        except _DAMAGED as error:
            raise self._damaged(text) from error

    def keys(self, keys: Sequence[Key]) -> list[str]:
        """Return the text of each key; raises as :meth:`key` does."""
        signed = any(_kind(field) in _SIGNED for field in self.table.key)
        if signed or any(None in column for column in zip(*keys, strict=True)):
            return [self.key(key) for key in keys]
        return self._lists("key", self._key, keys)

    def rows(self, rows: Sequence[Row]) -> list[str]:
        """Return the text of each row; raises as :meth:`row` does."""
        current = self._lists("value", self._values, [row.current for row in rows])
        ends = [",true]" if row.deleted else "]" for row in rows]
        if self.table.kind != "opaque":
            parts = zip(rows, current, ends, strict=True)
            return [f"[{row.txid},{now}{end}" for row, now, end in parts]
        previous = self._lists("value", self._values, [row.previous for row in rows])
        return [
            f"[{row.txid},{now},"
            f"{'null' if row.previous_txid is None else row.previous_txid},{before}{end}"
            for row, now, before, end in zip(rows, current, previous, ends, strict=True)
        ]

    def rows_of(self, texts: Sequence[str]) -> list[Row]:
        """Return the row that each text represents; raises as :meth:`row_of` does."""
        try:
            found = [_DECODER.raw_decode(text) for text in texts]
            if [end for _, end in found] != list(map(len, texts)):
                raise ValueError("there is more than a row")
            plain = [row for row, _ in found]
            current = self._read_all([row[1] for row in plain])
            if self.table.kind == "transactional":
                return [Row(row[0], now) for row, now in zip(plain, current, strict=True)]
            previous = self._read_all([row[3] for row in plain])
        except (*_DAMAGED, IndexError):
            return [self.row_of(text) for text in texts]
        return [
            Row(row[0], now, before, row[2], len(row) > 4)
            for row, now, before in zip(plain, current, previous, strict=True)
        ]

    def plain(self, row: Row) -> list[Any]:
        """Return a row as a list for JSON, for a text that contains more than the row."""
        parts: list[Any] = [row.txid, self._written("value", self._values, row.current)]
        if self.table.kind == "opaque":
            previous = row.previous
            parts.append(row.previous_txid)
            parts.append(
                None if previous is None else self._written("value", self._values, previous)
            )
        return [*parts, True] if row.deleted else parts

    def row_from(self, plain: list[Any]) -> Row:
        """Return the row from a list that :meth:`plain` made."""
        txid, current = plain[:2]
        if self.table.kind == "transactional":
            return Row(txid, _read(self._values, current))
        previous_txid, previous = plain[2:4]
        return Row(
            txid,
            _read(self._values, current),
            None if previous is None else _read(self._values, previous),
            previous_txid,
            deleted=len(plain) > 4,
        )

    def _written(self, part: str, converts: list[tuple[Convert, Convert]], values: Values) -> Any:
        if not values:  # a tombstone of a key that did not exist
            return []
        try:
            return [
                None if value is None else write(value)
                for (write, _), value in zip(converts, values, strict=True)
            ]
        except _DAMAGED as error:
            self._refuse(part, values, f"{type(error).__name__}: {error}")

    def _lists(
        self,
        part: str,
        converts: list[tuple[Convert, Convert]],
        records: Sequence[Values | None],
    ) -> list[str]:
        """Return each record as the text of a list; they are written column by column."""
        full = [record for record in records if record]
        try:
            columns = [
                _texts([None if value is None else write(value) for value in column])
                for (write, _), column in zip(converts, _columns(full, converts), strict=True)
            ]
        except _DAMAGED:
            return [
                "null" if record is None else dumped(self._written(part, converts, record))
                for record in records
            ]
        found = map(",".join, zip(*columns, strict=True))
        return [
            "null" if record is None else f"[{next(found) if record else ''}]" for record in records
        ]

    def _read_all(self, plain: Sequence[list[Any] | None]) -> list[Any]:
        """Return the values in each list, read column by column; None for None."""
        full = [record for record in plain if record]
        if not all(record is None or type(record) is list for record in plain):
            raise TypeError("it is not a list")
        columns = [
            [None if value is None else read(value) for value in column]
            for (_, read), column in zip(self._values, _columns(full, self._values), strict=True)
        ]
        found = zip(*columns, strict=True)
        return [None if record is None else next(found) if record else () for record in plain]

    def _refuse(self, part: str, values: Values, why: str) -> NoReturn:
        fields = self.table.key if part == "key" else self.table.value
        raise ValueRefusedError(
            f"state {self.table.name!r} refuses a {part}; got {values!r:.200}; "
            f"expected {fields!r}; {why}",
            state=self.table.name,
        )

    def _damaged(self, text: str) -> SchemaDrift:
        return SchemaDrift(
            f"state {self.table.name!r} holds a value that cannot be read; got {text!r:.200}; "
            f"expected what txtopo wrote for {self.table.key!r} and {self.table.value!r}; was it "
            "changed by hand?",
            state=self.table.name,
        )


def dumped(plain: Any) -> str:
    """Return JSON text: ASCII, on one line, without spaces."""
    return _ENCODER.encode(plain)


def _texts(plain: list[Any]) -> list[str]:
    """Return the text of each text, number or None; a line break in a text is escaped."""
    return _LINES.encode(plain)[1:-1].split("\n") if plain else []


def _columns(records: Sequence[Sequence[Any]], like: Sequence[object]) -> list[Sequence[Any]]:
    if set(map(len, records)) - {len(like)}:
        raise ValueError("a record has more or fewer fields")
    return list(zip(*records, strict=True)) if records else [()] * len(like)


def _kind(field: Field) -> str:
    return field.type.partition("(")[0]


def _read(converts: list[tuple[Convert, Convert]], plain: list[Any]) -> Values:
    if not isinstance(plain, list):
        raise TypeError(f"{plain!r} is not a list")
    if not plain:
        return ()
    return tuple(
        None if value is None else read(value)
        for (_, read), value in zip(converts, plain, strict=True)
    )


def _converts(fields: Fields) -> list[tuple[Convert, Convert]]:
    return [_CONVERTS[_kind(field)] for field in fields]


def _without_sign(part: Any) -> Any:
    """Return 0 for -0, since they are the same key."""
    return abs(part) if isinstance(part, float | decimal.Decimal) and not part else part


def _exactly(kind: type) -> Convert:
    def write(value: Any) -> Any:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"{value!r} is not a {kind.__name__}")
        return value

    return write


def _write_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a str")
    if not value.isascii() and PAIR.search(value):
        raise ValueError("two surrogates in a row would come back as one character")
    return value


def _write_float(value: Any) -> float | str:
    number = float(value)
    if math.isfinite(number):
        return number
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"


def _write_decimal(value: Any) -> str:
    return str(decimal.Decimal(value))


def _write_instant(value: datetime.datetime) -> str:
    return value.astimezone(datetime.UTC).isoformat()


def _write_binary(value: Any) -> str:
    return base64.b64encode(value).decode("ascii")


def _read_whole(plain: Any) -> int:
    if type(plain) is not int:
        raise TypeError(f"{plain!r} is not a whole number")
    return plain


_WHOLE: tuple[Convert, Convert] = (_exactly(int), _read_whole)
_FLOAT: tuple[Convert, Convert] = (_write_float, float)
# For each type, the functions that write and read a value.
_CONVERTS: dict[str, tuple[Convert, Convert]] = {
    "string": (_write_text, _exactly(str)),
    "binary": (_write_binary, base64.b64decode),
    "boolean": (_exactly(bool), _exactly(bool)),
    "byte": _WHOLE,
    "short": _WHOLE,
    "int": _WHOLE,
    "long": _WHOLE,
    "float": _FLOAT,
    "double": _FLOAT,
    "decimal": (_write_decimal, decimal.Decimal),
    "date": (datetime.date.isoformat, datetime.date.fromisoformat),
    "timestamp": (_write_instant, datetime.datetime.fromisoformat),
    "timestamp_ntz": (datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "json": (_exactly(str), _exactly(str)),
}
