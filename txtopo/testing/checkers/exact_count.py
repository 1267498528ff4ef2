"""C1: each record counts in exactly one committed txid, and the states are their fold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from txtopo.testing.checkers.evidence import Evidence, TwoCuts, Violation, visible
from txtopo.testing.simulation.history import Record
from txtopo.testing.simulation.topologies import Oracle, Rows

Batches = list[list[Record]]


class ExactCount:
    """Counts the records of the committed batches, and folds them anew."""

    name = "C1"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield what is lost, doubled or wrong at the end."""
        batches: Batches = []
        for table in evidence.tables():
            try:
                batches = self._batches(evidence, table)
            except TwoCuts as error:
                yield Violation(self.name, f"table {table}: {error}")
                continue
            for what in [*self._count(evidence, batches), *_missing(evidence, batches)]:
                yield Violation(self.name, f"table {table}: {what}")
            stores, expected = evidence.history.stores, _fold(evidence.oracles[table], batches)
            got = visible(stores[table]) if table in stores else {}
            if got != expected:
                yield Violation(self.name, f"table {table} holds {got}; expected {expected}")
        for name, found in evidence.outside.items():
            expected = _fold(evidence.oracles[name], batches)
            if found != expected:
                what = f"{name!r}, outside the states, holds {found}; expected {expected}"
                yield Violation(self.name, f"{what}; only states are written exactly once")

    def _batches(self, evidence: Evidence, table: str) -> Batches:
        batches = []
        for write in evidence.writers(table):
            assert write.after.ledger is not None
            batches.append(evidence.batch(write.after.ledger.writer, write.nodes))
        return batches

    def _count(self, evidence: Evidence, batches: Batches) -> Iterator[str]:
        if evidence.source is None:
            return
        source = evidence.source
        counted = Counter(record[:2] for batch in batches for record in batch)
        for partition in range(source.partitions):
            for offset in range(source.records):
                times = counted.pop((partition, offset), 0)
                if times != 1:
                    what = f"record {offset} of partition {partition} counted {times} times"
                    yield f"{what}; expected once"
        if counted:
            yield f"unknown records {sorted(counted)}"


def _fold(oracle: Oracle, batches: Batches) -> Rows:
    rows: Rows = {}
    for batch in batches:
        rows = oracle(rows, batch)
    return rows


def _missing(evidence: Evidence, batches: Batches) -> Iterator[str]:
    if evidence.records is None:
        return
    counted = Counter(record for batch in batches for record in batch)
    expected = Counter(evidence.records)
    if counted != expected:
        lost, more = (
            sorted((expected - counted).elements()),
            sorted((counted - expected).elements()),
        )
        yield f"the committed batches lack {lost!r:.300} and have {more!r:.300} too much"
