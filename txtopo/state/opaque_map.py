"""OpaqueMap: an opaque state over a backing map."""

from __future__ import annotations

from typing import Any

from txtopo.state.map_backend import MapBackend
from txtopo.state.values import Row


class OpaqueMap(MapBackend):
    """A state whose batches may be cut anew, in a store that only gets and puts.

    Each row keeps what it was before its txid. The keys that a txid touches are listed before the
    rows are written, so a replay takes back what an earlier attempt left, wherever it died.

    Delivery: exactly once under one live coordinator. Without ``compare_and_put`` a deposed one
    that still writes cannot be kept out, and would mix its rows with its successor's; with it, such
    a write is refused. A reader sees the state as of the ledger, also after a crash in the
    middle; but one that reads *while* a batch is written, or redone, may see half of that batch.

    Cost: a commit reads each of its rows once, and writes it once, with its key once more in a
    list; besides, it reads up to three and writes four documents. A key is never removed from the
    map: what is deleted keeps a short text, and its name in a list. ``items()`` reads that list,
    and asks for all its rows. With ``compare_and_put`` each key costs a call of its own.
    """

    def noted(self, row: Row | None) -> Any:
        """Return nothing: the row itself keeps what was before."""
        return None

    def before(self, row: Row | None, note: Any) -> Row | None:
        """Return the row as it was before the txid that wrote it."""
        return None if row is None else row.undone(row.txid)
