"""What a page shows of a state: its first rows, or one key, read only and within limits."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import Any

from txtopo.errors import StateUsageError, TxtopoError, ValueRefusedError
from txtopo.metadata import Json
from txtopo.state.plain_values import json_of, key_of
from txtopo.state.reader import StateReader
from txtopo.state.registry import State, redacted_url
from txtopo.tuples import Fields

ROWS_MAX = 100
STATE_ROWS_S = 5.0
_TEXT_CHARACTERS_MAX = 2_000
_MISSING = object()


class BadKey(TxtopoError, ValueError):
    """A key does not fit the columns of its state."""


def look_up(state: State, name: str, key: str | None, limit: int) -> dict[str, Any]:
    """Return the ledger of a state with its first rows, or with one key, as JSON.

    It opens one reader, which takes no lock. The rows are in no particular order.

    Args:
        state: The state.
        name: Its name in the topology, ``component.name``.
        key: The key as text; several columns as a JSON array. None for the first rows.
        limit: Rows at most.

    Raises:
        BadKey: The key does not fit the columns.
        TxtopoError: The store cannot read the state.
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
            rows, more = _one(reader, key), False
    told["rows"] = [{"key": _shown(each), "value": _shown(value)} for each, value in rows]
    told["more"] = more
    return told


def _one(reader: StateReader, text: str) -> list[tuple[Any, Any]]:
    try:
        key = key_of([text], reader.table.key)
        value = reader.get(key, _MISSING)
    except (StateUsageError, ValueRefusedError) as error:
        raise BadKey(str(error), **error.facts) from error
    return [] if value is _MISSING else [(key, value)]


def _shown(value: object) -> Json:
    return json_of(value, _TEXT_CHARACTERS_MAX)


def _columns(fields: Fields) -> list[dict[str, str]]:
    return [{"name": each.name, "type": each.type} for each in fields]
