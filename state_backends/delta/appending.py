"""Mode ``log``: the partials of a txid are appended; a redo replaces them.

A row is a partial aggregate with its txid, and so is a folded row: whoever groups by key and
combines sees the fold of the batches 1 to the ledger's txid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from state_backends.delta.layout import Layout, without_negative_zero
from state_backends.delta.reading import Reader
from state_backends.delta.sums import SumGuard
from txtopo.state import Standing, Writes, log_rows

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable


class Appender:
    """Writes the batches of a state in mode ``log``."""

    def __init__(self, layout: Layout, reader: Reader) -> None:
        self.layout = layout
        self._reader = reader
        self._guard = SumGuard(layout.state)
        # A transactional state keeps its rows in a redo.
        self._redone = layout.state.kind == "opaque"

    def write(
        self,
        table: DeltaTable,
        txid: int,
        writes: Writes,
        found: Standing,
        properties: CommitProperties,
    ) -> None:
        """Commit the partials of *txid* and its transaction in one version."""
        rows = without_negative_zero(log_rows(self.layout.state, txid, writes), self.layout.keys)
        if found is Standing.APPLY or self._redone:
            self._guard.check(table, rows, lambda: self._before(table, txid))
        if found is Standing.APPLY:
            write_deltalake(table, rows, mode="append", commit_properties=properties)
            return
        if not self._redone:
            rows = rows.slice(0, 0)
            write_deltalake(table, rows, mode="append", commit_properties=properties)
            return
        write_deltalake(
            table,
            rows,
            mode="overwrite",
            predicate=f"txid = {txid}",
            commit_properties=properties,
        )

    def _before(self, table: DeltaTable, txid: int) -> pa.Table:
        return self._reader.read(table, pc.field("txid") < txid)
