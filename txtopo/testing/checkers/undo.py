"""C7: what an attempt wrote is gone from every key when a later attempt of its txid lands."""

from __future__ import annotations

from collections.abc import Iterator

from txtopo.state.values import Row
from txtopo.testing.checkers.evidence import Evidence, Violation


class Undo:
    """Follows each key over the redo of a txid in an opaque state."""

    name = "C7"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield every key that still bears what an abandoned attempt wrote."""
        for write in evidence.store_writes():
            before, after = write.before.ledger, write.after.ledger
            if before is None or after is None:
                continue
            if after.txid != before.txid or after.writer == before.writer or not after.txid:
                continue
            for key, row in write.before.rows.items():
                if row.txid != after.txid or not _opaque(write.before.rows.values()):
                    continue
                start = row.before(after.txid)
                now = write.after.rows.get(key)
                if now is None or now.txid != after.txid:
                    got = now.visible() if now is not None else None
                else:
                    got = now.before(after.txid)
                if got != start:
                    yield Violation(
                        self.name,
                        f"key {key} of {write.table} was {start} before txid {after.txid}; attempt "
                        f"{before.writer} wrote {row.visible()}; attempt {after.writer} starts "
                        f"from {got}",
                    )


def _opaque(rows: object) -> bool:
    return any(isinstance(row, Row) and row.previous_txid is not None for row in rows)  # type: ignore[attr-defined]
