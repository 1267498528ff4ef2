"""C4: in each partition a batch starts where the one before it ended: no hole, no overlap.

A transactional spout also brings the same batch in every attempt of a txid.
"""

from __future__ import annotations

from collections.abc import Iterator

from txtopo.testing.checkers.evidence import Evidence, TwoCuts, Violation
from txtopo.testing.simulation.history import Emission


class OffsetChain:
    """Follows the offsets of the committed batches, partition by partition."""

    name = "C4"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield the first break of each table; needs a source whose offsets are known."""
        if evidence.source is None:
            return
        for table in evidence.tables():
            yield from self._table(evidence, table)
        if evidence.repeatable:
            yield from self._repeats(evidence)

    def _repeats(self, evidence: Evidence) -> Iterator[Violation]:
        first: dict[tuple[int, int], Emission] = {}
        for attempt, emissions in evidence.history.emissions.items():
            for emission in emissions:
                known = first.setdefault((attempt.txid, emission.share), emission)
                if known.records != emission.records:
                    yield Violation(
                        self.name,
                        f"share {emission.share} of txid {attempt.txid} was {known.records}; "
                        f"attempt {attempt} made it {emission.records}; its plan was not durable",
                    )
                    return

    def _table(self, evidence: Evidence, table: str) -> Iterator[Violation]:
        ends: dict[int, int] = {}
        for txid, write in enumerate(evidence.writers(table), 1):
            assert write.after.ledger is not None
            try:
                batch = evidence.batch(write.after.ledger.writer, write.nodes)
            except TwoCuts as error:
                yield Violation(self.name, f"table {table}: {error}")
                return
            for partition, offset, *_ in sorted(batch):
                if offset != ends.get(partition, 0):
                    yield Violation(
                        self.name,
                        f"table {table}: txid {txid} has offset {offset} of partition {partition} "
                        f"where {ends.get(partition, 0)} was expected",
                    )
                    return
                ends[partition] = offset + 1
