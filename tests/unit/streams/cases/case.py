"""Case: an input with event times and what another engine makes of it, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from txtopo.streams.windows import Session, Window

Rows = Sequence[tuple[str, float]]
"""Rows of one txid: a key and a time in seconds."""

Found = tuple[str, float, float, int]
"""A window: its key, its beginning and end in seconds, and the number of its rows."""


@dataclass(frozen=True)
class Case:
    """Rows of several txids, and the windows that become of them.

    Attributes:
        source: The test that it is taken from.
        window: The windows.
        delay: How much older than the newest row one may be, in seconds.
        txids: The rows of each txid.
        closed: The windows that leave, by txid; None if the source does not say.
        kept: The table at the end; None if the source does not say.
        late: The number of late rows for each key and beginning; None if the source does not say.
        differs: What is otherwise in the source, and why; empty for nothing.
    """

    source: str
    window: Window | Session
    delay: float
    txids: Sequence[Rows]
    closed: Mapping[int, Sequence[Found]] | None = None
    kept: Sequence[Found] | None = None
    late: Mapping[tuple[str, float], int] | None = field(default_factory=dict)
    differs: str = ""


@dataclass(frozen=True)
class Chain:
    """Tumbling windows below each other.

    Attributes:
        source: The test that it is taken from.
        sizes: Their sizes in seconds, the first ones first.
        txids: The times of the rows of each txid, in seconds.
        closed: What the last ones have when they close, by txid: beginning, number of windows of
            the level above, number of rows.
    """

    source: str
    sizes: Sequence[int]
    txids: Sequence[Sequence[float]]
    closed: Mapping[int, Sequence[tuple[float, int, int]]]


@dataclass(frozen=True)
class Marks:
    """Watermarks of sources.

    Attributes:
        source: The test that it is taken from.
        delays: The delay of each source, in seconds.
        steps: The times of the rows of each source in a txid, and the watermark after it.
        differs: What is otherwise in the source, and why; empty for nothing.
    """

    source: str
    delays: Sequence[float]
    steps: Sequence[tuple[Sequence[Sequence[float]], float | None]]
    differs: str = ""
