"""Deduplication, interval joins and expiring values in plain Python, as oracles.

Each function takes all batches so far, a batch being rows of the fields of ``times.EVENT``, and
returns what each txid emits and keeps as late. It keeps everything for ever, compares every row
with every other, and knows no stores, ranges or expiry.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Sequence[Any]
Delta = datetime.timedelta


@dataclass
class Told:
    """What an operator has emitted and what it has kept as late, with the txid of each."""

    emitted: list[tuple[int, tuple[Any, ...]]] = field(default_factory=list)
    late: list[tuple[int, tuple[Any, ...]]] = field(default_factory=list)

    def numbered(self) -> dict[tuple[int, int], tuple[Any, ...]]:
        """Return the late rows as their table has them."""
        found: dict[tuple[int, int], tuple[Any, ...]] = {}
        for txid in dict.fromkeys(txid for txid, _ in self.late):
            rows = sorted((row for at, row in self.late if at == txid), key=in_order)
            found |= {(txid, number): row for number, row in enumerate(rows, 1)}
        return found


class Marks:
    """The watermark of some sources, each with a delay."""

    def __init__(self, delays: Sequence[Delta]) -> None:
        self._delays = delays
        self._marks: list[datetime.datetime | None] = [None] * len(delays)
        self.now: datetime.datetime | None = None

    def take(self, times: Sequence[Sequence[datetime.datetime]]) -> None:
        """Take the times of a batch of each source."""
        for number, new in enumerate(times):
            known = [] if self._marks[number] is None else [self._marks[number]]
            self._marks[number] = max([*known, *new], default=None)  # type: ignore[type-var]
        moved = [
            mark - delay
            for mark, delay in zip(self._marks, self._delays, strict=True)
            if mark is not None
        ]
        if len(moved) == len(self._delays):
            self.now = min(moved) if self.now is None else max(self.now, *[min(moved)])


def deduplicated(batches: Sequence[Sequence[Row]], within: Delta, delay: Delta) -> Told:
    """Drop rows of a key (the second column) that are too near to one let through before them.

    The rows of a batch are in the order of arrival.
    """
    told, marks = Told(), Marks([delay])
    passed: dict[Any, list[datetime.datetime]] = {}
    for txid, batch in enumerate(batches, 1):
        before = marks.now
        marks.take([[row[3] for row in batch]])
        for row in batch:
            _, key, _, time = row
            if before is not None and time < before:
                told.late.append((txid, tuple(row)))
                continue
            if key is not None and any(abs(time - at) < within for at in passed.get(key, [])):
                continue
            told.emitted.append((txid, tuple(row)))
            passed.setdefault(key, []).append(time)
    return told


def joined(
    batches: Sequence[tuple[Sequence[Row], Sequence[Row]]],
    lower: Delta,
    upper: Delta,
    how: str,
    delays: tuple[Delta, Delta],
) -> Told:
    """Join left and right rows by their key, the second column, and their times.

    What is emitted is (left row, right row or None); what is late is (side, row).
    """
    told, marks = Told(), Marks(delays)
    lefts: list[tuple[Row, set[str]]] = []
    rights: list[Row] = []
    gone: set[int] = set()
    for txid, (left, right) in enumerate(batches, 1):
        before = marks.now
        marks.take([[row[3] for row in left], [row[3] for row in right]])
        new = []
        for side, rows in (("left", left), ("right", right)):
            for row in rows:
                if before is not None and row[3] < before:
                    told.late.append((txid, (side, tuple(row))))
                else:
                    new.append((side, row))
        old_lefts, old_rights = len(lefts), len(rights)
        lefts += [(row, set()) for side, row in new if side == "left"]
        rights += [row for side, row in new if side == "right"]
        for at, (one, found) in enumerate(lefts):
            # Two old rows have met before.
            for other in rights[0 if at >= old_lefts else old_rights :]:
                apart = other[3] - one[3]
                if one[1] is not None and one[1] == other[1] and lower <= apart <= upper:
                    told.emitted.append((txid, (tuple(one), tuple(other))))
                    found.add(other[0])
        for at, (one, found) in enumerate(lefts):
            closed = marks.now is not None and one[3] + upper < marks.now
            if how == "left" and not found and at not in gone and (closed or one[1] is None):
                told.emitted.append((txid, (tuple(one), None)))
                gone.add(at)
    return told


def updated(
    batches: Sequence[Sequence[Row]],
    function: Callable[[Any, Row], tuple[Any, Any]],
    after: Delta,
    delay: Delta,
    times: Sequence[Sequence[datetime.datetime]],
) -> Told:
    """Keep a running value of each key that is none after a time without a row.

    ``times`` are those of all rows of the source.
    """
    told, marks = Told(), Marks([delay])
    values: dict[Any, tuple[Any, datetime.datetime]] = {}
    for txid, batch in enumerate(batches, 1):
        before = marks.now
        marks.take([times[txid - 1]])
        for row in sorted(batch, key=in_order):
            now = row[3] if before is None else max(row[3], before)
            value, seen = values.pop(row[1], (None, row[3]))
            if seen + after <= now:
                value, seen = None, row[3]
            value, emitted = function(value, row)
            if value is not None:
                values[row[1]] = value, max(seen, row[3])
            if emitted is not None:
                told.emitted.append((txid, tuple(emitted)))
    return told


def in_order(row: Sequence[Any]) -> tuple[tuple[bool, Any], ...]:
    """Return where a row stands in the order of all its columns, NULL last."""
    return tuple((value is None, value if value is not None else 0) for value in row)
