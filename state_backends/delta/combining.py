"""Combining the rows of a log by key, as every reader of it does."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.errors import ValueRefusedError
from txtopo.state import Aggregate, StateTable, is_exact

_SKIPPING = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)
_DIGITS = 76
"""Room for a sum of as many rows as anybody has: Arrow's own sums wrap without a word."""


def combined_rows(state: StateTable, rows: pa.Table) -> pa.Table:
    """Return one row for each key: key, value, and the largest txid.

    Raises:
        ValueRefusedError: A sum does not fit its column.
    """
    # Names of our own: the user's might be those that pyarrow makes.
    keys = [f"k{at}" for at in range(len(state.key))]
    values = [f"v{at}" for at in range(len(state.value))]
    wide = rows.select([*state.key.names, *state.value.names, "txid"])
    wide = wide.rename_columns([*keys, *values, "t"])
    functions: list[tuple[str, str, pc.ScalarAggregateOptions]] = [("t", "max", _SKIPPING)]
    for name, field, aggregate in zip(values, state.value, state.aggregates, strict=True):
        column = wide.column(name)
        if aggregate.operator == "add" and is_exact(field.type):
            scale = column.type.scale if pa.types.is_decimal(column.type) else 0
            wide = _with(wide, name, column.cast(pa.decimal256(_DIGITS, scale)))
        elif aggregate.operator != "add" and pa.types.is_floating(column.type):
            wide = wide.append_column(f"{name}n", pc.is_nan(column))
            functions.append((f"{name}n", "max", _SKIPPING))
        functions.append((name, _function(aggregate), _SKIPPING))
    found = wide.group_by(keys, use_threads=False).aggregate(functions)
    combined = [
        _with_nan(found, name, aggregate)
        for name, aggregate in zip(values, state.aggregates, strict=True)
    ]
    columns = [*(found.column(key) for key in keys), *combined, found.column("t_max")]
    fields = [*state.key.arrow_schema(), *state.value.arrow_schema(), pa.field("txid", pa.int64())]
    named = pa.table(columns, names=[field.name for field in fields])
    try:
        return named.cast(pa.schema(fields))
    except pa.ArrowInvalid as error:
        raise ValueRefusedError(
            f"a sum of state {state.name!r} does not fit its column: {error}; a log notices that "
            "when it is read or folded; use a wider type, or open_state(…, mode='table')",
            state=state.name,
        ) from error


def _with_nan(found: pa.Table, name: str, aggregate: Aggregate) -> Any:
    """Return the combined values; NaN is the largest number, and pyarrow passes over it."""
    column = found.column(f"{name}_{_function(aggregate)}")
    if f"{name}n_max" not in found.column_names:
        return column
    nan = found.column(f"{name}n_max")
    if aggregate.operator == "min":
        nan = pc.and_kleene(nan, pc.is_null(column, nan_is_null=True))
    return pc.if_else(pc.fill_null(nan, False), pa.scalar(float("nan"), column.type), column)


def _function(aggregate: Aggregate) -> str:
    assert aggregate.operator is not None
    return {"add": "sum", "min": "min", "max": "max"}[aggregate.operator]


def _with(rows: pa.Table, name: str, column: Any) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, column)
