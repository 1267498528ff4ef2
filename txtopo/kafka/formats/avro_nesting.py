"""Refuses schemas of Avro whose records could crash the process or never end.

fastavro decodes in C, and calls itself for each level of nested data, without a limit. The schema
limits the depth of a record, unless a type contains itself: then the data determines the depth, and
40 kB of valid data exhaust the stack of the process. If the item type of an array takes no bytes,
the data does not limit their number: ten bytes can stand for 2^62 items.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

_NAMED = ("record", "error", "enum", "fixed")


@lru_cache(maxsize=1000)
def why_not_read(text: str) -> str | None:
    """Return why records of a schema are not read; None if they are.

    Args:
        text: The schema as JSON text; invalid text is refused elsewhere.
    """
    try:
        schema = json.loads(text)
    except ValueError:
        return None
    return _flaw(schema, "", frozenset(), {})


def _flaw(
    schema: Any, namespace: str, around: frozenset[str], empty: dict[str, bool]
) -> str | None:
    """Return the first flaw of a schema within the named types *around* it.

    Args:
        schema: The schema.
        namespace: The namespace that it is in.
        around: The full names of the types that contain it.
        empty: Receives, for each named type, whether its values take no bytes.
    """
    if isinstance(schema, str):
        name = _full_name(schema, namespace)
        inner = next((each for each in (name, schema) if each in around), None)
        return inner and f"type {inner!r} contains itself"
    if isinstance(schema, list):
        return next((flaw for s in schema if (flaw := _flaw(s, namespace, around, empty))), None)
    if not isinstance(schema, dict):
        return None
    kind = schema.get("type")
    if kind in _NAMED and isinstance(schema.get("name"), str):
        name = _full_name(schema["name"], schema.get("namespace") or namespace)
        namespace, around = name.rpartition(".")[0], around | {name}
        parts = [each.get("type") for each in schema.get("fields") or () if isinstance(each, dict)]
        flaw = _flaw(parts, namespace, around, empty)
        empty[name] = all(_is_empty(each, namespace, empty) for each in parts)
        empty[name] = empty[name] if kind in ("record", "error") else schema.get("size") == 0
        return flaw
    if kind == "array":
        items = schema.get("items")
        flaw = _flaw(items, namespace, around, empty)
        if flaw is None and _is_empty(items, namespace, empty):
            return "it has an array whose items take no bytes"
        return flaw
    return _flaw(schema.get("values") if kind == "map" else kind, namespace, around, empty)


def _is_empty(schema: Any, namespace: str, empty: dict[str, bool]) -> bool:
    """Return whether values of a schema take no bytes; its named types are already known."""
    if isinstance(schema, str):
        return schema == "null" or empty.get(_full_name(schema, namespace), False)
    if not isinstance(schema, dict):
        return False
    kind = schema.get("type")
    if kind in _NAMED and isinstance(schema.get("name"), str):
        name = _full_name(schema["name"], schema.get("namespace") or namespace)
        return empty.get(name, False)
    return kind not in ("array", "map") and _is_empty(kind, namespace, empty)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
