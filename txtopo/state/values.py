"""Row: values with the txid that wrote them, and how a replay changes them. Pure.

A batch of txid T meets a stored row:

* transactional ``(current, txid)``: if the stored txid is T, the value stays. Otherwise the batch
  is applied to it and T is stored.
* opaque ``(current, txid, previous, previous_txid)``: if the stored txid is T, the batch is applied
  to *previous*. Otherwise *current* becomes *previous* first. If ``previous_txid`` is None, the row
  did not exist before the txid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from txtopo.errors import StaleBatchError


@dataclass(frozen=True, slots=True)
class Row:
    """A stored row with the txid that wrote it.

    A transactional row has no previous value; its ``previous`` and ``previous_txid`` are None.

    Attributes:
        txid: The txid that wrote *current*.
        current: Values after *txid*; meaningless in a tombstone.
        previous: Values before *txid*, or None if the row did not exist.
        previous_txid: The txid that wrote *previous*, or None if the row did not exist.
        deleted: Whether *txid* deleted the row. Such a row is a tombstone; readers do not see it.
    """

    txid: int
    current: tuple[Any, ...]
    previous: tuple[Any, ...] | None = None
    previous_txid: int | None = None
    deleted: bool = False

    def visible(self) -> tuple[Any, ...] | None:
        """Return the values that a reader sees, or None if it sees no row."""
        return None if self.deleted else self.current

    def before(self, txid: int) -> tuple[Any, ...] | None:
        """Return the values from which an opaque batch of *txid* must start, or None for no row.

        Raises:
            StaleBatchError: A later batch has written the row; stop.
        """
        if self.txid > txid:
            raise StaleBatchError(
                f"batch of txid {txid} is behind a row of txid {self.txid}; commits must reach a "
                "state in txid order; do two topologies share one state?",
                txid=txid,
                stored_txid=self.txid,
            )
        if self.txid == txid:
            return None if self.previous_txid is None else self.previous
        return self.visible()

    def undone(self, txid: int) -> Row | None:
        """Return the row as it was before *txid* wrote it, or None if it did not exist.

        A row that *txid* did not write is returned unchanged. A restored row keeps no earlier
        value, since a txid before *txid* is never undone.
        """
        if self.txid != txid:
            return self
        if self.previous_txid is None or self.previous is None:
            return None
        return Row(self.previous_txid, self.previous, self.previous, self.previous_txid)

    def after(self, txid: int, values: tuple[Any, ...] | None) -> Row:
        """Return the opaque row after the final write of *txid*; None deletes it.

        The row must not have this txid already: undo it first.
        """
        if self.deleted:
            return first_row(txid, values)
        kept = self.current if values is None else values
        return Row(txid, kept, self.current, self.txid, deleted=values is None)


def first_row(txid: int, values: tuple[Any, ...] | None) -> Row:
    """Return the row of a key that did not exist before *txid*."""
    return Row(txid, values or (), None, None, deleted=values is None)
