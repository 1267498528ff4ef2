"""One version of a state's Delta table, read into Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from state_backends.delta.combining import combined_rows
from state_backends.delta.failures import FAILURES, translated
from state_backends.delta.layout import Layout
from state_backends.delta.reading import Reader
from txtopo.state import Key, Ledger, Row, Snapshot

if TYPE_CHECKING:
    from deltalake import DeltaTable

_ROWS_AT_A_TIME = 10_000


class DeltaSnapshot(Snapshot):
    """Rows and ledger of one version of the table; later versions do not change it."""

    def __init__(
        self, table: DeltaTable, reader: Reader, layout: Layout, ledger: Ledger | None, place: str
    ) -> None:
        self._table = table
        self._reader = reader
        self._layout = layout
        self._ledger = ledger
        self._place = place

    @property
    def ledger(self) -> Ledger | None:
        """The ledger, or None for a state that nobody has claimed."""
        return self._ledger

    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        """Return the rows of those of *keys* that exist, tombstones too."""
        if not keys:
            return {}
        # Each column alone narrows the rows; the keys themselves decide below.
        schema = self._layout.state.key.arrow_schema()
        columns = zip(schema, zip(*keys, strict=True), strict=True)
        among = [pc.field(f.name).isin(pa.array(set(part), f.type)) for f, part in columns]
        wanted = set(keys)
        found = self._read(reduce(lambda left, right: left & right, among))
        return {key: row for key, row in _rows(found, self._layout) if key in wanted}

    def items(self) -> Iterator[tuple[Key, Row]]:
        """Yield every row, tombstones too."""
        return _rows(self._read(None), self._layout)

    def _read(self, condition: Any) -> pa.Table:
        try:
            found = self._reader.read(self._table, condition)
        except FAILURES as error:
            raise translated(error, self._place, uri=self._table.table_uri) from error
        if self._layout.state.mode == "log":
            return combined_rows(self._layout.state, found)
        return found


def _rows(found: pa.Table, layout: Layout) -> Iterator[tuple[Key, Row]]:
    width, values = len(layout.keys), len(layout.values)
    for batch in found.to_batches(_ROWS_AT_A_TIME):
        for record in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            key, current = record[:width], record[width : width + values]
            txid = record[width + values]
            if not layout.opaque:
                yield key, Row(txid, current)
                continue
            previous_txid, deleted = record[-2:]
            if previous_txid is None:
                yield key, Row(txid, current, deleted=deleted)
            else:
                previous = record[width + values + 1 : -2]
                yield key, Row(txid, current, previous, previous_txid, deleted)
