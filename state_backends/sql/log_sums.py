"""How far the sums of a log may grow in a database: what does not fit is refused by its commit.

A log does not read what it adds to, so the bound of :mod:`txtopo.state.log` is kept: no key's sum
is further from zero than the sum, over all txids, of the largest value in each. A start takes it
from the rows by txid, which takes a fraction of what it takes by key; only when it reaches the
limit of a column are the rows of each key added up: those of floats without their signs, since
folds and readings add them up in any order, in which a part may be larger than the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from state_backends.sql.tables import StateColumns
from txtopo.errors import ValueRefusedError
from txtopo.state import StateTable, largest, limited_sums

_MARGIN = 0.99  # the bounds are floats, and the limits have up to 38 digits


class SumBounds:
    """Watches the sums of a state.

    Args:
        state: The state.
        columns: Its table.
        float_max: The largest sums of the field types that are floats, rounded down.
    """

    def __init__(
        self, state: StateTable, columns: StateColumns, float_max: Mapping[str, float]
    ) -> None:
        self._state = state
        self._columns = columns
        self._limits = limited_sums(state)
        pairs = zip(state.value, state.aggregates, strict=bool(state.aggregates))
        self.floats = {
            field.name: float_max[field.type]
            for field, aggregate in pairs
            if aggregate.operator == "add" and field.type in float_max
        }
        self._tops: dict[str, float] = self._limits | self.floats
        self._bounds: dict[str, float] | None = None

    def check(self, connection: sa.Connection, rows: pa.Table) -> None:
        """Refuse sums that do not fit; the rows are in the table, in this transaction.

        Raises:
            ValueRefusedError: A sum is too large; take the transaction back.
        """
        if not self._tops:
            return
        added = {name: largest(rows.column(name)) for name in self._tops}
        if self._bounds is None:
            bounds = self._bounds_by_txid(connection)
        else:
            bounds = {name: bound + added[name] for name, bound in self._bounds.items()}
        if not all(bounds[name] < limit * _MARGIN for name, limit in self._tops.items()):
            # By so much may a sum be larger once these rows are taken back: by a redo, or since
            # this transaction fails.
            exact = self._exact_bounds(connection)
            bounds = {name: bound + added[name] for name, bound in exact.items()}
        self._bounds = bounds

    def summed(self, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
        """Return what adds up a column, with no limit or an error at it; floats by their size."""
        return sa.func.sum(sa.func.abs(column) if column.name in self.floats else column)

    def float_bound(self, name: str, high: float) -> float:
        """Return the bound of a sum of floats, given the largest one of :meth:`summed`."""
        return float(high)

    def refused(self, name: str, got: object, limit: object) -> ValueRefusedError:
        """Return the error for a sum that is too large."""
        return ValueRefusedError(
            f"a sum of state {self._state.name!r} does not fit its column {name!r}; got {got}; "
            f"expected less than {limit}; nothing of its batch was written",
            state=self._state.name,
            field=name,
        )

    def _bounds_by_txid(self, connection: sa.Connection) -> dict[str, float]:
        columns = self._columns
        ends = _ends([columns.table.c[name] for name in self._tops])
        rows = connection.execute(sa.select(*ends).group_by(columns.txid)).all()
        return {
            name: sum(_furthest(*row[2 * at : 2 * at + 2]) for row in rows)
            for at, name in enumerate(self._tops)
        }

    def _exact_bounds(self, connection: sa.Connection) -> dict[str, float]:
        columns = self._columns
        sums = [self.summed(columns.table.c[name]).label(name) for name in self._tops]
        grouped = sa.select(*sums).group_by(*columns.keys).subquery()
        ends = _ends([grouped.c[name] for name in self._tops])
        row = connection.execute(sa.select(*ends)).one()
        bounds: dict[str, float] = {}
        for at, name in enumerate(self._tops):
            low, high = (row[2 * at + side] or 0 for side in (0, 1))
            if name in self.floats:
                bounds[name] = self.float_bound(name, high)
            else:
                self._check(name, low, high)
                bounds[name] = float(max(high, -low))
        return bounds

    def _check(self, name: str, low: Any, high: Any) -> None:
        limit = self._limits[name]
        # A whole number may be one further below zero than above it.
        is_whole = self._columns.table.c[name].type.python_type is int
        if high >= limit or low < -limit or (low == -limit and not is_whole):
            raise self.refused(name, high if high >= limit else low, limit)


def _furthest(low: Any, high: Any) -> float:
    # NaN is the highest, and stays if it comes first.
    return max(abs(float(high or 0)), abs(float(low or 0)))


def _ends(columns: list[sa.ColumnElement[Any]]) -> list[sa.ColumnElement[Any]]:
    return [end(column) for column in columns for end in (sa.func.min, sa.func.max)]
