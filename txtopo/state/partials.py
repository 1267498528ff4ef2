"""The door for partial aggregates: what a backend checks before it merges them."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from txtopo.errors import StateUsageError, ValueRefusedError
from txtopo.state.backend import Merges, StateTable, Writes
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa


def checked_partials(table: StateTable, partials: pa.Table) -> pa.Table:
    """Return the partials with the columns of the state, in its order and types, sorted by key.

    Raises:
        ValueRefusedError: A key is NULL or NaN or stands twice, or a value does not fit its column.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = Fields.of([*table.key, *table.value])
    try:
        exact = partials.select(list(columns.names)).cast(columns.arrow_schema())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError) as error:
        raise ValueRefusedError(
            f"partial aggregates do not fit state {table.name!r}; got {partials.schema}; "
            f"expected {columns!r}; {error}",
            state=table.name,
        ) from error
    for field in table.key:
        column = exact.column(field.name)
        is_nan = pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py()
        if column.null_count or is_nan:
            raise ValueRefusedError(
                f"a key of state {table.name!r} is {'NaN' if is_nan else 'NULL'} in field "
                f"{field.name!r}; expected a value; filter such rows or give them a key",
                state=table.name,
                field=field.name,
            )
        if pa.types.is_floating(column.type):
            # -0.0 and 0.0 are one key: some stores would tell them apart, others would not.
            unsigned = pc.add(column, pa.scalar(0.0, column.type))
            exact = exact.set_column(columns.index[field.name], exact.field(field.name), unsigned)
    exact = exact.sort_by([(name, "ascending") for name in table.key.names])
    _check_distinct(table, exact)
    return exact


def log_rows(table: StateTable, txid: int, writes: Writes) -> pa.Table:
    """Return what a txid appends to a state in mode ``log``: its partials, and the txid.

    Raises:
        StateUsageError: The writes are final values; use a ``PersistentAggregate``.
        ValueRefusedError: As :func:`checked_partials` says.
    """
    import pyarrow as pa

    if isinstance(writes, Merges):
        rows = checked_partials(table, writes.partials)
    elif writes.rows:
        raise StateUsageError(
            f"state {table.name!r} is in mode 'log' and takes partial aggregates only; got final "
            "values; use it in a PersistentAggregate",
            state=table.name,
        )
    else:
        rows = Fields.of([*table.key, *table.value]).arrow_schema().empty_table()
    return rows.append_column("txid", pa.array([txid] * rows.num_rows, pa.int64()))


def _check_distinct(table: StateTable, partials: pa.Table) -> None:
    """Refuse a key that stands twice: some stores would keep the last one, some move previous."""
    import pyarrow.compute as pc

    keys = [partials.column(name) for name in table.key.names]
    pairs = max(partials.num_rows - 1, 0)
    same = [pc.equal(column.slice(1), column.slice(0, pairs)) for column in keys]
    at = pc.index(reduce(pc.and_, same), True).as_py()
    if at < 0:
        return
    key = tuple(column[at].as_py() for column in keys)
    raise ValueRefusedError(
        f"partial aggregates of state {table.name!r} have a key twice; got {key!r:.200}; expected "
        "distinct keys; combine them before they are merged",
        state=table.name,
        key=key,
    )
