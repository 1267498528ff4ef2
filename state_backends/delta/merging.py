"""Mode ``table`` in Delta: one merge per txid, which includes the undo of an earlier attempt.

The expressions of a merge are in delta-rs' SQL. ``t`` is the stored row, ``s`` the row of the
batch. The same expressions serve every attempt of a txid: a row that already has the txid starts
from its previous values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from state_backends.delta.layout import Layout, check_sizes, without_negative_zero
from state_backends.delta.library import write_deltalake
from txtopo.plugins.stores import Aggregate, Key, Puts, Standing, Writes, checked_partials

if TYPE_CHECKING:
    from state_backends.delta.library import CommitProperties, DeltaTable


class Merger:
    """Writes the batches of a state in mode ``table``."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        # Whether there may be tombstones of earlier txids. The whole table is searched only then.
        self.tombstones = layout.opaque

    def write(
        self,
        table: DeltaTable,
        txid: int,
        writes: Writes,
        found: Standing,
        properties: CommitProperties,
    ) -> None:
        """Commit the rows of *txid* and its transaction in one version."""
        if found is Standing.REDO and not self.layout.opaque:
            commit_nothing(table, self.layout, properties)
            return
        rows = self.rows(writes)
        check_sizes(self.layout.state, rows)
        if not rows.num_rows and found is not Standing.REDO and not self.tombstones:
            commit_nothing(table, self.layout, properties)
            return
        before = table.version()
        self._merge(table, txid, writes, rows, found, properties)
        if table.version() == before:
            # A merge that changes nothing commits nothing.
            commit_nothing(table, self.layout, properties)
        self.tombstones = self.layout.opaque and _deletes(writes)

    def _merge(
        self,
        table: DeltaTable,
        txid: int,
        writes: Writes,
        rows: pa.Table,
        found: Standing,
        properties: CommitProperties,
    ) -> None:
        layout, merging = self.layout, not isinstance(writes, Puts)
        merge = table.merge(
            rows, same_key(layout), "s", "t", commit_properties=properties, streamed_exec=False
        )
        if not layout.opaque and not merging:
            merge = merge.when_matched_delete(f"s.{DELETED}")
        merge = merge.when_matched_update(dict(updated(layout, txid, merging=merging)))
        kept = None if merging else f"NOT s.{DELETED}"
        merge = merge.when_not_matched_insert(dict(inserted(layout, txid)), kept)
        if found is Standing.REDO:
            tagged = f"t.txid = {txid}"
            merge = merge.when_not_matched_by_source_delete(f"{tagged} AND t.prev_txid IS NULL")
            merge = merge.when_not_matched_by_source_update(dict(restored(layout)), tagged)
        if self.tombstones:
            old = f"t.deleted AND t.txid < {txid}"
            merge = merge.when_not_matched_by_source_delete(old)
        merge.execute()

    def rows(self, writes: Writes) -> pa.Table:
        """Return what is written: keys, values, and for puts whether a key is deleted."""
        state = self.layout.state
        if not isinstance(writes, Puts):
            return without_negative_zero(checked_partials(state, writes.partials), state.key.names)
        schema = pa.schema(
            [
                *state.key.arrow_schema(),
                *state.value.arrow_schema(),
                pa.field(DELETED, pa.bool_()),
            ]
        )
        gone = (None,) * len(state.value)
        rows = sorted(writes.rows.items(), key=lambda row: row[0])
        flat = [(*key, *(gone if row is None else row), row is None) for key, row in rows]
        columns = list(zip(*flat, strict=True)) if flat else [()] * len(schema)
        arrays = [pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)]
        return without_negative_zero(pa.table(arrays, schema=schema), state.key.names)


def commit_nothing(table: DeltaTable, layout: Layout, properties: CommitProperties) -> None:
    """Commit a transaction without rows."""
    empty = layout.schema.empty_table()
    write_deltalake(table, empty, mode="append", commit_properties=properties)


def delete_rows(
    table: DeltaTable,
    layout: Layout,
    keys: Sequence[Key],
    before_txid: int,
    properties: CommitProperties,
) -> None:
    """Delete the rows of some keys, if an earlier txid wrote them."""
    schema = layout.state.key.arrow_schema()
    columns = zip(zip(*keys, strict=True), schema.types, strict=True)
    rows = pa.table([pa.array(part, kind) for part, kind in columns], schema=schema)
    merge = table.merge(
        rows, same_key(layout), "s", "t", commit_properties=properties, streamed_exec=False
    )
    merge.when_matched_delete(f"t.txid < {before_txid}").execute()


def _deletes(writes: Writes) -> bool:
    return isinstance(writes, Puts) and None in writes.rows.values()


DELETED = "txtopo_deleted"
"""A column of the batch: whether the row deletes its key."""

Combine = Callable[[int, str, str], str]
"""(position of a value column, its stored expression, the new one) -> the combined expression."""

_WHOLE = ("byte", "short", "int", "long")

_SQL_TYPES = {"byte": "TINYINT", "short": "SMALLINT", "int": "INT", "long": "BIGINT"}


def same_key(layout: Layout) -> str:
    """Return the condition under which a stored row and a row of the batch have the same key."""
    return " AND ".join(f"{stored(name)} = {given(name)}" for name in layout.keys)


def updated(
    layout: Layout, txid: int, *, merging: bool, combine: Combine | None = None
) -> Mapping[str, str]:
    """Return the expression of each column of a stored row whose key *txid* writes.

    Args:
        layout: The columns.
        txid: The txid of the batch.
        merging: Whether the batch has partial aggregates; else final values.
        combine: Returns the expression that combines stored and new values; by default in delta-rs'
            SQL.
    """
    combine = combine or _combining(layout)
    values = {
        name: _new_value(layout, position, txid, combine if merging else None)
        for position, name in enumerate(layout.values)
    }
    if not layout.opaque:
        return {**_quoted(values), "txid": str(txid)}
    previous = {f"prev_{name}": _before(name, layout, txid) for name in layout.values}
    before = f"CASE WHEN t.txid = {txid} THEN t.prev_txid WHEN t.deleted THEN NULL ELSE t.txid END"
    deleted = "false" if merging else f"s.{DELETED}"
    return {
        **_quoted(values),
        **_quoted(previous),
        "txid": str(txid),
        "prev_txid": before,
        "deleted": deleted,
    }


def inserted(layout: Layout, txid: int) -> Mapping[str, str]:
    """Return the expression of each column of a row with a new key."""
    columns = {name: given(name) for name in (*layout.keys, *layout.values)}
    flags = {"deleted": "false"} if layout.opaque else {}
    return {**_quoted(columns), "txid": str(txid), **flags}


def restored(layout: Layout) -> Mapping[str, str]:
    """Return the expression of each column that restores a row to what it was before its txid."""
    values = {name: stored(f"prev_{name}") for name in layout.values}
    return {**_quoted(values), "txid": "t.prev_txid", "deleted": "false"}


def stored(name: str) -> str:
    """Return the expression for a column of the stored row."""
    return f't."{name}"'


def given(name: str) -> str:
    """Return the expression for a column of the batch."""
    return f's."{name}"'


def _quoted(columns: Mapping[str, str]) -> dict[str, str]:
    return {f'"{name}"': expression for name, expression in columns.items()}


def _before(name: str, layout: Layout, txid: int) -> str:
    if not layout.opaque:
        return stored(name)
    previous = stored(f"prev_{name}")
    return (
        f"CASE WHEN t.txid = {txid} THEN {previous} WHEN t.deleted THEN NULL "
        f"ELSE {stored(name)} END"
    )


def _combining(layout: Layout) -> Combine:
    def combine(position: int, old: str, new: str) -> str:
        kind = layout.state.value[position].type
        return combined(layout.state.aggregates[position], kind, old, new)

    return combine


def _new_value(layout: Layout, position: int, txid: int, combine: Combine | None) -> str:
    field = list(layout.state.value)[position]
    before, new = f"({_before(field.name, layout, txid)})", given(field.name)
    if combine is not None:
        return combine(position, before, new)
    # The values of a deleted row are kept, though nobody sees them, as in every other store.
    return f"CASE WHEN s.{DELETED} THEN {before} ELSE {new} END"


def combined(aggregate: Aggregate, kind: str, old: str, new: str) -> str:
    """Return the expression that combines a stored value with a partial one; it ignores NULL."""
    if aggregate.operator != "add":
        sign = "<=" if aggregate.operator == "min" else ">="
        both = f"CASE WHEN {old} {sign} {new} THEN {old} ELSE {new} END"
    elif kind in _WHOLE:
        # 64-bit addition wraps silently; this raises.
        wide = f"CAST({old} AS DECIMAL(38,0)) + CAST({new} AS DECIMAL(38,0))"
        both = f"CAST({wide} AS {_SQL_TYPES[kind]})"
    elif kind.startswith("decimal"):
        # A sum of 39 digits may still fit into 128 bits; 256 bits have room, and the cast raises.
        wide = f"'Decimal256(40, {kind[8:-1].split(',')[1].strip()})'"
        both = f"arrow_cast({old}, {wide}) + arrow_cast({new}, {wide})"
        both = f"CAST({both} AS {kind.upper()})"
    else:
        both = f"{old} + {new}"
    return f"CASE WHEN {old} IS NULL THEN {new} WHEN {new} IS NULL THEN {old} ELSE {both} END"
