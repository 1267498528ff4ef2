"""Collecting: the rows of a frame as writes in this process, where a replay compares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txtopo.frames.states import DELETED, FrameWrites
from txtopo.state.backend import Key, Puts, StateTable, Values
from txtopo.state.column_rows import ColumnRows
from txtopo.state.columns import rows_of
from txtopo.state.values import Row

if TYPE_CHECKING:
    from txtopo.state.aggregates import Operator


def collected_writes(
    table: StateTable, writes: FrameWrites, read: Callable[[Sequence[Key]], Mapping[Key, Row]]
) -> Puts:
    """Return the final values of a frame; Spark computes it.

    Args:
        table: The schema of the state.
        writes: The frame.
        read: Reads the rows that it is combined with.
    """
    fields = [*table.key.arrow_schema(), *table.value.arrow_schema()]
    names = [each.name for each in fields]
    frame = writes.frame.select(*names, *([DELETED] if writes.deletes else []))
    rows = frame.toArrow()
    for at, each in enumerate(fields):
        rows = rows.set_column(at, each.name, rows.column(at).cast(each.type))
    width = len(table.key)
    if writes.operators is None:
        return Puts(ColumnRows(rows, width))
    pairs = [(row[:width], row[width:]) for row in rows_of(rows)]
    return Puts(_combined(pairs, writes.operators, read))


def _combined(
    rows: Sequence[tuple[Key, Values]],
    operators: Sequence[Operator],
    read: Callable[[Sequence[Key]], Mapping[Key, Row]],
) -> dict[Key, Values | None]:
    stored = read([*dict(rows)])
    final: dict[Key, Values | None] = {key: row.visible() for key, row in stored.items()}
    for key, values in rows:
        before = final.get(key) or (None,) * len(values)
        pairs = zip(operators, before, values, strict=True)
        final[key] = tuple(_one(operator, old, new) for operator, old, new in pairs)
    return final


def _one(operator: Operator, old: Any, new: Any) -> Any:
    """Combine two values; NULL is not a value."""
    if old is None or new is None:
        return new if old is None else old
    if operator == "add":
        return old + new
    return min(old, new) if operator == "min" else max(old, new)
