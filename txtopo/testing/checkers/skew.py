"""C6: the states of a topology differ by one txid at the most, and not at all at the end."""

from __future__ import annotations

from collections.abc import Iterator

from txtopo.testing.checkers.evidence import Evidence, Violation


class Skew:
    """Compares the ledgers of all tables at each write."""

    name = "C6"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield every moment when they are too far apart."""
        txids = dict.fromkeys(evidence.tables(), 0)
        for write in evidence.store_writes():
            ledger = write.after.ledger
            if write.table not in txids or ledger is None:
                continue
            txids[write.table] = ledger.txid
            if max(txids.values()) - min(txids.values()) > 1:
                yield Violation(self.name, f"at {write.at_s:.3f} s the tables hold txids {txids}")
        if len(set(txids.values())) > 1:
            yield Violation(self.name, f"at the end the tables hold txids {txids}")
