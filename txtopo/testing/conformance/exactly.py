"""What it means that a value comes back exactly."""

from __future__ import annotations

import datetime
import decimal
import struct
from collections.abc import Mapping
from typing import Any


def exactly(value: Any) -> Any:
    """Return something that is equal for values that are the same to the last bit.

    NaN is itself here, -0.0 is not 0.0, 1 is not 1.0 and not True; a moment is itself in every
    time zone.
    """
    if isinstance(value, Mapping):
        return {exactly(key): exactly(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return tuple(exactly(part) for part in value)
    if isinstance(value, float):
        # One NaN is as good as another: their other bits are not kept by databases.
        return float, "nan" if value != value else struct.pack(">d", value)
    if isinstance(value, decimal.Decimal):
        return decimal.Decimal, str(value)
    if isinstance(value, datetime.datetime):
        zone = None if value.tzinfo is None else "UTC"
        return datetime.datetime, (value.astimezone(datetime.UTC) if zone else value).isoformat()
    return type(value), value
