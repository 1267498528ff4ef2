"""Mode ``table``: one merge a txid, with the undo of an earlier attempt in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import write_deltalake

from state_backends.delta.expressions import (
    DELETED,
    inserted,
    restored,
    same_key,
    updated,
)
from state_backends.delta.layout import Layout, check_sizes, without_negative_zero
from txtopo.state import Puts, Standing, Writes, checked_partials

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable


class Merger:
    """Writes the batches of a state in mode ``table``."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        # Whether there may be tombstones of earlier txids; only then is the whole table looked at.
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
        rows = self._rows(writes)
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

    def _rows(self, writes: Writes) -> pa.Table:
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


def _deletes(writes: Writes) -> bool:
    return isinstance(writes, Puts) and None in writes.rows.values()
