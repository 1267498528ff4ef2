"""Windows of a number of rows: their declaration, and which windows a row is in.

Rules
-----
1. The rows of a key are numbered from 1, over all batches: by txid, and within a batch in the order
   in which the committer receives them. This order is: by stream, in the order of the program; then
   by sending task; then in the order in which that task emitted them, for a source partition by
   partition. With ``order_by`` the rows of a batch are first ordered by these columns; rows that
   are equal there stay in that order.
2. Window k of a key ends with row k · ``every`` and has ``size`` rows: row i is in the windows from
   i / ``every``, rounded up, to (i + ``size`` - 1) / ``every``, rounded down. Tumbling windows have
   ``every`` = ``size``, so each row is in one. The first sliding windows have fewer rows, since
   they would begin before row 1.
3. Window k is full with row k · ``every``, so it is emitted once, in the txid of that row. No later
   row is in it.
4. How many rows a key has had is state, in a table of its own: ``<table>_counts``. Both tables are
   read as of the previous txid, so a replay numbers its rows from there again, whatever an earlier
   attempt has left.
5. With ``keep`` the last *keep* full windows of each key stay, and those that are not full. The
   txid that fills a window deletes the one that is *keep* windows older. The counts stay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from txtopo.errors import TopologyError
from txtopo.state.keyed_columns import Numbers

WINDOWS_MAX = 10_000
"""If a row would be in more windows than this, the declaration must be a mistake."""


@dataclass(frozen=True, slots=True)
class RowWindow:
    """Windows of a number of rows of each key; created by ``tumbling`` and ``sliding``.

    Attributes:
        size: How many rows a window has.
        every: How many rows are between the ends of two consecutive windows.
    """

    size: int
    every: int

    def __str__(self) -> str:
        if self.every == self.size:
            return f"tumbling windows of {self.size} rows"
        return f"sliding windows of {self.size} rows, one every {self.every}"

    @property
    def of_row(self) -> int:
        """The largest number of windows that a row is in."""
        return -(-self.size // self.every)

    def assigned(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Return each pair of a row and a window that it is in: places of rows, and windows.

        Args:
            numbers: The number of each row within its key, from 1.
        """
        first = -(-numbers // self.every)
        count = (numbers + self.size - 1) // self.every - first + 1
        return ranges(first, count)


def row_window(what: str, size: object, every: object) -> RowWindow:
    """Return windows of a number of rows.

    Args:
        what: The windows, for messages.
        size: How many rows a window has.
        every: How many rows are between the ends of two windows.

    Raises:
        TopologyError: One is not a positive whole number, the windows leave gaps, or a row would be
            in too many of them.
    """
    for name, given in (("rows", size), ("every", every)):
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            raise TopologyError(
                f"{name}, of {what}, is wrong; got {given!r:.100}; expected how many rows, e.g. "
                f"{name}=100",
                setting=name,
                got=f"{given!r:.100}",
            )
    assert isinstance(size, int)
    assert isinstance(every, int)
    if every > size:
        raise TopologyError(
            f"{what} leave gaps; got rows={size} and every={every}; expected every to be at most "
            "rows, so that each row is in a window",
            setting="every",
            got=every,
        )
    window = RowWindow(size, every)
    if window.of_row > WINDOWS_MAX:
        raise TopologyError(
            f"each row would be in {window.of_row} windows; got rows={size} and every={every}; "
            f"expected at most {WINDOWS_MAX:,}; choose a larger every",
            setting="every",
            got=every,
        )
    return window


def ranges(first: Numbers, count: Numbers) -> tuple[Numbers, Numbers]:
    """Return the numbers in some ranges, one after the other, and of each the place of its range.

    Args:
        first: The first number of each range.
        count: How many numbers it has; may be zero.

    Returns:
        Places, and numbers.
    """
    places = np.repeat(np.arange(len(first)), count)
    within = np.arange(len(places)) - np.repeat(np.cumsum(count) - count, count)
    return places, first[places] + within


def numbers_within(codes: Numbers) -> Numbers:
    """Return for each row its number among the rows with its code, from 1, in their order."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))[: len(codes)]
    lengths = np.diff(np.append(starts, len(codes)))
    numbers = np.empty(len(codes), np.int64)
    numbers[order] = np.arange(len(codes)) - np.repeat(starts, lengths) + 1
    return numbers
