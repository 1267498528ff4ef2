"""C3: ledgers go on by one; rows fit their ledger; ZooKeeper and the stores keep their order.

What must be durable first is durable first: the metadata of an attempt before its commit, and the
commit in every store before ``current`` in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator

from txtopo.attempt import TransactionAttempt
from txtopo.testing.checkers.evidence import (
    Evidence,
    Violation,
    before,
    current_of,
    stored_attempt,
    stored_attempts,
    visible,
)
from txtopo.testing.simulation.history import NodesWrite, StoreWrite


class TxidDiscipline:
    """Looks at every pair of versions, of tables and of what ZooKeeper holds."""

    name = "C3"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield every step that is not allowed."""
        durable: set[TransactionAttempt] = set()
        for write in evidence.history.writes:
            if isinstance(write, StoreWrite):
                found = [*self._store(write), *self._metadata(write, durable)]
            else:
                durable |= stored_attempts(evidence.topology_id, write)
                found = list(self._nodes(evidence, write))
            for what in found:
                yield Violation(self.name, f"at {write.at_s:.3f} s by {write.writer}: {what}")

    def _metadata(self, write: StoreWrite, durable: set[TransactionAttempt]) -> Iterator[str]:
        """An attempt commits when its own metadata is durable, or was until a later one's came."""
        earlier, after = write.before.ledger, write.after.ledger
        if after is None or not after.txid or (earlier and earlier.writer == after.writer):
            return
        if after.writer not in durable:
            yield f"table {write.table} holds attempt {after.writer}, whose metadata was not stored"

    def _store(self, write: StoreWrite) -> Iterator[str]:
        before, after = write.before.ledger, write.after.ledger
        if after is None:
            yield f"table {write.table} lost its ledger"
            return
        txid_before = before.txid if before is not None else 0
        if after.txid not in (txid_before, txid_before + 1):
            yield f"the ledger of {write.table} went from txid {txid_before} to {after.txid}"
        if before is not None and after.epoch < before.epoch:
            yield f"the ledger of {write.table} went from epoch {before.epoch} to {after.epoch}"
        if before is not None and after.txid == before.txid and after.writer < before.writer:
            yield f"table {write.table} went from attempt {before.writer} back to {after.writer}"
        late = [key for key, row in write.after.rows.items() if row.txid > after.txid]
        if late:
            yield f"rows {late} of {write.table} are ahead of its txid {after.txid}"
        yield from self._previous(write, after.txid)

    def _previous(self, write: StoreWrite, txid: int) -> Iterator[str]:
        """A row that this txid wrote first keeps what it was before."""
        earlier = write.before.ledger
        if earlier is None or txid == earlier.txid or not _keeps_previous(write):
            return
        seen = visible(write.before)
        for key, row in write.after.rows.items():
            if row.txid != txid:
                continue
            if before(row) != seen.get(key):
                was = f"says that it was {before(row)} before txid {txid}; it was {seen.get(key)}"
                yield f"row {key} of {write.table} {was}"

    def _nodes(self, evidence: Evidence, write: NodesWrite) -> Iterator[str]:
        id = evidence.topology_id
        before, after = current_of(id, write.before), current_of(id, write.after)
        if after not in (before, before + 1):
            yield f"current went from {before} to {after}"
        for table, contents in write.stores.items():
            held = contents.ledger.txid if contents.ledger is not None else 0
            if after - 1 > held:
                yield f"ZooKeeper says that txid {after - 1} is committed; {table} holds {held}"
            writer = contents.ledger.writer if contents.ledger is not None else None
            stored = stored_attempt(id, write.after, held)
            if after == before + 1 and held == before and writer != stored:
                yield f"txid {held} is done; {table} holds {writer}, ZooKeeper the cut of {stored}"
        if after > 1 and stored_attempt(id, write.after, after - 1) is None:
            yield f"the metadata of txid {after - 1} is gone; txid {after} starts from it"


def _keeps_previous(write: StoreWrite) -> bool:
    """Whether the table is opaque, which its rows show as soon as one was written twice."""
    return any(row.previous_txid is not None for row in write.after.rows.values())
