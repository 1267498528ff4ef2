"""Values that a store may refuse: the closed list, each with examples.

A store declares by name which of them it refuses (``StateBackendSuite.refused``); all others, and
everything that is not on this list, it gives back exactly.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

Part = Literal["key", "value"]


@dataclass(frozen=True, slots=True)
class Refusable:
    """A sort of values.

    Attributes:
        why: Which stores refuse it, and for what reason.
        type: The type of the field that holds it.
        part: ``"key"`` or ``"value"``.
        value: An example.
        harmless: A value of the same field that every store keeps.
        in_arrow: Whether Arrow can carry it, so that it may come as a partial aggregate.
    """

    why: str
    type: str
    part: Part
    value: Any
    harmless: Any
    in_arrow: bool = True


# No two of them alike, so that no store's compression makes it short.
_WIDE = "".join(random.Random(700).choices([chr(0x10000 + at) for at in range(40_000)], k=700))

REFUSABLE: Mapping[str, Refusable] = MappingProxyType(
    {
        "nan": Refusable("SQLite and MySQL have no NaN", "double", "value", float("nan"), 1.0),
        "infinity": Refusable("MySQL has none", "double", "value", float("-inf"), 1.0),
        "negative zero": Refusable("SQLite writes -0.0 as 0", "double", "value", -0.0, 1.0),
        "nul in keys": Refusable("PostgreSQL's text has no NUL", "string", "key", "a\0b", "a"),
        "nul in strings": Refusable("PostgreSQL's text has no NUL", "string", "value", "\0", "a"),
        "surrogates in keys": Refusable(
            "a lone surrogate is no UTF-8", "string", "key", "a\ud800", "a", in_arrow=False
        ),
        "surrogates in strings": Refusable(
            "a lone surrogate is no UTF-8", "string", "value", "\udfff", "a", in_arrow=False
        ),
        "keys beyond 2,700 bytes": Refusable(
            "an index entry has to fit a page", "string", "key", _WIDE, "a"
        ),
        "dates before 1000": Refusable(
            "MySQL promises none",
            "date",
            "value",
            datetime.date(1, 1, 1),
            datetime.date(2013, 7, 4),
        ),
        "timestamps before 1000": Refusable(
            *("MySQL promises none", "timestamp_ntz", "value"),
            *(datetime.datetime(1, 1, 1), datetime.datetime(2013, 7, 4)),
        ),
    }
)
"""By the name that a suite uses in ``refused``."""
