"""Intake: what a source was given, and which of it has been counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from txtopo.testing.conformance.spout_driver import Batch
from txtopo.testing.conformance.spout_source import SpoutSource


class Intake:
    """Writes to a source, and judges the batches that are read from it.

    Batches are counted in txid order, each once: those that were replayed only in the end.

    Args:
        source: The source.
    """

    def __init__(self, source: SpoutSource) -> None:
        self._source = source
        self._written: dict[int, list[Hashable]] = {p: [] for p in range(source.partitions)}
        self._read: dict[int, int] = dict.fromkeys(self._written, 0)
        self._lost: dict[int, int] = dict.fromkeys(self._written, 0)

    def append(self, count: int, *partitions: int) -> None:
        """Write records to the partitions given, or to all."""
        for partition in partitions or tuple(self._written):
            records = list(self._source.append(partition, count))
            assert len(records) == count, "append has to return one value for each record"
            known = {record for each in self._written.values() for record in each}
            assert len(known | set(records)) == len(known) + count, "records have to be distinct"
            self._written[partition] += records

    def add_partition(self) -> int:
        """Add a partition and return its number."""
        self._source.add_partition()
        partition = len(self._written)
        self._written[partition], self._read[partition], self._lost[partition] = [], 0, 0
        return partition

    def remove_partition(self) -> None:
        """Remove the last partition; no more is written to it."""
        last = max(self._written)
        assert self._read[last] == len(self._written[last]), "what goes has to be read"
        self._source.remove_partition()
        del self._written[last]

    def lose(self, partition: int) -> None:
        """Let what there is of a partition be gone."""
        self._source.lose(partition)
        self._lost[partition] = len(self._written[partition])

    def records(self, batch: Batch) -> list[Hashable]:
        """Return the records of a batch."""
        return [self._source.record(row) for row in batch.rows]

    def places(self, batch: Batch) -> dict[int, list[int]]:
        """Return where the records of a batch stand, by partition, as they were emitted."""
        where = {
            record: (partition, at)
            for partition, records in self._written.items()
            for at, record in enumerate(records)
        }
        places: dict[int, list[int]] = {}
        for record in self.records(batch):
            assert record in where, f"it emitted {record!r}, which was never written"
            partition, at = where[record]
            places.setdefault(partition, []).append(at)
        return places

    def take(self, batches: Iterable[Batch]) -> None:
        """Count batches: in each partition each of them starts where the one before ended."""
        for batch in batches:
            for partition, places in self.places(batch).items():
                start = self._read[partition]
                if places and min(places) >= self._lost[partition] > start:
                    start = self._lost[partition]
                wanted = list(range(start, start + len(places)))
                assert sorted(places) == wanted, (
                    f"txid {batch.txid} has the records {places} of partition {partition}; "
                    f"expected {wanted}"
                )
                self._read[partition] = start + len(places)

    def check_all_read(self) -> None:
        """Check that nothing is left, except what was lost."""
        left = {
            partition: len(records) - max(self._read[partition], self._lost[partition])
            for partition, records in self._written.items()
        }
        assert not any(left.values()), f"records that nobody counted, by partition: {left}"


def same_batch(intake: Intake, once: Batch, again: Batch, *, ordered: bool) -> None:
    """Check that two attempts have the same tuples."""
    if ordered:
        assert again.rows == once.rows, f"another attempt of txid {once.txid} has other tuples"
    else:
        counts = [Counter(intake.records(each)) for each in (once, again)]
        assert counts[0] == counts[1], f"another attempt of txid {once.txid} has other tuples"
