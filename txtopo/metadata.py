"""BatchMetadata: what has to be known to emit a batch again."""

from __future__ import annotations

import json
from dataclasses import dataclass

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""What metadata is made of. Nothing is ever pickled into the transactional state."""


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """What has to be known to emit a batch again.

    Attributes:
        planned: What the spout's coordinator part said (``initialize_transaction``; for a
            partitioned spout the number of partitions).
        cut: What the emitters said, by partition, carried forward for partitions that emitted
            nothing; None for a spout whose emitters have no metadata of their own, and for a batch
            that was never processed.
        content: What the first attempt that was processed brought, by partition or task, as
            ``[tuples, digest]`` (:mod:`txtopo.stages.replays`); None where replays are not
            compared. It is stored beside *planned* and *cut*, which a spout needs, so that a
            txtopo that does not know it reads those.
    """

    planned: Json = None
    cut: dict[str, Json] | None = None
    content: dict[str, Json] | None = None


def json_flaw(value: object) -> str | None:
    """Say why JSON would not give *value* back as it is; None if it does.

    A key that is a number would come back as a string, so that a spout would not find what it
    stored and begin anew. (A tuple comes back as a list, which does no harm.)
    """
    try:
        json.dumps(value, allow_nan=False)
        return _changed_key(value)
    except RecursionError:
        return "it is nested too deep"
    except (TypeError, ValueError) as error:
        return str(error)


def shown(value: object) -> str:
    """Return the beginning of a value for a message; what is nested too deep has no text."""
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
