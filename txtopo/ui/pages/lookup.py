"""Lookup: the first rows of a state, or one key, read only and within limits."""

from __future__ import annotations

import base64
import datetime
import json
import math
from dataclasses import asdict
from itertools import islice
from typing import Any

from txtopo.errors import SchemaDrift, TxtopoError, shortened
from txtopo.state.backend import StateTable
from txtopo.state.columns import Columns
from txtopo.state.registry import State, redacted_url
from txtopo.state.row_text import RowText
from txtopo.tuples import Fields

ROWS_MAX = 100
LOOKUP_S = 5.0
_TEXT_CHARACTERS_MAX = 2_000
_WRITTEN_AS_TEXT = ("string", "binary", "decimal", "date", "timestamp", "timestamp_ntz", "json")
_MISSING = object()


class BadKey(TxtopoError, ValueError):
    """A key does not fit the columns of its state."""


def look_up(state: State, name: str, key: str | None, limit: int) -> dict[str, Any]:
    """Return the ledger of a state with its first rows, or with one key, as JSON.

    It opens one reader, which takes no lock. The rows are in no particular order.

    Args:
        state: The state.
        name: What the topology calls it, ``component.name``.
        key: The key as text; several columns as a JSON array. None for the first rows.
        limit: Rows at most.

    Raises:
        BadKey: The key does not fit the columns.
        TxtopoError: The state cannot be read; from the store.
    """
    with state.reader() as reader:
        ledger, table = reader.ledger, reader.table
        told: dict[str, Any] = {
            "state": name,
            "url": redacted_url(state.url),
            "table": table.name,
            "kind": table.kind,
            "mode": table.mode,
            "key": _columns(table.key),
            "value": _columns(table.value),
            "ledger": None if ledger is None else asdict(ledger),
            "is_snapshot": reader.is_snapshot,
        }
        if key is None:
            found = list(islice(reader.items(), limit + 1))
            rows, more = found[:limit], len(found) > limit
        else:
            given = key_of(table, key)
            value = reader.get(given, _MISSING)
            rows, more = [] if value is _MISSING else [(given, value)], False
    told["rows"] = [{"key": shown(each), "value": shown(value)} for each, value in rows]
    told["more"] = more
    return told


def key_of(table: StateTable, text: str) -> Any:
    """Return the key that a person wrote: plain for one column, else a JSON array.

    Numbers are written as numbers, decimals, dates and times as in ISO 8601, binaries in Base64.

    Raises:
        BadKey: It does not fit the columns.
    """
    fields = table.key
    expected = ", ".join(f"{each.name} {each.type}" for each in fields)
    try:
        parts = json.loads(text) if len(fields) > 1 else [_part(fields[0].type, text)]
        key = RowText(table).key_of(json.dumps(parts))
    except (ValueError, RecursionError, SchemaDrift) as error:
        raise BadKey(
            f"the key does not fit the columns of the state; got {text!r:.200}; expected {expected}"
            + (", as a JSON array" if len(fields) > 1 else "")
        ) from error
    key = Columns(table.name, "key", fields).opened(key)
    return key if len(fields) > 1 else key[0]


def shown(value: Any) -> Any:
    """Return a key or value of a state as JSON; what JSON has not is text, long text is cut."""
    if isinstance(value, dict):
        return {str(name): shown(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [shown(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, bytes):
        return shown(base64.b64encode(value).decode())
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, str):
        return shortened(value, _TEXT_CHARACTERS_MAX)
    return value if value is None or isinstance(value, bool | int | float) else shown(str(value))


def _columns(fields: Fields) -> list[dict[str, str]]:
    return [{"name": each.name, "type": each.type} for each in fields]


def _part(kind: str, text: str) -> Any:
    named = kind.partition("(")[0]
    return text if named in _WRITTEN_AS_TEXT else json.loads(text)
