"""BatchMetadata: everything that is stored of a batch, to emit it again."""

from __future__ import annotations

import json
from dataclasses import dataclass

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""The type of metadata. Nothing is ever pickled into the transactional state."""


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """Everything that is stored of a batch, to emit it again.

    Attributes:
        planned: The metadata from the spout's coordinator part (``initialize_transaction``); for a
            partitioned spout the number of partitions.
        cut: The metadata from the emitters, by partition; a partition that emitted nothing keeps
            that of an earlier batch. None for a spout whose emitters return none, and for a batch
            that was never processed.
        content: The content of the first processed attempt, by partition or task, as
            ``[tuples, digest]`` (:mod:`txtopo.stages.replays`); None if replays are not compared.
            It is stored apart from *planned* and *cut*, so that an older txtopo can read those.
        pace: The limit of the batch, as :mod:`txtopo.pacing` stores it; None without one. It is
            stored beside *planned* and *cut*, so that an older txtopo, which would not keep to it,
            refuses to read those.
    """

    planned: Json = None
    cut: dict[str, Json] | None = None
    content: dict[str, Json] | None = None
    pace: dict[str, Json] | None = None


def json_flaw(value: object) -> str | None:
    """Return why JSON would not give *value* back unchanged; None if it would.

    A key that is a number would come back as a string; the spout would not find it, and start from
    the beginning. (A tuple comes back as a list, which does no harm.)
    """
    try:
        json.dumps(value, allow_nan=False)
        return _changed_key(value)
    except RecursionError:
        return "it is nested too deep"
    except (TypeError, ValueError) as error:
        return str(error)


def shown(value: object) -> str:
    """Return the beginning of a value for a message, or its type if it is nested too deep."""
    try:
        return f"{value!r:.200}"
    except RecursionError:
        return f"a {type(value).__name__}"


def _changed_key(value: object) -> str | None:
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return f"the key {key!r} is of type {type(key).__name__}, not a string"
        value = list(value.values())
    if isinstance(value, list | tuple):
        return next((flaw for part in value if (flaw := _changed_key(part))), None)
    return None
