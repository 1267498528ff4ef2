"""Folding a log: many small files of partials become one, while commits go on.

A fold replaces the rows of txids up to *f* by their combination, tagged *f*, in one version. *f* is
below the ledger's txid, so an undo never needs what was folded. It needs no fence: it changes no
answer, whoever does it, and Delta refuses it if a file that it read is gone by then.
Which files it takes, :mod:`txtopo.state.log` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, write_deltalake

from state_backends.delta.combining import combined_rows
from state_backends.delta.layout import Layout
from state_backends.delta.reading import Reader

if TYPE_CHECKING:
    from deltalake import DeltaTable


def fold(table: DeltaTable, reader: Reader, layout: Layout, first: int, last: int) -> None:
    """Replace the rows of the txids *first* to *last* by their combination, in one version."""
    # Rows, not files: one that others made (OPTIMIZE) may reach beyond the span.
    between = (pc.field("txid") >= first) & (pc.field("txid") <= last)
    rows = reader.read(
        table, between, lambda file: file.first_txid <= last and first <= file.last_txid
    )
    folded = combined_rows(layout.state, rows)
    tags = pa.array([last] * folded.num_rows, pa.int64())
    folded = folded.set_column(folded.num_columns - 1, "txid", tags)
    write_deltalake(
        table,
        folded.cast(layout.schema),
        mode="overwrite",
        predicate=f"txid >= {first} AND txid <= {last}",
        commit_properties=CommitProperties(custom_metadata={"txtopo.fold": f"{first}-{last}"}),
    )
