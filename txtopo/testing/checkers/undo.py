"""C7: what an attempt wrote is gone from every key when a later attempt of its txid lands."""

from __future__ import annotations

from collections.abc import Iterator

from txtopo.testing.checkers.evidence import Evidence, Violation, before, visible
from txtopo.testing.simulation.history import StoreWrite


class Undo:
    """Follows each key over the redo of a txid in an opaque state."""

    name = "C7"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield every key that still bears what an abandoned attempt wrote."""
        for write in evidence.store_writes():
            earlier, ledger = write.before.ledger, write.after.ledger
            if earlier is None or ledger is None or not ledger.txid:
                continue
            if ledger.txid == earlier.txid and ledger.writer != earlier.writer:
                for what in _left(write):
                    yield Violation(self.name, what)


def _left(write: StoreWrite) -> Iterator[str]:
    assert write.after.ledger is not None
    txid = write.after.ledger.txid
    rows = write.before.rows
    if not any(row.previous_txid is not None for row in rows.values()):
        return  # a transactional state, which keeps nothing to go back to
    for key, row in rows.items():
        if row.txid != txid:
            continue
        now = write.after.rows.get(key)
        again = now is not None and now.txid == txid
        got = before(now) if again and now is not None else visible(write.after).get(key)
        if got != before(row):
            yield (
                f"key {key} of {write.table} was {before(row)} before txid {txid}; an attempt "
                f"wrote {row.current}; the next one, {write.after.ledger.writer}, starts from {got}"
            )
