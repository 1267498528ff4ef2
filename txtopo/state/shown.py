"""What readers see of stored values: a mean for its sum and count, a number for a sketch."""

from __future__ import annotations

import decimal
from typing import Any

from txtopo.state.aggregates import MeanCount, MeanSum
from txtopo.state.backend import StateTable, Values
from txtopo.state.columns import Columns

_DIVISION = decimal.Context(prec=38)


class Shown:
    """The values of a state in the form in which users read them.

    Args:
        table: The state.
    """

    def __init__(self, table: StateTable) -> None:
        self._columns = Columns(table.name, "value", table.value)
        self._aggregates = table.aggregates
        self._means = means(table)
        taken = {at + 1 for at in self._means}
        self._names = {
            at: self._means.get(at, name)
            for at, name in enumerate(table.value.names)
            if at not in taken
        }

    def value(self, packed: Values) -> Any:
        """Return values: plain if there is one, else a dict by name."""
        if not self._aggregates:
            return self._columns.named(packed)
        opened = self._columns.opened(packed)
        shown = {name: self._shown(at, opened) for at, name in self._names.items()}
        return next(iter(shown.values())) if len(shown) == 1 else shown

    def _shown(self, at: int, opened: Values) -> Any:
        if at in self._means:
            return _mean(opened[at], opened[at + 1])
        return self._aggregates[at].shown(opened[at])


def means(table: StateTable) -> dict[int, str]:
    """Return the names of the means by the position of their sum; the count comes next."""
    names = table.value.names
    return {
        at: names[at].removesuffix("_sum")
        for at, (left, right) in enumerate(
            zip(table.aggregates, table.aggregates[1:], strict=False)
        )
        if isinstance(left, MeanSum) and isinstance(right, MeanCount)
    }


def _mean(total: Any, count: int | None) -> Any:
    if total is None or not count:
        return None
    if isinstance(total, decimal.Decimal):
        return _DIVISION.divide(total, decimal.Decimal(count))
    return total / count
