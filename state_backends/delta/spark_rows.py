"""The rows of a frame as they can be merged: exact types, one row a key, no key NULL or NaN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from state_backends.delta.expressions import DELETED
from state_backends.delta.layout import Layout
from txtopo.errors import ConfigError, ValueRefusedError
from txtopo.state import Fields, FrameWrites

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UNDONE = "txtopo_undone"
"""A column of the source: whether the row takes back what its txid did to its key."""
REFUSED = "txtopo refuses: "
"""What an error begins with that these rows raise when Spark computes them."""
_ANSI = "spark.sql.ansi.enabled"
_ROWS = "txtopo_rows"
_AGGREGATES = {"add": "sum", "min": "min", "max": "max"}
_TYPES = {"long": "bigint", "short": "smallint", "byte": "tinyint", "json": "string"}


def sql_types(fields: Fields) -> dict[str, str]:
    """Return Spark's name of the type of each field, as ``DataFrame.dtypes`` has it."""
    return {field.name: _TYPES.get(field.type, field.type) for field in fields}


def checked_rows(layout: Layout, writes: FrameWrites) -> DataFrame:
    """Return the rows of a frame: key columns, value columns, the flags of a merge.

    What only its rows show, a key that is NULL or stands twice or a sum that does not fit, makes
    Spark raise when it computes them.

    Raises:
        ValueRefusedError: A column has another type; nothing was written.
        ConfigError: The session lets sums wrap.
    """
    state, frame = layout.state, writes.frame
    if str(frame.sparkSession.conf.get(_ANSI)).lower() != "true":
        raise ConfigError(
            f"the session of a frame lets sums wrap; got {_ANSI}=false; expected true, Spark's "
            "default; set it where the session is built"
        )
    keys, values = sql_types(state.key), sql_types(state.value)
    found = dict(frame.dtypes)
    for name, kind in {**keys, **values}.items():
        if found.get(name) != kind:
            raise ValueRefusedError(
                f"a frame does not fit state {state.name!r}; got {found.get(name, 'no column')} "
                f"for {name!r}; expected {kind}; cast it in the plan; nothing was written",
                state=state.name,
                column=name,
            )
    columns = [f"{_key(state.name, *key)} AS `{key[0]}`" for key in keys.items()]
    columns += [f"`{name}`" for name in values]
    flag = "coalesce(`deleted`, false)" if writes.deletes else "false"
    rows = frame.selectExpr(*columns, f"{flag} AS {DELETED}")
    return _distinct(state.name, rows, keys, values, writes)


def _distinct(
    state: str,
    rows: DataFrame,
    keys: Mapping[str, str],
    values: Mapping[str, str],
    writes: FrameWrites,
) -> DataFrame:
    from pyspark.sql import functions

    names = [f"`{name}`" for name in keys]
    if writes.operators is not None:
        by_name = dict(zip(values, writes.operators, strict=True))
        parts = [f"{_AGGREGATES[by_name[name]]}(`{name}`) AS `{name}`" for name in values]
        parts.append(f"false AS {DELETED}")
        guards = names
    else:
        parts = [f"any_value(`{name}`) AS `{name}`" for name in (*values, DELETED)]
        twice = _raising(f"a key of state {state} stands twice")
        guards = [f"CASE WHEN {_ROWS} > 1 THEN {twice} ELSE {name} END AS {name}" for name in names]
    parts.append(f"count(1) AS {_ROWS}")
    grouped = rows.groupBy(*names).agg(*map(functions.expr, parts))
    casts = [f"CAST(`{name}` AS {kind}) AS `{name}`" for name, kind in values.items()]
    return grouped.selectExpr(*guards, *casts, DELETED, f"false AS {UNDONE}")


def _key(state: str, name: str, kind: str) -> str:
    column, wrong = f"`{name}`", f"`{name}` IS NULL"
    if kind in ("float", "double"):
        wrong += f" OR isnan({column})"
        column = f"CAST({column} + 0.0D AS {kind})"  # -0.0 and 0.0 are one key
    raising = _raising(f"a key of state {state} is NULL or NaN in field {name}")
    return f"CASE WHEN {wrong} THEN {raising} ELSE {column} END"


def _raising(text: str) -> str:
    quoted = (REFUSED + text).replace("\\", "").replace("'", "")
    return f"raise_error('{quoted}')"
