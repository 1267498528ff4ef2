"""C2: whatever a reader sees at any instant is the fold of batches 1..k, and k never goes back."""

from __future__ import annotations

from collections.abc import Iterator

from txtopo.testing.checkers.evidence import Evidence, TwoCuts, Violation, visible
from txtopo.testing.simulation.topologies import Rows


class Prefix:
    """Compares every version of every table with the fold up to its ledger's txid."""

    name = "C2"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield the first version of each table that is no fold."""
        for table in evidence.tables():
            yield from self._table(evidence, table)

    def _table(self, evidence: Evidence, table: str) -> Iterator[Violation]:
        folds: list[Rows] = [{}]
        for write in evidence.store_writes():
            ledger = write.after.ledger
            if write.table != table or ledger is None:
                continue
            where = f"table {table} at {write.at_s:.3f} s, written by {write.writer}, {ledger}"
            if not len(folds) - 2 < ledger.txid <= len(folds):
                yield Violation(self.name, f"{where}: expected txid {len(folds) - 1}, or the next")
                return
            if ledger.txid:
                try:
                    batch = evidence.batch(ledger.writer, write.nodes)
                except TwoCuts as error:
                    yield Violation(self.name, f"{where}: {error}")
                    return
                oracle = evidence.oracles[table]
                folds[ledger.txid :] = [oracle(folds[ledger.txid - 1], batch)]
            if visible(write.after) != folds[ledger.txid]:
                yield Violation(
                    self.name,
                    f"{where}: holds {visible(write.after)}; expected {folds[ledger.txid]}",
                )
                return
