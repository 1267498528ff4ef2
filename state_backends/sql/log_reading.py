"""What combines the rows of a key in a log: in the view, for readers, and for folds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from txtopo.state import Aggregate, StateTable


def combined(state: StateTable, values: Iterable[Any]) -> list[sa.Label[Any]]:
    """Return what combines the rows of a key, for each value column."""
    pairs = zip(state.aggregates, values, strict=True)
    return [_over_rows(aggregate, value).label(value.name) for aggregate, value in pairs]


def _over_rows(aggregate: Aggregate, value: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    if aggregate.operator != "add":
        return (sa.func.min if aggregate.operator == "min" else sa.func.max)(value)
    total = sa.func.sum(value)
    # A sum of whole numbers or decimals has more digits than its column.
    return total if isinstance(value.type, sa.Float) else sa.cast(total, value.type)
