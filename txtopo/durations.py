"""Durations as texts and timedeltas: ``"5 minutes"``."""

from __future__ import annotations

import datetime
import re

from txtopo.errors import TopologyError

Duration = str | datetime.timedelta
"""A length of time: a text such as ``"90 seconds"`` or ``"1 hour 30 minutes"``, or a timedelta."""

MICROSECOND = datetime.timedelta(microseconds=1)

# A sum of it and of any time that a stream may have is a datetime.
LONGEST = datetime.timedelta(days=36_500)

_SECONDS = {
    "millisecond": 0.001,
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86_400,
    "week": 604_800,
}
_PART = re.compile(r"\s*(\d+)\s*([a-z]+?)s?\b\s*,?", re.I)


def duration(what: str, given: object, *, zero: bool = False) -> datetime.timedelta:
    """Return a length of time.

    Args:
        what: What it is, for messages.
        given: A text or a timedelta.
        zero: Whether it may be zero.

    Raises:
        TopologyError: It cannot be read, is negative, zero, or longer than a hundred years.
    """
    length = _parsed(given) if isinstance(given, str) else given
    if not isinstance(length, datetime.timedelta):
        raise TopologyError(
            f"{what} is not a duration; got {given!r:.100}; expected a text such as '5 minutes' or "
            f"'1 hour 30 minutes' (units: {', '.join(_SECONDS)}), or a timedelta",
            name=what,
            got=f"{given!r:.100}",
        )
    shortest = datetime.timedelta(0) if zero else MICROSECOND
    if not shortest <= length <= LONGEST:
        least = "zero" if zero else "a microsecond"
        raise TopologyError(
            f"{what} is out of range; got {given!r:.100}; expected {least} to {LONGEST.days} days",
            name=what,
            got=f"{given!r:.100}",
        )
    return length


def shown(length: datetime.timedelta) -> str:
    """Return a length of time as a text that :func:`duration` reads: ``1 hour 30 minutes``."""
    rest, parts = length // datetime.timedelta(milliseconds=1), []
    for unit in ("day", "hour", "minute", "second", "millisecond"):
        count, rest = divmod(rest, round(_SECONDS[unit] * 1000))
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    return " ".join(parts) or (str(length) if length else "0 seconds")


def _parsed(text: str) -> datetime.timedelta | None:
    total, at, read = datetime.timedelta(0), 0, False
    while found := _PART.match(text, at):
        unit = _SECONDS.get(found[2].lower())
        if unit is None or len(found[1]) > 12:
            return None
        try:
            total += datetime.timedelta(seconds=int(found[1]) * unit)
        except OverflowError:
            return None
        at, read = found.end(), True
    return total if read and at == len(text) else None
