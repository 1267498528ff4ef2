"""The keys of a query, as the metadata of a batch keeps them.

The metadata of a batch is ``{"after": key, "upto": key, "cuts": [[key, rows], …], "newest": key,
"at_upto": rows, "gaps": [[key or null, key], …], "source": {"key": name, "query": text}}``.

Each cut is read by one task: the rows after the key of the previous cut, up to its own key. The
number of rows was counted when the batch was planned; if a task reads another number, rows were
changed. ``newest`` was the largest key in the table at that time; when the table ends before it,
unread rows have been deleted. ``at_upto`` is the number of rows whose key is the last one of the
batch. ``gaps`` are the largest distances between keys so far, for keys that are numbers; the gap
before the first key has no beginning. ``source`` distinguishes a position from one in another table
or by another key, which may be an equal number.
"""

from __future__ import annotations

import datetime
import math
from typing import Any, NamedTuple

from txtopo.errors import ConfigError
from txtopo.tuples import Fields

Key = int | datetime.date
"""A key; a datetime is a date, too."""

KEY_TYPES: dict[str, type] = {
    "byte": int,
    "short": int,
    "int": int,
    "long": int,
    "date": datetime.date,
    "timestamp": datetime.datetime,
    "timestamp_ntz": datetime.datetime,
}

EXPECTED = {
    int: "a whole number",
    datetime.date: "a date",
    datetime.datetime: "a date with a time",
}


class PlannedKeys(NamedTuple):
    """The metadata of a batch, with keys as the database returned them.

    Attributes:
        after: The end of the previous batch.
        upto: The end of the batch.
        newest: The largest key in the table when the batch was planned.
        cuts: The end of each cut, and its number of rows.
        gaps: The largest gaps up to the end of the batch.
        at_upto: The number of rows whose key is the end of the batch.
    """

    after: Key | None
    upto: Key | None
    newest: Key | None
    cuts: list[tuple[Key | None, int]]
    gaps: tuple[Gap, ...] = ()
    at_upto: int | None = None


class Gap(NamedTuple):
    """A range of numbers that had no row when it was skipped.

    Attributes:
        low: The key of the row before it; None before the first row.
        high: The key of the row after it.
    """

    low: int | None
    high: int

    @property
    def width(self) -> float:
        """The distance between the two keys."""
        return math.inf if self.low is None else self.high - self.low

    def holds(self, key: Any) -> Any:
        """Return whether a key is in the gap; for a column, return the condition."""
        below = key < self.high
        return below if self.low is None else (key > self.low) & below


def check_key(key: str, fields: Fields, start_after: object) -> str:
    """Return the type of the key field.

    Raises:
        ConfigError: There is no such field, its type cannot be a key, or *start_after* is of
            another type.
    """
    kinds = {field.name: field.type for field in fields}
    kind = kinds.get(key)
    if kind not in KEY_TYPES:
        got = f"{key!r}, which is not a field" if kind is None else f"{key!r}, a {kind}"
        raise ConfigError(
            f"the key of a query is wrong; got {got}; expected a field that is a whole number, a "
            f"date or a timestamp; the fields are {fields}",
            key=key,
        )
    if start_after is not None and type(start_after) is not KEY_TYPES[kind]:
        raise ConfigError(
            f"start_after of a query is not a key; got {start_after!r}; expected a {kind}", key=key
        )
    return kind


def comparable(key: Key) -> Any:
    """Return a key that can be compared with any other: without a zone, in UTC."""
    if isinstance(key, datetime.datetime) and key.tzinfo is not None:
        return key.astimezone(datetime.UTC).replace(tzinfo=None)
    return key
