"""Sums of a log that could grow too large for their column are refused before they are written.

Delta keeps the largest values of each file: they are the bound to begin with. See
:mod:`txtopo.state.log`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from state_backends.delta.combining import combined_rows
from state_backends.delta.files import statistics
from txtopo.state import StateTable, largest, limited_sums

if TYPE_CHECKING:
    from deltalake import DeltaTable

# Statistics of decimals have lost digits on their way through JSON.
_MARGIN = 0.99


class SumGuard:
    """Keeps the bounds of the sums of one state."""

    def __init__(self, state: StateTable) -> None:
        self._state = state
        self._limits = {name: limit * _MARGIN for name, limit in limited_sums(state).items()}
        self._bounds: dict[str, float] | None = None

    def check(self, table: DeltaTable, added: pa.Table, read_all: Callable[[], pa.Table]) -> None:
        """Check that the sums still fit when *added* is there as well.

        Args:
            table: The table before.
            added: The rows of a batch.
            read_all: Reads the rows of the table that stay.

        Raises:
            ValueRefusedError: A sum does not fit its column.
        """
        if not self._limits or not added.num_rows:
            return
        if self._bounds is None:
            self._bounds = {name: _largest_in_files(table, name) for name in self._limits}
        more = {name: largest(added.column(name)) for name in self._limits}
        bounds = {name: self._bounds[name] + more[name] for name in self._limits}
        if any(bounds[name] >= limit for name, limit in self._limits.items()):
            total = combined_rows(self._state, pa.concat_tables([read_all(), added]))
            # By so much may a sum be larger once these rows are taken back: by a redo, or since
            # they are not written after all.
            bounds = {name: largest(total.column(name)) + more[name] for name in self._limits}
        self._bounds = bounds


def _largest_in_files(table: DeltaTable, name: str) -> float:
    names = (f"min.{name}", f"max.{name}", f"null_count.{name}", "num_records")
    rows = zip(*statistics(table, *names), strict=True)
    return sum((_largest_in_file(*row) for row in rows), start=0.0)


def _largest_in_file(low: Any, high: Any, nulls: int | None, rows: int | None) -> float:
    if low is not None and high is not None:
        return max(abs(float(low)), abs(float(high)))
    # A file of NULLs alone has no ends; of one without statistics nothing is known.
    return 0.0 if rows is not None and rows == nulls else math.inf
