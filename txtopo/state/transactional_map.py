"""TransactionalMap: a transactional state over a backing map."""

from __future__ import annotations

from typing import Any

from txtopo.state.map_backend import MapBackend
from txtopo.state.values import Row


class TransactionalMap(MapBackend):
    """A state whose batches are the same in each attempt, in a store that only gets and puts.

    A row keeps its value and its txid. What the rows of a txid were before is noted once, in the
    list of the keys that the txid touches, and forgotten with the next txid. Storm leaves a row
    alone that has the txid already, and needs no such note; but then an update that reads one key
    and writes another would start from values that the attempt that died has left behind.

    Delivery and cost: as :class:`~txtopo.state.opaque_map.OpaqueMap`, with one value less a row.
    """

    def noted(self, row: Row | None) -> Any:
        """Return the row."""
        return None if row is None else self._text.plain(row)

    def before(self, row: Row | None, note: Any) -> Row | None:
        """Return the row that was noted."""
        return None if note is None else self._text.row_from(note)
