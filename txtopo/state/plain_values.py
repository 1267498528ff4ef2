"""Plain values: keys and values of states as people write and read them, as text and as JSON.

The command line and the pages use them. A store keeps the texts of :mod:`txtopo.state.row_text`,
which are exact but not meant for people.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from txtopo.errors import StateUsageError, shortened
from txtopo.metadata import Json
from txtopo.tuples import Field, Fields


def key_of(arguments: Sequence[str], fields: Fields) -> Any:
    """Return the key that a person wrote, in the form that a reader takes.

    Args:
        arguments: One text for each key column; or, for a key of several columns, one text that is
            a JSON array.
        fields: The key columns.

    Raises:
        StateUsageError: There are too many or too few values, or one does not have the type of its
            column.
    """
    given: Sequence[object] = arguments
    if len(arguments) == 1 and len(fields) > 1:
        given = _listed(arguments[0])
    if len(given) != len(fields):
        columns = ", ".join(f"{field.name} {field.type}" for field in fields)
        several = ", or all of them as one JSON array" * (len(fields) > 1)
        raise StateUsageError(
            f"a key of this state has {len(fields)} values; got {len(given)}: "
            f"{', '.join(map(str, given))!r:.200}; expected {columns}{several}",
            got=len(given),
            expected=len(fields),
        )
    parts = tuple(_part(field, text) for field, text in zip(fields, given, strict=True))
    return parts[0] if len(parts) == 1 else parts


def json_of(value: object, characters_max: int | None = None) -> Json:
    """Return a value of a state as JSON, without loss unless texts are truncated.

    Decimals become text, since JSON's numbers lose digits in most readers; so do times (ISO 8601)
    and the floats that JSON lacks (``NaN``, ``Infinity``). Bytes become base64.

    Args:
        value: A key, a value, or several of them.
        characters_max: Truncate longer texts to this many characters; None to truncate none.
    """
    match value:
        case str():
            return value if characters_max is None else shortened(value, characters_max)
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else _not_finite(value)
        case decimal.Decimal():
            return format(value, "f")
        case bytes() | bytearray() | memoryview():
            return json_of(base64.b64encode(value).decode("ascii"), characters_max)
        case datetime.date() | datetime.time():
            return value.isoformat()
        case Mapping():
            return {str(name): json_of(part, characters_max) for name, part in value.items()}
        case list() | tuple():
            return [json_of(part, characters_max) for part in value]
        case _:
            return json_of(str(value), characters_max)


def text_of_value(value: object) -> str:
    """Return a value as text for a person: its JSON, but without quotation marks around a text."""
    shown = json_of(value)
    if shown is None:
        return "NULL"
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _listed(text: str) -> list[object]:
    try:
        found = json.loads(text, parse_float=decimal.Decimal)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, list) else [text]


def _part(field: Field, given: object) -> object:
    """Return one key column's value from a text, or from a number or boolean of a JSON array."""
    kind = field.type.partition("(")[0]
    text = str(given).lower() if isinstance(given, bool) else str(given)
    try:
        if given is None or isinstance(given, list | dict):
            raise ValueError("no plain value")
        return _PARSED[kind](text)
    except (ValueError, ArithmeticError) as error:
        raise StateUsageError(
            f"key column {field.name!r} is of type {field.type}; got {text!r:.200}; expected "
            f"{_EXPECTED[kind]}",
            column=field.name,
            got=text[:200],
            expected=field.type,
        ) from error


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(text) from error


def _instant(text: str) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(text)
    return found


def _wall_clock(text: str) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(text)
    if found.tzinfo is not None:
        raise ValueError(text)
    return found


_PARSED: dict[str, Callable[[str], object]] = {
    "string": str,
    "binary": _bytes,
    "boolean": _boolean,
    **dict.fromkeys(("byte", "short", "int", "long"), int),
    **dict.fromkeys(("float", "double"), float),
    "decimal": decimal.Decimal,
    "date": datetime.date.fromisoformat,
    "timestamp": _instant,
    "timestamp_ntz": _wall_clock,
}
_EXPECTED = {
    "string": "a text",
    "binary": "bytes in base64, such as 'AAE='",
    "boolean": "true or false",
    **dict.fromkeys(("byte", "short", "int", "long"), "a whole number"),
    **dict.fromkeys(("float", "double"), "a number"),
    "decimal": "a number",
    "date": "a date, such as 2026-01-31",
    "timestamp": "a time with its zone, such as 2026-01-31T08:00:00Z",
    "timestamp_ntz": "a time without a zone, such as 2026-01-31T08:00:00",
}
