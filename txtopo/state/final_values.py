"""What a batch leaves in the keys that it touches: the one place where values meet in Python.

A store that cannot combine an aggregate itself calls :func:`final_values` inside its transaction,
with what it holds for the keys of the batch, and writes the result as it writes any final values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from txtopo.state.backend import Key, Puts, StateTable, Values, Writes
from txtopo.state.columns import Columns
from txtopo.state.partials import checked_partials
from txtopo.state.values import Row

ReadRows = Callable[[Sequence[Key]], Mapping[Key, Row]]
"""Returns the rows of those keys that exist, tombstones too, as the transaction sees them."""


def combines_in_store(table: StateTable) -> bool:
    """Return whether each aggregate of a state has an operator, such as ``add``."""
    return all(aggregate.operator is not None for aggregate in table.aggregates)


def final_values(table: StateTable, txid: int, writes: Writes, read: ReadRows) -> Puts:
    """Return the final values of the keys that a batch touches.

    It does not matter whether an earlier attempt of *txid* has been undone already: a row of an
    opaque state that *txid* wrote counts as what it was before. A transactional state that holds
    *txid* keeps its rows, and must not come here.

    Args:
        table: The state.
        txid: Of the batch.
        writes: What the batch brings; final values are returned as they are.
        read: Reads what is stored, in the transaction that will write.

    Raises:
        ValueRefusedError: A value cannot be stored exactly; nothing may be written.
    """
    if isinstance(writes, Puts):
        return writes
    partials = checked_partials(table, writes.partials)
    width = len(table.key)
    records = [
        (record[:width], record[width:])
        for record in zip(*(column.to_pylist() for column in partials.columns), strict=True)
    ]
    rows = read([key for key, _ in records])
    door = Columns(table.name, "value", table.value)
    final: dict[Key, Values | None] = {}
    for key, partial in records:
        stored = door.opened(_before(table, txid, rows.get(key)))
        parts = zip(table.aggregates, stored, door.opened(partial), strict=True)
        try:
            final[key] = door.exact([one.combine_values(old, new) for one, old, new in parts])
        except Exception as error:
            error.add_note(f"while a batch was combined with key {key!r} of state {table.name!r}")
            raise
    return Puts(final)


def _before(table: StateTable, txid: int, row: Row | None) -> Values:
    values = None
    if row is not None:
        values = row.visible() if table.kind == "transactional" else row.before(txid)
    return (None,) * len(table.value) if values is None else values
