"""Adds value columns to a Delta table that has rows; the rules are in ``txtopo.state.evolution``.

Order
-----
1. The version of the claim also adds the columns that are missing; in files that exist they are
   NULL. So no coordinator that is deposed can write below the new columns, and none adds columns
   after a later claim.
2. One version gives the rows their defaults: a merge with one row, which rewrites all files. It
   repeats the transaction of the claim, so it is refused if another claim came in between. A column
   that step 1 has added, with NULL as its default, needs no merge.
3. One version sets the declaration and the statistics in the properties of the table, with the same
   transaction.

A crash may leave the columns, with or without defaults, below the old declaration. The next claim
repeats the steps: columns that are not declared have no other values.

A log keeps partial aggregates, several rows a key. They get what an aggregate has for no rows,
which adds nothing. No column is taken away.

Older versions of the table, which readers of earlier txids open, have NULL in the new columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from state_backends.delta.layout import DECLARATION, STATISTICS, Layout
from state_backends.delta.library import CommitProperties, write_deltalake
from txtopo.plugins.stores import (
    StateTable,
    TableChange,
    check_none_taken,
    declaration,
    table_change,
)

if TYPE_CHECKING:
    from state_backends.delta.library import DeltaTable


def change_of(table: DeltaTable, state: StateTable, label: str) -> TableChange | None:
    """Return the change that the table of a state needs; None if it is as declared.

    Raises:
        SchemaDrift: It cannot be done; nothing was written.
    """
    text = table.metadata().configuration.get(DECLARATION, "")
    if text == declaration(state):
        return None
    change = table_change(text, state, label)
    if change is None:
        return None
    check_none_taken(change, label)
    return change


def change_table(
    table: DeltaTable,
    layout: Layout,
    change: TableChange,
    properties: CommitProperties,
    made: frozenset[str],
    point: Callable[[str], None],
) -> None:
    """Do steps 2 and 3.

    Args:
        table: The table, at the version of the claim.
        layout: The columns that the state declares.
        change: What has to be done.
        properties: The transaction of the claim.
        made: The columns that the claim has added.
        point: Marks each step, for tests that crash processes there.
    """
    defaults = dict(change.declared.defaults)
    added = [f for f in change.added if defaults[f.name] is not None or f.name not in made]
    if added:
        kinds = layout.state.value.arrow_schema()
        arrays = [pa.array([defaults[each.name]], kinds.field(each.name).type) for each in added]
        names = [f"{_GIVEN}{at}" for at in range(len(added))]
        row = pa.table([*arrays, pa.array([0], pa.int64())], names=[*names, _LOW])
        values = {}
        for name, field in zip(names, added, strict=True):
            values[f'"{field.name}"'] = f"s.{name}"
            if layout.opaque:
                existed = f"CASE WHEN t.prev_txid IS NULL THEN NULL ELSE s.{name} END"
                values[f'"prev_{field.name}"'] = existed
        merge = table.merge(
            row, f"t.txid >= s.{_LOW}", "s", "t", commit_properties=properties, streamed_exec=False
        )
        merge.when_matched_update(values).execute()
    point("change.rows")
    named = {DECLARATION: change.text(), STATISTICS: layout.properties[STATISTICS]}
    table.alter.set_table_properties(named, raise_if_not_exists=False, commit_properties=properties)
    point("change.declared")


def add_columns(table: DeltaTable, layout: Layout, properties: CommitProperties) -> frozenset[str]:
    """Commit a transaction without rows that adds the missing columns, and return their names."""
    there = {field.name for field in pa.schema(table.schema().to_arrow())}
    empty = layout.schema.empty_table()
    write_deltalake(table, empty, mode="append", schema_mode="merge", commit_properties=properties)
    return frozenset(layout.schema.names) - there


_GIVEN, _LOW = "txtopo_given", "txtopo_low"
