"""The door for partial aggregates: what a backend checks before it merges them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo.errors import ValueRefusedError
from txtopo.state.backend import StateTable
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa


def checked_partials(table: StateTable, partials: pa.Table) -> pa.Table:
    """Return the partials with the columns of the state, in its order and types.

    Raises:
        ValueRefusedError: A key is NULL or NaN, or a value does not fit its column.
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
    return exact
