"""Combining the rows of a log by key, as every reader of it does."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.errors import ValueRefusedError
from txtopo.state import Aggregate, StateTable, is_exact

_DIGITS = 76
"""Room for a sum of as many rows as anybody has: Arrow's own sums wrap without a word."""


def combined_rows(state: StateTable, rows: pa.Table) -> pa.Table:
    """Return one row for each key: key, value, and the largest txid.

    Raises:
        ValueRefusedError: A sum does not fit its column.
    """
    keys = list(state.key.names)
    wide = rows
    for field, aggregate in zip(state.value, state.aggregates, strict=True):
        if aggregate.operator == "add" and is_exact(field.type):
            column = wide.column(field.name)
            scale = column.type.scale if pa.types.is_decimal(column.type) else 0
            wide = _with(wide, field.name, column.cast(pa.decimal256(_DIGITS, scale)))
    functions = [
        (field.name, _function(aggregate), pc.ScalarAggregateOptions(skip_nulls=True, min_count=1))
        for field, aggregate in zip(state.value, state.aggregates, strict=True)
    ]
    found = wide.group_by(keys, use_threads=False).aggregate(
        [*functions, ("txid", "max", pc.ScalarAggregateOptions(min_count=1))]
    )
    names = [*keys, *(f"{name}_{function}" for name, function, _ in functions), "txid_max"]
    found = found.select(names).rename_columns([*keys, *state.value.names, "txid"])
    fields = [*state.key.arrow_schema(), *state.value.arrow_schema(), pa.field("txid", pa.int64())]
    try:
        return found.cast(pa.schema(fields))
    except pa.ArrowInvalid as error:
        raise ValueRefusedError(
            f"a sum of state {state.name!r} does not fit its column: {error}; a log notices that "
            "when it is read or folded; use a wider type, or open_state(…, mode='table')",
            state=state.name,
        ) from error


def _function(aggregate: Aggregate) -> str:
    assert aggregate.operator is not None
    return {"add": "sum", "min": "min", "max": "max"}[aggregate.operator]


def _with(rows: pa.Table, name: str, column: Any) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, column)
