"""Offsets of Python Data Sources: copied, compared as text, and noticed when they go back."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

from txtopo.errors import EmitError
from txtopo.metadata import Json, json_flaw, shown

logger = logging.getLogger("txtopo")


def same(start: Json, end: Json) -> bool:
    """Return whether two offsets are one, as Spark compares them: as text."""
    return json.dumps(start, sort_keys=True) == json.dumps(end, sort_keys=True)


def copied(offset: object, method: str) -> Json:
    """Return a copy of an offset: a reader may go on with the object that it returned.

    Raises:
        EmitError: It cannot be stored.
    """
    flaw = json_flaw(offset)
    if flaw is not None:
        raise EmitError(
            f"the reader's {method} returned what is not JSON; got {shown(offset)} ({flaw}); "
            "expected numbers, strings, lists and objects with string keys"
        )
    copy: Json = json.loads(json.dumps(offset))
    return copy


def behind(start: Json, end: Json) -> bool:
    """Return whether *end* lies before *start*: all that differs are numbers that became less."""
    before, after = dict(_leaves(start)), dict(_leaves(end))
    if before.keys() != after.keys():
        return False
    changed = [(old, after[path]) for path, old in before.items() if old != after[path]]
    back = bool(changed) and all(
        type(old) is type(new) and type(old) in (int, float) and new < old for old, new in changed
    )
    if back:
        logger.warning("the source's latest offset %s is behind %s; nothing is read", end, start)
    return back


def _leaves(offset: Json, path: tuple[str | int, ...] = ()) -> Iterator[tuple[Any, Any]]:
    parts = enumerate(offset) if isinstance(offset, list) else ()
    for name, value in offset.items() if isinstance(offset, dict) else parts:
        yield from _leaves(value, (*path, name))
    if not isinstance(offset, dict | list):
        yield path, offset
