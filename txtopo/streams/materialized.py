"""Materializing: how a stream whose rows are taken back becomes the table of its current rows.

Rules
-----
1. Within a batch a row that is put and an equal row that is taken back cancel, in any order. So the
   table depends only on what is left, not on tasks or on the order of the rows.
2. The row that is left of a key is its value. If only a row that is taken back is left, the key is
   removed.
3. A key has at most one row at a time: what a txid takes back is exactly what the table has for the
   key, and what it puts is one row. Anything else means that the key does not identify the rows of
   the stream, so the table could not show all of them. That is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from txtopo.errors import EmitError
from txtopo.state.keyed_columns import (
    codes_of,
    differing,
    flags_of,
    positions,
    there,
    with_plain_zeros,
)


@dataclass(frozen=True)
class Materializing:
    """How rows become values: rows are put, and taken back.

    Attributes:
        key: The key fields.
        value: The value fields.
        retracted: The field that is true in rows that are taken back.
        reads: Whether a new value depends on the old one.
        removes: Whether keys are removed.
    """

    key: tuple[str, ...]
    value: tuple[str, ...]
    retracted: str
    reads: ClassVar[bool] = True
    removes: ClassVar[bool] = True

    def changed(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are left, one of each; ``retracted`` is true in those taken back.

        Raises:
            EmitError: Two equal rows are left, so a key would have two rows.
        """
        names = [*self.key, *self.value]
        kept = with_plain_zeros(rows.select(names), self.key)
        _, first, which = np.unique(codes_of(kept), return_index=True, return_inverse=True)
        back = flags_of(rows.column(self.retracted).fill_null(False))
        net = np.bincount(which, np.where(back, -1, 1), len(first)).astype(np.int64)
        left = net != 0
        found = kept.take(pa.array(first[left])).append_column(
            self.retracted, pa.array(net[left] < 0)
        )
        self._check(found, np.abs(net[left]) == 1, "equal rows")
        return found

    def combined(self, before: pa.Table, changes: pa.Table) -> pa.Table:
        """Return the rows after changes; *before* has the rows of those keys that exist.

        Raises:
            EmitError: A row that is taken back is not the one that the table has, or a row is put
                beside another one.
        """
        back = flags_of(changes.column(self.retracted))
        taken, put = (changes.filter(pa.array(each)) for each in (back, ~back))
        for rows in (taken, put):
            self._check(rows, _alone(rows.select(self.key)), "rows")
        place = positions(taken.select(self.key), before.select(self.key))
        stored = before.take(place)
        same = ~differing(stored.select(self.value), taken.select(self.value))
        self._check(taken, there(place) & same, "rows, of which one was never put,")
        # Each row that is there has to be taken back before another one is put.
        place = positions(before.select(self.key), taken.select(self.key))
        self._check(before, there(place), "rows")
        return put.drop_columns([self.retracted])

    def _check(self, rows: pa.Table, fine: np.ndarray, what: str) -> None:
        """Raise an error with the key of the first row that is not fine, if there is one."""
        if fine.all():
            return
        row = rows.slice(int(np.argmin(fine)), 1).to_pylist()[0]
        key = {name: row[name] for name in self.key}
        got = ", ".join(f"{name}={value!r:.100}" for name, value in key.items())
        raise EmitError(
            f"a table would need two {what} for one key; got {got}; expected a key that identifies "
            "each row of the stream; add columns to it, such as the keys of both sides of a join",
            key=key,
        )


def _alone(keys: pa.Table) -> np.ndarray:
    """Return which keys occur once."""
    _, which, counts = np.unique(codes_of(keys), return_inverse=True, return_counts=True)
    alone: np.ndarray = counts[which] == 1
    return alone
